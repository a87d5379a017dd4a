#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "train/state/training_state.hpp"

namespace ringtrain::train {

/// Makes sure now and then that all ranks still train the same numbers: each hashes its whole
/// training state, and the hashes are compared. Nothing else would tell of a flipped bit, as the
/// ranks' gradients are summed all the same.
class ReplicaCheck {
 public:
  /// `every`: steps between two checks; 0: none is ever made. What is passed outlives the object.
  ReplicaCheck(const TrainingState& state, const allreduce::MpiSession& session,
               std::uint64_t every, std::uint64_t first_step);

  /// Whether there is something to check after step `step`, or after the `last` one.
  bool due(std::uint64_t step, bool last) const;
  /// A check where one is due. Where ranks differ it calls `distrust`, and ends the job with
  /// Exit::internal, naming ranks, hosts and tensors. Collective; waits for what computes the
  /// state.
  void offer(std::uint64_t step, bool last, const std::function<void()>& distrust);

 private:
  void check(std::uint64_t step, const std::function<void()>& distrust);
  [[noreturn]] void fail(std::uint64_t step, const std::string& hashes) const;

  const TrainingState& state_;
  const allreduce::MpiSession& session_;
  std::uint64_t every_;
  std::uint64_t equal_at_;  // the step after which all ranks were equal last
};

/// One rank's hashes, one a tensor.
struct RankHashes {
  std::string host;
  std::vector<std::string> hashes;
};
/// A line for each rank whose hashes are not those that most ranks have, with the first tensor that
/// differs; empty when none does. `names`: of the tensors.
std::string diverged_ranks(const std::vector<std::string>& names,
                           const std::vector<RankHashes>& ranks);

}  // namespace ringtrain::train
