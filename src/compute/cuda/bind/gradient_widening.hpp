#pragma once
#include <vector>

#include "compute/cuda/kernels/arguments/weights.hpp"
#include "compute/cuda/runtime/runtime.hpp"
#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/compute/step.hpp"

namespace ringtrain::compute::cuda {

/// Brings weight gradients, which cuDNN writes in 16 bits, into the flat fp32 buffer: all that a
/// bucket of sums wants in one launch, instead of one a tensor.
class GradientWidening {
 public:
  /// `gradients` is the whole buffer. All work is queued on `stream`.
  GradientWidening(Element element, View gradients, cudaStream_t stream)
      : element_(element), gradients_(gradients), stream_(stream) {}

  /// From now on, the gradient of `range` lies in `from`, aligned to 16 bytes.
  void add(ParameterRange range, const void* from);
  /// After the last add(). Waits.
  void complete();

  /// At the start of a backward pass.
  void begin() { queued_ = 0; }
  /// Queues those of parameters from `first` on that were not since begin(). Their own steps are
  /// queued.
  void queue(std::size_t first);
  std::size_t bytes() const { return tiles_.size(); }

 private:
  struct Tile {
    std::size_t first;  // parameter of its whole range
    kernels::WidenTile at;
  };

  const Element element_;
  const View gradients_;
  const cudaStream_t stream_;
  std::vector<Tile> sorted_;  // the last parameters first, as backward makes them final
  DeviceBytes tiles_;
  std::size_t queued_ = 0;
};

}  // namespace ringtrain::compute::cuda
