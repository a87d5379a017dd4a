#pragma once
#include <string>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/compute/gpu.hpp"

namespace ringtrain::train {

/// Which of cuDNN's engines the ranks use: on each kind of GPU those of the first rank that has
/// one, so that equal GPUs round alike and only one of them times.
class EngineChoices {
 public:
  /// What was known before the job becomes the same on equal GPUs. `backend`: before it is asked
  /// for anything; it and `session` outlive this object. Collective.
  EngineChoices(compute::GpuBackend& backend, const allreduce::MpiSession& session);

  /// Whether this rank's choices are the others'.
  bool leads() const { return leader_of_[rank()] == session_.rank(); }
  /// Brings what the leaders have timed since to those that follow them, who come here first.
  /// Waits for the leaders. Collective.
  void share();

 private:
  std::size_t rank() const { return static_cast<std::size_t>(session_.rank()); }

  compute::GpuBackend& backend_;
  const allreduce::MpiSession& session_;
  std::vector<int> leader_of_;  // of each rank
};

}  // namespace ringtrain::train
