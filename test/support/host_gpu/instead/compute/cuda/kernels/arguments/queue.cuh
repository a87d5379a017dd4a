#pragma once
#include <string>
#include <typeinfo>

#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "ringtrain/base/error.hpp"
#include "support/host_gpu/device.hpp"
#include "support/host_kernels/kernel_queue.hpp"

// Takes the place of the header with this name, so that the kernels' own files compile for the CPU.
namespace ringtrain::compute::cuda::kernels {

/// Queues work on a stream of the simulated GPU; it runs in one of two ways, drawn at random.
class StreamQueue {
 public:
  explicit StreamQueue(cudaStream_t stream) : stream_(stream) {}

  template <class Work>
  void items(const Work& work, std::size_t count) {
    if (compute::cuda::kernels::small(count) == 0) return;
    launch<Work>([=](KernelQueue& queue) { queue.items(work, count); });
  }

  template <class Work>
  void blocks(const Work& work, const compute::cuda::kernels::Grid& grid) {
    if (grid.blocks == 0) return;
    launch<Work>([=](KernelQueue& queue) { queue.blocks(work, grid); });
  }

 private:
  template <class Work, class Run>
  void launch(Run run) {
    host_gpu::call([&](host_gpu::Device& gpu) {
      return gpu.submit(
          stream_, typeid(Work).name(),
          [run, &gpu] {
            gpu.observe(std::string("kernel ") + typeid(Work).name());
            run_in_some_way(gpu, run);
          },
          &host_gpu::Counts::kernels);
    });
    if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess)
      throw Error("launch of a kernel", cudaGetErrorString(code));
  }
  template <class Run>
  static void run_in_some_way(host_gpu::Device& gpu, const Run& run) {
    KernelQueue queue =
        gpu.scheduler.draw(2) == 0 ? KernelQueue::one_way() : KernelQueue::other_way();
    run(queue);
  }

  cudaStream_t stream_;
};

}  // namespace ringtrain::compute::cuda::kernels
