#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>

#include "io/data_support.hpp"
#include "ringtrain/io/loader.hpp"

using namespace ringtrain;
using namespace ringtrain::test;

TEST_CASE("real data: the CIFAR-10 subset has its sizes, names and balance") {
  const auto home = real_data("cifar10-subset");
  if (!home) return;

  const auto training = open_dataset("cifar10:" + home->native(), Split::training);
  const auto evaluation = open_dataset("cifar10:" + home->native(), Split::evaluation);

  CHECK(training->size() == 5000);
  CHECK(evaluation->size() == 1000);
  CHECK(training->class_names()[0] == "airplane");
  CHECK(training->class_names()[9] == "truck");
  std::map<int, int> counts;
  for (std::uint64_t i = 0; i < training->size(); ++i) ++counts[training->label(i)];
  CHECK(counts.size() == 10);
  for (const auto& [label, count] : counts) CHECK(count == 500);
}

TEST_CASE("real data: CIFAR-10 as an image folder has the same names, extents and labels") {
  const auto archive = real_data("cifar10-jpeg.tar.gz");
  const auto binary = real_data("cifar10-subset");
  if (!archive || !binary) return;
  const TempDirectory home;
  const std::string unpack = fmt::format("tar -xzf '{}' -C '{}' --wildcards '*/00?0.jpg'",
                                         archive->native(), home.path().native());
  REQUIRE(std::system(unpack.c_str()) == 0);

  const auto folder = open_dataset("images:" + home.path().native(), Split::evaluation);

  CHECK(folder->size() == 100);
  CHECK(folder->class_names() ==
        open_dataset("cifar10:" + binary->native(), Split::training)->class_names());
  for (std::uint64_t i = 0; i < folder->size(); ++i) {
    CHECK(folder->label(i) == static_cast<int>(i / 10));
    CHECK(folder->read(i).extent == Extent{32, 32});
  }
}

TEST_CASE("real data: every ImageNet photograph loads, at every reduction") {
  const auto home = real_data("imagenet-sample");
  if (!home) return;
  const auto training = open_dataset("images:" + home->native(), Split::training);
  const auto evaluation = open_dataset("images:" + home->native(), Split::evaluation);
  const Crop crop = GENERATE(Crop::none, Crop::random_resized);
  const int side = GENERATE(32, 224);

  CHECK(training->size() == 40);
  CHECK(evaluation->size() == 10);
  for (const auto* data : {training.get(), evaluation.get()}) {
    Loader loader(
        *data,
        {.global_batch = 10, .share = {0, 10}, .recipe = {.output = {side, side}, .crop = crop}});
    for (std::uint64_t b = 0; b < data->size() / 10; ++b) REQUIRE(loader.next() != nullptr);
    CHECK(loader.unreadable() == 0);
  }
}
