#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>

#include "io/lease/lease.hpp"
#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

/// A small file system in memory, where this process may mount one.
class SmallDisk {
 public:
  SmallDisk(const std::filesystem::path& at, const std::string& options) : at_(at) {
    mounted_ = ::mount("none", at_.c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(at_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  explicit operator bool() const { return mounted_; }
  bool make_read_only() {
    return ::mount("none", at_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0;
  }

 private:
  std::filesystem::path at_;
  bool mounted_ = false;
};

/// Until the next one, files that the process `pid` writes may have so many bytes.
void limit_files(pid_t pid, rlim_t bytes) {
  const rlimit limit{bytes, RLIM_INFINITY};
  check_errno(::prlimit(pid, RLIMIT_FSIZE, &limit, nullptr), "prlimit");
}

/// How often this thread has given up its processor to wait for something.
long times_slept() {
  rusage usage{};
  check_errno(::getrusage(RUSAGE_THREAD, &usage), "getrusage");
  return usage.ru_nvcsw;
}

const WriterOptions no_takeover{.run_id = "test", .takeovers = 0};

void skip_without(const SmallDisk& disk) {
  if (!disk) skip_test("no small file system can be mounted here");
}

}  // namespace

TEST_CASE("Checkpoint writer: a full disk is reported, leaves nothing behind, and heals") {
  const TemporaryDirectory directory;
  const SmallDisk disk(directory, "size=4m");
  skip_without(disk);
  const State state(1, 300'000);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});
  write_bytes(directory / "ballast", std::string(3 << 20, 'x'));

  writer.try_save(State(1).metadata, state.copier());
  const SaveEvent failed = await(writer, SaveEvent::Kind::failed);
  const auto left = names(directory);
  std::filesystem::remove(directory / "ballast");
  writer.try_save(State(2).metadata, state.copier());
  const SaveEvent saved = await(writer, SaveEvent::Kind::saved);

  CHECK_THAT(failed.text, Contains("No space left on device") && Contains("bytes are free") &&
                              Contains(std::filesystem::path(directory).string()));
  CHECK(left == std::vector<std::string>{"ballast", "lock"});
  CHECK(saved.step == 2);
  CHECK(writer.failed() == 1);
  writer.close(10s);
  CHECK_FALSE(writer.failure());
}

TEST_CASE("Checkpoint writer: a file system that has no inodes is told as that") {
  const TemporaryDirectory directory;
  const SmallDisk disk(directory, "size=40m,nr_inodes=8");
  skip_without(disk);
  const State state(1);
  WriterProcess process = WriterProcess::start(), second = WriterProcess::start();
  {
    CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});
    for (int i = 0; i < 8; ++i) write_bytes(directory / fmt::format("{}", i), "");

    writer.try_save(state.metadata, state.copier());
    const SaveEvent failed = await(writer, SaveEvent::Kind::failed);

    CHECK_THAT(
        failed.text,
        Contains("No space left on device (0 of 8 inodes are free, and each file takes one"));
    writer.close(10s);
  }
  CHECK_THROWS_WITH(CheckpointWriter(second, directory, state.layout, {}),
                    Contains("cannot write in it: No space") && Contains("0 of 8 inodes are free"));
}

TEST_CASE("Checkpoint writer: a limit for files, however small, is storage trouble, and heals") {
  const TemporaryDirectory directory;
  const State state(1);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});
  const rlim_t bytes = GENERATE(0, 100, 10'000);
  const bool laid_out = GENERATE(true, false);  // by HDF5, which does not tell errno
  if (laid_out) {
    writer.try_save(State(1).metadata, state.copier());
    await(writer, SaveEvent::Kind::saved);
  }

  limit_files(process.pid(), bytes);
  writer.try_save(State(2).metadata, state.copier());
  const SaveEvent failed = await(writer, SaveEvent::Kind::failed);
  const auto code = writer.failure()->code();
  limit_files(process.pid(), RLIM_INFINITY);
  writer.try_save(State(3).metadata, state.copier());

  CHECK_THAT(failed.text, Contains(laid_out ? "File too large" : "H5F"));
  CHECK(code == Exit::storage);
  CHECK(await(writer, SaveEvent::Kind::saved).step == 3);
}

TEST_CASE("Checkpoint writer: too little room for two checkpoints is an error before training") {
  const TemporaryDirectory directory;
  const SmallDisk disk(directory, "size=2m");
  skip_without(disk);
  const State state(1, 300'000);
  WriterProcess process = WriterProcess::start();

  CHECK_THROWS_WITH(CheckpointWriter(process, directory, state.layout, {}),
                    Contains("two checkpoints need") && Contains("bytes are free"));
}

TEST_CASE("Checkpoint writer: a read-only directory is an error before training") {
  const TemporaryDirectory directory;
  SmallDisk disk(directory, "size=2m");
  skip_without(disk);
  REQUIRE(disk.make_read_only());
  const State state(1);
  WriterProcess process = WriterProcess::start();

  CHECK_THROWS_WITH(CheckpointWriter(process, directory, state.layout, {}),
                    Contains("cannot write in it") && Contains("Read-only file system"));
}

TEST_CASE("Checkpoint writer: the death of the helper is reported once, and nothing hangs") {
  const TemporaryDirectory directory;
  const State state(1);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, no_takeover);

  ::kill(process.pid(), SIGKILL);
  const SaveEvent lost = await(writer, SaveEvent::Kind::lost);

  CHECK_THAT(lost.text, Contains("killed by signal 9 (Killed)"));
  CHECK_FALSE(writer.try_save(state.metadata, state.copier()));
  CHECK_FALSE(writer.save(state.metadata, state.copier(), 5s));
  CHECK(writer.close(5s).empty());
  CHECK(writer.failure()->code() == Exit::storage);
}

TEST_CASE(
    "Checkpoint writer: how a lost helper ended is told when it is known, and poll never waits") {
  const TemporaryDirectory directory;
  const State state(1);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, no_takeover);
  ::kill(process.pid(), SIGSTOP);
  ::shutdown(process.socket(), SHUT_RDWR);  // as when it is dying, but not yet dead

  const long slept_before = times_slept();
  const auto before = writer.poll();
  const long slept = times_slept() - slept_before;
  const bool lost_before = writer.lost();
  ::kill(process.pid(), SIGKILL);
  const SaveEvent lost = await(writer, SaveEvent::Kind::lost);

  CHECK(before.empty());
  CHECK(slept == 0);
  CHECK_FALSE(lost_before);
  CHECK_THAT(lost.text, Contains("killed by signal 9 (Killed)"));
}

TEST_CASE("Checkpoint writer: a helper that is stuck delays the end by the given time only") {
  const TemporaryDirectory directory;
  const State state(9);
  const auto start = std::chrono::steady_clock::now();
  {
    WriterProcess process = WriterProcess::start();
    CheckpointWriter writer(process, directory, state.layout, {.run_id = "test", .slow_after = 0s});
    ::kill(process.pid(), SIGSTOP);
    writer.try_save(state.metadata, state.copier());

    CHECK(await(writer, SaveEvent::Kind::slow).step == 9);
    writer.close(200ms);
    REQUIRE(writer.failure());
    CHECK_THAT(writer.failure()->what(), Contains("step 9 was not durable in time"));
  }
  CHECK(std::chrono::steady_clock::now() - start < 60s);
}

// Forks a trainer, which lives until it kills itself or its time is up.
pid_t in_a_trainer(const std::function<void()>& act) {
  const pid_t trainer = ::fork();
  if (trainer != 0) return trainer;
  act();
  ::kill(::getpid(), SIGKILL);
  std::abort();
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

CheckpointWriter open_next(WriterProcess& process, const std::filesystem::path& directory,
                           const State& state, std::vector<std::string>& told) {
  return {process,
          directory,
          state.layout,
          {.run_id = "next", .tell = [&](const std::string& text) { told.push_back(text); }}};
}

TEST_CASE("Checkpoint writer: what a trainer handed over is saved though it is killed") {
  const TemporaryDirectory directory;
  const State state(7, 20'000'000);
  ::waitpid(in_a_trainer([&] {
              WriterProcess process = WriterProcess::start();
              CheckpointWriter writer(process, directory, state.layout, {.run_id = "dead"});
              writer.try_save(state.metadata, state.copier());
              ::kill(::getpid(), SIGKILL);
            }),
            nullptr, 0);
  for (int i = 0; i < 6000 && !std::filesystem::exists(directory / "last-save.txt"); ++i)
    std::this_thread::sleep_for(10ms);

  CHECK_THAT(text_of(directory / "last-save.txt"),
             Contains("step: 7\nresult: saved\nfile: step-0000000007.h5\nof: run dead on host"));
  WriterProcess process = WriterProcess::start();
  std::vector<std::string> told;
  CheckpointWriter next = open_next(process, directory, state, told);
  CHECK_NOTHROW(CheckpointFile::open(directory / "step-0000000007.h5").verify());
  CHECK_FALSE(std::filesystem::exists(directory / "last-save.txt"));  // it told of another run
}

TEST_CASE("Checkpoint writer: what finishes the last save of a killed run is waited for",
          "[waits]") {
  const TemporaryDirectory directory;
  const State state(1);
  const FileDescriptor lock(
      ::open((directory / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const std::string text =
      to_text({.state = Lease::State::finishing,
               .holder = {.run = "dead", .host = "far", .boot = "", .job = "", .process = 7},
               .token = "0123456789abcdef"});
  REQUIRE(::write(lock.get(), text.data(), text.size()) > 0);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  REQUIRE(::fcntl(lock.get(), F_OFD_SETLK, &whole) == 0);
  WriterProcess process = WriterProcess::start();  // before the thread
  std::thread holder([&] {
    std::this_thread::sleep_for(3s);  // longer than a run that is not finishing is waited for
    whole.l_type = F_UNLCK;
    ::fcntl(lock.get(), F_OFD_SETLK, &whole);
  });

  std::vector<std::string> told;
  CHECK_NOTHROW(open_next(process, directory, state, told));
  holder.join();
  REQUIRE(told.size() == 1);
  CHECK_THAT(
      told[0],
      Contains("is held for the last save of run dead on host far, process 7: waiting for that"));
}

TEST_CASE("Checkpoint writer: a state that is kept is saved if the trainer is killed") {
  const TemporaryDirectory directory;
  const State state(1);
  enum class Then { killed, saves_later, closes };
  const Then then = GENERATE(Then::killed, Then::saves_later, Then::closes);
  ::waitpid(in_a_trainer([&] {
              WriterProcess process = WriterProcess::start();
              CheckpointWriter writer(process, directory, state.layout, {.run_id = "dead"});
              writer.set_lineage(lineage_a);
              std::thread([&] {
                writer.save_if_killed([&](SnapshotBuffers slot) {
                  State(4).copier()(slot);
                  return std::optional(State(4).metadata);
                });
              }).join();
              if (then == Then::saves_later) writer.try_save(State(5).metadata, state.copier());
              if (then == Then::closes) writer.close(10s);
              ::kill(::getpid(), SIGKILL);
            }),
            nullptr, 0);

  WriterProcess process = WriterProcess::start();
  std::vector<std::string> told;
  CheckpointWriter next = open_next(process, directory, state, told);

  std::vector<std::string> found;
  for (const std::string& name : names(directory))
    if (name.ends_with(".h5")) found.push_back(name);
  if (then == Then::killed) CHECK(found == std::vector<std::string>{"step-0000000004.h5"});
  if (then == Then::saves_later) CHECK(found == std::vector<std::string>{"step-0000000005.h5"});
  if (then == Then::closes) CHECK(found.empty());
  for (const std::string& name : found) {
    const CheckpointFile file = CheckpointFile::open(directory / name);
    CHECK_NOTHROW(file.verify());
    CHECK(file.lineage() == lineage_a);
  }
}

TEST_CASE("Checkpoint writer: a state that is not to be trusted is no longer kept") {
  const TemporaryDirectory directory;
  const State state(9);
  ::waitpid(in_a_trainer([&] {
              WriterProcess process = WriterProcess::start();
              CheckpointWriter writer(process, directory, state.layout, {.run_id = "dead"});
              const auto keep = [&](SnapshotBuffers slot) {
                state.copier()(slot);
                return std::optional(state.metadata);
              };
              writer.save_if_killed(keep);
              writer.keep_nothing();
              writer.save_if_killed(keep);
              ::kill(::getpid(), SIGKILL);
            }),
            nullptr, 0);

  WriterProcess process = WriterProcess::start();
  std::vector<std::string> told;
  CheckpointWriter next = open_next(process, directory, state, told);
  CHECK(names(directory) == std::vector<std::string>{"lock"});
}

TEST_CASE(
    "Checkpoint writer: a helper that is stopped ends with a trainer that does not wait for it any "
    "more") {
  const TemporaryDirectory directory;
  const State state(3);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});
  ::kill(process.pid(), SIGSTOP);
  REQUIRE(writer.try_save(state.metadata, state.copier()));

  writer.close(100ms);

  for (int i = 0; i < 500 && !process.ended(); ++i) std::this_thread::sleep_for(10ms);
  REQUIRE(process.ended());
  CHECK_THAT(*process.ended(), Contains("killed by signal 9"));
}

TEST_CASE("Checkpoint writer: nothing is kept where there is no slot or no state") {
  const TemporaryDirectory directory;
  const State state(1);
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});
  const auto nothing = [](SnapshotBuffers) { return std::optional<CheckpointMetadata>(); };
  ::kill(process.pid(), SIGSTOP);

  CHECK(writer.save_if_killed(nothing));
  REQUIRE(writer.try_save(state.metadata, state.copier()));
  REQUIRE(writer.try_save(State(2).metadata, state.copier()));
  CHECK_FALSE(writer.save_if_killed(nothing));
  ::kill(process.pid(), SIGCONT);
  await(writer, SaveEvent::Kind::saved);
  CHECK(writer.save_if_killed(nothing));
  writer.close(10s);
  CHECK(writer.save_if_killed(nothing));
}

TEST_CASE("Checkpoint writer: one that is stuck when its trainer dies gives up the lock later",
          "[waits]") {
  const TemporaryDirectory directory;
  const State state(1);
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  ::waitpid(in_a_trainer([&] {
              WriterProcess process = WriterProcess::start();
              CheckpointWriter writer(process, directory, state.layout, {.run_id = "dead"});
              const pid_t pid = process.pid();
              ::kill(pid, SIGSTOP);
              if (::write(ends[1], &pid, sizeof pid) < 0) std::abort();
              ::kill(::getpid(), SIGKILL);
            }),
            nullptr, 0);
  pid_t stuck = 0;
  REQUIRE(::read(ends[0], &stuck, sizeof stuck) == sizeof stuck);
  ::close(ends[0]);
  ::close(ends[1]);

  WriterProcess process = WriterProcess::start();
  std::vector<std::string> told;
  std::string refusal;
  try {
    open_next(process, directory, state, told);
  } catch (const Error& failure) {
    refusal = failure.what();
  }
  CHECK_THAT(refusal, Contains("in use by run dead"));
  ::kill(stuck, SIGCONT);
  CHECK_NOTHROW(open_next(process, directory, state, told));
}

TEST_CASE("Checkpoint writer: the trainer's sudden death leaves only intact files and no lock") {
  const TemporaryDirectory directory;
  const State state(1, 2'000'000);
  for (int trial = 0; trial < 10; ++trial) {
    const pid_t trainer = ::fork();
    if (trainer == 0) {
      WriterProcess process = WriterProcess::start();
      CheckpointWriter writer(process, directory, state.layout, {.run_id = "dead"});
      for (std::uint64_t step = 1;; ++step) {
        writer.save(State(step).metadata, state.copier(), 10s);
        writer.poll();
      }
    }
    std::this_thread::sleep_for(20ms + trial * 7ms);
    ::kill(trainer, SIGKILL);
    ::waitpid(trainer, nullptr, 0);

    WriterProcess process = WriterProcess::start();
    CheckpointWriter next(process, directory, state.layout, {.run_id = "next"});
    for (const std::string& name : names(directory)) {
      CAPTURE(name);
      if (name.ends_with(".h5")) CHECK_NOTHROW(CheckpointFile::open(directory / name).verify());
    }
    next.close(10s);
  }
}

TEST_CASE("Checkpoint writer: a kill of the helper at any point leaves no partial checkpoint") {
  const TemporaryDirectory directory;
  const State state(1, 200'000);
  std::size_t found = 0;
  for (int trial = 0; trial < 100; ++trial) {
    WriterProcess process = WriterProcess::start();
    CheckpointWriter writer(process, directory, state.layout, no_takeover);
    std::uint64_t step = static_cast<std::uint64_t>(trial) * 10;
    writer.save(State(step).metadata, state.copier(), 10s);
    writer.save(State(step + 1).metadata, state.copier(), 10s);
    std::this_thread::sleep_for(std::chrono::microseconds(1370 * trial));
    ::kill(process.pid(), SIGKILL);
    await(writer, SaveEvent::Kind::lost);

    const LatestCheckpoint latest = find_latest(directory);
    CHECK(latest.rejected.empty());
    found += latest.file.has_value();
  }
  CHECK(found > 0);
}
