#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/base/late_library.hpp"
#include "ringtrain/base/memory/view.hpp"

struct ncclComm;
struct CUstream_st;
struct CUevent_st;

namespace ringtrain::allreduce {

using NcclComm = ncclComm*;
using GpuStream = CUstream_st*;
using GpuEvent = CUevent_st*;

/// NCCL's answer to a call. The numbers are NCCL's; all that are not named here are failures, too.
enum class NcclResult : int { success = 0, internal_error = 3, remote_error = 6, in_progress = 7 };

/// What ranks find each other by.
using NcclId = std::array<std::byte, 128>;

enum class Reduction { sum, average };

/// The calls of NCCL and CUDA that sums between GPUs are made of, one function each and without
/// logic, so that tests can record them. NCCL's return their result; CUDA's throw Error. Streams
/// and events belong to the device of the calling thread.
class NcclApi {
 public:
  virtual ~NcclApi() = default;

  virtual NcclResult get_unique_id(NcclId& id) = 0;
  /// Starts to make a communicator whose calls do not block, and sets `comm` at once; or, where
  /// they shall block, makes it.
  virtual NcclResult comm_init_rank(NcclComm& comm, int size, const NcclId& id, int rank,
                                    bool blocking) = 0;
  virtual NcclResult comm_get_async_error(NcclComm comm, NcclResult& state) = 0;
  virtual NcclResult comm_finalize(NcclComm comm) = 0;
  virtual void comm_destroy(NcclComm comm) noexcept = 0;
  virtual void comm_abort(NcclComm comm) noexcept = 0;
  /// Zero-copy access of NCCL to `bytes` at `data`.
  virtual NcclResult comm_register(NcclComm comm, void* data, std::size_t bytes, void*& handle) = 0;
  virtual NcclResult comm_deregister(NcclComm comm, void* handle) = 0;
  /// In place, of `count` elements.
  virtual NcclResult all_reduce(void* data, std::size_t count, Element element, Reduction reduction,
                                NcclComm comm, GpuStream stream) = 0;
  /// Sums of `part` floats a rank: `all` has a part for each, and this rank's, `own`, gets its
  /// sums.
  virtual NcclResult reduce_scatter(const float* all, float* own, std::size_t part, NcclComm comm,
                                    GpuStream stream) = 0;
  /// Gathers `part` floats a rank: `all` gets `own` of each, which lies in its place there already.
  virtual NcclResult all_gather(const float* own, float* all, std::size_t part, NcclComm comm,
                                GpuStream stream) = 0;
  /// This thread's calls until group_end() are made there, together.
  virtual NcclResult group_start() = 0;
  virtual NcclResult group_end() = 0;
  /// In place, of `count` floats.
  virtual NcclResult broadcast(float* data, std::size_t count, int root, NcclComm comm,
                               GpuStream stream) = 0;
  /// `result` and the last error of `comm` in NCCL's words.
  virtual std::string words(NcclResult result, NcclComm comm) = 0;

  /// PCI bus ids of the GPUs that this process may use, by device number. Throws
  /// Error(Exit::usage) with CUDA's words where there is no driver or no GPU.
  virtual std::vector<std::string> visible_devices() = 0;
  virtual void set_device(int device) = 0;
  /// A stream of the highest priority that does not wait for the default stream.
  virtual GpuStream stream_create() = 0;
  virtual void stream_destroy(GpuStream stream) noexcept = 0;
  virtual GpuEvent event_create() = 0;
  virtual void event_destroy(GpuEvent event) noexcept = 0;
  virtual void event_record(GpuEvent event, GpuStream stream) = 0;
  virtual void stream_wait_event(GpuStream stream, GpuEvent event) = 0;
  /// Whether all work before the event's record is done.
  virtual bool event_query(GpuEvent event) = 0;
  /// Records what is queued on `stream`, and on streams that follow it and join it again, in mode
  /// "thread local", until end_capture().
  virtual void begin_capture(GpuStream stream) = 0;
  /// Throws Error where what was recorded cannot be a CUDA graph. Nothing of it runs.
  virtual void end_capture(GpuStream stream) = 0;
  /// Throws Error naming the size when there is not enough. `shared`: as NCCL wants memory that is
  /// registered with it; else CUDA's own.
  virtual void* mem_alloc(std::size_t bytes, bool shared) = 0;
  virtual void mem_free(void* data, bool shared) noexcept = 0;
  /// Queues a copy between a GPU's memory and the host's, in either direction.
  virtual void copy(void* to, const void* from, std::size_t bytes, GpuStream stream) = 0;
  virtual void stream_synchronize(GpuStream stream) noexcept = 0;
  /// Locks memory of the host in place, so that copies run beside what computes. False where it
  /// cannot be: copies are slower then.
  virtual bool pin(void* data, std::size_t bytes) = 0;
  virtual void unpin(void* data) noexcept = 0;
  /// Writes zeros and waits until they are there.
  virtual void zero(void* data, std::size_t bytes, GpuStream stream) = 0;
};

/// The real ones. Throws Error(Exit::usage) where the build has no CUDA.
std::unique_ptr<NcclApi> make_nccl_calls();

/// NCCL's; empty where the build has no CUDA.
LibraryVersions nccl_version();

/// Sole owner of a stream or event, released through the calls that made it. They outlive it.
template <class T, void (NcclApi::*release)(T) noexcept>
class NcclHandle {
 public:
  NcclHandle(NcclApi& calls, T raw) noexcept : calls_(&calls), raw_(raw) {}
  NcclHandle(NcclHandle&& other) noexcept
      : calls_(other.calls_), raw_(std::exchange(other.raw_, nullptr)) {}
  ~NcclHandle() {
    if (raw_ != nullptr) (calls_->*release)(raw_);
  }

  T get() const noexcept { return raw_; }

 private:
  NcclApi* calls_;
  T raw_;
};
using OwnedStream = NcclHandle<GpuStream, &NcclApi::stream_destroy>;
using OwnedEvent = NcclHandle<GpuEvent, &NcclApi::event_destroy>;

}  // namespace ringtrain::allreduce
