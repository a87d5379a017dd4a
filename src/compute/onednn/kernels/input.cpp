#include <algorithm>
#include <cmath>

#include "compute/color_jitter.hpp"
#include "compute/onednn/plan.hpp"

namespace ringtrain::compute::onednn {
namespace {

// y = (v - offset) * factor
struct Line {
  float offset, factor;
};

// (v - mean) / max(deviation, 1/sqrt(elements)) of one whole image.
Line standardising(std::span<const float> image) {
  const double count = static_cast<double>(image.size());
  double sum = 0, squares = 0;
  for (const float v : image) sum += v;
  const double mean = sum / count;
  for (const float v : image) squares += (v - mean) * (v - mean);
  const double deviation = std::max(std::sqrt(squares / count), 1 / std::sqrt(count));
  return {static_cast<float>(mean), static_cast<float>(1 / deviation)};
}

// Interleaved channels into the tensor's layout, one channel at a time.
template <class T>
void write_channel(std::span<const float> image, const Tensor& y, std::size_t n, int c,
                   const Line& line) {
  const Pixels<T> out = y.run<T>(n, c / y.block);
  for (std::size_t pixel = 0; pixel < y.pixels(); ++pixel)
    out.at(pixel)[c % y.block] = (image[pixel * y.shape.channels + c] - line.offset) * line.factor;
}

template <class T>
void erase_in(const Erased& e, const Tensor& y, std::size_t n) {
  for (int c = 0; c < y.shape.channels; ++c) {
    const Pixels<T> out = y.run<T>(n, c / y.block);
    for (int row = e.top; row < e.top + e.height; ++row)
      for (int column = e.left; column < e.left + e.width; ++column)
        out.at(std::size_t(row) * y.shape.width + column)[c % y.block] = T(e.value);
  }
}

}  // namespace

template <>
Action plan(const Input& step, Planner& planner) {
  const Tensor y = planner.tensor(step.y);
  const std::size_t features = y.shape.features();
  const bool standardise = step.normalisation == Normalisation::standardise_image;
  expects(standardise || (std::ssize(step.mean) == y.shape.channels &&
                          std::ssize(step.deviation) == y.shape.channels),
          "Input: one mean and deviation a channel");
  const Scratch images = planner.scratch(planner.threads() * features * sizeof(float));
  return with_type(y.element, [&]<class T>(T) -> Action {
    return [=, threads = planner.threads()](const Frame& frame) {
      for_each_item(threads, y.shape.batch, [&](std::size_t n) {
        const std::span image(images.in(frame) + this_thread() * features, features);
        std::copy_n(frame.batch.images.data() + n * features, features, image.data());
        if (step.jitter) apply_jitter(frame.batch.samples[n].jitter, image, y.shape.channels);
        if (step.clip) std::ranges::transform(image, image.begin(), clipped<float>);
        if (y.block > 1) std::fill_n(y.image_at<T>(n), y.image(), T(0));
        const Line whole = standardise ? standardising(image) : Line{};
        for (int c = 0; c < y.shape.channels; ++c)
          write_channel<T>(
              image, y, n, c,
              standardise ? whole : Line{255 * step.mean[c], 1 / (255 * step.deviation[c])});
        if (step.erase) erase_in<T>(frame.batch.samples[n].erased, y, n);
      });
    };
  });
}

}  // namespace ringtrain::compute::onednn
