#include "compute/cuda/snapshot.hpp"

#include "ringtrain/base/error.hpp"

namespace ringtrain::compute::cuda {
namespace {

std::size_t total(const std::vector<View>& state) {
  std::size_t floats = 0;
  for (const View& view : state) floats += view.size();
  return floats;
}

}  // namespace

CudaSnapshot::CudaSnapshot(const std::vector<View>& state, cudaStream_t compute)
    : state_(state),
      compute_(compute),
      copies_(make_stream()),
      taken_(make_event()),
      copied_(make_event()),
      copy_(total(state) * sizeof(float)) {}

CudaSnapshot::~CudaSnapshot() {
  static_cast<void>(cudaStreamSynchronize(copies_.get()));
  for (const auto& [data, bytes] : pinned_) static_cast<void>(cudaHostUnregister(data));
}

void CudaSnapshot::release() {
  check(cudaStreamSynchronize(copies_.get()), "cudaStreamSynchronize");
  for (const auto& [data, bytes] : pinned_) check(cudaHostUnregister(data), "cudaHostUnregister");
  pinned_.clear();
}

void CudaSnapshot::pin(std::span<const std::span<float>> targets) {
  for (const std::span<float>& target : targets) pin_one(target);
}

// Memory that cannot be registered is copied to all the same, only slower.
void CudaSnapshot::pin_one(std::span<float> target) {
  if (target.empty() || pinned_.contains(target.data())) return;
  if (cudaHostRegister(target.data(), target.size_bytes(), cudaHostRegisterDefault) == cudaSuccess)
    pinned_.emplace(target.data(), target.size_bytes());
  else
    static_cast<void>(cudaGetLastError());
}

void CudaSnapshot::start(std::span<const std::span<float>> targets) {
  expects(targets.size() == state_.size(), "GpuSnapshot::start: one target a buffer");
  pin(targets);
  // The copy before has left copy_: done() was asked for.
  auto* to = reinterpret_cast<float*>(copy_.data());
  for (const View& view : state_) {
    if (view.size() == 0) continue;
    check(cudaMemcpyAsync(to, view.data(), view.size() * sizeof(float), cudaMemcpyDeviceToDevice,
                          compute_),
          "cudaMemcpyAsync");
    to += view.size();
  }
  follow(copies_.get(), taken_, compute_);
  const auto* from = reinterpret_cast<const float*>(copy_.data());
  for (const std::span<float>& target : targets) {
    if (target.empty()) continue;
    check(cudaMemcpyAsync(target.data(), from, target.size_bytes(), cudaMemcpyDeviceToHost,
                          copies_.get()),
          "cudaMemcpyAsync");
    from += target.size();
  }
  check(cudaEventRecord(copied_.get(), copies_.get()), "cudaEventRecord");
}

bool CudaSnapshot::done() { return is_done(copied_); }

}  // namespace ringtrain::compute::cuda
