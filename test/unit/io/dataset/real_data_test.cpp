#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "ringtrain/io/loader/loader.hpp"
#include "support/catch.hpp"
#include "unit/io/dataset/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
namespace fs = std::filesystem;

namespace {

const fs::path photographs = fs::path(RINGTRAIN_SOURCE_DIR) / "test/data/photographs";

/// What is too large for the repository is in $RINGTRAIN_TEST_DATA; CTest knows nothing of these
/// tests:
///   RINGTRAIN_TEST_DATA=DIR build/release/test/unit/io/test_io "[.larger-data]"
fs::path larger_data(const std::string& name) {
  const char* given = std::getenv("RINGTRAIN_TEST_DATA");
  if (given == nullptr) skip_test("RINGTRAIN_TEST_DATA, a folder with " + name + ", is not set");
  if (!fs::exists(fs::path(given) / name)) skip_test(fmt::format("{} has no {}", given, name));
  return fs::path(given) / name;
}

std::array<double, 3> mean_colour(const Image& image) {
  std::array<double, 3> sum{};
  for (std::size_t i = 0; i < image.pixels.size(); ++i) sum[i % 3] += image.pixels[i];
  for (double& channel : sum) channel /= double(image.pixels.size()) / 3;
  return sum;
}

}  // namespace

TEST_CASE("real data: photographs have the sizes and colours that another decoder finds") {
  struct Expected {
    Extent extent;
    std::array<double, 3> colour;
  };
  // In the order of samples: by class, then by name. See test/data/README.md.
  const std::vector<Expected> training = {
      {{160, 160}, {141.61, 105.90, 96.73}},  {{84, 126}, {147.68, 111.44, 86.80}},
      {{160, 160}, {129.06, 129.06, 129.06}}, {{160, 240}, {158.45, 85.81, 51.78}},
      {{72, 72}, {154.28, 82.61, 51.96}},     {{160, 240}, {52.27, 61.28, 82.33}}};
  const std::vector<Expected> evaluation = {{{128, 128}, {145.56, 103.60, 69.87}},
                                            {{180, 120}, {68.42, 75.85, 96.27}}};
  for (const auto& [split, expected] :
       {std::pair(Split::training, training), std::pair(Split::evaluation, evaluation)}) {
    const auto data = open_dataset("images:" + photographs.native(), split);
    REQUIRE(data->size() == expected.size());
    CHECK(data->class_names() == std::vector<std::string>{"living", "objects"});
    for (std::uint64_t i = 0; i < data->size(); ++i) {
      CAPTURE(i);
      const Image image = data->read(i);
      CHECK(data->label(i) == static_cast<int>(2 * i / data->size()));
      REQUIRE(image.extent == expected[i].extent);
      for (std::size_t channel = 0; channel < 3; ++channel)  // decoders round differently
        CHECK(std::abs(mean_colour(image)[channel] - expected[i].colour[channel]) < 0.5);
    }
  }
}

TEST_CASE("real data: every photograph loads, at every reduction") {
  const auto training = open_dataset("images:" + photographs.native(), Split::training);
  const auto evaluation = open_dataset("images:" + photographs.native(), Split::evaluation);
  Augmentation augmentation;
  if (GENERATE(false, true)) augmentation.operations = {RandomResizedCrop{}};
  const int side = GENERATE(32, 64, 224);
  augmentation.output = {side, side};

  for (const auto* data : {training.get(), evaluation.get()}) {
    Loader loader(*data, {.global_batch = 2, .share = {0, 2}, .augmentation = augmentation});
    for (std::uint64_t b = 0; b < data->size() / 2; ++b) REQUIRE(loader.next() != nullptr);
    CHECK(loader.unreadable().empty());
  }
}

TEST_CASE("real data: the CIFAR-10 subset has its sizes, names and balance", "[.larger-data]") {
  const fs::path home = larger_data("cifar10-subset");

  const auto training = open_dataset("cifar10:" + home.native(), Split::training);
  const auto evaluation = open_dataset("cifar10:" + home.native(), Split::evaluation);

  CHECK(training->size() == 5000);
  CHECK(evaluation->size() == 1000);
  CHECK(training->class_names()[0] == "airplane");
  CHECK(training->class_names()[9] == "truck");
  std::map<int, int> counts;
  for (std::uint64_t i = 0; i < training->size(); ++i) ++counts[training->label(i)];
  CHECK(counts.size() == 10);
  for (const auto& [label, count] : counts) CHECK(count == 500);
}

TEST_CASE("real data: CIFAR-10 as an image folder has the same names, extents and labels",
          "[.larger-data]") {
  const fs::path archive = larger_data("cifar10-jpeg.tar.gz");
  const fs::path binary = larger_data("cifar10-subset");
  const TempDirectory home;
  const std::string unpack = fmt::format("tar -xzf '{}' -C '{}' --wildcards '*/00?0.jpg'",
                                         archive.native(), home.path().native());
  REQUIRE(std::system(unpack.c_str()) == 0);

  const auto folder = open_dataset("images:" + home.path().native(), Split::evaluation);

  CHECK(folder->size() == 100);
  CHECK(folder->class_names() ==
        open_dataset("cifar10:" + binary.native(), Split::training)->class_names());
  for (std::uint64_t i = 0; i < folder->size(); ++i) {
    CHECK(folder->label(i) == static_cast<int>(i / 10));
    CHECK(folder->read(i).extent == Extent{32, 32});
  }
}

TEST_CASE("real data: every ImageNet photograph loads, at every reduction", "[.larger-data]") {
  const fs::path home = larger_data("imagenet-sample");
  const auto training = open_dataset("images:" + home.native(), Split::training);
  const auto evaluation = open_dataset("images:" + home.native(), Split::evaluation);
  Augmentation augmentation;
  if (GENERATE(false, true)) augmentation.operations = {RandomResizedCrop{}};
  const int side = GENERATE(32, 224);
  augmentation.output = {side, side};

  CHECK(training->size() == 40);
  CHECK(evaluation->size() == 10);
  for (const auto* data : {training.get(), evaluation.get()}) {
    Loader loader(*data, {.global_batch = 10, .share = {0, 10}, .augmentation = augmentation});
    for (std::uint64_t b = 0; b < data->size() / 10; ++b) REQUIRE(loader.next() != nullptr);
    CHECK(loader.unreadable().empty());
  }
}
