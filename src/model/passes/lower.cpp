#include <variant>

#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {

std::vector<bool> needed_nodes(const Graph& graph, Mode mode) {
  std::vector<bool> node_needed(graph.nodes.size()), tensor_needed(graph.tensors.size());
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    const auto* loss = std::get_if<Loss>(&node.operation);
    const bool needed =
        loss ? mode == Mode::training || !loss->auxiliary : tensor_needed[node.output];
    node_needed[n] = needed;
    if (needed)
      for (const compute::TensorId id : node.inputs) tensor_needed[id] = true;
  }
  return node_needed;
}

namespace {

class Lowering {
 public:
  Lowering(const Graph& graph, int batch, Mode mode, float smoothing)
      : graph_(graph),
        mode_(mode),
        smoothing_(smoothing),
        parameters_(graph.parameter_ranges()),
        statistics_(graph.statistics_ranges()) {
    schedule_.tensors = graph.tensors;
    same_as_.assign(graph.tensors.size(), compute::no_tensor);
    for (compute::Shape& shape : schedule_.tensors) shape.batch = batch;
    schedule_.batch = batch;
    schedule_.parameters = graph.parameter_count();
    schedule_.learning = graph.learning_count();
    schedule_.statistics = graph.statistic_count();
  }

  compute::Schedule run() && {
    const std::vector<bool> needed = needed_nodes(graph_, mode_);
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      if (needed[n])
        std::visit([&](const auto& kind) { lower(graph_.nodes[n], kind); },
                   graph_.nodes[n].operation);
    skip_copies();
    schedule_.backward = schedule_.steps.size();
    return std::move(schedule_);
  }

 private:
  void skip_copies() {
    same_as_.resize(schedule_.tensors.size(), compute::no_tensor);
    for (compute::Step& step : schedule_.steps)
      compute::for_each_tensor(step,
                               [&](compute::TensorId& id, compute::Access) { id = source_of(id); });
    if (schedule_.logits != compute::no_tensor) schedule_.logits = source_of(schedule_.logits);
  }
  compute::TensorId source_of(compute::TensorId id) const {
    while (same_as_[id] != compute::no_tensor) id = same_as_[id];
    return id;
  }
  void push(compute::Step step) { schedule_.steps.push_back(std::move(step)); }
  bool training() const { return mode_ == Mode::training; }
  std::optional<compute::ParameterRange> range(std::optional<ParameterId> id) const {
    return id ? std::optional(parameters_[*id]) : std::nullopt;
  }

  void lower(const Node& n, const ImageInput& o) {
    const bool jitter = o.jitter && training();
    push(compute::Input{n.output, o.normalisation, o.mean, o.deviation, jitter, o.clip && jitter,
                        o.erase && training()});
  }
  void lower(const Node& n, const Convolution& o) {
    push(
        compute::ConvolutionForward{o.window, n.inputs[0], n.output, parameters_[o.w], range(o.b)});
  }
  void lower(const Node& n, const MatrixProduct& o) {
    push(compute::MatrixProductForward{n.inputs[0], n.output, parameters_[o.w], range(o.b)});
  }
  void lower(const Node& n, const BatchNorm& o) {
    const bool moves = training() && !graph_.statistics[o.statistics].frozen;
    push(compute::BatchNormForward{n.inputs[0], n.output, compute::no_tensor, range(o.gamma),
                                   parameters_[o.beta], statistics_[o.statistics], o.epsilon,
                                   compute::Activation::none, o.unbiased, moves});
  }
  void lower(const Node& n, const Pointwise& o) {
    push(compute::Pointwise{o.f, n.inputs[0], n.output});
  }
  void lower(const Node& n, const Sum&) { push(compute::Add{n.inputs[0], n.inputs[1], n.output}); }
  void lower(const Node& n, const Scale&) {
    push(compute::ScaleForward{n.inputs[0], n.inputs[1], n.output});
  }
  void lower(const Node& n, const LayerScale& o) {  // a depthwise convolution of one pixel
    const compute::ConvolutionShape window({}, schedule_.tensors[n.output].channels);
    push(compute::ConvolutionForward{window, n.inputs[0], n.output, parameters_[o.w]});
  }
  void lower(const Node& n, const LayerNorm& o) {
    push(compute::LayerNormForward{n.inputs[0], n.output, parameters_[o.gamma], parameters_[o.beta],
                                   o.epsilon});
  }
  void lower(const Node& n, const Multiply& o) {
    push(compute::Multiply{n.inputs[0], n.output, o.factor});
  }
  void lower(const Node& n, const Concat&) { push(compute::Concat{n.inputs, n.output}); }
  void lower(const Node& n, const Shortcut& o) {
    push(compute::ShortcutForward{n.inputs[0], n.output, o.stride});
  }
  void lower(const Node& n, const MaxPool& o) {
    push(compute::MaxPoolForward{o.window, n.inputs[0], n.output});
  }
  void lower(const Node& n, const AveragePool& o) {
    push(compute::AveragePoolForward{o.window, n.inputs[0], n.output});
  }
  void lower(const Node& n, const Filter& o) {
    push(compute::FilterForward{o.window, o.taps, n.inputs[0], n.output});
  }
  void lower(const Node& n, const ReflectPad& o) {
    push(compute::ReflectPadForward{n.inputs[0], n.output, o.border});
  }
  void lower(const Node& n, const Lrn& o) {
    push(compute::LrnForward{o.how, n.inputs[0], n.output});
  }
  void lower(const Node& n, const DropoutLayer& o) {
    if (training())
      push(compute::Dropout{o.how, n.inputs[0], n.output});
    else
      same_as_[n.output] = n.inputs[0];
  }
  void lower(const Node& n, const Loss& o) {
    const compute::TensorId logits = n.inputs[0];
    if (!training()) schedule_.logits = logits;
    if (mode_ == Mode::prediction) return;
    const compute::TensorId dlogits =
        training() ? new_tensor(schedule_, schedule_.tensors[logits]) : compute::no_tensor;
    push(compute::SoftmaxCrossEntropy{logits, dlogits, training() ? smoothing_ : 0, o.weight,
                                      !o.auxiliary});
  }

  const Graph& graph_;
  const Mode mode_;
  const float smoothing_;
  const std::vector<compute::ParameterRange> parameters_;
  const std::vector<compute::StatisticsRange> statistics_;
  std::vector<compute::TensorId>
      same_as_;  // the tensor that is read in place of another, which only training has
  compute::Schedule schedule_;
};

}  // namespace

compute::Schedule lower(const Graph& graph, int batch, Mode mode, float label_smoothing) {
  return Lowering(graph, batch, mode, label_smoothing).run();
}

}  // namespace ringtrain::model
