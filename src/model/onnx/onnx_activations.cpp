#include "model/onnx/onnx_activations.hpp"

#include <cmath>
#include <numbers>

namespace ringtrain::model {
namespace {

// y = x * (1 + gate) / 2, as both forms of GELU are; `gate` is the name of a value.
void add_gated_half(OnnxBuilder& onnx, const std::string& x, const std::string& gate,
                    const std::string& y) {
  onnx.node("Add", {gate, onnx.number(y + "/one", 1)}, y + "/gate");
  onnx.node("Mul", {x, y + "/gate"}, y + "/doubled");
  onnx.node("Mul", {y + "/doubled", onnx.number(y + "/half", 0.5)}, y);
}

// By the error function (Hendrycks and Gimpel 2016).
void add_gelu(OnnxBuilder& onnx, const std::string& x, const std::string& y) {
  onnx.node("Mul", {x, onnx.number(y + "/scale", 1 / std::numbers::sqrt2)}, y + "/scaled");
  onnx.node("Erf", {y + "/scaled"}, y + "/erf");
  add_gated_half(onnx, x, y + "/erf", y);
}

// tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))
void add_gelu_tanh(OnnxBuilder& onnx, const std::string& x, const std::string& y) {
  onnx.node("Mul", {x, x}, y + "/square");
  onnx.node("Mul", {y + "/square", onnx.number(y + "/cubic", 0.044715)}, y + "/share");
  onnx.node("Mul", {y + "/share", x}, y + "/cube");
  onnx.node("Add", {y + "/cube", x}, y + "/sum");
  onnx.node("Mul", {y + "/sum", onnx.number(y + "/scale", std::sqrt(2 / std::numbers::pi))},
            y + "/inner");
  onnx.node("Tanh", {y + "/inner"}, y + "/tanh");
  add_gated_half(onnx, x, y + "/tanh", y);
}

void add_hard_sigmoid(OnnxBuilder& onnx, const std::string& x, const std::string& y) {
  onnx::Node& node = onnx.node("HardSigmoid", {x}, y);
  OnnxBuilder::set_float(node, "alpha", 1. / 6);
  OnnxBuilder::set_float(node, "beta", 0.5);
}

}  // namespace

void add_activation(OnnxBuilder& onnx, compute::Activation f, const std::string& x,
                    const std::string& y) {
  using enum compute::Activation;
  switch (f) {
    case none:
      onnx.node("Identity", {x}, y);
      break;
    case relu:
      onnx.node("Relu", {x}, y);
      break;
    case silu:
      onnx.node("Sigmoid", {x}, y + "/sigmoid");
      onnx.node("Mul", {x, y + "/sigmoid"}, y);
      break;
    case relu6:
      onnx.node("Clip", {x, onnx.number(y + "/low", 0), onnx.number(y + "/high", 6)}, y);
      break;
    case sigmoid:
      onnx.node("Sigmoid", {x}, y);
      break;
    case hard_sigmoid:
      add_hard_sigmoid(onnx, x, y);
      break;
    case hard_swish:
      onnx.node("HardSwish", {x}, y);
      break;
    case gelu:
      add_gelu(onnx, x, y);
      break;
    case gelu_tanh:
      add_gelu_tanh(onnx, x, y);
      break;
  }
}

}  // namespace ringtrain::model
