#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "io/lease/folder_lease.hpp"
#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"

// The writer process dies, and another one takes over.
using namespace ringtrain;
using namespace ringtrain::io;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

constexpr std::size_t long_to_write = 20'000'000;  // floats

struct Trainer {
  TemporaryDirectory directory;
  WriterProcess process = WriterProcess::start();
  CheckpointWriter writer;

  explicit Trainer(const State& state, const WriterOptions& options = {.run_id = "test"})
      : writer(process, directory, state.layout, options) {}

  void kill_writer(int signal = SIGKILL) {
    REQUIRE(process.pid() > 0);
    ::kill(process.pid(), signal);
  }
};

// As of a process that has as many files open as it may. UBSan needs a pipe to look at an object:
// its tests are [unsanitized].
class NoDescriptors {
 public:
  NoDescriptors() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &usual_) == 0);
    const int lowest = ::dup(STDERR_FILENO);
    ::close(lowest);
    rlimit none = usual_;
    none.rlim_cur = static_cast<rlim_t>(lowest);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &usual_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit usual_{};
};

void check_saved(const Trainer& trainer, const State& state) {
  const CheckpointFile file =
      CheckpointFile::open(trainer.directory / checkpoint_name(state.metadata.step));
  CHECK_NOTHROW(file.verify());
  CHECK(holds(file, state));
}

}  // namespace

TEST_CASE("Checkpoint writer: when an idle helper dies, another one takes over all it had",
          "[waits]") {
  const State state(1);
  const int signal = GENERATE(SIGKILL, SIGABRT);
  Trainer trainer(state, {.run_id = "test", .keep = 1});
  trainer.writer.set_lineage(lineage_a);
  trainer.writer.try_save(state.metadata, state.copier());
  await(trainer.writer, SaveEvent::Kind::saved);
  trainer.writer.protect(checkpoint_name(1));
  const pid_t first = trainer.process.pid();

  trainer.kill_writer(signal);
  const SaveEvent event = await(trainer.writer, SaveEvent::Kind::replaced);
  for (std::uint64_t step : {2, 3}) {
    trainer.writer.try_save(State(step).metadata, State(step).copier());
    await(trainer.writer, SaveEvent::Kind::saved);
  }

  CHECK_THAT(event.text, Contains("was killed by signal " + std::to_string(signal)) &&
                             Contains("another one took over"));
  CHECK(trainer.process.pid() != first);
  WriterProcess second = WriterProcess::start();
  CHECK_THROWS_WITH(CheckpointWriter(second, trainer.directory, state.layout, {}),
                    Contains("in use by run test"));
  trainer.writer.close(10s);
  CHECK_FALSE(trainer.writer.failure());
  CHECK(trainer.writer.failed() == 0);
  CHECK(names(trainer.directory) ==
        std::vector<std::string>{"lock", "step-0000000001.h5", "step-0000000003.h5"});
  CHECK(CheckpointFile::open(trainer.directory / checkpoint_name(3)).lineage() == lineage_a);
}

TEST_CASE("Checkpoint writer: what the dead helper had not saved, the next one saves") {
  const State one(1, 1'000'000), two(2, 1'000'000);
  Trainer trainer(one);
  trainer.kill_writer(SIGSTOP);
  REQUIRE(trainer.writer.try_save(one.metadata, one.copier()));
  REQUIRE(trainer.writer.try_save(two.metadata, two.copier()));

  trainer.kill_writer();
  const SaveEvent event = await(trainer.writer, SaveEvent::Kind::replaced);

  CHECK_THAT(event.text, Contains("writes the checkpoint of step 1 and 2 again"));
  trainer.writer.close(60s);
  CHECK_FALSE(trainer.writer.failure());
  CHECK(trainer.writer.saved() == 2);
  CHECK(trainer.writer.failed() == 0);
  check_saved(trainer, one);
  check_saved(trainer, two);
}

TEST_CASE(
    "Checkpoint writer: a helper that dies in the last save is replaced while that is waited for") {
  const State state(1, long_to_write);
  Trainer trainer(state);
  REQUIRE(trainer.writer.try_save(state.metadata, state.copier()));
  std::this_thread::sleep_for(10ms);

  trainer.kill_writer();
  trainer.writer.close(60s);

  CHECK_FALSE(trainer.writer.failure());
  check_saved(trainer, state);
}

TEST_CASE("Checkpoint writer: a helper that dies once all is durable fails no job") {
  const State state(1);
  Trainer trainer(state);
  trainer.writer.try_save(state.metadata, state.copier());
  await(trainer.writer, SaveEvent::Kind::saved);

  trainer.kill_writer();
  std::this_thread::sleep_for(50ms);
  trainer.writer.close(10s);

  CHECK_FALSE(trainer.writer.failure());
}

TEST_CASE("Checkpoint writer: the next helper, too, saves what is kept for a trainer's death") {
  const TemporaryDirectory directory;
  const State state(4);
  const pid_t trainer = ::fork();
  if (trainer == 0) {
    WriterProcess process = WriterProcess::start();
    CheckpointWriter writer(process, directory, state.layout, {.run_id = "dead"});
    writer.save_if_killed([&](SnapshotBuffers slot) {
      state.copier()(slot);
      return std::optional(state.metadata);
    });
    ::kill(process.pid(), SIGKILL);
    await(writer, SaveEvent::Kind::replaced);
    ::kill(::getpid(), SIGKILL);
    std::abort();
  }
  ::waitpid(trainer, nullptr, 0);
  for (int i = 0; i < 6000 && !std::filesystem::exists(directory / "last-save.txt"); ++i)
    std::this_thread::sleep_for(10ms);

  CHECK_THAT(file_bytes(directory / "last-save.txt"), Contains("step: 4\nresult: saved"));
  CHECK(holds(CheckpointFile::open(directory / checkpoint_name(4)), state));
}

TEST_CASE("Checkpoint writer: the next helper saves for a trainer that dies while it opens") {
  const TemporaryDirectory directory;
  const State state(5);
  const pid_t trainer = ::fork();
  if (trainer == 0) {
    WriterProcess process = WriterProcess::start();
    CheckpointWriter writer(process, directory, state.layout, {.run_id = "dead"});
    const pid_t first = process.pid();
    ::kill(first, SIGSTOP);
    writer.try_save(state.metadata, state.copier());
    ::kill(first, SIGKILL);
    const int lock = ::open((directory / "lock").c_str(), O_RDWR);
    while (!try_lock(lock)) std::this_thread::sleep_for(1ms);
    if (::fork() == 0) {  // so that opening takes a while
      std::this_thread::sleep_for(1s);
      ::_exit(0);
    }
    while (process.pid() == first || process.pid() == 0) static_cast<void>(writer.poll());
    std::this_thread::sleep_for(100ms);
    ::kill(::getpid(), SIGKILL);
    std::abort();
  }
  ::waitpid(trainer, nullptr, 0);
  for (int i = 0; i < 500 && !std::filesystem::exists(directory / "last-save.txt"); ++i)
    std::this_thread::sleep_for(10ms);

  CHECK_THAT(file_bytes(directory / "last-save.txt"), Contains("step: 5\nresult: saved"));
  CHECK(holds(CheckpointFile::open(directory / checkpoint_name(5)), state));
}

TEST_CASE("Checkpoint writer: helpers that die again and again are a fault of the writer") {
  const State state(1);
  Trainer trainer(state, {.run_id = "test", .takeovers = 2});
  for (int i = 0; i < 2; ++i) {
    trainer.kill_writer();
    await(trainer.writer, SaveEvent::Kind::replaced);
  }
  CHECK_FALSE(trainer.writer.lost());

  trainer.kill_writer(SIGABRT);
  const SaveEvent lost = await(trainer.writer, SaveEvent::Kind::lost);

  CHECK_THAT(lost.text, Contains("was killed by signal 6") && Contains("death 3 within"));
  REQUIRE(trainer.writer.lost());
  CHECK(trainer.writer.failure()->code() == Exit::storage);
  CHECK(trainer.writer.failure()->kind() == "writer");
  CHECK_THAT(trainer.writer.failure()->details(), Contains("how=\"was killed by signal 6"));
}

TEST_CASE("Checkpoint writer: two deaths in one save are a fault of the writer") {
  const State state(1, long_to_write);
  Trainer trainer(state);
  REQUIRE(trainer.writer.try_save(state.metadata, state.copier()));
  trainer.kill_writer();
  await(trainer.writer, SaveEvent::Kind::replaced);

  trainer.kill_writer();
  const SaveEvent lost = await(trainer.writer, SaveEvent::Kind::lost);

  CHECK_THAT(lost.text, Contains("the second time in the save of step 1"));
  CHECK(trainer.writer.failed() == 1);
  CHECK(trainer.writer.failure()->kind() == "writer");
}

TEST_CASE("Checkpoint writer: a helper that is stopped is named, not the disk") {
  const State state(1);
  Trainer trainer(state, {.run_id = "test", .slow_after = 1s});
  trainer.kill_writer(SIGSTOP);
  const std::string stopped = fmt::format("the checkpoint writer, process {}, is stopped (state T",
                                          trainer.process.pid()),
                    cure = fmt::format("kill -CONT {} lets it go on", trainer.process.pid());
  REQUIRE(trainer.writer.try_save(state.metadata, state.copier()));

  CHECK_THAT(await(trainer.writer, SaveEvent::Kind::slow).text,
             Contains(stopped) && Contains(cure));
  trainer.writer.close(100ms);
  CHECK_THAT(
      trainer.writer.failure()->what(),
      Contains("the checkpoint of step 1 was not durable") && Contains(stopped) && Contains(cure));
  CHECK(trainer.writer.failure()->kind() == "writer");
}

TEST_CASE("Checkpoint writer: a dead helper is named where its fork server is stopped", "[waits]") {
  const State state(1);
  Trainer trainer(state, {.run_id = "test", .open_timeout = 3s, .slow_after = 1s});
  ::kill(trainer.process.fork_server_pid(), SIGSTOP);
  trainer.kill_writer();
  REQUIRE(trainer.writer.try_save(state.metadata, state.copier()));

  const std::string dead = "the checkpoint writer process was killed by signal 9",
                    cure = fmt::format("kill -CONT {} lets it", trainer.process.fork_server_pid());
  CHECK_THAT(await(trainer.writer, SaveEvent::Kind::slow).text,
             Contains(dead) && Contains("the fork server, process ") && Contains(cure));
  CHECK_THAT(await(trainer.writer, SaveEvent::Kind::lost).text, Contains(dead) && Contains(cure));
  CHECK(trainer.writer.failure()->kind() == "writer");
}

TEST_CASE("Checkpoint writer: without its fork server the helper goes on, but is not replaced") {
  const State state(1);
  Trainer trainer(state);
  ::kill(trainer.process.fork_server_pid(), SIGKILL);

  const SaveEvent alone = await(trainer.writer, SaveEvent::Kind::alone);
  trainer.writer.try_save(state.metadata, state.copier());
  await(trainer.writer, SaveEvent::Kind::saved);
  trainer.kill_writer();
  const SaveEvent lost = await(trainer.writer, SaveEvent::Kind::lost);

  CHECK_THAT(alone.text, Contains("was killed by signal 9"));
  CHECK_THAT(lost.text, Contains("no other one can be started: the fork server"));
  CHECK(trainer.writer.failure()->kind() == "writer");
}

TEST_CASE("Checkpoint writer: both killed at once are a fault of the writer") {
  const State state(1);
  Trainer trainer(state);
  REQUIRE(trainer.writer.try_save(state.metadata, state.copier()));
  ::kill(trainer.process.fork_server_pid(), SIGKILL);
  trainer.kill_writer();

  CHECK_THAT(await(trainer.writer, SaveEvent::Kind::lost).text,
             Contains("nothing can be saved any more"));
}

TEST_CASE("Checkpoint writer: a directory that the next helper cannot open is tried again") {
  const State state(1);
  Trainer trainer(state);
  trainer.kill_writer(SIGSTOP);
  REQUIRE(trainer.writer.try_save(state.metadata, state.copier()));
  std::filesystem::remove(trainer.directory / "lock");
  std::filesystem::create_directory(trainer.directory / "lock");

  trainer.kill_writer();
  const SaveEvent failed = await(trainer.writer, SaveEvent::Kind::failed);
  std::filesystem::remove(trainer.directory / "lock");
  REQUIRE(trainer.writer.try_save(State(2).metadata, State(2).copier()));
  const SaveEvent saved = await(trainer.writer, SaveEvent::Kind::saved);

  CHECK_THAT(failed.text, Contains("step 1") && Contains("its 'lock' is not a file"));
  CHECK(saved.step == 2);
  CHECK_FALSE(trainer.writer.lost());
  trainer.writer.close(10s);
  CHECK_FALSE(trainer.writer.failure());
}

TEST_CASE("Checkpoint writer: without descriptors for the next helper, it is asked for later",
          "[unsanitized][waits]") {
  const State state(1);
  Trainer trainer(state);
  trainer.kill_writer(SIGSTOP);
  REQUIRE(trainer.writer.try_save(state.metadata, state.copier()));
  {
    const NoDescriptors full;
    trainer.kill_writer();
    for (int i = 0; i < 3000; ++i) {  // longer than the few deaths that end a job take
      CHECK(trainer.writer.poll().empty());
      std::this_thread::sleep_for(1ms);
    }
  }
  const SaveEvent replaced = await(trainer.writer, SaveEvent::Kind::replaced);
  CHECK_THAT(replaced.text, Contains("writes the checkpoint of step 1 again"));
  trainer.writer.close(10s);
  CHECK_FALSE(trainer.writer.failure());
  check_saved(trainer, state);
}

TEST_CASE("Checkpoint writer: without descriptors for long, no other helper is waited for",
          "[unsanitized]") {
  const State state(1);
  Trainer trainer(state, {.run_id = "test", .open_timeout = 1s});
  const NoDescriptors full;
  trainer.kill_writer();
  CHECK_THAT(await(trainer.writer, SaveEvent::Kind::lost).text,
             Contains("no other one can be started: ") && Contains("Too many open files"));
  CHECK(trainer.writer.failure()->kind() == "writer");
}

TEST_CASE("Checkpoint writer: a directory that another job has taken meanwhile ends the job",
          "[waits]") {
  const State state(1);
  Trainer trainer(state);
  ::kill(trainer.process.fork_server_pid(), SIGSTOP);  // long enough for the other one
  trainer.kill_writer();
  for (int i = 0; i < 100; ++i) {
    static_cast<void>(trainer.writer.poll());
    std::this_thread::sleep_for(1ms);
  }
  WriterProcess other = WriterProcess::start();
  const CheckpointWriter taken(other, trainer.directory, state.layout, {.run_id = "other"});

  ::kill(trainer.process.fork_server_pid(), SIGCONT);
  const SaveEvent lost = await(trainer.writer, SaveEvent::Kind::lost);

  CHECK_THAT(lost.text, Contains("in use by run other"));
  CHECK(trainer.writer.failure()->code() == Exit::locked);
  CHECK(trainer.writer.failure()->kind() == "locked");
}

TEST_CASE("Checkpoint writer: a fork server that does not answer is a fault of the writer") {
  const State state(1);
  Trainer trainer(state, {.run_id = "test", .open_timeout = 1s});
  ::kill(trainer.process.fork_server_pid(), SIGSTOP);

  trainer.kill_writer();

  CHECK_THAT(await(trainer.writer, SaveEvent::Kind::lost).text,
             Contains("the fork server, process ") && Contains("is stopped (state T"));
  CHECK(trainer.writer.failure()->kind() == "writer");
}
