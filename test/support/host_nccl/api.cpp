// libnccl.so.2 for programs with the simulated GPU: the part of NCCL's C API that `train` uses. It
// sums between the processes of one machine, through shared memory. It is no NCCL: it says nothing
// about speed, links, or how NCCL itself fails.
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/host_gpu/host_gpu.hpp"
#include "support/host_nccl/collective.hpp"
#include "support/host_nccl/ring_sum.hpp"

using namespace ringtrain;
using namespace ringtrain::host_nccl;

/// NCCL's own, incomplete name. Never freed, so that use after its end is seen.
struct ncclComm {
  std::shared_ptr<Group> group;
};

namespace {

// Of this process. Not destroyed: threads may be left behind when it ends.
struct Process {
  std::mutex mutex;
  std::vector<std::unique_ptr<ncclComm>> communicators;
  std::set<const void*> memory;  // from ncclMemAlloc
  static Process& get() {
    static Process& process = *new Process;
    return process;
  }
};

std::shared_ptr<Group> group_of(ncclComm_t comm) {
  const std::scoped_lock lock(Process::get().mutex);
  if (comm == nullptr || !comm->group) {
    complain("a call of a communicator that has ended");
    return nullptr;
  }
  return comm->group;
}

std::shared_ptr<Group> end(ncclComm_t comm) {
  const std::shared_ptr<Group> group = group_of(comm);
  if (!group) return nullptr;
  const std::scoped_lock lock(Process::get().mutex);
  return std::exchange(comm->group, nullptr);
}

// The calls of this thread between ncclGroupStart and ncclGroupEnd.
struct Grouped {
  int depth = 0;
  std::shared_ptr<Group> group;
  std::vector<std::function<void()>> calls;
};
thread_local Grouped grouped;

ncclResult_t take(const std::shared_ptr<Group>& group, std::function<void()> call) {
  if (grouped.depth == 0) return group->answer(group->start(std::move(call)));
  if (grouped.group && grouped.group != group) {
    complain("a group with calls of two communicators");
    return ncclInvalidUsage;
  }
  grouped.group = group;
  grouped.calls.push_back(std::move(call));
  return ncclSuccess;
}

ncclResult_t start(const char* name, ncclComm_t comm, const Call& call, const void* from, void* to,
                   cudaStream_t stream) {
  const std::shared_ptr<Group> group = group_of(comm);
  if (!group) return ncclInvalidArgument;
  if (call.bytes() == 0 || group->ranks() * call.bytes() > most_bytes) return ncclInvalidArgument;
  if (const ncclResult_t now = group->ready(); now != ncclSuccess) return now;
  if (group->blocks_for_ever()) return ncclInternalError;
  return take(group, [=] {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (group->refuses_captures() && cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
        status != cudaStreamCaptureStatusNone)
      return group->fail(ncclUnhandledCudaError, "no capture, as the test wants");
    const auto collective = std::make_shared<Collective>(group, call, from, to);
    if (!host_gpu::attempt(stream, name, [collective] { return collective->advance(); }))
      group->fail(ncclUnhandledCudaError, std::string(name) + ": CUDA refuses the launch");
  });
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) { return *version = NCCL_VERSION_CODE, ncclSuccess; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  const std::string name = "/simulated-nccl-" + std::to_string(::getpid()) + "-" +
                           std::to_string(std::random_device()());
  std::copy(name.begin(), name.end(), id->internal);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const bool blocking = config != nullptr && config->blocking == 1;
  if (config == nullptr || (config->blocking != 0 && !blocking) || size < 1 || size > most_ranks ||
      rank < 0 || rank >= size)
    return ncclInvalidArgument;
  int device = 0;
  cudaGetDevice(&device);
  auto made = std::make_unique<ncclComm>();
  made->group = std::make_shared<Group>(id.internal, rank, size, device, blocking);
  const std::shared_ptr<Group> group = made->group;
  ncclComm* const raw = made.get();
  if (!blocking) *comm = raw;
  {
    const std::scoped_lock lock(Process::get().mutex);
    Process::get().communicators.push_back(std::move(made));
  }
  const ncclResult_t result = group->answer(ncclInProgress);
  *comm = raw;
  return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::shared_ptr<Group> group = group_of(comm);
  if (!group) return ncclInvalidArgument;
  *state = group->state();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::shared_ptr<Group> group = group_of(comm);
  if (!group) return ncclInvalidArgument;
  const ncclResult_t now = group->ready();
  return now == ncclSuccess ? group->answer(group->finalize()) : now;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::shared_ptr<Group> group = end(comm);
  if (!group) return ncclInvalidArgument;
  if (!group->registered.empty()) complain("a communicator ends before its registered memory");
  group->end();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::shared_ptr<Group> group = end(comm);
  if (!group) return ncclInvalidArgument;
  group->abort();
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, size_t, void** handle) {
  const std::shared_ptr<Group> group = group_of(comm);
  if (!group) return ncclInvalidArgument;
  if (const ncclResult_t now = group->ready(); now != ncclSuccess) return now;
  const std::scoped_lock lock(Process::get().mutex);
  if (!Process::get().memory.contains(data)) complain("ncclCommRegister: not from ncclMemAlloc");
  if (!group->registered.insert(data).second) return ncclInvalidUsage;
  *handle = data;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  const std::shared_ptr<Group> group = group_of(comm);
  if (!group) return ncclInvalidArgument;
  const std::scoped_lock lock(Process::get().mutex);
  return group->registered.erase(handle) == 1 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  if (cudaMalloc(data, bytes) != cudaSuccess) return ncclUnhandledCudaError;
  const std::scoped_lock lock(Process::get().mutex);
  Process::get().memory.insert(*data);
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* data) {
  {
    const std::scoped_lock lock(Process::get().mutex);
    for (const auto& comm : Process::get().communicators)
      if (comm->group && comm->group->registered.contains(data))
        complain("ncclMemFree: the memory is registered");
    if (Process::get().memory.erase(data) == 0) return ncclInvalidArgument;
  }
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  if (operation != ncclSum && operation != ncclAvg) return ncclInvalidArgument;
  return start("ncclAllReduce", comm, {Call::Kind::all_reduce, count, type, operation, 0}, from, to,
               stream);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return start("ncclBroadcast", comm, {Call::Kind::broadcast, count, type, 0, root}, from, to,
               stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  if (operation != ncclSum && operation != ncclAvg) return ncclInvalidArgument;
  return start("ncclReduceScatter", comm, {Call::Kind::reduce_scatter, count, type, operation, 0},
               from, to, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return start("ncclAllGather", comm, {Call::Kind::all_gather, count, type, 0, 0}, from, to,
               stream);
}

ncclResult_t ncclGroupStart() { return ++grouped.depth, ncclSuccess; }

ncclResult_t ncclGroupEnd() {
  if (grouped.depth == 0) {
    complain("ncclGroupEnd without ncclGroupStart");
    return ncclInvalidUsage;
  }
  if (--grouped.depth > 0) return ncclSuccess;
  const Grouped all = std::exchange(grouped, {});
  if (!all.group) return ncclSuccess;
  return all.group->answer(all.group->start([calls = all.calls] {
    for (const std::function<void()>& call : calls) call();
  }));
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  static thread_local std::string words;
  const std::shared_ptr<Group> group = comm == nullptr ? nullptr : group_of(comm);
  words = group ? group->last_error() : "";
  return words.c_str();
}

}  // extern "C"
