#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <set>

#include "ringtrain/base/error.hpp"
#include "support/call_tracer.hpp"
#include "support/catch.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"
#include "unit/io/checkpoint_writer/traced_saves.hpp"

// One save, with something going wrong at each of the helper's system calls in turn.
using namespace ringtrain;
using namespace ringtrain::io;
using namespace std::chrono_literals;

namespace {

const WriterOptions keep_one{.run_id = "test", .keep = 1},
    no_successor{.run_id = "test", .keep = 1, .takeovers = 0};

// On the user's file system, as far as it can fail there.
bool is_file_call(const SystemCall& call) {
  static const std::set<long> by_name = {SYS_openat,    SYS_openat2,      SYS_unlinkat,
                                         SYS_io_submit, SYS_io_getevents, SYS_renameat2,
                                         SYS_linkat};
  static const std::set<long> by_file = {SYS_fallocate, SYS_pwrite64, SYS_ftruncate, SYS_fsync,
                                         SYS_close,     SYS_fstatfs,  SYS_getdents64};
  return by_name.contains(call.number) ||
         (by_file.contains(call.number) && !call.path(0).starts_with("/memfd:"));
}

/// A directory with a checkpoint of step 1, and a helper that is to write step 2, traced.
struct Stage {
  using Judge = std::function<Fate(const SystemCall&, int)>;

  explicit Stage(Judge judge, const WriterOptions& options = keep_one)
      : state(1, more_than_a_block),
        process(WriterProcess::start()),
        writer(process, directory, state.layout, options) {
    writer.try_save(state.metadata, state.copier());
    await(writer, SaveEvent::Kind::saved);
    tracer.emplace(process.pid(), [this, judge = std::move(judge)](const SystemCall& call) {
      return judge(call, calls++);
    });
  }

  /// Starts the save of step 2; its file is then `saved`, failed, or never told of.
  void save() { writer.try_save(State(2).metadata, state.copier()); }
  std::optional<SaveEvent> outcome() {
    const auto deadline = std::chrono::steady_clock::now() + 100s;
    while (std::chrono::steady_clock::now() < deadline) {
      for (const SaveEvent& event : writer.poll())
        if (event.kind != SaveEvent::Kind::note) return event;
      std::this_thread::sleep_for(100us);
    }
    return std::nullopt;
  }
  std::uint64_t newest() {
    const LatestCheckpoint latest = find_latest(directory);
    CHECK(latest.rejected.empty());
    REQUIRE(latest.file);
    return latest.file->metadata().step;
  }
  /// A new job takes the directory, at once, and saves.
  void go_on() {
    tracer.reset();
    const auto start = std::chrono::steady_clock::now();
    process = WriterProcess::start();
    CheckpointWriter next(process, directory, state.layout, keep_one);
    CHECK(std::chrono::steady_clock::now() - start < 20s);
    next.try_save(State(3).metadata, state.copier());
    next.close(10s);
    CHECK_FALSE(next.failure());
    CHECK(names(directory) == std::vector<std::string>{"lock", "step-0000000003.h5"});
  }

  TemporaryDirectory directory;
  State state;
  WriterProcess process;
  CheckpointWriter writer;
  std::atomic<int> calls = 0;
  std::optional<CallTracer> tracer;
};

/// How many system calls a save makes in which all is well, its retention included.
struct CallCounts {
  int all = 0;
  int on_files = 0;
};

// Two saves differ by a call or two: one write takes longer and is waited for once more.
CallCounts calls_of_a_save() {
  CallCounts calls;
  Stage stage([&](const SystemCall& call, int) {
    ++calls.all;
    if (is_file_call(call)) ++calls.on_files;
    return Fate{};
  });
  stage.save();
  REQUIRE(stage.outcome()->kind == SaveEvent::Kind::saved);
  std::this_thread::sleep_for(20ms);  // retention comes after the answer
  stage.tracer.reset();
  return calls;
}

/// Lets `fate` befall the `n`-th call on the user's file system.
Stage::Judge at_file_call(int n, Fate fate) {
  return [n, fate, seen = 0](const SystemCall& call, int) mutable {
    return is_file_call(call) && seen++ == n ? fate : Fate{};
  };
}

}  // namespace

TEST_CASE("Checkpoint writer: a kill before any system call of a save leaves the directory good") {
  skip_without_tracing();
  const int calls = calls_of_a_save().all;
  REQUIRE(calls > 20);
  std::set<std::uint64_t> found;
  for (int n = 0; n < calls; ++n) {
    CAPTURE(n);
    Stage stage([&](const SystemCall&,
                    int i) { return Fate{i == n ? Fate::Kind::kill : Fate::Kind::as_usual}; },
                no_successor);
    stage.save();
    const auto outcome = stage.outcome();

    REQUIRE(outcome);
    const std::uint64_t newest = stage.newest();
    if (outcome->kind == SaveEvent::Kind::saved) CHECK(newest == 2);
    found.insert(newest);
    stage.go_on();
  }
  CHECK(found == std::set<std::uint64_t>{1, 2});
}

TEST_CASE("Checkpoint writer: killed before any system call of a save, it is replaced and saves",
          "[waits]") {
  skip_without_tracing();
  const int calls = calls_of_a_save().all;
  int replaced = 0;
  for (int n = 0; n < calls; ++n) {
    CAPTURE(n);
    Stage stage([&](const SystemCall&, int i) {
      return Fate{i == n ? Fate::Kind::kill : Fate::Kind::as_usual};
    });
    stage.save();
    auto outcome = stage.outcome();
    for (; outcome && outcome->kind == SaveEvent::Kind::replaced; outcome = stage.outcome())
      ++replaced;

    REQUIRE(outcome);
    CHECK(outcome->kind == SaveEvent::Kind::saved);
    CHECK(outcome->step == 2);
    CHECK(stage.newest() == 2);
    stage.writer.close(10s);
    CHECK_FALSE(stage.writer.failure());
    CHECK(stage.writer.failed() == 0);
    for (const std::string& name : names(stage.directory)) CHECK(name.front() != '.');
  }
  CHECK(replaced > calls / 2);
}

// A sanitizer's system calls would fail, too.
TEST_CASE("Checkpoint writer: an error of any system call of a save is told and mends itself",
          "[unsanitized]") {
  skip_without_tracing();
  constexpr std::array errors = {EIO, ENOSPC, EDQUOT, EROFS, ESTALE, EINTR};
  const int calls = calls_of_a_save().on_files;
  REQUIRE(calls > 10);
  int failed = 0;
  for (int trial = 0; trial < 2 * calls; ++trial) {
    const int n = trial / 2;
    const int error = errors[static_cast<std::size_t>(trial + trial / 6) % errors.size()];
    CAPTURE(n, error);
    Stage stage(at_file_call(n, Fate::fail(error)));
    stage.save();
    const auto outcome = stage.outcome();

    REQUIRE(outcome);
    CHECK(stage.newest() >= (outcome->kind == SaveEvent::Kind::saved ? 2 : 1));
    if (outcome->kind == SaveEvent::Kind::failed) {
      ++failed;
      if (error == EINTR) CHECK_THAT(outcome->text, Catch::Contains("close"));
      CHECK_THAT(outcome->text, Catch::Contains(std::generic_category().message(error)) &&
                                    Catch::Contains(" bytes are free"));
      for (const std::string& name : names(stage.directory)) CHECK(name.front() != '.');
    }
    stage.writer.try_save(State(3).metadata, stage.state.copier());
    stage.writer.close(10s);
    CHECK_FALSE(stage.writer.failure());
    CHECK(stage.newest() == 3);
  }
  CHECK(failed > 5);
}

TEST_CASE("Checkpoint writer: stuck in any system call of a save, it holds nobody up", "[waits]") {
  skip_without_tracing();
  const int calls = calls_of_a_save().on_files;
  for (int n = 0; n < calls; ++n) {
    CAPTURE(n);
    Stage stage(at_file_call(n, {.kind = Fate::Kind::hang}));
    const auto start = std::chrono::steady_clock::now();
    stage.save();
    stage.writer.close(50ms);

    CHECK(std::chrono::steady_clock::now() - start < 30s);
    const bool saved = stage.writer.saved() == 2;
    CHECK(stage.writer.failure().has_value() != saved);
    CHECK(stage.newest() >= (saved ? 2 : 1));
    stage.go_on();
  }
}

TEST_CASE("Checkpoint writer: a file system that is stuck at the start is told in time") {
  skip_without_tracing();
  const TemporaryDirectory directory;
  const State state(1);
  WriterProcess process = WriterProcess::start();
  const CallTracer tracer(process.pid(), [](const SystemCall& call) {
    return Fate{call.number == SYS_openat ? Fate::Kind::hang : Fate::Kind::as_usual};
  });

  try {
    CheckpointWriter writer(process, directory, state.layout,
                            {.run_id = "test", .open_timeout = 1s});
    FAIL("accepted");
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::storage);
    CHECK(std::string(failure.what()).find("its file system is not responding") !=
          std::string::npos);
  }
}
