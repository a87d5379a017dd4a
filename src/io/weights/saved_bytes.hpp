#pragma once
#include <cstring>
#include <vector>

#include "ringtrain/io/weights/save_weights.hpp"

namespace ringtrain::io {

inline bool is_whole(const TensorToSave& tensor) { return tensor.fill == nullptr; }

/// Bytes that the tensor's numbers take.
inline std::uint64_t saved_size(const TensorToSave& tensor) {
  return element_count(tensor.info) * (is_whole(tensor) ? sizeof(std::int64_t) : sizeof(float));
}

/// Its numbers, little-endian as this program's machines are.
inline std::vector<char> saved_bytes(const TensorToSave& tensor) {
  std::vector<char> bytes(saved_size(tensor));
  if (is_whole(tensor)) {
    std::memcpy(bytes.data(), &tensor.number, sizeof tensor.number);
    return bytes;
  }
  std::vector<float> numbers(element_count(tensor.info));
  tensor.fill(numbers);
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

}  // namespace ringtrain::io
