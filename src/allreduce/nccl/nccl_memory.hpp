#pragma once
#include <map>

#include "allreduce/nccl/nccl_group.hpp"
#include "ringtrain/base/memory/memory.hpp"

namespace ringtrain::allreduce {

/// Memory of this rank's GPU. Buffers die before it. Those released after the group was cancelled
/// stay until the process ends, because the GPU may still be writing to them.
class NcclMemory final : public Memory {
 public:
  /// `group`: the other ranks, if there are any. `registered`: NCCL is told of buffers, and reaches
  /// them without copies where the links allow it. All outlive this object.
  NcclMemory(NcclApi& calls, GpuStream stream, NcclGroup* group, bool registered)
      : calls_(calls), stream_(stream), group_(group), registered_(registered) {}
  Buffer allocate(std::size_t count) override;
  /// Before the group is closed. Nothing is allocated afterwards.
  void deregister_all();

 private:
  bool is_shared() const { return group_ != nullptr && registered_; }
  void release(void* data) noexcept;
  void deregister(void* handle);

  NcclApi& calls_;
  const GpuStream stream_;
  NcclGroup* const group_;
  const bool registered_;
  std::map<void*, void*> handles_;  // of what is registered, by memory
};

}  // namespace ringtrain::allreduce
