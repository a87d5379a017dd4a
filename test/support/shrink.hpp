#pragma once
#include <algorithm>

#include "ringtrain/model/graph.hpp"

namespace ringtrain {

/// The same network for images of `size` x `size`, with a fraction of the channels everywhere but
/// in the image and the logits: small enough for the reference.
class Shrunk {
 public:
  Shrunk(model::Graph graph, int size, int divisor) : g_(std::move(graph)), divisor_(divisor) {
    for (const model::Node& node : g_.nodes)
      if (std::holds_alternative<model::ImageInput>(node.operation)) {
        at(node.output).height = at(node.output).width = size;
      }
    for (model::Node& node : g_.nodes)
      std::visit([&](auto& o) { shrink(node, o); }, node.operation);
  }
  model::Graph graph() && { return std::move(g_); }

 private:
  compute::Shape& at(compute::TensorId id) { return g_.tensors[id]; }
  std::size_t channels(compute::TensorId id) { return static_cast<std::size_t>(at(id).channels); }

  void slide(const model::Node& node, const compute::Window& w) {
    const compute::Shape x = at(node.inputs[0]);
    at(node.output).height = (x.height + w.top + w.bottom - w.height) / w.stride_y + 1;
    at(node.output).width = (x.width + w.left + w.right - w.width) / w.stride_x + 1;
  }

  void shrink(const model::Node&, const model::ImageInput&) {}
  void shrink(const model::Node&, const model::Loss&) {}
  void shrink(const model::Node& node, const model::Convolution& o) {
    slide(node, o.window);
    at(node.output).channels = std::max(at(node.output).channels / divisor_, 1);
    auto& dims = g_.parameters[o.w].dims;
    dims[0] = channels(node.output);
    dims[3] = channels(node.inputs[0]);
  }
  void shrink(const model::Node& node, const model::MatrixProduct& o) {
    g_.parameters[o.w].dims[1] = at(node.inputs[0]).features();
  }
  void shrink(const model::Node& node, const model::BatchNorm& o) {
    at(node.output) = at(node.inputs[0]);
    if (o.gamma) g_.parameters[*o.gamma].dims = {channels(node.output)};
    g_.parameters[o.beta].dims = {channels(node.output)};
    g_.statistics[o.statistics].channels = channels(node.output);
  }
  void shrink(const model::Node& node, const model::Shortcut& o) {
    const compute::Shape x = at(node.inputs[0]);
    at(node.output) = {1, (x.height + o.stride - 1) / o.stride, (x.width + o.stride - 1) / o.stride,
                       at(node.output).channels / divisor_};
  }
  void shrink(const model::Node& node, const model::MaxPool& o) {
    at(node.output).channels = at(node.inputs[0]).channels;
    slide(node, o.window);
  }
  void shrink(const model::Node& node, model::AveragePool& o) {  // over the whole image
    const compute::Shape x = at(node.inputs[0]);
    o.window = {x.height, x.width, 1, 1};
    at(node.output).channels = x.channels;
  }
  template <class Elementwise>
  void shrink(const model::Node& node, const Elementwise&) {
    at(node.output) = at(node.inputs[0]);
  }

  model::Graph g_;
  const int divisor_;
};

}  // namespace ringtrain
