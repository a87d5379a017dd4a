// Changed checkpoints, thousands of them. More, from another row, with nothing but numbers printed:
//   RINGTRAIN_MUTANTS=100000 RINGTRAIN_SEED=7 build/release/test/unit/io/test_io 'Checkpoint
//   reader: *mutants*'
#include "unit/io/checkpoint/checkpoint_mutants.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <sstream>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "support/catch.hpp"
#include "support/memory_limit.hpp"
#include "unit/io/checkpoint/checkpoint_bytes.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using ringtrain::test::Mutant;
using ringtrain::test::Mutants;

namespace {

constexpr rlim_t most_memory = 64 << 20;
constexpr std::chrono::seconds most_time{5};
constexpr std::size_t longest_message = 16 << 10;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr ? otherwise : std::strtoull(given, nullptr, 10);
}

/// What the judge found; in memory that outlives it.
struct Verdicts {
  std::uint64_t judged = 0, accepted = 0, silent = 0, strange = 0;
  double slowest_s = 0;
  char kind[100] = {}, slowest_kind[100] = {}, wrong[1000] = {};
};

void note(char (&text)[1000], const Mutant& mutant, const std::string& what) {
  if (text[0] == 0) std::snprintf(text, sizeof text, "%s: %s", mutant.kind.c_str(), what.c_str());
}

/// Everything that is done with a checkpoint from elsewhere. True when nothing was said against it.
bool accepted(const std::filesystem::path& path, const State& state) {
  const CheckpointFile file = CheckpointFile::open(path);
  file.verify();
  static_cast<void>(inspect(path));
  static_cast<void>(read_all(file, state));
  return true;
}

void judge(const std::filesystem::path& path, const State& state, const Mutant& mutant,
           Verdicts& verdicts) {
  try {
    if (accepted(path, state)) {
      ++verdicts.accepted;
      verdicts.silent += !mutant.mended;
      if (!mutant.mended) note(verdicts.wrong, mutant, "accepted");
    }
  } catch (const Error& failure) {
    const std::string what = failure.what();
    const bool damage = failure.code() == Exit::no_valid_checkpoint;
    const bool other_model = failure.code() == Exit::incompatible_checkpoint;
    const bool right = damage || (other_model && mutant.mended);
    if (right && what.size() <= longest_message && printable(what) == what) return;
    ++verdicts.strange;
    note(verdicts.wrong, mutant, printable(what.substr(0, 900)));
  }
}

void write_mutant(int file, const Mutant& mutant) {
  REQUIRE(::ftruncate(file, 0) == 0);
  REQUIRE(::pwrite(file, mutant.bytes.data(), mutant.bytes.size(), 0) ==
          static_cast<ssize_t>(mutant.bytes.size()));
  REQUIRE(::ftruncate(file, static_cast<off_t>(mutant.length)) == 0);
}

/// Seconds of processor time that `mutant` took.
double judge_in_limits(const std::filesystem::path& path, const State& state, const Mutant& mutant,
                       Verdicts& verdicts) {
  const MemoryLimit limit(most_memory +
                          sizeof(float) * (state.buffers[0].size() + state.buffers[1].size()));
  ::alarm(60 *
          most_time.count());  // a hang; slow is what takes the processor, whoever else wants it
  const std::clock_t start = std::clock();
  try {
    judge(path, state, mutant, verdicts);
  } catch (const std::exception& escaped) {
    ++verdicts.strange;
    note(verdicts.wrong, mutant, escaped.what());
  }
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

/// Judges `count` mutants and ends the process; by a signal where one is a crash or a hang.
[[noreturn]] void judge_all(Mutants mutants, std::uint64_t count, const State& state,
                            Verdicts& verdicts) {
  const FileDescriptor file(::memfd_create("mutant", MFD_CLOEXEC));
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  for (; verdicts.judged < count; ++verdicts.judged) {
    const Mutant mutant = mutants.next();
    std::snprintf(verdicts.kind, sizeof verdicts.kind, "%s", mutant.kind.c_str());
    write_mutant(file.get(), mutant);
    const double seconds = judge_in_limits(path, state, mutant, verdicts);
    if (seconds <= verdicts.slowest_s) continue;
    verdicts.slowest_s = seconds;
    std::memcpy(verdicts.slowest_kind, verdicts.kind, sizeof verdicts.kind);
  }
  ::_exit(0);
}

/// Files of one tensor table, as a program makes them: another step, another run, another size.
std::vector<std::string> originals(const State& state) {
  const TemporaryDirectory directory;
  State later(8), other(7, 700);
  later.metadata.config = R"({"lr":0.1,"model":"tiny","steps":100})";
  return {file_bytes(save_one(directory / "a", state)),
          file_bytes(save_one(directory / "b", later, "another-run")),
          file_bytes(save_one(directory / "c", other))};
}

}  // namespace

TEST_CASE("Checkpoint reader: mutants are refused, or harmless where their hashes are mended") {
  const std::uint64_t count =
      from_environment("RINGTRAIN_MUTANTS", memory_is_limited ? 4000 : 1000);
  const State state(7);
  Mutants mutants(originals(state), from_environment("RINGTRAIN_SEED", 1));
  void* shared =
      ::mmap(nullptr, sizeof(Verdicts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto& verdicts = *new (shared) Verdicts;

  const pid_t judging = ::fork();
  if (judging == 0) judge_all(std::move(mutants), count, state, verdicts);
  int status = 0;
  ::waitpid(judging, &status, 0);

  fmt::print("{} mutants: {} accepted with mended hashes, slowest {:.0f} ms ({})\n",
             verdicts.judged, verdicts.accepted - verdicts.silent, verdicts.slowest_s * 1e3,
             verdicts.slowest_kind);
  CAPTURE(verdicts.judged, std::string(verdicts.kind), std::string(verdicts.wrong));
  CHECK(WIFEXITED(status));  // else a crash or a hang, at this mutant of this kind
  CHECK(verdicts.judged == count);
  CHECK(verdicts.silent == 0);
  CHECK(verdicts.strange == 0);
  CHECK(verdicts.accepted > count / 100);  // what lies behind the index is reached
  CHECK(verdicts.slowest_s < std::chrono::duration<double>(most_time).count());
  ::munmap(shared, sizeof(Verdicts));
}
