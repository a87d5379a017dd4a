#pragma once
#include <cstddef>
#include <functional>
#include <memory>

#include "ringtrain/base/memory/view.hpp"

namespace ringtrain {

/// Sole owner of a flat fp32 buffer, whatever memory it lies in.
class Buffer {
 public:
  Buffer() = default;
  Buffer(View view, std::function<void(float*)> release)
      : data_(view.data(), std::move(release)), size_(view.size()) {}

  View view() const { return {data_.get(), size_}; }
  operator View() const { return view(); }

 private:
  std::unique_ptr<float[], std::function<void(float*)>> data_;
  std::size_t size_ = 0;
};

/// Where buffers come from: the host's heap, a window shared by the ranks of a host, a GPU.
class Memory {
 public:
  virtual ~Memory() = default;
  /// A zeroed buffer of `count` floats, aligned to at least 64 bytes. Collective where the memory
  /// is shared between ranks. Throws Error naming the size when there is not enough.
  virtual Buffer allocate(std::size_t count) = 0;
  /// Copies values to and from the host, and waits until they are there. Of as many numbers.
  virtual void read(View from, std::span<float> to) const;
  virtual void write(std::span<const float> from, View to) const;
};

/// The host's heap, aligned to pages; large buffers ask for huge pages.
class HostMemory final : public Memory {
 public:
  Buffer allocate(std::size_t count) override;
};

/// Addresses of the host with no memory behind them until they are touched, then zeroed: for plans
/// of what does not fit.
class ReservedMemory final : public Memory {
 public:
  Buffer allocate(std::size_t count) override;
  /// Bytes of all that was allocated.
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace ringtrain
