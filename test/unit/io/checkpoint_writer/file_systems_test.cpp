#include <fcntl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "ringtrain/base/error.hpp"
#include "support/call_tracer.hpp"
#include "support/catch.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"
#include "unit/io/checkpoint_writer/traced_saves.hpp"

// What network file systems lack or do otherwise, put into the helper's system calls.
using namespace ringtrain;
using namespace ringtrain::io;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

Fate no_direct_io(const SystemCall& call) {
  const bool direct = call.number == SYS_openat && (call.arguments[2] & O_DIRECT) != 0;
  return direct ? Fate::fail(EINVAL) : Fate{};
}

// The answers of NFS 4.1: no direct I/O (servers differ), no RENAME_NOREPLACE, no fallocate, no
// fsync of directories.
Fate like_nfs(const SystemCall& call) {
  if (call.number == SYS_renameat2) return Fate::fail(EINVAL);
  if (call.number == SYS_fallocate) return Fate::fail(EOPNOTSUPP);
  if (call.number == SYS_fsync && std::filesystem::is_directory(call.path(0)))
    return Fate::fail(EINVAL);
  return no_direct_io(call);
}

Fate like_fat(const SystemCall& call) {
  return call.number == SYS_linkat ? Fate::fail(EPERM) : like_nfs(call);
}

Fate without_statfs(const SystemCall& call) {
  return call.number == SYS_fstatfs || call.number == SYS_statfs ? Fate::fail(ENOSYS)
                                                                 : like_nfs(call);
}

// Takes O_DIRECT at open() and refuses it at the first write.
Fate late_about_direct_io(const SystemCall& call) {
  if (call.number == SYS_io_submit) return Fate::fail(EINVAL);
  const bool refused = call.number == SYS_pwrite64 && (call.flags(0) & O_DIRECT) != 0;
  return refused ? Fate::fail(EINVAL) : Fate{};
}

Fate writes_short(const SystemCall& call) {
  if (call.number == SYS_io_submit) return Fate::fail(EAGAIN);
  return call.number == SYS_pwrite64 ? Fate{Fate::Kind::shorten, 100'001} : Fate{};
}

bool is_lock(const SystemCall& call) {
  return call.number == SYS_fcntl && call.arguments[1] == F_OFD_SETLK;
}

}  // namespace

TEST_CASE("Checkpoint writer: saves on file systems that lack what local ones have") {
  skip_without_tracing();
  const auto [name, judge] = GENERATE(table<const char*, Fate (*)(const SystemCall&)>(
      {{"NFS", like_nfs},
       {"FAT", like_fat},
       {"no statfs", without_statfs},
       {"no direct I/O, told late", late_about_direct_io},
       {"short writes", writes_short}}));
  CAPTURE(name);
  const TemporaryDirectory directory;
  const State state(1, more_than_a_block), next(2, more_than_a_block);
  WriterProcess process = WriterProcess::start();
  const CallTracer tracer(process.pid(), judge);
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test", .keep = 1});

  writer.try_save(state.metadata, state.copier());
  await(writer, SaveEvent::Kind::saved);
  write_bytes(directory / "step-0000000002.h5", "damaged");
  writer.try_save(next.metadata, next.copier());
  const SaveEvent saved = await(writer, SaveEvent::Kind::saved);
  writer.close(10s);

  CHECK(saved.step == 2);
  CHECK(names(directory) == std::vector<std::string>{"lock", "step-0000000002.h5"});
  CHECK(holds(CheckpointFile::open(directory / "step-0000000002.h5"), next));
}

TEST_CASE("Checkpoint writer: folders that it makes are synced into those above") {
  skip_without_tracing();
  const TemporaryDirectory directory;
  const State state(1);
  const std::filesystem::path above = directory;
  std::set<std::string> synced;  // read once the tracer has ended
  WriterProcess process = WriterProcess::start();
  {
    const CallTracer tracer(process.pid(), [&](const SystemCall& call) {
      if (call.number == SYS_fsync) synced.insert(call.path(0));
      return Fate{};
    });
    CheckpointWriter writer(process, above / "a" / "b", state.layout, {.run_id = "test"});
    writer.close(10s);
  }

  CHECK(synced.contains(above.string()));
  CHECK(synced.contains((above / "a").string()));
}

TEST_CASE("Checkpoint writer: without file locks it saves, says so, and leaves temporaries alone") {
  skip_without_tracing();
  const int error = GENERATE(ENOLCK, ENOSYS, EOPNOTSUPP);
  const TemporaryDirectory directory;
  write_bytes(directory / ".step-0000000007.h5.tmp", "perhaps another job's");
  const State state(1);
  WriterProcess process = WriterProcess::start();
  const CallTracer tracer(process.pid(), [error](const SystemCall& call) {
    return is_lock(call) ? Fate::fail(error) : Fate{};
  });
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});

  const SaveEvent note = await(writer, SaveEvent::Kind::note);
  writer.try_save(state.metadata, state.copier());
  writer.close(10s);

  CHECK_THAT(note.text,
             Contains("has no file locks that hold (") && Contains("told by a heartbeat"));
  CHECK(names(directory) ==
        std::vector<std::string>{".step-0000000007.h5.tmp", "lock", "step-0000000001.h5"});
}

TEST_CASE("Checkpoint writer: a lock that fails otherwise is an error before training") {
  skip_without_tracing();
  const int error = GENERATE(EIO, ESTALE);
  const TemporaryDirectory directory;
  const State state(1);
  WriterProcess process = WriterProcess::start();
  const CallTracer tracer(process.pid(), [error](const SystemCall& call) {
    return is_lock(call) ? Fate::fail(error) : Fate{};
  });

  CHECK_THROWS_WITH(CheckpointWriter(process, directory, state.layout, {.run_id = "test"}),
                    Contains("lock of the checkpoint directory"));
}

TEST_CASE("Checkpoint writer: why old checkpoints cannot be deleted is told once for each cause") {
  skip_without_tracing();
  const TemporaryDirectory directory;
  const State state(1);
  std::atomic<int> error = EPERM;
  WriterProcess process = WriterProcess::start();
  const CallTracer tracer(process.pid(), [&](const SystemCall& call) {
    return call.number == SYS_unlinkat ? Fate::fail(error) : Fate{};
  });
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test", .keep = 1});
  std::vector<std::string> notes;
  const auto save = [&](std::uint64_t step) {
    writer.try_save(State(step).metadata, state.copier());
    const auto deadline = std::chrono::steady_clock::now() + 100s;
    for (const std::uint64_t saved = writer.saved();
         writer.saved() == saved && std::chrono::steady_clock::now() < deadline;) {
      for (const SaveEvent& event : writer.poll())
        if (event.kind == SaveEvent::Kind::note) notes.push_back(event.text);
      std::this_thread::sleep_for(1ms);
    }
  };

  for (std::uint64_t step = 1; step <= 5; ++step) save(step);
  error = EROFS;
  for (std::uint64_t step = 6; step <= 9; ++step) save(step);
  for (const SaveEvent& event : writer.close(10s)) notes.push_back(event.text);

  const auto told = [&](const char* why) {
    return std::ranges::count_if(
        notes, [&](const std::string& note) { return note.find(why) != std::string::npos; });
  };
  CHECK(writer.saved() == 9);
  CHECK(told("could not remove step-0000000001.h5: Operation not permitted") == 1);
  CHECK(told("Operation not permitted") == 1);
  CHECK(told("Read-only file system") == 1);
}

TEST_CASE("Checkpoint writer: what only close() tells is a failed save") {
  skip_without_tracing();
  const TemporaryDirectory directory;
  const State state(1, more_than_a_block);
  WriterProcess process = WriterProcess::start();
  const CallTracer tracer(process.pid(), [](const SystemCall& call) {
    const bool temporary = call.number == SYS_close && call.path(0).ends_with(".tmp");
    return temporary ? Fate::fail(EDQUOT) : Fate{};
  });
  CheckpointWriter writer(process, directory, state.layout, {.run_id = "test"});

  writer.try_save(state.metadata, state.copier());
  const SaveEvent failed = await(writer, SaveEvent::Kind::failed);

  CHECK_THAT(failed.text,
             Contains("close: Disk quota exceeded: a quota of bytes or files is used"));
  CHECK(names(directory) == std::vector<std::string>{"lock"});
}
