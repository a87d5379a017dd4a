#include "compute/cuda/bind/bind.hpp"
#include "compute/cuda/kernels/arguments/softmax.hpp"

namespace ringtrain::compute::cuda {

template <>
Action bind(const SoftmaxCrossEntropy& s, Binder& b) {
  const Shape& shape = b.shape(s.logits);
  const ProgramPlaces& places = b.places();
  const auto batch = static_cast<std::size_t>(shape.batch);
  b.reserve(batch * sizeof(kernels::SampleLoss));
  kernels::SoftmaxOperands operands{
      .element = b.element(),
      .batch = batch,
      .classes = shape.channels,
      .pitch = shape.channels,
      .logits = b.at(s.logits),
      .dlogits = b.at(s.dlogits),
      .samples = places.block.samples(places.small),
      .smoothing = s.smoothing,
      .weight = s.weight,
      .counts = s.counts,
      .sample_weight = &places.block.numbers(places.small)->sample_weight,
      .loss_scale = places.loss_scale,
      .workspace = nullptr,
      .totals = places.totals,
  };
  operands.binary = s.binary.has_value();
  if (s.binary) operands.how = *s.binary;
  if (!s.class_weights.empty()) operands.class_weights = b.keep_values(s.class_weights);
  return [&b, operands] {
    kernels::SoftmaxOperands now = operands;
    now.workspace = static_cast<kernels::SampleLoss*>(b.workspace());
    kernels::softmax_cross_entropy(now, b.stream());
  };
}

}  // namespace ringtrain::compute::cuda
