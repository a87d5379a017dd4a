#include "model/onnx/onnx_builder.hpp"

namespace ringtrain::model {
namespace {

onnx::Attribute& new_attribute(onnx::Node& node, const char* name, onnx::Attribute::Type type) {
  onnx::Attribute& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

template <class T>
void fill_tensor(onnx::Tensor& tensor, const std::string& name, onnx::Tensor::Type type,
                 const OnnxInts& dims, std::span<const T> values) {
  tensor.set_name(name);
  tensor.set_data_type(type);
  for (const std::int64_t extent : dims) tensor.add_dims(extent);
  tensor.set_raw_data(values.data(), values.size_bytes());
}

}  // namespace

onnx::Node& OnnxBuilder::node(std::string_view op, const std::vector<std::string>& inputs,
                              const std::string& output) {
  onnx::Node& made = *graph_.add_node();
  made.set_op_type(std::string(op));
  made.set_name(output);
  for (const std::string& input : inputs) made.add_input(input);
  made.add_output(output);
  return made;
}

std::string OnnxBuilder::constant(const std::string& name, const OnnxInts& dims,
                                  std::span<const float> values) {
  fill_tensor(*graph_.add_initializer(), name, onnx::Tensor::FLOAT, dims, values);
  return name;
}

std::string OnnxBuilder::whole(const std::string& name, const OnnxInts& values) {
  fill_tensor(*graph_.add_initializer(), name, onnx::Tensor::INT64,
              {static_cast<std::int64_t>(values.size())}, std::span(values));
  return name;
}

std::string OnnxBuilder::number(const std::string& name, double value) {
  const auto rounded = static_cast<float>(value);
  return constant(name, {}, std::span(&rounded, 1));
}

void OnnxBuilder::set_int(onnx::Node& node, const char* name, std::int64_t value) {
  new_attribute(node, name, onnx::Attribute::INT).set_i(value);
}
void OnnxBuilder::set_float(onnx::Node& node, const char* name, double value) {
  new_attribute(node, name, onnx::Attribute::FLOAT).set_f(static_cast<float>(value));
}
void OnnxBuilder::set_text(onnx::Node& node, const char* name, const char* value) {
  new_attribute(node, name, onnx::Attribute::STRING).set_s(value);
}
void OnnxBuilder::set_ints(onnx::Node& node, const char* name, const OnnxInts& values) {
  onnx::Attribute& attribute = new_attribute(node, name, onnx::Attribute::INTS);
  for (const std::int64_t value : values) attribute.add_ints(value);
}

void OnnxBuilder::describe(onnx::Value& value, const std::string& name, int type,
                           const OnnxInts& behind_batch) {
  value.set_name(name);
  onnx::Value::TensorType& tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(type);
  tensor.mutable_shape()->add_dim()->set_symbol("batch");
  for (const std::int64_t extent : behind_batch)
    tensor.mutable_shape()->add_dim()->set_size(extent);
}

}  // namespace ringtrain::model
