#include "io/loader/batch_filler.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "io/loader/mixing.hpp"

namespace ringtrain::io {
namespace {

// Tried in place of an unreadable sample; more in a row are no accident.
constexpr std::uint64_t neighbours = 1000;

// As Pillow's convert("L") has them.
void to_grey(std::span<const std::uint8_t> rgb, std::span<std::uint8_t> grey) {
  const std::uint8_t* from = rgb.data();
  for (std::uint8_t& v : grey) {
    v = static_cast<std::uint8_t>(
        (19595u * from[0] + 38470u * from[1] + 7471u * from[2] + 0x8000u) >> 16);
    from += Image::channels;
  }
}

// Both as RGB.
void to_rgba(std::span<const std::uint8_t> rgb, std::span<const std::uint8_t> opacity,
             std::span<std::uint8_t> rgba) {
  for (std::size_t from = 0, to = 0; to < rgba.size(); from += Image::channels) {
    for (int c = 0; c < Image::channels; ++c) rgba[to++] = rgb[from + c];
    rgba[to++] = opacity[from];
  }
}

void note(std::uint64_t sample, std::string_view consequence, const UnreadableSample& failure,
          BatchReport& report) {
  report.unreadable.push_back(
      {sample, fmt::format("unreadable sample {}, {}: {}", sample, consequence, failure.what()),
       failure.what()});
}

}  // namespace

BatchFiller::BatchFiller(const Dataset& dataset, const Sampler& sampler,
                         const LoaderOptions& options, ReadRetries& retries)
    : dataset_(dataset),
      options_(options),
      flips_in_turn_(options.augmentation.find<AlternatingFlip>() != nullptr),
      sampler_(sampler),
      reader_(dataset.reader()) {
  reader_->share(retries);
}

void BatchFiller::shape(Batch& batch) const {
  const Extent output = options_.augmentation.output;
  batch.resize(options_.share.count, output.height, output.width, options_.channels);
}

void BatchFiller::fill(std::uint64_t number, int place, Batch& batch, BatchReport& report) {
  const std::uint64_t position =
      number * static_cast<std::uint64_t>(options_.global_batch) + options_.share.first + place;
  if (options_.mode == Split::evaluation) return fill_evaluation(position, place, batch, report);
  fill_training(options_.start + position, place, batch, report);
  if (options_.augmentation.mixing.mixes()) mix_pair(position, place, batch, report);
}

// Neighbours of a step are a pair; a last one without a neighbour stays as it is. Both ranks, or
// micro-steps, that divide a pair decode it. `position` counts from where the loader starts.
void BatchFiller::mix_pair(std::uint64_t position, int place, Batch& batch, BatchReport& report) {
  const std::uint64_t step_size =
      static_cast<std::uint64_t>(options_.global_batch) * options_.micro_steps;
  const std::uint64_t at = position % step_size, step = options_.start + position - at;
  const bool first = at % 2 == 0, here = first ? place + 1 < options_.share.count : place > 0;
  if (first && (here || at + 1 == step_size)) return;  // here: once the second is there, too
  const Mixing& mixing = options_.augmentation.mixing;
  const Philox random(options_.seed, Purpose::mix, mixing.by_step,
                      mixing.by_step ? step : step + at / 2 * 2);
  const Extent extent = options_.augmentation.output;
  const Mix mixture = draw_mix(mixing, extent, random);
  if (mixture.kept == Mix::one) return;
  if (!here) {
    partner_.resize(1, extent.height, extent.width, options_.channels);
    fill_training(first ? step + at + 1 : step + at - 1, 0, partner_, report);
  }
  Batch& others = here ? batch : partner_;
  const int other = here ? place - 1 : 0;
  mix(mixture, extent, options_.channels, {others.image(other), others.samples[other].target},
      {batch.image(place), batch.samples[place].target});
}

void BatchFiller::fill_training(std::uint64_t position, int place, Batch& batch,
                                BatchReport& report) {
  const auto [epoch, sample, repeat] = sampler_.at(position);
  batch.samples[place] = {.index = sample, .epoch = epoch, .repeat = repeat};
  const Philox random(options_.seed, Purpose::augment, epoch, batch.samples[place].key());
  for (std::uint64_t tried = 0; tried < std::min(neighbours, dataset_.size()); ++tried) {
    const std::uint64_t source = (sample + tried) % dataset_.size();
    try {
      render(source, random, place, batch);
      batch.samples[place].target = {dataset_.label(source)};
      return;
    } catch (const UnreadableSample& failure) {
      note(source, "the next one takes its place", failure, report);
    }
  }
  throw Error(Exit::data, "train on " + dataset_.description(),
              fmt::format("samples {} and all that were tried in its place cannot be read; {}",
                          sample, report.unreadable.back().message));
}

void BatchFiller::fill_evaluation(std::uint64_t position, int place, Batch& batch,
                                  BatchReport& report) {
  batch.samples[place] = {.index = position};
  std::ranges::fill(batch.image(place), std::uint8_t{0});
  if (position >= dataset_.size()) return;
  try {
    render(position, std::nullopt, place, batch);
    batch.samples[place].target = {dataset_.label(position)};
  } catch (const UnreadableSample& failure) {
    note(position, "it is not counted", failure, report);
  }
}

// Half of the samples in an even epoch, the others in an odd one.
bool BatchFiller::alternates(const Sample& sample) const {
  return (Philox(options_.seed, Purpose::flip, 0, sample.index).below(2) + sample.epoch) % 2 == 1;
}

void BatchFiller::render(std::uint64_t sample, std::optional<Philox> random, int place,
                         Batch& batch) {
  const Extent full = reader_->open(sample), output = options_.augmentation.output;
  const int channels = options_.channels;
  const bool alpha = channels == Image::channels + 1;
  if (channels != Image::channels) colours_.resize(output.pixels() * Image::channels);
  const std::span<std::uint8_t> rgb =
      channels != Image::channels ? std::span(colours_) : batch.image(place);
  AugmentedImage image(options_.augmentation, full, [&](const CropTransform& crop) {
    CropRequest need = request_for(crop, full, output);
    need.alpha = alpha;
    const PixelView pixels = reader_->pixels(need);
    renderer_.run(pixels, crop, output, rgb.data());
    if (alpha) render_opacity(pixels, crop);
    return rgb;
  });
  image.alternates = flips_in_turn_ && alternates(batch.samples[place]);
  if (random) augment(image, *random, pixel_operator_);
  image.pixels();
  if (channels == 1) to_grey(rgb, batch.image(place));
  if (alpha) to_rgba(rgb, opacity_, batch.image(place));
  batch.samples[place].jitter = image.jitter;
  batch.samples[place].erased = image.erased;
}

void BatchFiller::render_opacity(const PixelView& pixels, const CropTransform& crop) {
  PixelView alpha = pixels;
  alpha.pixels = pixels.alpha;
  if (pixels.alpha.pixels.empty()) {
    opaque_.reshape(pixels.pixels.extent);
    std::ranges::fill(opaque_.pixels, std::uint8_t{255});
    alpha.pixels = opaque_.view();
  }
  const Extent output = options_.augmentation.output;
  opacity_.resize(output.pixels() * Image::channels);
  renderer_.run(alpha, crop, output, opacity_.data());
}

}  // namespace ringtrain::io
