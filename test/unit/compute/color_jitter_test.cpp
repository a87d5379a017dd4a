#include "compute/color_jitter.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "compute/reference/state.hpp"
#include "support/catch.hpp"
#include "support/random_batch.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

TEST_CASE("color jitter: neutral values change nothing, and each change does what it says") {
  const std::vector<double> image{10, 20, 30, 200, 100, 50};
  const auto jittered = [&](ColorJitter d) {
    std::vector<double> result = image;
    apply_jitter<double>(d, result, 3);
    return result;
  };

  CHECK(jittered({}) == image);
  CHECK(jittered({.brightness = 5})[3] == 205);
  CHECK(jittered({.contrast = 0.5f})[0] == Approx(57.5));
  CHECK(jittered({.saturation = 0})[4] == Approx(200));
  // A third of the circle carries red to green, to blue, to red.
  const auto turned = jittered({.hue = 1 / 3.f});
  CHECK(turned[3] == Approx(50).epsilon(1e-4));
  CHECK(turned[4] == Approx(200).epsilon(1e-4));
  CHECK(turned[5] == Approx(100).epsilon(1e-4));
}

TEST_CASE("color jitter: contrast finds the mean of a large image in fp32, too") {
  std::vector<double> exact(299 * 299 * 3);
  for (std::size_t i = 0; i < exact.size(); ++i) exact[i] = static_cast<double>(i * 7919 % 256);
  std::vector<float> single(exact.begin(), exact.end());

  apply_jitter<double>({.brightness = 0.3f, .contrast = 0.5f}, exact, 3);
  apply_jitter<float>({.brightness = 0.3f, .contrast = 0.5f}, single, 3);

  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    largest = std::max(largest, std::abs(single[i] - exact[i]));
  CHECK(largest < 1e-4);
}

// The expected numbers are TensorFlow's: test/parity/color_jitter_against_tensorflow.py.
TEST_CASE("color jitter: the colours of Inception's recipe, clipped, are TensorFlow's") {
  struct Case {
    ColorJitter jitter;
    std::vector<double> expected;
  };
  const auto [jitter, expected] = GENERATE(
      values<Case>({{{-20, 1.5f, 0.5f, -0.2f},
                     {0, 0, 0, 205.583, 94.083, 200.542, 255, 255, 106.792, 255, 255, 255, 0, 0, 0,
                      153.083, 255, 185.542}},
                    {{32, 0.5f, 1.5f, 0.2f},
                     {81.658, 86.81, 109.5, 111.158, 186.81, 82, 55.158, 181.671, 222, 196.158,
                      211.81, 219.5, 71.608, 88.31, 94.5, 146.158, 94.31, 214.5}},
                    {{-25, 0.6f, 1.3f, 0.05f},
                     {26.533, 42.156, 36.221, 131.533, 108.056, 33.221, 26.533, 179.556, 78.409,
                      161.533, 176.556, 168.221, 13.333, 28.356, 20.021, 38.533, 88.656, 162.221}},
                    {{-32, 1.2f, 0.8f, -0.1f},
                     {0, 0, 0, 182.307, 35.4, 80.333, 143.667, 245.4, 7.133, 242.307, 239.4,
                      245.933, 0, 0, 0, 86.307, 227.4, 205.133}}}));
  Batch batch;
  batch.images = {10, 20, 30, 200, 100, 50, 0, 255, 7, 250, 250, 250, 3, 2, 1, 90, 180, 240};
  set_jitter(batch, {jitter});
  Schedule schedule;
  schedule.tensors = {{1, 2, 3, 3}};
  reference::State s(schedule, 1);
  s.batch = &batch;

  compute::reference::run_step(
      Input{0, Normalisation::mean_deviation, {0, 0, 0}, {1, 1, 1}, true, true}, s);

  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(255 * s[0][i] == Approx(expected[i]).margin(0.01));
}
