#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <source_location>
#include <string_view>

#include "ringtrain/base/unique_handle.hpp"

namespace ringtrain::compute::cuda {

/// Throws Error with CUDA's own words unless `code` is success.
void check(cudaError_t code, std::string_view call,
           std::source_location at = std::source_location::current());

using Stream = UniqueHandle<cudaStream_t, cudaStreamDestroy>;
using Event = UniqueHandle<cudaEvent_t, cudaEventDestroy>;
using Graph = UniqueHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

/// Does not wait for the default stream.
Stream make_stream();
/// For order only: it has no time.
Event make_event();
/// Two of which have a time between them.
Event make_timed_event();
/// Between two that were reached. Throws what went wrong before them.
double microseconds(const Event& from, const Event& to);
/// `later` goes on behind what `earlier` has queued so far.
void follow(cudaStream_t later, const Event& through, cudaStream_t earlier);

/// Whether all that was queued before `event` was recorded is done. Throws what went wrong in it.
bool is_done(const Event& event);

/// Memory of the GPU, aligned to 256 bytes. Throws Error naming the size when there is not enough.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  explicit DeviceBytes(std::size_t bytes);
  std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  std::size_t size() const { return size_; }

 private:
  UniqueHandle<void*, cudaFree> data_;
  std::size_t size_ = 0;
};

/// Memory of the GPU that programs on one stream take turns with: each writes before it reads. Not
/// for several threads.
class SharedBytes {
 public:
  /// What others hold, where that is large enough, else new memory, which is shared from now on. It
  /// stays as long as one of its holders, who go in any order. Throws Error as DeviceBytes does.
  std::shared_ptr<const DeviceBytes> hold(std::size_t bytes);

 private:
  std::weak_ptr<const DeviceBytes> held_;
};

/// Memory of the host that the GPU copies from and to while the host goes on.
class PinnedBytes {
 public:
  PinnedBytes() = default;
  explicit PinnedBytes(std::size_t bytes);
  std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  std::size_t size() const { return size_; }

 private:
  UniqueHandle<void*, cudaFreeHost> data_;
  std::size_t size_ = 0;
};

/// Copies between GPU and host behind all that is queued, and waits until it is there. cudaMemcpy
/// alone does neither: our streams do not wait for the default stream, nor it for them.
void write_and_wait(void* to, const void* from, std::size_t bytes);
void read_and_wait(void* to, const void* from, std::size_t bytes);

/// Records what is queued on a stream, and on streams that follow it and join it again, until
/// finish(): nothing of it runs. Other threads may use CUDA meanwhile.
class Capture {
 public:
  explicit Capture(cudaStream_t stream);
  /// Without finish(), what was recorded is forgotten.
  ~Capture();
  Capture(const Capture&) = delete;
  /// As one unit that launches fast.
  Graph finish();

 private:
  cudaStream_t stream_;  // null: it is over
};

/// What `queue` puts on `stream`, as one graph.
Graph capture(cudaStream_t stream, const std::function<void()>& queue);

}  // namespace ringtrain::compute::cuda
