#pragma once
// Room `io/loader`: fills batches ahead of training. The sampler says which samples a batch has, by
// seed and position alone; fillers read, decode and augment them; the Loader hands batches over.
//
// Threads: loader threads fill, each a batch of its own; the main thread takes them in order.
//
// A sample that cannot be decoded is replaced in training, and left out of an evaluation.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/image/augmented_image.hpp"
#include "io/loader/sampler.hpp"
#include "ringtrain/base/batch.hpp"
#include "ringtrain/io/loader/loader.hpp"

namespace ringtrain::io {

/// What befell the samples of one batch.
struct BatchReport {
  struct Unreadable {
    std::uint64_t sample;
    std::string message, reason;
  };
  std::vector<Unreadable> unreadable;
};

/// Fills batches, in any order, the places of each from the first on; one a thread. What a batch
/// holds is a pure function of data set, sampler, options and its number.
class BatchFiller {
 public:
  /// All that is passed but `options` outlives it.
  BatchFiller(const Dataset& dataset, const Sampler& sampler, const LoaderOptions& options,
              ReadRetries& retries);

  /// Gives `batch` its sizes, keeping memory.
  void shape(Batch& batch) const;
  /// Fills place 0..share.count-1 of batch `number`.
  void fill(std::uint64_t number, int place, Batch& batch, BatchReport& report);

 private:
  void fill_training(std::uint64_t position, int place, Batch& batch, BatchReport& report);
  void mix_pair(std::uint64_t position, int place, Batch& batch, BatchReport& report);
  bool alternates(const Sample& sample) const;
  void fill_evaluation(std::uint64_t position, int place, Batch& batch, BatchReport& report);
  /// Draws what training changes; with no `random` the place is as evaluation sees it.
  void render(std::uint64_t sample, std::optional<Philox> random, int place, Batch& batch);
  /// What `crop` shows of the opacity of `pixels`, in opacity_.
  void render_opacity(const PixelView& pixels, const CropTransform& crop);

  const Dataset& dataset_;
  const LoaderOptions options_;
  const bool flips_in_turn_;
  const Sampler& sampler_;
  std::unique_ptr<SampleReader> reader_;
  Renderer renderer_;
  PixelOperator pixel_operator_;
  // Of an image that the batch has in grey levels, or with opacity.
  std::vector<std::uint8_t> colours_, opacity_;
  Image opaque_;
  Batch partner_;  // the other image of a pair that ranks or micro-steps divide
};

}  // namespace ringtrain::io
