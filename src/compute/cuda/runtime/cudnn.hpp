#pragma once
#include <cudnn_graph.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/base/unique_handle.hpp"

namespace ringtrain::compute::cuda {

/// In the loader's words; empty where cuDNN is there. The functions of cuDNN throw Error where it
/// is not.
std::string why_cudnn_is_missing();

/// Throws Error with cuDNN's own words unless `code` is success.
void check(cudnnStatus_t code, std::string_view call,
           std::source_location at = std::source_location::current());

/// Device memory; void* alone is what cuDNN calls its descriptors.
struct Address {
  void* data;
};

/// cuDNN's name for the type of an attribute.
constexpr cudnnBackendAttributeType_t attribute_type(std::int64_t) { return CUDNN_TYPE_INT64; }
constexpr cudnnBackendAttributeType_t attribute_type(std::int32_t) { return CUDNN_TYPE_INT32; }
constexpr cudnnBackendAttributeType_t attribute_type(float) { return CUDNN_TYPE_FLOAT; }
constexpr cudnnBackendAttributeType_t attribute_type(char) { return CUDNN_TYPE_CHAR; }
constexpr cudnnBackendAttributeType_t attribute_type(bool) { return CUDNN_TYPE_BOOLEAN; }
constexpr cudnnBackendAttributeType_t attribute_type(cudnnDataType_t) {
  return CUDNN_TYPE_DATA_TYPE;
}
constexpr cudnnBackendAttributeType_t attribute_type(cudnnConvolutionMode_t) {
  return CUDNN_TYPE_CONVOLUTION_MODE;
}
constexpr cudnnBackendAttributeType_t attribute_type(cudnnPointwiseMode_t) {
  return CUDNN_TYPE_POINTWISE_MODE;
}
constexpr cudnnBackendAttributeType_t attribute_type(cudnnGenStatsMode_t) {
  return CUDNN_TYPE_GENSTATS_MODE;
}
constexpr cudnnBackendAttributeType_t attribute_type(cudnnBackendHeurMode_t) {
  return CUDNN_TYPE_HEUR_MODE;
}
constexpr cudnnBackendAttributeType_t attribute_type(cudnnBackendBehaviorNote_t) {
  return CUDNN_TYPE_BEHAVIOR_NOTE;
}
constexpr cudnnBackendAttributeType_t attribute_type(cudnnBackendNumericalNote_t) {
  return CUDNN_TYPE_NUMERICAL_NOTE;
}
constexpr cudnnBackendAttributeType_t attribute_type(cudnnHandle_t) { return CUDNN_TYPE_HANDLE; }
constexpr cudnnBackendAttributeType_t attribute_type(Address) { return CUDNN_TYPE_VOID_PTR; }
constexpr cudnnBackendAttributeType_t attribute_type(cudnnBackendDescriptor_t) {
  return CUDNN_TYPE_BACKEND_DESCRIPTOR;
}

/// One object of cuDNN's graph API: filled attribute by attribute, finalised, then constant. It
/// keeps what it needs of the descriptors it was given, which may die before it.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<T> values) {
    check(cudnnBackendSetAttribute(handle_.get(), name, attribute_type(std::remove_const_t<T>{}),
                                   static_cast<std::int64_t>(values.size()), values.data()),
          "cudnnBackendSetAttribute");
    return *this;
  }
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, std::span<const T>(&value, 1));
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    return set(name, other.get());
  }
  Descriptor& finalize();
  /// Whether cuDNN accepts what was set; false is an answer, not a failure.
  bool accepts() { return cudnnBackendFinalize(handle_.get()) == CUDNN_STATUS_SUCCESS; }

  /// Up to `most` values of an attribute of a finalised descriptor.
  template <class T>
  std::vector<T> read(cudnnBackendAttributeName_t name, std::int64_t most = 1) const {
    std::vector<T> values(static_cast<std::size_t>(most));
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(handle_.get(), name, attribute_type(T{}), most, &count,
                                   values.data()),
          "cudnnBackendGetAttribute");
    values.resize(static_cast<std::size_t>(std::min(count, most)));
    return values;
  }
  cudnnBackendDescriptor_t get() const { return handle_.get(); }

 private:
  UniqueHandle<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor> handle_;
};

}  // namespace ringtrain::compute::cuda
