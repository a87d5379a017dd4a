#include "ringtrain/io/checkpoint_writer/checkpoint_writer.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"
#include "unit/io/checkpoint/checkpoint_bytes.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

long page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

}  // namespace

TEST_CASE("Checkpoint writer: an idle one accepts every call and does nothing") {
  WriterProcess none;
  const State state(1);
  CheckpointWriter writer(none, "/nonexistent", state.layout, {});

  CHECK(writer.idle());
  CHECK_FALSE(writer.try_save(state.metadata, state.copier()));
  CHECK(writer.poll().empty());
  CHECK(writer.close(1s).empty());
  CHECK_FALSE(writer.failure());
}

TEST_CASE("Checkpoint writer: its process comes last, for cores and for disks") {
  const TemporaryDirectory directory;
  const State state(1);
  WriterProcess process = WriterProcess::start();

  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});  // it has answered

  // As ionice(1) reads it: `who` is a process; class 2, best effort, from bit 13; its last level.
  CHECK(::syscall(SYS_ioprio_get, 1, process.pid()) == (2 << 13 | 7));
  CHECK(::getpriority(PRIO_PROCESS, static_cast<id_t>(process.pid())) ==
        std::min(19, ::getpriority(PRIO_PROCESS, 0) + 10));
}

TEST_CASE("Checkpoint writer: with both slots taken a save is skipped") {
  const TemporaryDirectory directory;
  const State state(1);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});
  ::kill(process.pid(), SIGSTOP);

  CHECK(writer.try_save(State(1).metadata, state.copier()));
  CHECK(writer.try_save(State(2).metadata, state.copier()));
  CHECK_FALSE(writer.try_save(State(3).metadata, state.copier()));
  ::kill(process.pid(), SIGCONT);
  await(writer, SaveEvent::Kind::saved);
  CHECK(writer.save(State(4).metadata, state.copier(), 10s));
  writer.close(10s);

  CHECK(names(directory) == std::vector<std::string>{"lock", "step-0000000001.h5",
                                                     "step-0000000002.h5", "step-0000000004.h5"});
  CHECK(writer.saved() == 3);
  CHECK_FALSE(writer.failure());
}

TEST_CASE("Checkpoint writer: saves that have not begun give way to the last one") {
  const TemporaryDirectory directory;
  const State state(1);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});
  ::kill(process.pid(), SIGSTOP);
  CHECK(writer.try_save(State(1).metadata, state.copier()));
  CHECK(writer.try_save(State(2).metadata, state.copier()));

  writer.hurry();
  ::kill(process.pid(), SIGCONT);
  CHECK(writer.save(State(4).metadata, state.copier(), 10s));
  const auto events = writer.close(10s);

  CHECK(names(directory) == std::vector<std::string>{"lock", "step-0000000004.h5"});
  CHECK(std::ranges::count(events, SaveEvent::Kind::skipped, &SaveEvent::kind) == 2);
  CHECK(writer.saved() == 1);
  CHECK(writer.failed() == 0);
  CHECK_FALSE(writer.failure());
}

// A sanitizer's pages would be counted, too.
TEST_CASE("Checkpoint writer: no save, not even the first, pays page faults", "[unsanitized]") {
  const TemporaryDirectory directory;
  const State state(1, 2'000'000);  // 8 MB, 2,000 pages
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});

  for (std::uint64_t step = 1; step <= 2; ++step) {  // one into each slot
    const long before = page_faults();
    CHECK(writer.try_save(State(step).metadata, state.copier()));
    CHECK(page_faults() - before < 50);
  }
}

TEST_CASE("Checkpoint writer: the newest K intact files and the one resumed from are kept") {
  const TemporaryDirectory directory;
  for (const std::uint64_t step : {1, 2, 3}) save_one(directory, State(step));
  write_bytes(directory / "step-0000000003.h5",
              file_bytes(directory / "step-0000000003.h5") + "damaged since");
  const State state(0);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test", .keep = 2});
  writer.protect("step-0000000001.h5");

  writer.try_save(State(4).metadata, state.copier());
  await(writer, SaveEvent::Kind::saved);
  writer.close(10s);
  const auto after_one = names(directory);
  CheckpointWriter again(process, directory, state.layout, {.run_id = "test", .keep = 2});
  again.protect("step-0000000001.h5");
  again.try_save(State(5).metadata, state.copier());
  again.close(10s);

  CHECK(after_one == std::vector<std::string>{"lock", "step-0000000001.h5", "step-0000000002.h5",
                                              "step-0000000003.h5", "step-0000000004.h5"});
  CHECK(names(directory) == std::vector<std::string>{"lock", "step-0000000001.h5",
                                                     "step-0000000004.h5", "step-0000000005.h5"});
}

TEST_CASE("Checkpoint writer: retention counts and deletes its own lineage only") {
  const TemporaryDirectory directory;
  save_one(directory, State(1), "test", lineage_a);
  save_one(directory, State(2), "test", lineage_b);
  save_one(directory, State(3), "test", lineage_a);
  const auto old = save_one(directory, State(4), "test", lineage_a);
  write_bytes(old, test::as_version_1(file_bytes(old)));
  write_bytes(directory / "step-0000000005.h5", "of nobody knows whom");
  const State state(0);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test", .keep = 2});
  writer.set_lineage(lineage_a);

  writer.try_save(State(6).metadata, state.copier());
  await(writer, SaveEvent::Kind::saved);
  writer.try_save(State(7).metadata, state.copier());
  writer.close(10s);

  CHECK(names(directory) == std::vector<std::string>{"lock", "step-0000000002.h5",
                                                     "step-0000000004.h5", "step-0000000005.h5",
                                                     "step-0000000006.h5", "step-0000000007.h5"});
}

TEST_CASE("Checkpoint writer: another training's file of that step is never replaced") {
  const TemporaryDirectory directory;
  const auto path = save_one(directory, State(5), "test", lineage_a);
  const std::string before = file_bytes(path);
  const State state(5);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});
  writer.set_lineage(lineage_b);

  writer.try_save(state.metadata, state.copier());
  const SaveEvent failed = await(writer, SaveEvent::Kind::failed);
  writer.close(10s);

  CHECK_THAT(failed.text, Contains("rename to step-0000000005.h5: another training's checkpoint"));
  CHECK(file_bytes(path) == before);
  CHECK(names(directory) == std::vector<std::string>{"lock", "step-0000000005.h5"});
}

TEST_CASE("Checkpoint writer: files of later steps, another run's future, are left alone") {
  const TemporaryDirectory directory;
  for (const std::uint64_t step : {10, 90}) save_one(directory, State(step));
  const State state(20);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test", .keep = 1});

  writer.try_save(state.metadata, state.copier());
  writer.close(10s);

  CHECK(names(directory) ==
        std::vector<std::string>{"lock", "step-0000000020.h5", "step-0000000090.h5"});
}

TEST_CASE("Checkpoint writer: temporaries of dead runs are removed, whatever they are") {
  const TemporaryDirectory directory;
  const State state(20);
  write_bytes(directory / "precious", "not ours");
  write_bytes(directory / ".step-0000000001.h5.tmp", "half a checkpoint");
  std::filesystem::create_symlink(directory / "precious", directory / ".step-0000000020.h5.tmp");
  write_bytes(directory / ".other.tmp", "not ours");
  WriterProcess process = WriterProcess::start();

  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});
  const SaveEvent note = await(writer, SaveEvent::Kind::note);
  writer.try_save(state.metadata, state.copier());
  writer.close(10s);

  CHECK_THAT(note.text, Contains("removed .step-00000000"));
  CHECK(names(directory) ==
        std::vector<std::string>{".other.tmp", "lock", "precious", "step-0000000020.h5"});
  CHECK(file_bytes(directory / "precious") == "not ours");
}

TEST_CASE("Checkpoint writer: no answer is lost when the trainer looks late") {
  constexpr std::uint64_t unfinished = 1000;  // one note each: more than the socket's queue holds
  const TemporaryDirectory directory;
  const State state(1);
  for (std::uint64_t step = 1; step <= unfinished; ++step)
    write_bytes(directory / fmt::format(".step-{:010}.h5.tmp", step), "");
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});

  CHECK(writer.try_save(state.metadata, state.copier()));
  std::this_thread::sleep_for(200ms);
  const std::vector<SaveEvent> events = writer.close(10s);

  CHECK(events.size() == unfinished + 1);
  CHECK(writer.saved() == 1);
  CHECK_FALSE(writer.failure());
}

TEST_CASE("Checkpoint writer: names that HDF5 cannot hold are refused before training") {
  const TemporaryDirectory directory;
  State state(1);
  state.layout.tensors[1].info.name = "weights/fc.weight/inner";
  WriterProcess process = WriterProcess::start();

  CHECK_THROWS_WITH(CheckpointWriter(process, directory, state.layout, {.run_id = "test"}),
                    Contains("weights/fc.weight"));
}

TEST_CASE("Checkpoint writer: a state that is not finite is not published") {
  const TemporaryDirectory directory;
  State state(1);
  state.buffers[0][99] = GENERATE(std::nanf(""), -INFINITY);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});

  writer.try_save(state.metadata, state.copier());
  const SaveEvent event = await(writer, SaveEvent::Kind::failed);
  writer.close(10s);

  CHECK_THAT(event.text, Contains("weights/fc.weight") && Contains("NaN"));
  CHECK(writer.failure()->code() == Exit::not_finite);
  CHECK(names(directory) == std::vector<std::string>{"lock"});
}

TEST_CASE("Checkpoint writer: a second job on the directory is told who owns it", "[waits]") {
  const TemporaryDirectory directory;
  const State state(1);
  WriterProcess first = WriterProcess::start(), second = WriterProcess::start();
  CheckpointWriter owner(first, directory, state.layout, {.run_id = "owner-run"});

  try {
    CheckpointWriter intruder(second, directory, state.layout, {.run_id = "other"});
    FAIL("two owners");
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::locked);
    CHECK_THAT(failure.what(), Contains("run owner-run on host") &&
                                   Contains("process " + std::to_string(::getpid())));
  }
  owner.close(10s);
  CHECK_NOTHROW(CheckpointWriter(second, directory, state.layout, {.run_id = "other"}));
}

TEST_CASE("Checkpoint writer: a directory that cannot be is an error before training") {
  const State state(1);
  WriterProcess process = WriterProcess::start();

  try {
    CheckpointWriter writer(process, "/proc/no/such", state.layout, {});
    FAIL("accepted");
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::storage);
    CHECK_THAT(failure.what(), Contains("/proc/no/such") && Contains("--checkpoint-dir"));
  }
}

TEST_CASE("Checkpoint writer: saving a step again replaces a damaged file and keeps an equal one") {
  const TemporaryDirectory directory;
  const State state(5);
  const auto path = save_one(directory, state, "first");

  save_one(directory, state, "second");
  CHECK(CheckpointFile::open(path).run_id() == "first");
  write_bytes(path, "damaged");
  save_one(directory, state, "third");

  CHECK(holds(CheckpointFile::open(path), state));
  CHECK(CheckpointFile::open(path).run_id() == "third");
}
