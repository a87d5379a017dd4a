#include "compute/cuda/runtime/cudnn.hpp"

#include <fmt/core.h>

#include <array>
#include <string>

#include "ringtrain/base/error.hpp"
#include "ringtrain/compute/gpu.hpp"

namespace ringtrain::compute::cuda {
namespace {

cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t raw = nullptr;
  check(cudnnBackendCreateDescriptor(type, &raw), "cudnnBackendCreateDescriptor");
  return raw;
}

}  // namespace

void check(cudnnStatus_t code, std::string_view call, std::source_location at) {
  if (code == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> words{};
  cudnnGetLastErrorString(words.data(), words.size());
  throw Error(call, std::string(cudnnGetErrorString(code)) + ", " + words.data(), at);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) : handle_(create(type)) {}

Descriptor& Descriptor::finalize() {
  check(cudnnBackendFinalize(handle_.get()), "cudnnBackendFinalize");
  return *this;
}

}  // namespace ringtrain::compute::cuda

namespace ringtrain::compute {

LibraryVersions gpu_libraries() {
  const auto cuda = [](int code) { return fmt::format("{}.{}", code / 1000, code / 10 % 100); };
  const auto cudnn = [](std::size_t code) {  // as cuDNN 9 numbers itself
    return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
  };
  int here = 0;
  const bool known = cudaRuntimeGetVersion(&here) == cudaSuccess;
  return {{"CUDA", cuda(CUDART_VERSION), known ? cuda(here) : "unknown"},
          {"cuDNN", cudnn(CUDNN_VERSION),
           cuda::why_cudnn_is_missing().empty() ? cudnn(cudnnGetVersion()) : "not found"}};
}

}  // namespace ringtrain::compute
