#include "compute/cuda/kernels/device/input_work.hpp"
#include "support/kernel_case.hpp"
#include "support/random_batch.hpp"
#include "support/stored_form.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda::kernels;

namespace {

// Five images. The first is of one colour; in the last one number differs, so little that
// standardisation's least deviation counts.
Batch images(const Shape& s) {
  Batch batch;
  Philox random(3, Purpose::synthetic);
  for (std::size_t i = 0; i < s.elements(); ++i) {
    const std::size_t image = i / s.features();
    batch.images.push_back(
        static_cast<std::uint8_t>(image == 0 || image == 4 ? 9 : random.below(256)));
  }
  ++batch.images.back();
  set_jitter(batch, {{}, {-20, 1.8f, 0.5f, -0.2f}, {63, 0.2f, 1.5f, 0.3f}, {5, 1, 1, 0.4f}, {}});
  set_erased(batch, {{1, 2, 4, 3, 0.7f}, {}, {0, 0, 3, 4, -2}, {6, 1, 1, 4}, {}});
  return batch;
}

// A number a channel.
std::vector<float> numbers(int channels, float first) {
  std::vector<float> values;
  for (int c = 0; c < channels; ++c) values.push_back(first + 0.1f * static_cast<float>(c));
  return values;
}

InputOperands operands(Element element, const Shape& s, int y_channels, const Batch& batch,
                       const Input& step, void* y, std::vector<ImageMoments>& moments) {
  InputOperands o{element,
                  std::size_t(s.batch),
                  std::size_t(s.height) * s.width,
                  s.channels,
                  y_channels,
                  batch.images.data(),
                  step.jitter ? batch.samples.data() : nullptr,
                  step.normalisation,
                  {},
                  {},
                  y,
                  moments.data()};
  o.clip = step.clip;
  o.width = s.width;
  o.erased = step.erase ? batch.samples.data() : nullptr;
  std::ranges::copy(step.mean, o.mean);
  std::ranges::copy(step.deviation, o.deviation);
  return o;
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

TEST_CASE("cuda kernels: input is jittered, normalised, erased and padded as by the reference") {
  const Element element = GENERATE(Element::fp32, Element::fp16, Element::bf16);
  const int channels = GENERATE(1, 3, 5), height = GENERATE(7, 60);
  const auto kind = GENERATE(Normalisation::standardise_image, Normalisation::mean_deviation);
  const bool jitter = GENERATE(false, true);
  const bool clip = GENERATE(false, true) && kind == Normalisation::mean_deviation;
  const bool erase = GENERATE(false, true);
  const int padded = std::max(channels, GENERATE(0, 4, 8));  // as it is, or padded
  CAPTURE(element, channels, height, jitter, clip, erase, padded);
  const Shape s{5, height, 5, channels};
  const Batch batch = images(s);
  const Input step{0, kind, numbers(channels, 0.4f), numbers(channels, 0.3f), jitter, clip, erase};
  KernelCase c(element, {s, {5, height, 5, padded}}, 0);
  c.state.batch = &batch;
  std::vector<ImageMoments> moments(5);
  const InputOperands o = operands(element, s, padded, batch, step, c[1], moments);

  c.run_kernel({1}, [&](auto& queue) { work::input(o, queue); });
  reference::run_step(step, c.state);

  CHECK(relative_norm(unpadded(c.read(1), padded, channels), c.state[0]) < tolerance(element));
}

TEST_CASE("cuda kernels: input is stored in blocks as the convolution that reads it wants it") {
  const Element element = GENERATE(Element::fp32, Element::fp16, Element::bf16);
  const int channels = GENERATE(1, 2, 3, 4), height = GENERATE(8, 9), width = GENERATE(10, 13);
  const Window window = GENERATE(Window{7, 7, 2, 2, 3, 3, 3, 3}, Window{3, 3, 2, 2},
                                 Window{5, 4, 2, 2, 2, 1, 2, 1}, Window{3, 3, 2, 2, 0, 1, 1, 0});
  const bool jitter = GENERATE(false, true);
  CAPTURE(element, channels, height, width, window.top, window.left, jitter);
  const Shape x{5, height, width, channels};
  const StoredForm form{window, x, result_of(window, x, 1), true, 16};
  const Batch batch = images(x);
  const Input step{0,
                   Normalisation::mean_deviation,
                   numbers(channels, 0.4f),
                   numbers(channels, 0.3f),
                   jitter,
                   jitter,
                   jitter};
  KernelCase c(element, {x, form.stored_x()}, 0);
  c.state.batch = &batch;
  std::vector<ImageMoments> moments(5);
  InputOperands o = operands(element, x, form.stored_x().channels, batch, step, c[1], moments);
  o.blocks = form.blocks_across();
  o.stored_height = form.stored_x().height;
  o.stored_width = form.stored_x().width;
  o.top = window.top;
  o.left = window.left;

  c.run_kernel({1}, [&](auto& queue) { work::input(o, queue); });
  reference::run_step(step, c.state);

  const auto y = c.read(1), inside = form.stored(std::vector<double>(x.elements(), 1));
  CHECK(relative_norm(y, form.stored(c.state[0])) < tolerance(element));
  for (std::size_t i = 0; i < y.size(); ++i)
    if (inside[i] == 0) REQUIRE(y[i] == 0);
}

TEST_CASE("cuda kernels: input that has no such form is refused") {
  InputOperands o{};
  KernelQueue queue = KernelQueue::one_way();
  const auto refused = [&](int channels, int y_channels, int blocks) {
    o.channels = channels;
    o.y_channels = y_channels;
    o.blocks = blocks;
    o.width = 1;
    CHECK_THROWS_AS(work::input(o, queue), Error);
  };

  refused(3, 6, 0);
  refused(5, 4, 0);
  refused(3, 16, 0);
  refused(9, 9, 0);
  refused(5, 16, 1);
  refused(3, 8, 1);
  refused(3, 32, 1);
  o.clip = true;
  o.normalisation = Normalisation::standardise_image;
  refused(3, 3, 0);
}
