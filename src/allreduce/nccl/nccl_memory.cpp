#include "allreduce/nccl/nccl_memory.hpp"

#include <exception>

namespace ringtrain::allreduce {

Buffer NcclMemory::allocate(std::size_t count) {
  if (count == 0) return Buffer(View(), [](float*) {});
  const std::size_t bytes = count * sizeof(float);
  auto* data = static_cast<float*>(calls_.mem_alloc(bytes, is_shared()));
  Buffer buffer(View(data, count), [this](float* released) { release(released); });
  calls_.zero(data, bytes, stream_);
  if (!is_shared()) return buffer;
  void* handle = nullptr;
  group_->call("ncclCommRegister",
               [&](NcclComm comm) { return calls_.comm_register(comm, data, bytes, handle); });
  handles_.emplace(data, handle);
  return buffer;
}

void NcclMemory::deregister(void* handle) {
  group_->call("ncclCommDeregister",
               [&](NcclComm comm) { return calls_.comm_deregister(comm, handle); });
}

void NcclMemory::deregister_all() {
  for (const auto& [data, handle] : handles_) deregister(handle);
  handles_.clear();
}

void NcclMemory::release(void* data) noexcept {
  if (group_ != nullptr && group_->is_cancelled()) return;
  try {
    if (const auto found = handles_.extract(data)) deregister(found.mapped());
    calls_.mem_free(data, is_shared());
  } catch (const std::exception&) {  // that has cancelled the group, and its next use says so
  }
}

}  // namespace ringtrain::allreduce
