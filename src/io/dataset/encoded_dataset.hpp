#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/io/dataset/dataset.hpp"

namespace ringtrain::io {

/// Samples that are stored as files of an image format, wherever the data set has their bytes from.
class EncodedDataset : public Dataset {
 public:
  /// The encoded image of `sample`, never empty; lies in `buffer`, whose memory it uses again. On
  /// any thread. Throws UnreadableSample, and as `retries` do, by which it reads.
  virtual std::span<const std::uint8_t> encoded(std::uint64_t sample,
                                                std::vector<std::uint8_t>& buffer,
                                                ReadRetries& retries) const = 0;
  /// Where the sample is, for messages.
  virtual std::string place(std::uint64_t sample) const = 0;

  std::string name(std::uint64_t sample) const override { return place(sample); }
  std::unique_ptr<SampleReader> reader() const final;

 protected:
  explicit EncodedDataset(std::uint64_t max_pixels) : max_pixels_(max_pixels) {}

 private:
  const std::uint64_t max_pixels_;
};

/// Reader of a data set whose `image(sample)` is a view of pixels that are already in memory.
template <class Data>
class MemoryReader final : public SampleReader {
 public:
  explicit MemoryReader(const Data& data) : data_(data) {}
  Extent open(std::uint64_t sample) override {
    current_ = data_.image(sample);
    return current_.extent;
  }
  PixelView pixels(const CropRequest&) override { return {current_}; }

 private:
  const Data& data_;
  ImageView current_;
};

}  // namespace ringtrain::io
