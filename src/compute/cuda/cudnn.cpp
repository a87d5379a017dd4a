#include "compute/cuda/cudnn.hpp"

#include <array>
#include <string>

#include "ringtrain/base/error.hpp"

namespace ringtrain::cuda {
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

}  // namespace ringtrain::cuda
