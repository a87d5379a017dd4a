#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <variant>

#include "model/onnx/onnx_activations.hpp"
#include "model/onnx/onnx_builder.hpp"
#include "model/onnx/onnx_weights.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/model/onnx.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {
namespace {

constexpr std::int64_t opset = 17, ir_version = 8;
constexpr double most_bytes = 2147483647;  // of a message of protobuf
constexpr const char* float_input = "input";
constexpr const char* pixels_input = "images";
constexpr const char* logits_name = "logits";

class OnnxWriter {
 public:
  OnnxWriter(const Graph& graph, const GraphValues& values, const OnnxOptions& options)
      : graph_(graph),
        options_(options),
        needed_(needed_nodes(graph, Mode::prediction)),
        weights_(graph, values, needed_, options.fold_batch_norm),
        outputs_(graph.tensors.size()),
        onnx_(*model_.mutable_graph()) {}

  onnx::Model run() && {
    describe();
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      if (needed_[n])
        std::visit([&](const auto& o) { add(graph_.nodes[n], o); }, graph_.nodes[n].operation);
    return std::move(model_);
  }

 private:
  /// What stands for a tensor: batch x channels where it is `flat`, else batch x channels x height
  /// x width.
  struct Output {
    std::string name;
    bool flat = false;
  };

  void describe();

  const compute::Shape& shape(compute::TensorId id) const { return graph_.tensors[id]; }
  // A new value for the node's output. No name of a parameter has a slash in it.
  std::string put(const Node& n, bool flat) {
    std::string name = fmt::format("{}/{}", n.name, n.output);
    std::ranges::replace(name, ' ', '_');
    outputs_[n.output] = {name, flat};
    return name;
  }
  const std::string& name(compute::TensorId id) const { return outputs_[id].name; }
  bool flat(compute::TensorId id) const { return outputs_[id].flat; }
  std::string as_image(compute::TensorId id);
  std::string as_matrix(compute::TensorId id);
  std::vector<std::string> alike(const Node& n, bool flat);
  std::string transposed(const std::string& x, const std::string& y, const OnnxInts& order);
  static void set_window(onnx::Node& node, const compute::Window& window);
  // Ends a layer's list of inputs.
  void add_weights(const Node& n, const OnnxLayer& made, const OnnxInts& dims, ParameterId w,
                   std::vector<std::string>& inputs);

  void add(const Node& n, const ImageInput& o);
  void standardise(const std::string& x, const std::string& y, std::size_t features);
  void add(const Node& n, const Convolution& o);
  void add(const Node& n, const MatrixProduct& o);
  void add(const Node& n, const BatchNorm& o);
  void add(const Node& n, const Pointwise& o) {
    const std::string x = name(n.inputs[0]);
    add_activation(onnx_, o.f, x, put(n, flat(n.inputs[0])));
  }
  void add(const Node& n, const Sum&) { elementwise(n, "Add"); }
  void add(const Node& n, const Scale&) { elementwise(n, "Mul"); }
  void elementwise(const Node& n, const char* op) {
    const bool both = std::ranges::all_of(n.inputs, [&](auto id) { return flat(id); });
    const auto inputs = alike(n, both);
    onnx_.node(op, inputs, put(n, both));
  }
  void add(const Node& n, const Concat&) {
    const bool all = std::ranges::all_of(n.inputs, [&](auto id) { return flat(id); });
    const auto inputs = alike(n, all);
    OnnxBuilder::set_int(onnx_.node("Concat", inputs, put(n, all)), "axis", 1);
  }
  void add(const Node& n, const Shortcut& o);
  void add(const Node& n, const MaxPool& o) {
    const std::string x = as_image(n.inputs[0]);
    set_window(onnx_.node("MaxPool", {x}, put(n, false)), o.window);
  }
  void add(const Node& n, const AveragePool& o);
  void add(const Node& n, const Filter& o);
  void add(const Node& n, const ReflectPad& o);
  void add(const Node& n, const Lrn& o);
  void add(const Node& n, const DropoutLayer&) { outputs_[n.output] = outputs_[n.inputs[0]]; }
  void add(const Node& n, const LayerScale& o);
  void add(const Node& n, const LayerNorm& o);
  void add(const Node& n, const Multiply& o) {
    const std::string x = name(n.inputs[0]);
    const std::string y = put(n, flat(n.inputs[0]));
    onnx_.node("Mul", {x, onnx_.number(y + "/factor", o.factor)}, y);
  }
  void add(const Node& n, const Loss&) {  // the last value, whatever it is called
    OnnxBuilder::set_int(onnx_.node("Flatten", {name(n.inputs[0])}, logits_name), "axis", 1);
  }

  const Graph& graph_;
  const OnnxOptions& options_;
  const std::vector<bool> needed_;
  const OnnxWeights weights_;
  std::vector<Output> outputs_;                                 // by tensor
  std::map<compute::TensorId, std::string> images_, matrices_;  // the same in the other form
  onnx::Model model_;
  OnnxBuilder onnx_;
};

void OnnxWriter::describe() {
  model_.set_ir_version(ir_version);
  model_.set_producer_name("ringtrain");
  model_.add_opset_import()->set_version(opset);
  model_.mutable_opset_import(0)->set_domain("");
  for (const auto& [key, value] : options_.metadata) {
    onnx::Property& property = *model_.add_metadata_props();
    property.set_key(key);
    property.set_value(value);
  }
  onnx::Graph& graph = *model_.mutable_graph();
  graph.set_name(options_.name.empty() ? "network" : options_.name);
  const compute::Shape& image = shape(0);
  if (options_.uint8_input)
    OnnxBuilder::describe(*graph.add_input(), pixels_input, onnx::Tensor::UINT8,
                          {image.height, image.width, image.channels});
  else
    OnnxBuilder::describe(*graph.add_input(), float_input, onnx::Tensor::FLOAT,
                          {image.channels, image.height, image.width});
  for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
    if (const Node& node = graph_.nodes[n];
        needed_[n] && std::holds_alternative<Loss>(node.operation))
      OnnxBuilder::describe(*graph.add_output(), logits_name, onnx::Tensor::FLOAT,
                            {static_cast<std::int64_t>(shape(node.inputs[0]).features())});
}

void OnnxWriter::add_weights(const Node& n, const OnnxLayer& made, const OnnxInts& dims,
                             ParameterId w, std::vector<std::string>& inputs) {
  inputs.push_back(onnx_.constant(graph_.parameters[w].name, dims, made.w));
  if (!made.b.empty()) inputs.push_back(onnx_.constant(n.name + ".bias", {dims[0]}, made.b));
}

std::string OnnxWriter::as_image(compute::TensorId id) {
  if (!flat(id)) return name(id);
  std::string& image = images_[id];
  if (image.empty()) {
    image = name(id) + "/image";
    onnx_.node("Unsqueeze", {name(id), onnx_.whole(image + "/axes", {2, 3})}, image);
  }
  return image;
}

std::string OnnxWriter::as_matrix(compute::TensorId id) {
  if (flat(id)) return name(id);
  std::string& matrix = matrices_[id];
  if (matrix.empty()) {
    matrix = name(id) + "/flat";
    OnnxBuilder::set_int(onnx_.node("Flatten", {name(id)}, matrix), "axis", 1);
  }
  return matrix;
}

// All inputs in one form.
std::vector<std::string> OnnxWriter::alike(const Node& n, bool flat) {
  std::vector<std::string> names;
  for (const compute::TensorId id : n.inputs) names.push_back(flat ? name(id) : as_image(id));
  return names;
}

std::string OnnxWriter::transposed(const std::string& x, const std::string& y,
                                   const OnnxInts& order) {
  OnnxBuilder::set_ints(onnx_.node("Transpose", {x}, y), "perm", order);
  return y;
}

void OnnxWriter::set_window(onnx::Node& node, const compute::Window& w) {
  OnnxBuilder::set_ints(node, "kernel_shape", {w.height, w.width});
  OnnxBuilder::set_ints(node, "strides", {w.stride_y, w.stride_x});
  OnnxBuilder::set_ints(node, "pads", {w.top, w.left, w.bottom, w.right});
}

void OnnxWriter::add(const Node& n, const ImageInput& o) {
  outputs_[n.output] = {float_input, false};
  if (!options_.uint8_input) return;
  OnnxBuilder::set_int(onnx_.node("Cast", {pixels_input}, "images/fp32"), "to",
                       onnx::Tensor::FLOAT);
  const std::string x = transposed("images/fp32", "images/nchw", {0, 3, 1, 2});
  if (o.normalisation == compute::Normalisation::standardise_image)
    return standardise(x, float_input, shape(n.output).features());
  const OnnxInts dims{1, shape(n.output).channels, 1, 1};
  onnx_.node("Div", {x, onnx_.number("input/levels", 255)}, "input/unit");
  onnx_.node("Sub", {"input/unit", onnx_.constant("input/mean", dims, o.mean)}, "input/centred");
  onnx_.node("Div", {"input/centred", onnx_.constant("input/deviation", dims, o.deviation)},
             float_input);
}

// (x - mean) / max(deviation, 1 / sqrt(features)), of each image by itself
void OnnxWriter::standardise(const std::string& x, const std::string& y, std::size_t features) {
  const auto mean = [&](const std::string& of, const std::string& to) {
    OnnxBuilder::set_ints(onnx_.node("ReduceMean", {of}, to), "axes", {1, 2, 3});
    return to;
  };
  onnx_.node("Sub", {x, mean(x, y + "/mean")}, y + "/centred");
  onnx_.node("Mul", {y + "/centred", y + "/centred"}, y + "/squares");
  onnx_.node("Sqrt", {mean(y + "/squares", y + "/variance")}, y + "/deviation");
  onnx_.node("Max", {y + "/deviation", onnx_.number(y + "/least", 1 / std::sqrt(double(features)))},
             y + "/divisor");
  onnx_.node("Div", {y + "/centred", y + "/divisor"}, y);
}

void OnnxWriter::add(const Node& n, const Convolution& o) {
  std::vector<std::string> inputs{as_image(n.inputs[0])};
  const OnnxLayer made = weights_.layer(n, o.w, o.b);
  const std::int64_t out = shape(n.output).channels;
  const OnnxInts dims{out, shape(n.inputs[0]).channels / o.window.groups, o.window.height,
                      o.window.width};
  add_weights(n, made, dims, o.w, inputs);
  onnx::Node& node = onnx_.node("Conv", inputs, put(n, false));
  set_window(node, o.window);
  OnnxBuilder::set_int(node, "group", o.window.groups);
  OnnxBuilder::set_ints(node, "dilations", {o.window.dilation, o.window.dilation});
}

void OnnxWriter::add(const Node& n, const MatrixProduct& o) {
  std::vector<std::string> inputs{as_matrix(n.inputs[0])};
  const OnnxLayer made = weights_.layer(n, o.w, o.b);
  const std::int64_t out = shape(n.output).channels;
  add_weights(n, made, {out, static_cast<std::int64_t>(made.w.size()) / out}, o.w, inputs);
  OnnxBuilder::set_int(onnx_.node("Gemm", inputs, put(n, true)), "transB", 1);
}

void OnnxWriter::add(const Node& n, const BatchNorm& o) {
  if (weights_.is_folded(n.inputs[0])) {
    outputs_[n.output] = outputs_[n.inputs[0]];
    return;
  }
  const OnnxInts dims{static_cast<std::int64_t>(weights_.mean(o).size())};
  const std::string& norm = graph_.statistics[o.statistics].name;
  const std::string x = name(n.inputs[0]);
  onnx::Node& node = onnx_.node("BatchNormalization",
                                {x, onnx_.constant(norm + ".weight", dims, weights_.gamma(o)),
                                 onnx_.constant(norm + ".bias", dims, weights_.parameter(o.beta)),
                                 onnx_.constant(norm + ".running_mean", dims, weights_.mean(o)),
                                 onnx_.constant(norm + ".running_var", dims, weights_.variance(o))},
                                put(n, flat(n.inputs[0])));
  OnnxBuilder::set_float(node, "epsilon", o.epsilon);
}

// Every stride-th pixel, and channels of 0 behind those of x.
void OnnxWriter::add(const Node& n, const Shortcut& o) {
  const int more = shape(n.output).channels - shape(n.inputs[0]).channels;
  const std::string x = as_image(n.inputs[0]), y = put(n, false);
  const std::string sampled = more > 0 ? y + "/sampled" : y;
  onnx_.node(
      "Slice",
      {x, onnx_.whole(y + "/starts", {0, 0, 0}),
       onnx_.whole(y + "/ends", {std::min(shape(n.output).channels, shape(n.inputs[0]).channels),
                                 shape(n.inputs[0]).height, shape(n.inputs[0]).width}),
       onnx_.whole(y + "/axes", {1, 2, 3}), onnx_.whole(y + "/steps", {1, o.stride, o.stride})},
      sampled);
  if (more > 0)
    onnx_.node("Pad", {sampled, onnx_.whole(y + "/pads", {0, 0, 0, 0, 0, more, 0, 0})}, y);
}

void OnnxWriter::add(const Node& n, const AveragePool& o) {
  const std::string x = as_image(n.inputs[0]);
  const compute::Shape& in = shape(n.inputs[0]);
  if (o.window == compute::Window{in.height, in.width}) {
    onnx_.node("GlobalAveragePool", {x}, put(n, false));
    return;
  }
  onnx::Node& node = onnx_.node("AveragePool", {x}, put(n, false));
  set_window(node, o.window);
  OnnxBuilder::set_int(node, "count_include_pad", 0);
}

void OnnxWriter::add(const Node& n, const Filter& o) {
  const std::string x = as_image(n.inputs[0]), y = put(n, false);
  const std::int64_t channels = shape(n.output).channels;
  std::vector<float> taps;
  for (std::int64_t c = 0; c < channels; ++c) taps.insert(taps.end(), o.taps.begin(), o.taps.end());
  const OnnxInts dims{channels, 1, o.window.height, o.window.width};
  onnx::Node& node = onnx_.node("Conv", {x, onnx_.constant(y + "/taps", dims, taps)}, y);
  set_window(node, o.window);
  OnnxBuilder::set_int(node, "group", channels);
}

void OnnxWriter::add(const Node& n, const ReflectPad& o) {
  const std::string x = as_image(n.inputs[0]), y = put(n, false);
  const OnnxInts pads{0, 0, o.border, o.border, 0, 0, o.border, o.border};
  OnnxBuilder::set_text(onnx_.node("Pad", {x, onnx_.whole(y + "/pads", pads)}, y), "mode",
                        "reflect");
}

// ONNX divides alpha by the number of channels.
void OnnxWriter::add(const Node& n, const Lrn& o) {
  const std::string x = as_image(n.inputs[0]);
  onnx::Node& node = onnx_.node("LRN", {x}, put(n, false));
  const int size = 2 * o.how.radius + 1;
  OnnxBuilder::set_int(node, "size", size);
  OnnxBuilder::set_float(node, "alpha", double(o.how.alpha) * size);
  OnnxBuilder::set_float(node, "beta", o.how.beta);
  OnnxBuilder::set_float(node, "bias", o.how.bias);
}

void OnnxWriter::add(const Node& n, const LayerScale& o) {
  const std::string x = as_image(n.inputs[0]);
  const OnnxInts dims{shape(n.output).channels, 1, 1};
  onnx_.node("Mul", {x, onnx_.constant(graph_.parameters[o.w].name, dims, weights_.parameter(o.w))},
             put(n, false));
}

// ONNX normalises the last extent.
void OnnxWriter::add(const Node& n, const LayerNorm& o) {
  const OnnxInts dims{shape(n.output).channels};
  const bool is_flat = flat(n.inputs[0]);
  std::string x = name(n.inputs[0]);
  const std::string y = put(n, is_flat);
  if (!is_flat) x = transposed(x, y + "/nhwc", {0, 2, 3, 1});
  onnx::Node& node = onnx_.node(
      "LayerNormalization",
      {x, onnx_.constant(graph_.parameters[o.gamma].name, dims, weights_.parameter(o.gamma)),
       onnx_.constant(graph_.parameters[o.beta].name, dims, weights_.parameter(o.beta))},
      is_flat ? y : y + "/normalised");
  OnnxBuilder::set_int(node, "axis", -1);
  OnnxBuilder::set_float(node, "epsilon", o.epsilon);
  if (!is_flat) transposed(y + "/normalised", y, {0, 3, 1, 2});
}

}  // namespace

void write_onnx(std::ostream& out, const Graph& graph, const GraphValues& values,
                const OnnxOptions& options) {
  constexpr double around = 1 << 24;  // more than all nodes take
  const double bytes = double(values.parameters.size_bytes() + values.statistics.size_bytes());
  if (bytes + around > most_bytes)
    throw Error(Exit::usage, "--export onnx",
                fmt::format("{:.1f} GB do not fit ONNX's file, which has 2 GiB at most: export "
                            "safetensors or torch",
                            bytes * 1e-9));
  OnnxWriter(graph, values, options).run().SerializeToOstream(&out);
}

}  // namespace ringtrain::model
