#pragma once
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <new>
#include <span>
#include <vector>

#include "compute/cuda/kernels/geometry.hpp"

namespace ringtrain {

/// Runs the work of kernels on the CPU as a GPU would, with its grids, blocks, phases and shared
/// memory, one thread after the other in either order.
class HostQueue {
 public:
  enum class Order { ascending, descending };

  explicit HostQueue(Order order) : order_(order) {}

  template <class Work>
  void items(const Work& work, std::size_t count) {
    const cuda::kernels::Grid grid = cuda::kernels::item_grid(cuda::kernels::small(count));
    const std::size_t threads = std::size_t(grid.blocks) * grid.threads;
    each(threads, [&](std::size_t thread) {
      for (std::size_t i = thread; i < count; i += threads) work(static_cast<std::uint32_t>(i));
    });
  }

  template <class Work>
  void blocks(const Work& work, const cuda::kernels::Grid& grid) {
    REQUIRE(grid.threads <= cuda::kernels::block_threads);
    REQUIRE(grid.shared_bytes <= 48 << 10);
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

/// Runs `launch(queue)` with threads in ascending and in descending order: where one thread depends
/// on what another does in the same phase, `results` differ. They are left as a launch leaves them.
template <class Launch>
void run_in_both_orders(std::vector<std::span<std::byte>> results, Launch launch) {
  std::vector<std::vector<std::byte>> before, first;
  for (const auto result : results) before.emplace_back(result.begin(), result.end());
  HostQueue ascending(HostQueue::Order::ascending), descending(HostQueue::Order::descending);
  launch(ascending);
  for (std::size_t i = 0; i < results.size(); ++i) {
    first.emplace_back(results[i].begin(), results[i].end());
    std::ranges::copy(before[i], results[i].begin());
  }
  launch(descending);
  for (std::size_t i = 0; i < results.size(); ++i) {
    CAPTURE(i);
    REQUIRE(std::ranges::equal(first[i], results[i]));
  }
}

template <class T>
std::span<std::byte> bytes_of_values(T& values) {
  if constexpr (requires { std::span(values); })
    return std::as_writable_bytes(std::span(values));
  else
    return std::as_writable_bytes(std::span(&values, 1));
}

/// The Euclidean length of the difference, by that of what is expected.
template <class A, class B>
double relative_norm(const A& actual, const B& expected) {
  double difference = 0, length = 1e-60;
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double d = double(actual[i]) - double(expected[i]);
    if (!std::isfinite(d)) return INFINITY;
    difference += d * d;
    length += double(expected[i]) * double(expected[i]);
  }
  return std::sqrt(difference / length);
}

}  // namespace ringtrain
