#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "support/host_gpu/capture.hpp"
#include "support/host_gpu/host_gpu.hpp"
#include "support/host_gpu/memory.hpp"
#include "support/host_gpu/scheduler.hpp"

namespace ringtrain::host_gpu {

/// The simulated GPU.
class Device {
 public:
  /// The only one: CUDA's functions have no other place for it. With SIMULATED_GPU_TELLS its
  /// complaints go to standard error when the process ends.
  static Device& get();

  std::recursive_mutex mutex;  ///< held by every call
  Scheduler scheduler;
  Memory memory;
  Counts counts;
  EngineTime engine_time;
  EngineFaultOf engine_fault;
  Observer observer;
  bool refuses_captures = false;
  std::size_t total_bytes = whole_bytes;
  std::vector<std::string> complaints;
  std::vector<std::shared_ptr<Capture>> captures;  ///< that have not ended
  cudaError_t last_error = cudaSuccess;
  int number = -1;  ///< by which its first user's thread had chosen it

  /// Queues or captures `work`; `count`, one of `counts`, is of work that is queued.
  cudaError_t submit(cudaStream_t stream, const char* name, const Work& work,
                     std::size_t Counts::*count = nullptr, std::vector<OperationPtr> after = {});
  cudaError_t attempt(cudaStream_t stream, const char* name, Attempt work,
                      std::size_t Counts::*count = nullptr, std::vector<OperationPtr> after = {});
  /// The host waits for `target`, or for everything. Other threads may use the GPU meanwhile.
  cudaError_t wait(const OperationPtr& target);
  cudaError_t wait_all();
  void observe(const std::string& what) const {
    if (observer) observer(what);
  }
  /// Lets the GPU go on a little: the host has asked how far it is.
  void glance();
  /// Whether the calling thread has chosen this GPU. If not, that is a complaint.
  bool is_chosen();
  /// An error for what may not be done during a capture; it spoils the capture.
  cudaError_t refuse_in_capture(cudaError_t code = cudaErrorStreamCaptureUnsupported);
  /// Throws Error when work is queued that might use memory about to be freed.
  void expect_idle(const char* call);

 private:
  static void tell();
  template <class F>
  auto run(F f);
  template <class F>
  cudaError_t wait_until(F is_done);
};

/// One call of the CUDA API: nobody else's meanwhile, and its error is remembered.
template <class F>
cudaError_t call(F f) {
  Device& gpu = Device::get();
  const std::scoped_lock lock(gpu.mutex);
  const cudaError_t code = f(gpu);
  if (code != cudaSuccess) gpu.last_error = code;
  return code;
}

}  // namespace ringtrain::host_gpu
