// The functions of cuDNN that are called, each of which loads the library when it is first called.
#include <cudnn_graph.h>

#include "compute/cuda/runtime/cudnn.hpp"
#include "ringtrain/base/late_library.hpp"

namespace ringtrain::compute::cuda {
namespace {

LateLibrary& cudnn_library() {
  static LateLibrary cudnn("libcudnn.so.9");
  return cudnn;
}

}  // namespace

std::string why_cudnn_is_missing() { return cudnn_library().why_missing(); }

}  // namespace ringtrain::compute::cuda

using ringtrain::compute::cuda::cudnn_library;

extern "C" {

size_t cudnnGetVersion() {
  static const auto call = cudnn_library().find<decltype(cudnnGetVersion)>("cudnnGetVersion");
  return call();
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  static const auto call =
      cudnn_library().find<decltype(cudnnGetErrorString)>("cudnnGetErrorString");
  return call(status);
}

void cudnnGetLastErrorString(char* message, size_t size) {
  static const auto call =
      cudnn_library().find<decltype(cudnnGetLastErrorString)>("cudnnGetLastErrorString");
  call(message, size);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  static const auto call = cudnn_library().find<decltype(cudnnCreate)>("cudnnCreate");
  return call(handle);
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  static const auto call = cudnn_library().find<decltype(cudnnDestroy)>("cudnnDestroy");
  return call(handle);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  static const auto call = cudnn_library().find<decltype(cudnnSetStream)>("cudnnSetStream");
  return call(handle, stream);
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  static const auto call =
      cudnn_library().find<decltype(cudnnBackendCreateDescriptor)>("cudnnBackendCreateDescriptor");
  return call(type, descriptor);
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  static const auto call = cudnn_library().find<decltype(cudnnBackendDestroyDescriptor)>(
      "cudnnBackendDestroyDescriptor");
  return call(descriptor);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  static const auto call =
      cudnn_library().find<decltype(cudnnBackendFinalize)>("cudnnBackendFinalize");
  return call(descriptor);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  static const auto call =
      cudnn_library().find<decltype(cudnnBackendSetAttribute)>("cudnnBackendSetAttribute");
  return call(descriptor, name, type, count, values);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted,
                                       int64_t* count, void* values) {
  static const auto call =
      cudnn_library().find<decltype(cudnnBackendGetAttribute)>("cudnnBackendGetAttribute");
  return call(descriptor, name, type, wanted, count, values);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  static const auto call =
      cudnn_library().find<decltype(cudnnBackendExecute)>("cudnnBackendExecute");
  return call(handle, plan, pack);
}

}  // extern "C"
