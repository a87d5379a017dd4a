#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <ostream>
#include <span>
#include <string>

#include "ringtrain/io/checkpoint/checkpoint.hpp"

namespace ringtrain::io {

/// A tensor to write. Its numbers are asked for when they are written, so that only one tensor's
/// are in memory at a time.
struct TensorToSave {
  TensorInfo info;
  /// Sets all of its numbers, row-major. Null: the tensor is `number`, in 64 bits.
  std::function<void(std::span<float>)> fill;
  std::int64_t number = 0;
};

/// Writes a file of safetensors. `metadata` is UTF-8 and goes into its `__metadata__`.
void write_safetensors(std::ostream& out, std::span<const TensorToSave> tensors,
                       const std::map<std::string, std::string>& metadata);

/// Writes what torch.load() gives an OrderedDict of tensors for: torch's zip file. Throws
/// Error(Exit::usage) where it would be longer than 4 GiB.
void write_torch_zip(std::ostream& out, std::span<const TensorToSave> tensors);

}  // namespace ringtrain::io
