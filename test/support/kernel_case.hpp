#pragma once
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "compute/cuda/kernels/device/lanes.hpp"
#include "compute/reference/state.hpp"
#include "kernel_queue.hpp"
#include "ringtrain/base/philox.hpp"
#include "support/catch.hpp"

namespace ringtrain {

/// Runs `launch(queue)` twice, in two ways if there are; `results`, left as a launch leaves them,
/// must be the same to the bit.
template <class Launch>
void run_twice(std::vector<std::span<std::byte>> results, Launch launch) {
  std::vector<std::vector<std::byte>> before, first;
  for (const auto result : results) before.emplace_back(result.begin(), result.end());
  KernelQueue one = KernelQueue::one_way(), other = KernelQueue::other_way();
  launch(one);
  for (std::size_t i = 0; i < results.size(); ++i) {
    first.emplace_back(results[i].begin(), results[i].end());
    std::ranges::copy(before[i], results[i].begin());
  }
  launch(other);
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

/// Elements of one type as a GPU would hold them, aligned like its memory, or starting `skipped`
/// elements behind; no numbers at first.
class DeviceTensor {
 public:
  DeviceTensor(Element element, std::size_t count, std::size_t skipped = 0)
      : element_(element),
        skipped_(skipped * bytes_of(element)),
        bytes_(count * bytes_of(element)),
        data_(static_cast<std::byte*>(::operator new(skipped_ + bytes_, std::align_val_t(64)))) {
    std::memset(first(), 0xff, bytes_);
  }

  void* data() const { return first(); }
  std::span<std::byte> bytes() const { return {first(), bytes_}; }

  /// Rounds to the element type.
  void write(std::span<const double> values) {
    compute::cuda::kernels::with_type(element_, [&]<class T>(T) {
      T* to = reinterpret_cast<T*>(first());
      for (const double v : values) *to++ = static_cast<T>(static_cast<float>(v));
    });
  }
  std::vector<double> read() const {
    std::vector<double> values(bytes_ / bytes_of(element_));
    compute::cuda::kernels::with_type(element_, [&]<class T>(T) {
      const T* from = reinterpret_cast<const T*>(first());
      for (double& v : values) v = static_cast<double>(static_cast<float>(*from++));
    });
    return values;
  }

 private:
  struct Free {
    void operator()(std::byte* data) const { ::operator delete(data, std::align_val_t(64)); }
  };
  std::byte* first() const { return data_.get() + skipped_; }

  Element element_;
  std::size_t skipped_, bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

inline double tolerance(Element element) { return element == Element::fp32 ? 1e-5 : 1e-2; }

inline compute::Schedule schedule_of(std::vector<compute::Shape> tensors) {
  compute::Schedule schedule;
  schedule.tensors = std::move(tensors);
  return schedule;
}

/// Tensors of one element type for kernels and, with the same values, for the reference.
class KernelCase {
 public:
  /// Tensors before `first_written` are random, through `map`; the others are results.
  KernelCase(Element element, const compute::Schedule& schedule, compute::TensorId first_written,
             const std::function<double(double)>& map = {})
      : state(schedule, seed), element_(element) {
    for (compute::TensorId id = 0; id < static_cast<compute::TensorId>(schedule.tensors.size());
         ++id) {
      device_.emplace_back(element, schedule.tensors[id].elements());
      if (id < first_written) fill(id, map);
    }
  }
  KernelCase(Element element, std::vector<compute::Shape> shapes, compute::TensorId first_written,
             const std::function<double(double)>& map = {})
      : KernelCase(element, schedule_of(std::move(shapes)), first_written, map) {}

  static constexpr std::uint64_t seed = 0x123456789abcull;
  compute::reference::State state;

  void* operator[](compute::TensorId id) const {
    return id == compute::no_tensor ? nullptr : device_[id].data();
  }
  std::size_t pixels(compute::TensorId id) const { return state.shape(id).pixels(); }
  std::size_t channels(compute::TensorId id) const { return state.shape(id).channels; }
  std::size_t elements(compute::TensorId id) const { return state.shape(id).elements(); }
  std::vector<double> read(compute::TensorId id) const { return device_[id].read(); }

  /// Writes the kernel's copy of a tensor from the reference's.
  void write(compute::TensorId id) {
    device_[id].write(state[id]);
    state[id] = device_[id].read();
  }
  /// Moves the kernel's copy of a tensor to where it is aligned to its elements only.
  void misalign(compute::TensorId id) {
    const auto values = device_[id].read();
    device_[id] = DeviceTensor(element_, values.size(), 1);
    device_[id].write(values);
  }
  /// Runs a kernel, whose results are `written`, and the reference's `step`; compares `written`.
  template <class Launch>
  void check(const compute::Step& step, std::vector<compute::TensorId> written, Launch launch) {
    run_kernel(written, launch);
    compute::reference::run_step(step, state);
    for (const compute::TensorId id : written) {
      CAPTURE(id);
      CHECK(relative_norm(device_[id].read(), state[id]) < tolerance(element_));
    }
  }
  template <class Launch>
  void run_kernel(const std::vector<compute::TensorId>& written, Launch launch,
                  std::vector<std::span<std::byte>> more = {}) {
    for (const compute::TensorId id : written) more.push_back(device_[id].bytes());
    run_twice(more, launch);
  }

 private:
  void fill(compute::TensorId id, const std::function<double(double)>& map) {
    Philox random(id, Purpose::initialise);
    for (double& v : state[id]) {
      v = random.normal();
      if (map) v = map(v);
    }
    write(id);
  }

  Element element_;
  std::vector<DeviceTensor> device_;
};

}  // namespace ringtrain
