#pragma once
#include "ringtrain/io/loader/loader.hpp"

namespace ringtrain {

/// Images of one extent that a test has made, in its order.
class GivenImages final : public io::Dataset {
 public:
  /// `pixels`: image after image; one label an image.
  GivenImages(io::Extent extent, int classes, std::vector<std::uint8_t> pixels,
              std::vector<int> labels)
      : extent_(extent), names_(classes), pixels_(std::move(pixels)), labels_(std::move(labels)) {
    expects(pixels_.size() == labels_.size() * bytes(), "GivenImages: one label an image");
  }

  std::uint64_t size() const override { return labels_.size(); }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t sample) const override { return labels_[sample]; }
  std::unique_ptr<io::SampleReader> reader() const override {
    return std::make_unique<Reader>(*this);
  }
  std::string description() const override { return "given images"; }
  std::uint64_t manifest_hash() const override { return 0; }

  /// For a loader that passes them on as they are, `batch` at a time, to their end.
  io::LoaderOptions in_order(int batch) const {
    io::LoaderOptions options;
    options.mode = io::Split::evaluation;
    options.global_batch = batch;
    options.share = {0, batch};
    options.augmentation.output = extent_;
    return options;
  }

 private:
  class Reader final : public io::SampleReader {
   public:
    explicit Reader(const GivenImages& all) : all_(all) {}
    io::Extent open(std::uint64_t sample) override {
      sample_ = sample;
      return all_.extent_;
    }
    io::PixelView pixels(const io::CropRequest&) override {
      const std::span all(all_.pixels_);
      return {{all_.extent_, all.subspan(sample_ * all_.bytes(), all_.bytes())}};
    }

   private:
    const GivenImages& all_;
    std::uint64_t sample_ = 0;
  };

  std::size_t bytes() const { return extent_.pixels() * io::Image::channels; }

  io::Extent extent_;
  std::vector<std::string> names_;
  std::vector<std::uint8_t> pixels_;
  std::vector<int> labels_;
};

}  // namespace ringtrain
