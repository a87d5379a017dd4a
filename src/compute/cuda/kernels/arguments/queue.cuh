#pragma once
#include <cuda_runtime.h>

#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::compute::cuda::kernels {

template <class Work>
__global__ void __launch_bounds__(block_threads) run_items(const Work work, std::size_t count) {
  const std::size_t stride = std::size_t(gridDim.x) * blockDim.x;
  for (std::size_t i = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    work(static_cast<std::uint32_t>(i));
}

template <class Work>
__global__ void __launch_bounds__(block_threads, least_blocks<Work>) run_blocks(const Work work) {
  extern __shared__ __align__(16) unsigned char shared[];
  for (int phase = 0; phase < work.phases(); ++phase) {
    if (phase > 0) __syncthreads();
    work(phase, blockIdx.x, threadIdx.x, shared);
  }
}

/// Launches work on a stream. Work is written so that a loop over its items, or over its blocks,
/// phases and threads, does the same on a CPU.
class StreamQueue {
 public:
  explicit StreamQueue(cudaStream_t stream) : stream_(stream) {}

  /// work(i) for every i below `count`, in any order.
  template <class Work>
  void items(const Work& work, std::size_t count) {
    const Grid grid = item_grid(small(count));
    if (grid.blocks == 0) return;
    run_items<<<grid.blocks, grid.threads, 0, stream_>>>(work, count);
    check("launch of a kernel");
  }

  /// work(phase, block, thread, shared) for every block and thread; a block's threads enter a phase
  /// together, and share `shared`.
  template <class Work>
  void blocks(const Work& work, const Grid& grid) {
    if (grid.blocks == 0) return;
    run_blocks<<<grid.blocks, grid.threads, grid.shared_bytes, stream_>>>(work);
    check("launch of a kernel");
  }

 private:
  static void check(const char* what) {
    if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess)
      throw Error(what, cudaGetErrorString(code));
  }

  cudaStream_t stream_;
};

}  // namespace ringtrain::compute::cuda::kernels
