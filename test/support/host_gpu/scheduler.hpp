#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

namespace ringtrain::host_gpu {

using Work = std::function<void()>;
/// Work that may have to wait for others: asked again until it answers that it is done.
using Attempt = std::function<bool()>;

/// Queued work. It runs after what precedes it on its stream, and after `after`.
struct Operation {
  const char* name;
  Attempt run;  ///< empty: only order
  std::vector<std::shared_ptr<Operation>> after;
  std::uint64_t finished = 0;  ///< when, in operations; 0: not yet
};
using OperationPtr = std::shared_ptr<Operation>;

struct Capture;

struct Stream {
  bool blocking = false;  ///< ordered with the default stream
  std::deque<OperationPtr> queued = {};
  OperationPtr last = nullptr;                 ///< queued last, perhaps done
  std::shared_ptr<Capture> capture = nullptr;  ///< that this stream takes part in
  std::vector<std::size_t> tips = {};          ///< nodes that its next node follows
  bool destroyed = false;
};

/// All streams, and who is next.
class Scheduler {
 public:
  Scheduler();

  void set_seed(std::uint64_t seed) { random_.seed(seed); }
  /// Below `bound`, which is positive.
  std::size_t draw(std::size_t bound) { return random_() % bound; }

  Stream* create(bool blocking);
  /// What it has queued will run.
  void destroy(Stream* stream);
  /// Null is the default stream.
  Stream& stream(cudaStream_t handle);

  OperationPtr queue(Stream& stream, const char* name, Attempt work,
                     std::vector<OperationPtr> after = {});
  /// Runs ready work of any stream until `target` is done; null is done. False: it waits for
  /// others.
  bool run_until(const OperationPtr& target);
  /// Likewise, of everything.
  bool run_all();
  /// Runs a few operations, or none.
  void run_some();

  /// The time, which goes on with every operation and every look at it.
  std::uint64_t now() { return ++clock_; }

  /// What runs takes so much longer.
  void take(std::uint64_t microseconds) { clock_ += microseconds; }

  /// The name of something queued; null when there is nothing.
  const char* pending() const;
  void drop_pending();

 private:
  enum class Ran { one, nothing, waits };
  Ran run_one();
  bool advance(Stream* stream);
  std::vector<Stream*> ready();

  std::vector<std::unique_ptr<Stream>> streams_;  // the default stream first
  std::mt19937_64 random_;
  Stream* favourite_ = nullptr;
  std::uint64_t clock_ = 0;
};

}  // namespace ringtrain::host_gpu

/// CUDA's own, incomplete name.
struct CUstream_st : ringtrain::host_gpu::Stream {};
