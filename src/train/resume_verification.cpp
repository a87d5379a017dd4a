#include "train/resume_verification.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include "ringtrain/allreduce/mpi/agreement.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"

namespace ringtrain::train {
namespace {

namespace fs = std::filesystem;

// On rank 0 a new folder, which goes with the object; nothing on the others.
class OwnFolder {
 public:
  /// In `parent`; where that is empty, in the system's temporary folder.
  OwnFolder(const fs::path& parent, const allreduce::MpiSession& session) {
    const auto make = [&] { return session.rank() == 0 ? made_in(parent) : fs::path(); };
    path_ = allreduce::all_or_none(make, session);
  }
  ~OwnFolder() { remove(); }
  OwnFolder(const OwnFolder&) = delete;

  const fs::path& path() const { return path_; }
  void remove() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }

 private:
  static fs::path made_in(fs::path parent) {
    std::error_code ignored;
    if (parent.empty()) parent = fs::temp_directory_path(ignored);
    fs::create_directories(parent, ignored);
    std::string name = (parent / "verify-resume-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw Error(Exit::storage, "--verify-resume in " + parent.string(),
                  std::generic_category().message(errno) +
                      "; name a folder that can be written with --checkpoint-dir");
    return name;
  }

  fs::path path_;
};

// "rank 1: weights/fc.bias and 2 more of 12 tensors", empty where the two are the same.
std::string differences_of(const PartResult& straight, const PartResult& resumed, int rank) {
  std::vector<std::string> names;
  for (std::size_t t = 0; t < straight.tensors.size(); ++t)
    if (straight.hashes[t] != resumed.hashes[t]) names.push_back(straight.tensors[t]);
  if (names.empty()) return "";
  const std::size_t shown = std::min<std::size_t>(names.size(), 5);
  std::string text = fmt::format("\n  rank {}: {}", rank, names[0]);
  for (std::size_t n = 1; n < shown; ++n) text += ", " + names[n];
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return fmt::format("{} (of {} tensors)", text, straight.tensors.size());
}

// Of all ranks, on all of them.
std::string differences(const PartResult& straight, const PartResult& resumed,
                        const allreduce::MpiSession& session) {
  std::string all;
  if (straight.end.step != resumed.end.step || straight.end.samples != resumed.end.samples)
    all =
        fmt::format("\n  the resumed training is at step {}, sample {}, not {}, {}",
                    resumed.end.step, resumed.end.samples, straight.end.step, straight.end.samples);
  for (const std::string& one : session.gather(differences_of(straight, resumed, session.rank())))
    all += one;
  return session.broadcast(all);
}

std::string advice(const config::Options& options) {
  if (options.device != config::Device::cuda || options.deterministic) return "";
  return "\n  on GPUs the same bits every time need --deterministic";
}

// So many steps, with a checkpoint and a resume amid them.
PartResult train_in_two(std::uint64_t steps, const config::Resume& start, const fs::path& folder,
                        const TrainPart& train) {
  const PartResult half = train({steps / 2, start, folder, true});
  if (half.exit_code != 0) return half;
  TrainingPart second;
  second.steps = steps - steps / 2;
  second.directory = folder;
  return train(second);
}

void check_length(std::uint64_t steps, const allreduce::MpiSession& session) {
  if (steps < 2)
    session.fail_together(
        fmt::format("--verify-resume: training ends {} steps from here, too few to interrupt; with "
                    "--resume never it starts from scratch",
                    steps),
        Exit::usage);
}

}  // namespace

int verify_resume(const config::Options& options, const allreduce::MpiSession& session,
                  const std::function<void(const std::string&)>& say, const TrainPart& train) {
  const auto most = static_cast<std::uint64_t>(*options.verify_resume);
  const fs::path parent = options.checkpoint_dir;
  OwnFolder(parent, session).remove();  // where that cannot be, it is told before the first step
  const PartResult straight = train({most, options.resume, options.checkpoint_dir, false});
  if (straight.exit_code != 0) return straight.exit_code;
  const std::uint64_t steps = straight.end.step - straight.start.step;
  check_length(steps, session);
  say(fmt::format("verify-resume: {} steps from step {}, straight: state-hash {}", steps,
                  straight.start.step, hex(straight.state_hash)));

  config::Resume start{config::Resume::From::scratch};
  if (!straight.resumed_from.empty())
    start = {config::Resume::From::file, straight.resumed_from.string()};
  OwnFolder folder(parent, session);
  const PartResult resumed = train_in_two(steps, start, folder.path(), train);
  if (resumed.exit_code != 0) return resumed.exit_code;
  say(fmt::format("verify-resume: the same with a resume from {} at step {}: state-hash {}",
                  resumed.resumed_from.string(), resumed.start.step, hex(resumed.state_hash)));

  folder.remove();
  const std::string differing = differences(straight, resumed, session);
  if (!differing.empty())
    session.fail_together(
        "verify-resume: FAILED: a resumed training has other bits:" + differing + advice(options),
        Exit::internal);
  say(fmt::format("verify-resume: passed: all {} tensors have the same bits on {} rank{}",
                  straight.tensors.size(), session.size(), session.size() == 1 ? "" : "s"));
  return 0;
}

}  // namespace ringtrain::train
