#include "train/evaluation/views.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace ringtrain::train {
namespace {

int reflected(int place, int length) {
  const int last = length - 1;
  return std::clamp(place < 0 ? -place : place > last ? 2 * last - place : place, 0, last);
}

double cross_entropy(std::span<const float> logits, int label) {
  const double highest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - highest);
  return highest + std::log(sum) - logits[label];
}

// How many classes are better: among equal logits the lower one is, and one that is no number is
// never right.
int better(std::span<const float> logits, int label) {
  int count = 0;
  for (int c = 0; c < static_cast<int>(logits.size()); ++c)
    count += !(logits[c] < logits[label] || (logits[c] == logits[label] && c >= label));
  return count;
}

}  // namespace

std::vector<ViewedProgram::View> ViewedProgram::views_of(model::TestViews views) {
  switch (views) {
    case model::TestViews::one:
      break;
    case model::TestViews::flip:
      return {{false, 0, 0.5f}, {true, 0, 0.5f}};
    case model::TestViews::flip_shift:  // airbench's: half of the weight is the unshifted views'
      return {{false, 0, 0.25f}, {true, 0, 0.25f},    {false, 1, 0.125f},
              {true, 1, 0.125f}, {false, -1, 0.125f}, {true, -1, 0.125f}};
  }
  return {{false, 0, 1}};
}

ViewedProgram::ViewedProgram(compute::Program& program, model::TestViews views)
    : program_(program), views_(views_of(views)) {}

compute::StepResult ViewedProgram::run(const Batch& batch) {
  if (views_.size() == 1) return program_.run(batch, 1, nullptr);
  mean_.clear();
  for (const View& view : views_) {
    show(batch, view);
    program_.run(seen_, 1, nullptr);
    const std::vector<float> logits = program_.logits();
    mean_.resize(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) mean_[i] += view.weight * logits[i];
  }
  compute::StepResult result;
  const std::size_t classes = mean_.size() / batch.samples.size();
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const int label = batch.samples[i].target.label;
    if (label < 0) continue;
    const auto logits = std::span<const float>(mean_).subspan(i * classes, classes);
    result.loss += cross_entropy(logits, label);
    ++result.samples;
    result.top1 += better(logits, label) < 1;
    result.top5 += better(logits, label) < 5;
  }
  return result;
}

void ViewedProgram::show(const Batch& batch, const View& view) {
  seen_.resize(batch.size(), batch.height, batch.width, batch.channels);
  seen_.samples = batch.samples;
  const std::size_t pixel = static_cast<std::size_t>(batch.channels);
  const std::size_t row = pixel * batch.width;
  const std::uint8_t* from = batch.images.data();
  std::uint8_t* to = seen_.images.data();
  for (int i = 0; i < batch.size(); ++i, from += batch.image_bytes())
    for (int y = 0; y < batch.height; ++y) {
      const std::uint8_t* const source = from + row * reflected(y - view.shift, batch.height);
      for (int x = 0; x < batch.width; ++x, to += pixel) {
        const int shown = view.mirrored ? batch.width - 1 - x : x;
        std::memcpy(to, source + pixel * reflected(shown - view.shift, batch.width), pixel);
      }
    }
}

}  // namespace ringtrain::train
