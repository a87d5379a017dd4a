#include "train/evaluation/class_account.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::train;

namespace {

/// Small images, each of one grey level, with two named classes.
class Greys final : public io::Dataset {
 public:
  std::uint64_t size() const override { return 8; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t) const override { return 0; }
  std::unique_ptr<io::SampleReader> reader() const override {
    struct Reader final : io::SampleReader {
      io::Image image;
      io::Extent open(std::uint64_t sample) override {
        if (sample == 7) throw io::UnreadableSample("open", "gone");
        image.reshape({4, 6});
        std::ranges::fill(image.pixels, std::uint8_t(sample));
        return image.extent;
      }
      io::PixelView pixels(const io::CropRequest&) override { return {image.view()}; }
    };
    return std::make_unique<Reader>();
  }
  std::string description() const override { return "greys"; }
  std::uint64_t manifest_hash() const override { return 0; }

 private:
  const std::vector<std::string> names_{"cat", "dog"};
};

// Labels 0 0 1 1 2 2 2 of seven images, predictions 0 1 1 1 2 0 2; of the eighth there is no label.
Batch batch_of(int first, int count) {
  constexpr int labels[] = {0, 0, 1, 1, 2, 2, 2, -1};
  Batch batch;
  batch.resize(count, 1, 1, 3);
  for (int i = 0; i < count; ++i)
    batch.samples[i] = {.index = std::uint64_t(first + i), .target = {labels[first + i]}};
  return batch;
}
std::vector<float> logits_of(int first, int count) {
  constexpr int predicted[] = {0, 1, 1, 1, 2, 0, 2, 0};
  constexpr float heights[] = {3, 0.5f, 2, 1, 4, 1.5f, 0.25f, 9};
  std::vector<float> logits(3 * count, 0);
  for (int i = 0; i < count; ++i) logits[3 * i + predicted[first + i]] = heights[first + i];
  return logits;
}

}  // namespace

TEST_CASE("classes: precision, recall and F1 are scikit-learn's, however ranks divide images") {
  ClassAccount whole, one, two;
  whole.add(batch_of(0, 8), logits_of(0, 8));
  one.add(batch_of(0, 3), logits_of(0, 3));
  two.add(batch_of(3, 5), logits_of(3, 5));
  one.take(two.text());
  const Greys data;

  for (const ClassAccount* account : {&whole, &one}) {
    const metrics::ClassRecord r = account->record(5, data, false);
    // sklearn.metrics.precision_recall_fscore_support([0,0,1,1,2,2,2], [0,1,1,1,2,0,2])
    REQUIRE(r.classes.size() == 3);
    const double precision[] = {0.5, 2. / 3, 1}, recall[] = {0.5, 1, 2. / 3},
                 f1[] = {0.5, 0.8, 0.8};
    for (int c = 0; c < 3; ++c) {
      CHECK(r.classes[c].precision() == Approx(double(precision[c])));
      CHECK(r.classes[c].recall() == Approx(double(recall[c])));
      CHECK(r.classes[c].f1() == Approx(double(f1[c])));
    }
    CHECK(r.classes[0].name == "cat");
    CHECK(r.classes[2].name == "2");
    CHECK(r.confusions.size() == 5);
    CHECK(r.step == 5);
  }
}

TEST_CASE("classes: the calibration error is the mean distance of confidence and accuracy") {
  ClassAccount account;
  account.add(batch_of(0, 8), logits_of(0, 8));
  const metrics::ClassRecord r = account.record(0, Greys(), true);

  double expected = 0;  // each image is alone in its bin, but for those of 0.5 and 1 in one
  const double heights[] = {3, 0.5, 2, 1, 4, 1.5, 0.25};
  const bool right[] = {true, false, true, true, true, false, true};
  std::array<double, ClassAccount::bins> sums{};
  for (int i = 0; i < 7; ++i) {
    const double p = std::exp(heights[i]) / (std::exp(heights[i]) + 2);
    sums[static_cast<int>(std::ceil(p * ClassAccount::bins)) - 1] += p - right[i];
  }
  for (const double sum : sums) expected += std::abs(sum) / 7;
  CHECK(r.calibration_error() == Approx(expected));
}

TEST_CASE("classes: the worst images come first, as PNG where they can be read once more") {
  ClassAccount account;
  account.add(batch_of(0, 8), logits_of(0, 8));
  const metrics::ClassRecord r = account.record(0, Greys(), true);

  REQUIRE(r.worst.size() == 7);
  CHECK(r.worst[0].name == "5");  // a 2 that was taken for a 0 with a logit of 1.5
  CHECK(r.worst[0].predicted == "cat");
  CHECK(r.worst[0].loss == Approx(std::log(std::exp(1.5) + 2)));
  CHECK(r.worst[0].png.starts_with("\x89PNG"));
  for (std::size_t i = 1; i < r.worst.size(); ++i) CHECK(r.worst[i].loss <= r.worst[i - 1].loss);
}
