#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onnx.pb.h"

namespace ringtrain::model {

using OnnxInts = std::vector<std::int64_t>;

/// Adds to a graph of ONNX: nodes of its operators, constants and attributes.
class OnnxBuilder {
 public:
  explicit OnnxBuilder(onnx::Graph& graph) : graph_(graph) {}

  /// A node that makes `output`, by which it is called, too.
  onnx::Node& node(std::string_view op, const std::vector<std::string>& inputs,
                   const std::string& output);
  /// A constant; returns its name. Of fp32, of whole numbers, or a single fp32 number.
  std::string constant(const std::string& name, const OnnxInts& dims,
                       std::span<const float> values);
  std::string whole(const std::string& name, const OnnxInts& values);
  std::string number(const std::string& name, double value);

  static void set_int(onnx::Node& node, const char* name, std::int64_t value);
  static void set_float(onnx::Node& node, const char* name, double value);
  static void set_text(onnx::Node& node, const char* name, const char* value);
  static void set_ints(onnx::Node& node, const char* name, const OnnxInts& values);

  /// What comes in or goes out: `type` is that of onnx::Tensor, and the first extent is `batch`.
  static void describe(onnx::Value& value, const std::string& name, int type,
                       const OnnxInts& behind_batch);

 private:
  onnx::Graph& graph_;
};

}  // namespace ringtrain::model
