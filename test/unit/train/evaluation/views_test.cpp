#include "train/evaluation/views.hpp"

#include <algorithm>
#include <cmath>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::train;

namespace {

constexpr int height = 3, width = 4, channels = 2, classes = 3;

/// Logits that depend on each pixel and its place.
double logit(const std::uint8_t* image, int c) {
  double sum = 0;
  for (int i = 0; i < height * width * channels; ++i) sum += image[i] * std::sin(1 + i + 31 * c);
  return sum / 100;
}

struct Places final : compute::Program {
  std::vector<float> said;
  int runs = 0;

  compute::StepResult run(const Batch& batch, double, const Final&, const SumOverRanks&) override {
    ++runs;
    said.clear();
    for (int i = 0; i < batch.size(); ++i)
      for (int c = 0; c < classes; ++c)
        said.push_back(float(logit(&batch.images[i * batch.image_bytes()], c)));
    return {.loss = 77, .samples = 5};
  }
  std::vector<float> logits() const override { return said; }
  std::size_t bytes() const override { return 0; }
};

Batch images() {
  Batch batch;
  batch.resize(5, height, width, channels);
  for (std::size_t i = 0; i < batch.images.size(); ++i) batch.images[i] = (37 * i + 11) % 256;
  for (int i = 0; i < 5; ++i) batch.samples[i].target = {i < 4 ? i % classes : -1};
  return batch;
}

// What NumPy's pad(mode="reflect"), a window of it and fliplr() give.
std::vector<std::uint8_t> shown(const Batch& batch, int image, int shift, bool mirrored) {
  const auto inside = [](int at, int length) {
    return at < 0 ? -at : at >= length ? 2 * length - 2 - at : at;
  };
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) {
        const int row = inside(y - shift, height),
                  column = inside((mirrored ? width - 1 - x : x) - shift, width);
        pixels.push_back(
            batch.images[image * batch.image_bytes() + (row * width + column) * channels + c]);
      }
  return pixels;
}

}  // namespace

TEST_CASE("views: one is the program's own") {
  Places program;
  ViewedProgram viewed(program, model::TestViews::one);

  CHECK(viewed.run(images()).loss == 77);
  CHECK(program.runs == 1);
  CHECK(viewed.logits() == program.said);
}

TEST_CASE("views: logits are the mean of the views', loss and hits those of the mean") {
  const bool shifts = GENERATE(false, true);
  const Batch batch = images();
  Places program;
  ViewedProgram viewed(program, shifts ? model::TestViews::flip_shift : model::TestViews::flip);

  const compute::StepResult result = viewed.run(batch);

  CHECK(program.runs == (shifts ? 6 : 2));
  double loss = 0;
  int hits = 0;
  const std::vector<float> logits = viewed.logits();
  REQUIRE(logits.size() == 5 * classes);
  for (int i = 0; i < 5; ++i) {
    double mean[classes] = {}, sum = 0;
    for (int c = 0; c < classes; ++c) {
      const auto both = [&](int shift) {
        return (logit(shown(batch, i, shift, false).data(), c) +
                logit(shown(batch, i, shift, true).data(), c)) /
               2;
      };
      mean[c] = shifts ? both(0) / 2 + (both(1) + both(-1)) / 4 : both(0);
      CHECK(logits[i * classes + c] == Approx(mean[c]).margin(1e-5));
      sum += std::exp(mean[c]);
    }
    if (i == 4) continue;  // fills the batch up
    loss += std::log(sum) - mean[i % classes];
    hits += std::max_element(mean, mean + classes) - mean == i % classes;
  }
  CHECK(result.loss == Approx(loss).epsilon(1e-5));
  CHECK(result.samples == 4);
  CHECK(result.top1 == hits);
  CHECK(result.top5 == 4);
}
