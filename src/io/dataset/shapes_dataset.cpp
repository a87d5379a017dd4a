#include <fmt/core.h>

#include <memory>

#include "io/dataset/datasets.hpp"
#include "io/dataset/shapes.hpp"
#include "ringtrain/base/hash.hpp"

namespace ringtrain {
namespace {

class ShapesReader final : public SampleReader {
 public:
  explicit ShapesReader(Split split) : split_(split) {}
  Extent open(std::uint64_t sample) override {
    draw_shape(split_, sample, image_);
    return image_.extent;
  }
  Portion pixels(const Need&) override { return {image_.view()}; }

 private:
  Split split_;
  Image image_;
};

class Shapes final : public Dataset {
 public:
  explicit Shapes(Split split) : split_(split) {}
  std::uint64_t size() const override { return split_ == Split::training ? 10'000 : 2'000; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t sample) const override {
    return static_cast<int>(sample % shape_names.size());
  }
  std::unique_ptr<SampleReader> reader() const override {
    return std::make_unique<ShapesReader>(split_);
  }
  std::string description() const override {
    return fmt::format("shapes: {} {} images drawn at 32x32, {} classes", size(),
                       split_ == Split::training ? "training" : "evaluation", classes());
  }
  std::uint64_t manifest_hash() const override { return hash_text(description()); }

 private:
  Split split_;
  std::vector<std::string> names_{shape_names.begin(), shape_names.end()};
};

}  // namespace

std::unique_ptr<Dataset> open_shapes(Split split) { return std::make_unique<Shapes>(split); }

}  // namespace ringtrain
