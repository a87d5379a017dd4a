#include "io/lease/lease.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "io/checkpoint/checkpoint_name.hpp"
#include "io/checkpoint_writer/checkpoint_directory.hpp"
#include "io/lease/folder_lease.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "support/call_tracer.hpp"
#include "support/catch.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"
#include "unit/io/checkpoint_writer/traced_saves.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace std::chrono_literals;
using Catch::Contains;
using Verdict = LeaseJudge::Verdict;

namespace {

const LeaseHolder here{.run = "new", .host = "here", .boot = "b1", .job = "", .process = 1};
const LeaseHolder far{.run = "old", .host = "far", .boot = "b2", .job = "77", .process = 2};
const std::string a_token = "0123456789abcdef";
const FileSystem on_network{"nfs", false}, on_disk{"ext4", true};
// Short enough for a test, and a hundred times what a call takes.
const LeaseTerms short_terms{.beat = 50ms, .silence = 1500ms, .patience = 100ms};
const LeaseTerms silent_terms{.beat = 1h, .silence = 1500ms, .patience = 100ms};

std::string lease_of(const LeaseHolder& holder, Lease::State state = Lease::State::held,
                     std::uint64_t beat = 0) {
  std::string text = to_text({.state = state, .holder = holder, .token = a_token});
  return text.replace(lease_beat_offset(), lease_beat(beat).size(), lease_beat(beat));
}

/// A judge on host `here` and a clock that stands where the test puts it.
struct Watch {
  bool is_local = false, locks_hold = true;
  LeaseJudge::Clock::duration last_save = 120s;
  LeaseJudge judge{here, is_local, locks_hold, {}, last_save};
  LeaseJudge::Clock::time_point now{1000h};
  std::optional<LockFileState> before{};

  /// Looks every ten seconds until then, and sees what it saw before.
  Verdict after(LeaseJudge::Clock::duration time, const LockFileState& sight) {
    for (; before && time > 10s; time -= 10s) judge.judge(*before, now += 10s);
    return after_no_look(time, sight);
  }
  Verdict after_no_look(LeaseJudge::Clock::duration time, const LockFileState& sight) {
    before = sight;
    return judge.judge(sight, now += time);
  }
};

FileDescriptor opened(const std::filesystem::path& directory) {
  return FileDescriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

/// A lock file whose lock somebody has who does nothing more.
FileDescriptor locked_file(const std::filesystem::path& path, const std::string& text) {
  write_bytes(path, text);
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(try_lock(file.get()));
  return file;
}

std::string path_of(const std::filesystem::path& directory) { return directory.string(); }

Snapshot snapshot_of(const State& state) {
  Snapshot snapshot{
      .metadata = state.metadata, .run_id = "test", .lineage = lineage_a, .buffers = {}};
  for (const auto& buffer : state.buffers) snapshot.buffers.emplace_back(buffer);
  return snapshot;
}

Exit code_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& failure) {
    return failure.code();
  }
  return Exit{0};
}

/// Whether all of its threads stand still. They stop one after the other.
bool is_stopped(pid_t process) {
  const std::filesystem::path tasks = "/proc/" + std::to_string(process) + "/task";
  return std::ranges::all_of(std::filesystem::directory_iterator(tasks), [](const auto& task) {
    std::ifstream file(task.path() / "stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return text.empty() || text.at(text.rfind(')') + 2) == 'T';  // empty: it has ended
  });
}

bool is_locked(const std::filesystem::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  return file.get() >= 0 && ::fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

TEST_CASE("Lease: a holder that beats is refused once patience is over") {
  Watch watch;
  CHECK(watch.after(0s, {true, lease_of(far), true}) == Verdict::wait);
  CHECK(watch.after(1s, {true, lease_of(far, Lease::State::held, 1), true}) == Verdict::wait);
  CHECK(watch.after(999ms, {true, lease_of(far, Lease::State::held, 1), true}) == Verdict::wait);
  CHECK(watch.after(1ms, {true, lease_of(far, Lease::State::held, 1), true}) == Verdict::refuse);
  CHECK(watch.judge.holder() == "run old on host far, process 2, Slurm job 77");
}

TEST_CASE("Lease: a lost host's lock is taken over after the silence, by the watcher's clock") {
  Watch watch;
  const LockFileState silent{true, lease_of(far), true};
  CHECK(watch.after(0s, silent) == Verdict::wait);
  CHECK(watch.after(29'999ms, silent) == Verdict::wait);
  CHECK(watch.after(1ms, silent) == Verdict::take_over);

  const LockFileState late{true, lease_of(far, Lease::State::held, 1), true};  // it beats after all
  CHECK(watch.after(0s, late) == Verdict::refuse);
  CHECK(watch.after(30s, late) == Verdict::take_over);
}

TEST_CASE("Lease: who could not look for a while, as its server was away, counts no silence") {
  Watch watch;
  const LockFileState silent{true, lease_of(far), true};
  CHECK(watch.after(0s, silent) == Verdict::wait);
  CHECK(watch.after(20s, silent) == Verdict::wait);
  CHECK(watch.after_no_look(40s, silent) == Verdict::wait);
  CHECK(watch.after(29s, silent) == Verdict::wait);
  CHECK(watch.after(1s, silent) == Verdict::take_over);
}

TEST_CASE("Lease: a lock that this host's kernel has on a local disk is never taken over") {
  const LeaseHolder neighbour{.run = "n", .host = "here", .boot = "b1", .job = "", .process = 3};
  Watch watch{.is_local = true};
  CHECK(watch.after(0s, {true, lease_of(neighbour), true}) == Verdict::wait);
  CHECK(watch.after(2s, {true, lease_of(neighbour), true}) == Verdict::refuse);
  CHECK(watch.after(1h, {true, lease_of(neighbour), true}) == Verdict::refuse);

  LeaseHolder restarted = neighbour;  // of a kernel before this one: it is gone
  restarted.boot = "b0";
  Watch other{.is_local = true};
  CHECK(other.after(0s, {true, lease_of(restarted), true}) == Verdict::wait);
  CHECK(other.after(30s, {true, lease_of(restarted), true}) == Verdict::take_over);
}

TEST_CASE("Lease: a holder whose process is seen to live keeps the directory, silent or unlocked") {
  const bool is_local = GENERATE(true, false), locks_hold = GENERATE(true, false);
  const bool busy = GENERATE(true, false);
  CAPTURE(is_local, locks_hold, busy);
  Watch watch{.is_local = is_local, .locks_hold = locks_hold};
  LeaseHolder neighbour = here;
  neighbour.process = 5;
  const LockFileState alive{true, lease_of(neighbour), busy, true};

  CHECK(watch.after(0s, alive) == Verdict::wait);
  CHECK(watch.after(2s, alive) == Verdict::refuse);
  CHECK(watch.after(1h, alive) == Verdict::refuse);
  const LockFileState back{true, lease_of(neighbour, Lease::State::released), false, true};
  CHECK(watch.after(0s, back) == Verdict::take);
}

TEST_CASE("Lease: a free lock is believed where it tells of the holder, else silence is awaited") {
  const bool is_local = GENERATE(true, false), locks_hold = GENERATE(true, false);
  const bool same_host = GENERATE(true, false);
  CAPTURE(is_local, locks_hold, same_host);
  Watch watch{.is_local = is_local, .locks_hold = locks_hold};
  LeaseHolder neighbour = here;
  neighbour.process = 5;
  const LockFileState free{true, lease_of(same_host ? neighbour : far), false};

  const bool believed = locks_hold && (is_local || same_host);
  CHECK(watch.after(0s, free) == (believed ? Verdict::take : Verdict::wait));
  if (believed) return;
  CHECK(watch.after(29s, free) == Verdict::wait);
  CHECK(watch.after(1s, free) == Verdict::take_over);
}

TEST_CASE("Lease: what was given back, is not there, or is of no lease is taken at once") {
  Watch watch;
  const std::string text = GENERATE(as<std::string>{}, lease_of(far, Lease::State::released),
                                    "run a on host b, process 1", "");
  CHECK(watch.after(0s, {true, text, false}) == Verdict::take);
  CHECK(Watch().after(0s, {}) == Verdict::take);
}

TEST_CASE("Lease: a trainer whose writer ended goes on with another one at once") {
  Watch watch{.locks_hold = false};
  CHECK(watch.after(0s, {true, lease_of(here), false}) == Verdict::take);
}

TEST_CASE("Lease: a lock without a lease, of an earlier build, is believed and never taken over") {
  Watch watch;
  const LockFileState held{true, "run a on host b, process 1", true};
  CHECK(watch.after(0s, held) == Verdict::wait);
  CHECK(watch.after(2s, held) == Verdict::refuse);
  CHECK(watch.after(1h, held) == Verdict::refuse);
  CHECK(watch.judge.holder() == "run a on host b, process 1");
}

TEST_CASE("Lease: a last save is waited for while it beats, and no longer than it may take") {
  Watch watch;
  std::uint64_t beat = 0;
  CHECK(watch.after(0s, {true, lease_of(far), true}) == Verdict::wait);
  const auto finishing = [&] {
    return LockFileState{true, lease_of(far, Lease::State::finishing, ++beat), true};
  };
  for (int i = 0; i < 24; ++i) REQUIRE(watch.after(5s, finishing()) == Verdict::wait);
  CHECK(watch.judge.is_finishing());
  CHECK(watch.after(5s, finishing()) == Verdict::wait);
  CHECK(watch.after(5s, finishing()) == Verdict::refuse);
  CHECK(watch.after(0s, {true, lease_of(far, Lease::State::released), false}) == Verdict::take);
}

TEST_CASE("Lease: a last save that nobody is making is taken over after the silence, not refused") {
  const bool was_held_before = GENERATE(true, false);
  Watch watch{.last_save = 10s};
  if (was_held_before) CHECK(watch.after(0s, {true, lease_of(far), true}) == Verdict::wait);
  const LockFileState silent{true, lease_of(far, Lease::State::finishing), true};
  CHECK(watch.after(0s, silent) == Verdict::wait);
  CHECK(watch.after(29s, silent) == Verdict::wait);
  CHECK(watch.after(1s, silent) == Verdict::take_over);
}

TEST_CASE("Lease: a last save whose maker dies at its limit is taken over after the silence") {
  Watch watch{.last_save = 10s};
  std::uint64_t beat = 0;
  const auto finishing = [&] {
    return LockFileState{true, lease_of(far, Lease::State::finishing, beat), true};
  };
  CHECK(watch.after(0s, finishing()) == Verdict::wait);
  for (beat = 1; beat <= 2; ++beat) CHECK(watch.after(5s, finishing()) == Verdict::wait);
  beat = 2;
  CHECK(watch.after(28s, finishing()) == Verdict::wait);
  CHECK(watch.after(2s, finishing()) == Verdict::take_over);
}

TEST_CASE("Lease: its text comes back as it was, and what is no lease is none") {
  const Lease lease{.state = Lease::State::finishing, .holder = far, .token = a_token};
  const auto again = lease_from_text(to_text(lease));
  REQUIRE(again);
  CHECK(again->state == lease.state);
  CHECK(again->token == a_token);
  CHECK(to_text(*again) == to_text(lease));

  const std::string text = to_text(lease);
  CHECK_FALSE(lease_from_text(""));
  CHECK_FALSE(lease_from_text("ringtrain lease 2 held     \ntoken: " + a_token));
  CHECK_FALSE(lease_from_text("ringtrain lease 1 held     \ntoken: ../../etc/passwd"));
  for (std::size_t end = 0; end < text.size() - 1; ++end)
    CHECK_FALSE(lease_from_text(std::string_view(text).substr(0, end)));
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string hostile = text;
    hostile[at] = '\x1b';
    if (const auto read = lease_from_text(hostile))
      for (const char c : read->holder.text()) CHECK((c >= ' ' && c <= '~'));
  }
  CHECK(to_text(lease).size() < longest_lease);
}

TEST_CASE("Folder lease: a holder on another host that lives is named, and keeps the directory") {
  const TemporaryDirectory directory;
  const FileDescriptor folder = opened(directory);
  const FolderLease owner(folder.get(), "d", far, on_network, {}, short_terms);

  try {
    const FolderLease second(folder.get(), "d", here, on_network, {}, short_terms);
    FAIL("two owners");
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::locked);
    CHECK_THAT(failure.what(), Contains("in use by run old on host far, process 2"));
  }
  CHECK_NOTHROW(owner.require());
  CHECK(names(directory) == std::vector<std::string>{"lock"});
}

TEST_CASE("Folder lease: a holder that is stopped is named, until its process is gone") {
  const TemporaryDirectory directory;
  const FileDescriptor folder = opened(directory);
  const FileSystem file_system = GENERATE(on_disk, on_network);
  const pid_t child = ::fork();
  if (child == 0) {
    std::ofstream(directory / "lock") << lease_of(this_process("old")) << std::flush;
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  for (int i = 0; i < 10'000 && !is_stopped(child); ++i) std::this_thread::sleep_for(1ms);
  const auto take = [&] {
    const FolderLease lease(folder.get(), "d", this_process("new"), file_system, {}, short_terms);
  };

  CHECK_THROWS_WITH(take(), Contains("in use by run old on host ") &&
                                Contains(", which is stopped (state T of") &&
                                Contains("kill -CONT " + std::to_string(child) + " lets it go on"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK_NOTHROW(take());
}

TEST_CASE("Lease: only the very process that it names is seen to live") {
  const LeaseHolder self = this_process("self");
  CHECK(is_seen_alive(self));
  LeaseHolder other = self;
  SECTION("another process of that number") { ++other.started; }
  SECTION("of another container") { ++other.pids; }
  SECTION("of another kernel") { other.boot += "0"; }
  SECTION("of a build that did not say") { other.started = 0; }
  CHECK_FALSE(is_seen_alive(other));
  const auto read = lease_from_text(to_text({.holder = self, .token = a_token}));
  REQUIRE(read);
  CHECK(is_seen_alive(read->holder));
}

TEST_CASE("Folder lease: the lock of a lost host is taken over, and that is said", "[waits]") {
  const TemporaryDirectory directory;
  const FileDescriptor folder = opened(directory);
  const FileDescriptor of_dead = locked_file(directory / "lock", lease_of(far));
  std::vector<std::string> told;
  const LeaseCalls calls{.last_save_timeout_s = 0,
                         .tell = [&](const std::string& text) { told.push_back(text); },
                         .lost = {}};

  const auto start = std::chrono::steady_clock::now();
  FolderLease lease(folder.get(), "d", here, on_network, calls, short_terms);

  CHECK(std::chrono::steady_clock::now() - start >= short_terms.silence);
  CHECK_NOTHROW(lease.require());
  CHECK(lease.take_notes() ==
        std::vector<std::string>{"takes over d from run old on host far, process 2, Slurm job 77: "
                                 "silent for 1.5 s"});
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0], Contains("d is held by run old on host far"));
}

TEST_CASE("Folder lease: who was silent and lost the directory notices, and harms nothing",
          "[waits]") {
  const TemporaryDirectory directory;
  const FileDescriptor folder = opened(directory);
  std::atomic<int> times_lost = 0;
  const LeaseCalls calls{.last_save_timeout_s = 0, .tell = {}, .lost = [&](const std::string&) {
                           return ++times_lost == 2;  // as where nobody listens at first
                         }};
  const LeaseTerms slow_terms{.beat = 4s, .silence = 1500ms, .patience = 100ms};
  auto old = std::make_unique<FolderLease>(folder.get(), "d", far, on_network, calls, slow_terms);
  CHECK_NOTHROW(old->require());

  const FolderLease next(folder.get(), "d", here, on_network, {}, short_terms);

  try {
    old->require();
    FAIL("two owners");
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::locked);
    CHECK_THAT(failure.what(), Contains("run new on host here, process 1 has taken it over"));
  }
  for (int i = 0; i < 1000 && times_lost < 2; ++i) std::this_thread::sleep_for(10ms);
  CHECK(times_lost == 2);
  old.reset();
  CHECK_NOTHROW(next.require());
  CHECK_THAT(file_bytes(directory / "lock"), Contains("lease 1 held") && Contains("run: new"));
}

TEST_CASE("Folder lease: of many that want it at the same moment, one gets it", "[waits]") {
  const bool silent = GENERATE(true, false);
  for (int round = 0; round < 3; ++round) {
    const TemporaryDirectory directory;
    const FileDescriptor folder = opened(directory);
    FileDescriptor of_dead;
    if (silent) of_dead = locked_file(directory / "lock", lease_of(far));
    std::vector<std::unique_ptr<FolderLease>> leases(6);
    std::atomic<int> refused = 0;
    std::vector<std::thread> starters;
    for (std::size_t i = 0; i < leases.size(); ++i)
      starters.emplace_back([&, i] {
        LeaseHolder holder = here;
        holder.host += std::to_string(i);
        try {
          leases[i] = std::make_unique<FolderLease>(folder.get(), "d", holder, on_network,
                                                    LeaseCalls{}, short_terms);
        } catch (const Error& failure) {
          refused += failure.code() == Exit::locked;
        }
      });
    for (std::thread& starter : starters) starter.join();

    CHECK(refused == 5);
    CHECK(std::ranges::count_if(leases, [](const auto& lease) { return lease != nullptr; }) == 1);
    for (const auto& lease : leases)
      if (lease) CHECK_NOTHROW(lease->require());
    CHECK(names(directory) == std::vector<std::string>{"lock"});
  }
}

TEST_CASE("Folder lease: what was given back is taken at once from another host") {
  const TemporaryDirectory directory;
  const FileDescriptor folder = opened(directory);
  LeaseTerms patient = short_terms;
  patient.silence = 1h;
  { const FolderLease first(folder.get(), "d", far, on_network, {}, patient); }
  CHECK_THAT(file_bytes(directory / "lock"), Contains("lease 1 released"));

  const FolderLease second(folder.get(), "d", here, on_network, {}, patient);
  CHECK_NOTHROW(second.require());
}

TEST_CASE("Folder lease: a starter that died while it took the directory is no obstacle",
          "[waits]") {
  const TemporaryDirectory directory;
  const FileDescriptor folder = opened(directory);
  const auto claim = directory / temporary_name("lock", hex(hash_text("is not")));
  write_bytes(claim, "");
  const FileSystem file_system = GENERATE(on_disk, on_network);

  const FolderLease lease(folder.get(), "d", here, file_system, {}, short_terms);

  CHECK_NOTHROW(lease.require());
  CHECK(names(directory) == std::vector<std::string>{"lock"});
}

TEST_CASE("Folder lease: a lock file of any size is read in part, and replaced") {
  const TemporaryDirectory directory;
  const FileDescriptor folder = opened(directory);
  write_bytes(directory / "lock", lease_of(here));
  std::filesystem::resize_file(directory / "lock", std::uintmax_t{1} << 40);

  const FolderLease lease(folder.get(), "d", here, on_disk, {}, short_terms);

  CHECK(std::filesystem::file_size(directory / "lock") < longest_lease);
}

TEST_CASE("Checkpoint directory: who lost it publishes and deletes nothing") {
  const TemporaryDirectory directory;
  const State state(1), next_state(2), last_state(3);
  FileWriter writer(state.layout);
  CheckpointDirectory old(path_of(directory), far, 0, {}, silent_terms);
  old.save(snapshot_of(state), writer);
  old.save(snapshot_of(next_state), writer);
  CheckpointDirectory next(path_of(directory), here, 0, {}, short_terms);
  next.save(snapshot_of(last_state), writer);
  next.write_last_save("of the new one");
  const auto before = names(directory);

  CHECK(code_of([&] { old.save(snapshot_of(State(4)), writer); }) == Exit::locked);
  CHECK(code_of([&] { old.save(snapshot_of(State(3)), writer); }) == Exit::locked);
  CHECK(code_of([&] { old.retain(lineage_a, 1, 3); }) == Exit::locked);
  old.write_last_save("of the old one");

  CHECK(names(directory) == before);
  CHECK(file_bytes(directory / "last-save.txt") == "of the new one");
}

TEST_CASE("Checkpoint directory: retention verifies nothing while its process is wanted") {
  const TemporaryDirectory directory;
  const State one(1), two(2), three(3);
  FileWriter writer(one.layout);
  for (const State* state : {&one, &two})
    CheckpointDirectory(path_of(directory), here, 0).save(snapshot_of(*state), writer);
  CheckpointDirectory owner(path_of(directory), here, 0);
  owner.save(snapshot_of(three), writer);

  owner.retain(lineage_a, 2, 3, [] { return true; });
  CHECK(names(directory).size() == 4);
  owner.retain(lineage_a, 2, 3, [] { return false; });
  CHECK(names(directory) ==
        std::vector<std::string>{"lock", "step-0000000002.h5", "step-0000000003.h5"});
}

TEST_CASE("Checkpoint directory: a temporary that somebody still writes is left alone") {
  const TemporaryDirectory directory;
  const State state(1);
  const auto busy = directory / temporary_name("step-0000000009.h5", "fedcba9876543210-7-0");
  const auto dead = directory / temporary_name("step-0000000008.h5", "fedcba9876543210-7-1");
  write_bytes(dead, "half a checkpoint");
  FileDescriptor living = locked_file(busy, "half a checkpoint");
  FileWriter writer(state.layout);

  CheckpointDirectory owner(path_of(directory), here, 0);
  owner.save(snapshot_of(state), writer);
  owner.retain(lineage_a, 1, 1);

  CHECK(std::filesystem::exists(busy));
  CHECK_FALSE(std::filesystem::exists(dead));
  living = {};
  owner.retain(lineage_a, 1, 1);
  CHECK_FALSE(std::filesystem::exists(busy));
}

TEST_CASE(
    "Checkpoint directory: space that a living writer's temporary takes is waited for, not for "
    "ever",
    "[waits]") {
  const TemporaryDirectory directory;
  const std::string name = temporary_name("step-0000000001.h5", a_token + "-12-3");
  FileDescriptor living = locked_file(directory / name, "half a checkpoint");
  std::vector<std::string> told;
  LeaseCalls calls;
  calls.tell = [&](const std::string& text) { told.push_back(text); };
  const auto seconds_of_refusal = [&] {
    constexpr auto more_than_any_disk = std::numeric_limits<std::uint64_t>::max();
    const auto start = std::chrono::steady_clock::now();
    CHECK(code_of([&] {
            const CheckpointDirectory owner(path_of(directory), here, more_than_any_disk, calls,
                                            short_terms);
          }) == Exit::storage);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };

  CHECK(seconds_of_refusal() >= std::chrono::duration<double>(short_terms.silence).count());
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0], Contains("no room for two checkpoints: waiting whether " + name));
  CHECK(std::filesystem::exists(directory / name));

  told.clear();
  living = {};
  seconds_of_refusal();
  CHECK(told.empty());
  CHECK_FALSE(std::filesystem::exists(directory / name));
}

TEST_CASE("Checkpoint directory: names of temporaries are told from other files'") {
  const std::string maker = a_token + "-12-3";
  CHECK(is_temporary_name(temporary_name("step-0000000001.h5", maker)));
  CHECK(is_temporary_name(temporary_name("lock", a_token)));
  CHECK(is_temporary_name(temporary_name("last-save.txt", maker)));
  CHECK(is_temporary_name(".step-0000000001.h5.tmp"));
  for (const std::string name :
       {".tmp", "", ".", ".lock.tmp", ".other.tmp", ".other.abc.tmp", ".step-1.h5.abc.tmp",
        ".step-0000000001.h5.xyz.tmp", "step-0000000001.h5.abc.tmp", ".step-0000000001.h5..tmp"})
    CHECK_FALSE(is_temporary_name(name));
}

// Both hosts are told that they have the lock, as by NFS mounted with `nolock`.
TEST_CASE("Checkpoint writer: where locks do not hold, the heartbeat tells a second job",
          "[waits]") {
  skip_without_tracing();
  const TemporaryDirectory directory;
  const State state(1);
  const auto granted = [](const SystemCall& call) {
    const bool is_lock = call.number == SYS_fcntl && call.arguments[1] == F_OFD_SETLK;
    return is_lock ? Fate::fail(0) : Fate{};
  };
  WriterProcess first = WriterProcess::start(), second = WriterProcess::start();
  const CallTracer first_tracer(first.pid(), granted), second_tracer(second.pid(), granted);
  CheckpointWriter owner(first, directory, state.layout, {.run_id = "owner"});

  CHECK_THAT(await(owner, SaveEvent::Kind::note).text,
             Contains("has no file locks that hold (a second lock on a file is granted"));
  CHECK_THROWS_WITH(CheckpointWriter(second, directory, state.layout, {.run_id = "second"}),
                    Contains("in use by run owner on host"));
}

// Its lock file was taken away while it was stopped in a save, as a run on another host does it.
TEST_CASE("Checkpoint writer: one that was suspended in a save ends, and the new file is whole") {
  const TemporaryDirectory directory;
  const State state(1, 20'000'000);
  WriterProcess first = WriterProcess::start(), second = WriterProcess::start();
  CheckpointWriter old(first, directory, state.layout, {.run_id = "old"});
  const auto temporary = [&] {
    for (const std::string& name : names(directory))
      if (name.starts_with(".step-")) return name;
    return std::string();
  };
  // On a busy machine a save may be over before the signal has come.
  std::string of_old;
  for (int save = 0; save < 20 && of_old.empty(); ++save) {
    std::filesystem::remove(directory / "step-0000000001.h5");
    REQUIRE(old.try_save(state.metadata, state.copier()));
    bool is_over = false;
    while (temporary().empty() && !is_over) {
      std::this_thread::sleep_for(100us);
      for (const SaveEvent& event : old.poll()) {
        REQUIRE(event.kind != SaveEvent::Kind::failed);
        REQUIRE(event.kind != SaveEvent::Kind::lost);
        is_over = is_over || event.kind == SaveEvent::Kind::saved;
      }
    }
    ::kill(first.pid(), SIGSTOP);
    while (!is_stopped(first.pid())) std::this_thread::sleep_for(100us);
    of_old = temporary();
    // Without its lock it is a dead run's: the writer was stopped as it made it.
    if (!of_old.empty() && is_locked(directory / of_old)) break;
    of_old.clear();
    ::kill(first.pid(), SIGCONT);
    if (!is_over) await(old, SaveEvent::Kind::saved);
  }
  REQUIRE_FALSE(of_old.empty());
  std::filesystem::remove(directory / "lock");

  CheckpointWriter next(second, directory, state.layout, {.run_id = "next"});
  CHECK(std::filesystem::exists(directory / of_old));
  next.try_save(state.metadata, state.copier());
  await(next, SaveEvent::Kind::saved);
  ::kill(first.pid(), SIGCONT);

  CHECK_THAT(await(old, SaveEvent::Kind::lost).text, Contains("run next on host"));
  CHECK(old.lost());
  CHECK(old.failure()->code() == Exit::locked);
  const CheckpointFile file = CheckpointFile::open(directory / "step-0000000001.h5");
  CHECK_NOTHROW(file.verify());
  CHECK(file.run_id() == "next");
  CHECK(names(directory) == std::vector<std::string>{"lock", "step-0000000001.h5"});
}
