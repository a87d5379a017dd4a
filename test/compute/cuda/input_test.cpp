#include "compute/cuda/kernels/input_work.hpp"
#include "support/kernel_case.hpp"

using namespace ringtrain;
using namespace ringtrain::cuda::kernels;

namespace {

Batch images(const Shape& s) {
  Batch batch{s.height, s.width, s.channels, {}, {0, 1, 2}, {0, 1, 2}, {0, 0, 0}, {}};
  Philox random(3, Purpose::synthetic);
  for (std::size_t i = 0; i < s.elements(); ++i)  // the first image is of one colour
    batch.images.push_back(static_cast<std::uint8_t>(i < s.features() ? 9 : random.below(256)));
  batch.distortions = {{}, {-20, 1.8f, 0.5f, -0.2f}, {63, 0.2f, 1.5f, 0.3f}};
  return batch;
}

// y with channels dropped from `padded` to `channels`, and whether those that pad are zero.
std::vector<double> unpadded(const std::vector<double>& y, int padded, int channels) {
  std::vector<double> result;
  for (std::size_t i = 0; i < y.size(); ++i)
    if (static_cast<int>(i % padded) < channels)
      result.push_back(y[i]);
    else
      REQUIRE(y[i] == 0);
  return result;
}

}  // namespace

TEST_CASE("cuda kernels: input is distorted, normalised and padded as by the reference") {
  const Element element = GENERATE(Element::fp32, Element::fp16, Element::bf16);
  const int channels = GENERATE(1, 3, 5), height = GENERATE(7, 32);
  const auto kind = GENERATE(Normalisation::standardise_image, Normalisation::mean_deviation);
  const bool distort = GENERATE(false, true);
  const int padded = channels > 4 ? 8 : GENERATE(4, 8);
  CAPTURE(element, channels, height, distort, padded);
  const Shape s{3, height, 5, channels};
  const Batch batch = images(s);
  const Input step{0, kind, std::vector<float>(channels, 0.4f), std::vector<float>(channels, 0.3f),
                   distort};
  KernelCase c(element, {s, {3, height, 5, padded}}, 0);
  c.state.batch = &batch;
  std::vector<ImageMoments> moments(3);
  InputOperands o{element,
                  3,
                  std::size_t(height) * 5,
                  channels,
                  padded,
                  batch.images.data(),
                  distort ? batch.distortions.data() : nullptr,
                  kind,
                  {},
                  {},
                  c[1],
                  moments.data()};
  std::ranges::copy(step.mean, o.mean);
  std::ranges::copy(step.deviation, o.deviation);

  c.run_kernel({1}, [&](auto& queue) { work::input(o, queue); });
  reference::run(step, c.state);

  CHECK(relative_norm(unpadded(c.read(1), padded, channels), c.state[0]) < tolerance(element));
}
