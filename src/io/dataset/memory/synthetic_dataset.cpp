#include <fmt/core.h>

#include <memory>

#include "io/dataset/datasets.hpp"
#include "io/dataset/encoded_dataset.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/philox.hpp"

namespace ringtrain::io {
namespace {

// Samples share these images, so that a sample costs no more than the copy into its batch.
constexpr std::uint64_t distinct_images = 32;
// Few: what evaluating noise says is nothing, and users of large networks wait for it.
constexpr std::uint64_t evaluation_images = 16 * distinct_images;

Image noise(Extent extent, std::uint64_t which) {
  Philox random(0, Purpose::synthetic, 0, which);
  Image image;
  image.reshape(extent);
  for (auto& value : image.pixels) value = static_cast<std::uint8_t>(random.next() >> 24);
  return image;
}

class Synthetic final : public Dataset {
 public:
  Synthetic(Split split, const DatasetOptions& options)
      : size_(split == Split::training ? 1'000'000 : evaluation_images) {
    expects(options.classes > 0, "synthetic data has at least one class");
    for (int c = 0; c < options.classes; ++c) names_.push_back(fmt::format("{}", c));
    for (std::uint64_t i = 0; i < distinct_images; ++i) images_.push_back(noise(options.extent, i));
  }

  std::uint64_t size() const override { return size_; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t sample) const override {
    Philox random(0, Purpose::synthetic, 1, sample % distinct_images);
    return static_cast<int>(random.below(static_cast<std::uint32_t>(classes())));
  }
  std::unique_ptr<SampleReader> reader() const override {
    return std::make_unique<MemoryReader<Synthetic>>(*this);
  }
  std::string description() const override {
    const Extent extent = images_[0].extent;
    return fmt::format("synthetic: {} noise images of {}x{}, {} classes", size_, extent.height,
                       extent.width, classes());
  }
  std::uint64_t manifest_hash() const override { return hash_text(description()); }

  ImageView image(std::uint64_t sample) const { return images_[sample % distinct_images].view(); }

 private:
  std::uint64_t size_;
  std::vector<std::string> names_;
  std::vector<Image> images_;
};

}  // namespace

std::unique_ptr<Dataset> open_synthetic(Split split, const DatasetOptions& options) {
  return std::make_unique<Synthetic>(split, options);
}

}  // namespace ringtrain::io
