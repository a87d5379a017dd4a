#pragma once
#include <string>

#include "model/onnx/onnx_builder.hpp"
#include "ringtrain/compute/operation.hpp"

namespace ringtrain::model {

/// Adds what makes `y` = f(x), elementwise, of the operators that opset 17 has. Intermediate values
/// are called after `y`.
void add_activation(OnnxBuilder& onnx, compute::Activation f, const std::string& x,
                    const std::string& y);

}  // namespace ringtrain::model
