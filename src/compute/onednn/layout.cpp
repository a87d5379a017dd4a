#include <variant>

#include "compute/onednn/tensor.hpp"

namespace ringtrain::compute::onednn {
namespace {

// oneDNN has kernels of their own for a first convolution: its source is plain, up to four
// channels, where blocks would be mostly padding.
constexpr int most_image_channels = 4;

bool reads_images(const Step& step) {
  return std::holds_alternative<ConvolutionForward>(step) ||
         std::holds_alternative<ConvolutionWeightGradient>(step);
}

}  // namespace

std::vector<Tensor> choose_layouts(const Schedule& schedule, int block, Element element) {
  std::vector<bool> image(schedule.tensors.size(), false), other(schedule.tensors.size(), false);
  for (const Step& step : schedule.steps) {
    const bool convolution = reads_images(step), input = std::holds_alternative<Input>(step);
    for_each_tensor(step, [&](TensorId id, Access access) {
      if (input) image[id] = true;
      if (!input && !(convolution && access == Access::read)) other[id] = true;
    });
  }
  std::vector<Tensor> result;
  for (std::size_t id = 0; id < schedule.tensors.size(); ++id) {
    const Shape& shape = schedule.tensors[id];
    const bool plain = image[id] && !other[id] && shape.channels <= most_image_channels;
    result.push_back({shape, plain ? 1 : block, element, element == Element::bf16});
  }
  return result;
}

}  // namespace ringtrain::compute::onednn
