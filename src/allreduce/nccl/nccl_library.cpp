#include <fmt/core.h>
#include <nccl.h>  // brings cuda_runtime.h

#include <cstring>
#include <memory>
#include <source_location>

#include "allreduce/nccl/nccl_api.hpp"
#include "ringtrain/allreduce/nccl/gpu_assignment.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/late_library.hpp"

namespace ringtrain::allreduce {
namespace {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(static_cast<int>(NcclResult::success) == ncclSuccess);
static_assert(static_cast<int>(NcclResult::internal_error) == ncclInternalError);
static_assert(static_cast<int>(NcclResult::remote_error) == ncclRemoteError);
static_assert(static_cast<int>(NcclResult::in_progress) == ncclInProgress);

LateLibrary& nccl_library() {
  static LateLibrary nccl("libnccl.so.2");
  return nccl;
}

// A function of NCCL, which is loaded when the first one is called.
template <class F>
F* nccl(const char* name) {
  return nccl_library().find<F>(name);
}

NcclResult result_of(ncclResult_t result) { return static_cast<NcclResult>(result); }

void check(cudaError_t code, const char* call,
           std::source_location at = std::source_location::current()) {
  if (code == cudaSuccess) return;
  throw Error(call, fmt::format("{}, {}", cudaGetErrorName(code), cudaGetErrorString(code)), at);
}

ncclUniqueId unique_id(const NcclId& id) {
  ncclUniqueId raw;
  std::memcpy(&raw, id.data(), id.size());
  return raw;
}

ncclDataType_t data_type(Element element) {
  if (element == Element::fp32) return ncclFloat32;
  return element == Element::fp16 ? ncclFloat16 : ncclBfloat16;
}

class NcclLibrary final : public NcclApi {
 public:
  NcclResult get_unique_id(NcclId& id) override {
    ncclUniqueId raw;
    const ncclResult_t result = nccl<decltype(ncclGetUniqueId)>("ncclGetUniqueId")(&raw);
    if (result == ncclSuccess) std::memcpy(id.data(), &raw, id.size());
    return result_of(result);
  }
  NcclResult comm_init_rank(NcclComm& comm, int size, const NcclId& id, int rank,
                            bool blocking) override {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    return result_of(nccl<decltype(ncclCommInitRankConfig)>("ncclCommInitRankConfig")(
        &comm, size, unique_id(id), rank, &config));
  }
  NcclResult comm_get_async_error(NcclComm comm, NcclResult& state) override {
    ncclResult_t raw = ncclSuccess;
    const ncclResult_t asked =
        nccl<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError")(comm, &raw);
    state = result_of(raw);
    return result_of(asked);
  }
  NcclResult comm_finalize(NcclComm comm) override {
    return result_of(nccl<decltype(ncclCommFinalize)>("ncclCommFinalize")(comm));
  }
  void comm_destroy(NcclComm comm) noexcept override {
    nccl<decltype(ncclCommDestroy)>("ncclCommDestroy")(comm);
  }
  void comm_abort(NcclComm comm) noexcept override {
    nccl<decltype(ncclCommAbort)>("ncclCommAbort")(comm);
  }
  NcclResult comm_register(NcclComm comm, void* data, std::size_t bytes, void*& handle) override {
    return result_of(
        nccl<decltype(ncclCommRegister)>("ncclCommRegister")(comm, data, bytes, &handle));
  }
  NcclResult comm_deregister(NcclComm comm, void* handle) override {
    return result_of(nccl<decltype(ncclCommDeregister)>("ncclCommDeregister")(comm, handle));
  }
  NcclResult all_reduce(void* data, std::size_t count, Element element, Reduction reduction,
                        NcclComm comm, GpuStream stream) override {
    return result_of(nccl<decltype(ncclAllReduce)>("ncclAllReduce")(
        data, data, count, data_type(element), reduction == Reduction::sum ? ncclSum : ncclAvg,
        comm, stream));
  }
  NcclResult reduce_scatter(const float* all, float* own, std::size_t part, NcclComm comm,
                            GpuStream stream) override {
    return result_of(nccl<decltype(ncclReduceScatter)>("ncclReduceScatter")(
        all, own, part, ncclFloat32, ncclSum, comm, stream));
  }
  NcclResult all_gather(const float* own, float* all, std::size_t part, NcclComm comm,
                        GpuStream stream) override {
    return result_of(
        nccl<decltype(ncclAllGather)>("ncclAllGather")(own, all, part, ncclFloat32, comm, stream));
  }
  NcclResult group_start() override {
    return result_of(nccl<decltype(ncclGroupStart)>("ncclGroupStart")());
  }
  NcclResult group_end() override {
    return result_of(nccl<decltype(ncclGroupEnd)>("ncclGroupEnd")());
  }
  NcclResult broadcast(float* data, std::size_t count, int root, NcclComm comm,
                       GpuStream stream) override {
    return result_of(nccl<decltype(ncclBroadcast)>("ncclBroadcast")(data, data, count, ncclFloat32,
                                                                    root, comm, stream));
  }
  std::string words(NcclResult result, NcclComm comm) override {
    const char* last = nccl<decltype(ncclGetLastError)>("ncclGetLastError")(comm);
    const std::string name =
        nccl<decltype(ncclGetErrorString)>("ncclGetErrorString")(static_cast<ncclResult_t>(result));
    return last == nullptr || *last == '\0' ? name : name + ", " + last;
  }

  std::vector<std::string> visible_devices() override;
  void set_device(int device) override { check(cudaSetDevice(device), "cudaSetDevice"); }
  GpuStream stream_create() override {
    int lowest = 0, highest = 0;
    cudaStream_t stream = nullptr;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest),
          "cudaStreamCreateWithPriority");
    return stream;
  }
  void stream_destroy(GpuStream stream) noexcept override { cudaStreamDestroy(stream); }
  GpuEvent event_create() override {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return event;
  }
  void event_destroy(GpuEvent event) noexcept override { cudaEventDestroy(event); }
  void event_record(GpuEvent event, GpuStream stream) override {
    check(cudaEventRecord(event, stream), "cudaEventRecord");
  }
  void stream_wait_event(GpuStream stream, GpuEvent event) override {
    check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
  }
  bool event_query(GpuEvent event) override {
    const cudaError_t state = cudaEventQuery(event);
    if (state != cudaErrorNotReady) check(state, "cudaEventQuery");
    // That is no error, but CUDA would answer the next launch with it.
    if (state == cudaErrorNotReady) static_cast<void>(cudaGetLastError());
    return state == cudaSuccess;
  }
  void begin_capture(GpuStream stream) override {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
  }
  void end_capture(GpuStream stream) override;
  void* mem_alloc(std::size_t bytes, bool shared) override;
  void mem_free(void* data, bool shared) noexcept override {
    if (shared)
      nccl<decltype(ncclMemFree)>("ncclMemFree")(data);
    else
      cudaFree(data);
  }
  void copy(void* to, const void* from, std::size_t bytes, GpuStream stream) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  }
  void stream_synchronize(GpuStream stream) noexcept override {
    static_cast<void>(cudaStreamSynchronize(stream));
  }
  bool pin(void* data, std::size_t bytes) override {
    if (cudaHostRegister(data, bytes, cudaHostRegisterDefault) == cudaSuccess) return true;
    static_cast<void>(cudaGetLastError());  // else the next launch answers with it
    return false;
  }
  void unpin(void* data) noexcept override { static_cast<void>(cudaHostUnregister(data)); }
  void zero(void* data, std::size_t bytes, GpuStream stream) override {
    check(cudaMemsetAsync(data, 0, bytes, stream), "cudaMemsetAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
};

std::vector<std::string> NcclLibrary::visible_devices() {
  int count = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess)
    throw Error(Exit::usage, "--allreduce nccl",
                fmt::format("no GPU can be used here: {}", cudaGetErrorString(code)));
  std::vector<std::string> devices;
  for (int device = 0; device < count; ++device) {
    char id[32] = {};
    check(cudaDeviceGetPCIBusId(id, sizeof(id), device), "cudaDeviceGetPCIBusId");
    devices.emplace_back(id);
  }
  return devices;
}

void NcclLibrary::end_capture(GpuStream stream) {
  cudaGraph_t recorded = nullptr;
  cudaError_t code = cudaStreamEndCapture(stream, &recorded);
  const char* call = "cudaStreamEndCapture";
  if (code == cudaSuccess) {
    cudaGraphExec_t graph = nullptr;
    code = cudaGraphInstantiate(&graph, recorded, 0);
    call = "cudaGraphInstantiate";
    if (code == cudaSuccess) cudaGraphExecDestroy(graph);
    cudaGraphDestroy(recorded);
  }
  static_cast<void>(cudaGetLastError());  // else the next launch answers with it
  check(code, call);
}

void* NcclLibrary::mem_alloc(std::size_t bytes, bool shared) {
  void* data = nullptr;
  const std::string what = fmt::format("allocate {} MiB on the GPU", bytes >> 20);
  if (!shared) {
    check(cudaMalloc(&data, bytes), what.c_str());
    return data;
  }
  const ncclResult_t result = nccl<decltype(ncclMemAlloc)>("ncclMemAlloc")(&data, bytes);
  if (result != ncclSuccess) throw Error(what, words(result_of(result), nullptr));
  return data;
}

}  // namespace

std::string why_nccl_is_missing() { return nccl_library().why_missing(); }

std::unique_ptr<NcclApi> make_nccl_calls() { return std::make_unique<NcclLibrary>(); }

bool keeps_launch_order() {
  int here = 0;
  return nccl<decltype(ncclGetVersion)>("ncclGetVersion")(&here) == ncclSuccess && here >= 22600;
}

LibraryVersions nccl_version() {
  const auto words = [](int code) {  // as NCCL 2.9 and newer number themselves
    return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
  };
  if (!why_nccl_is_missing().empty()) return {{"NCCL", words(NCCL_VERSION_CODE), "not found"}};
  int here = 0;
  const bool known = nccl<decltype(ncclGetVersion)>("ncclGetVersion")(&here) == ncclSuccess;
  return {{"NCCL", words(NCCL_VERSION_CODE), known ? words(here) : "unknown"}};
}

}  // namespace ringtrain::allreduce
