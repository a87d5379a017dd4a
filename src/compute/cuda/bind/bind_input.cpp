#include <algorithm>

#include "compute/cuda/bind/bind.hpp"
#include "compute/cuda/kernels/arguments/input.hpp"

namespace ringtrain::compute::cuda {
namespace {

// As the convolution wants it that reads the image.
void store_for(const StoredImage& image, kernels::InputOperands& operands) {
  operands.y_channels = image.form.x.channels;
  operands.blocks = image.blocks();
  operands.stored_height = image.form.x.height;
  operands.stored_width = image.form.x.width;
  operands.top = image.window.top;
  operands.left = image.window.left;
}

}  // namespace

// The images change their place from step to step; all else stays.
template <>
Action bind(const Input& s, Binder& b) {
  const Shape& shape = b.shape(s.y);
  const ProgramPlaces& places = b.places();
  const auto batch = static_cast<std::size_t>(shape.batch);
  kernels::InputOperands operands{};
  operands.element = b.element();
  operands.batch = batch;
  operands.pixels = std::size_t(shape.height) * shape.width;
  operands.width = shape.width;
  operands.channels = operands.y_channels = shape.channels;
  operands.jittered = s.jitter ? places.block.samples(places.small) : nullptr;
  operands.clip = s.clip;
  operands.erased = s.erase ? places.block.samples(places.small) : nullptr;
  operands.normalisation = s.normalisation;
  std::ranges::copy(s.mean, operands.mean);
  std::ranges::copy(s.deviation, operands.deviation);
  operands.y = b.at(s.y);
  operands.moments =
      reinterpret_cast<kernels::ImageMoments*>(b.keep(batch * sizeof(kernels::ImageMoments)));
  if (const StoredImage* image = b.stored_image(s.y)) store_for(*image, operands);
  return [&b, operands] {
    kernels::InputOperands now = operands;
    now.images = b.places().block.images(*b.places().batch);
    kernels::input(now, b.stream());
  };
}

}  // namespace ringtrain::compute::cuda
