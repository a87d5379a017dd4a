#pragma once
#include <cstring>
#include <new>

#include "compute/cuda/kernels/arguments/geometry.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain {

/// Runs the work of kernels on the CPU as a GPU would, with its grids, blocks, phases and shared
/// memory, one thread after the other in either order.
class KernelQueue {
 public:
  /// Two ways whose results are equal unless one thread depends on what another does in the same
  /// phase.
  static KernelQueue one_way() { return KernelQueue(Order::ascending); }
  static KernelQueue other_way() { return KernelQueue(Order::descending); }

  template <class Work>
  void items(const Work& work, std::size_t count) {
    const compute::cuda::kernels::Grid grid =
        compute::cuda::kernels::item_grid(compute::cuda::kernels::small(count));
    const std::size_t threads = std::size_t(grid.blocks) * grid.threads;
    each(threads, [&](std::size_t thread) {
      for (std::size_t i = thread; i < count; i += threads) work(static_cast<std::uint32_t>(i));
    });
  }

  template <class Work>
  void blocks(const Work& work, const compute::cuda::kernels::Grid& grid) {
    expects(grid.threads <= compute::cuda::kernels::block_threads,
            "a kernel's threads fit into a block");
    expects(grid.shared_bytes <= 48 << 10, "a kernel's shared memory fits into a block");
    each(grid.blocks, [&](std::size_t block) {
      const Shared shared(grid.shared_bytes);
      for (int phase = 0; phase < work.phases(); ++phase)
        each(grid.threads, [&](std::size_t thread) {
          work(phase, static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(thread),
               shared.data);
        });
    });
  }

 private:
  enum class Order { ascending, descending };

  explicit KernelQueue(Order order) : order_(order) {}

  // Full of what is no number, and of the exact size for tools that watch memory.
  struct Shared {
    explicit Shared(std::size_t bytes)
        : data(static_cast<unsigned char*>(::operator new(bytes, std::align_val_t(16)))) {
      std::memset(data, 0xff, bytes);
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared() { ::operator delete(data, std::align_val_t(16)); }
    unsigned char* data;
  };

  template <class F>
  void each(std::size_t count, F f) const {
    for (std::size_t i = 0; i < count; ++i) f(order_ == Order::ascending ? i : count - 1 - i);
  }

  Order order_;
};

}  // namespace ringtrain
