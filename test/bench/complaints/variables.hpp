#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/base/memory/memory.hpp"
#include "ringtrain/optim/optimizer.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain {

/// How the gradients of several workers become updates: each by itself as it comes, or the sum of
/// one of each worker.
enum class Updates { asynchronous, synchronous };

/// The weights of a parameter server: one variable for each parameter tensor of the network, in its
/// order, with a lock of its own, under which updates are made. Weights are read without it, as
/// TensorFlow's are: what a worker gets may be between two updates of others, if these come
/// asynchronously. Any thread may call any member.
class Variables {
 public:
  /// `plan` is of `workers` ranks and outlives this. Throws Error(Exit::usage) for an optimizer
  /// other than sgd and momentum.
  Variables(const train::RunPlan& plan, int workers, Updates updates);

  std::size_t count() const { return variables_.size(); }
  std::span<const float> weights(std::size_t variable) const;
  /// Where the worker's gradient of a variable is to be written, before push().
  std::span<float> inbox(int worker, std::size_t variable) const;
  /// The worker's gradient has come: makes the update, if it is complete.
  void push(int worker, std::size_t variable);
  /// Waits until so many gradients of the worker are in the weights.
  void wait_for(int worker, std::size_t variable, int gradients) const;
  /// All weights as raw floats, under another name first. Throws Error(Exit::storage).
  void save(const std::string& path) const;

 private:
  struct Variable {
    Range range;
    float decay = 0;
    std::mutex mutex;
    int arrived = 0;                         // gradients of the sum under way
    std::int64_t updates = 0;                // made so far
    std::vector<std::atomic<int>> answered;  // by worker: its gradients that are in the weights
  };

  void apply(Variable& variable, std::span<const float> gradient);

  const train::RunPlan& plan_;
  const int workers_;
  const Updates updates_;
  const std::int64_t samples_;  // in one update
  HostMemory memory_;
  Buffer weights_, momentum_;
  std::vector<Buffer> inboxes_;  // by worker
  std::vector<Variable> variables_;
};

}  // namespace ringtrain
