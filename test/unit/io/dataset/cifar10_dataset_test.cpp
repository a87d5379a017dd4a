#include <fstream>

#include "support/catch.hpp"
#include "unit/io/dataset/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;

namespace {

constexpr std::size_t plane = 32 * 32;

/// Records with these labels; byte b of plane c of record r is r + c * 50 + b.
Bytes records(const std::vector<int>& labels) {
  Bytes bytes;
  for (std::size_t r = 0; r < labels.size(); ++r) {
    bytes.push_back(static_cast<std::uint8_t>(labels[r]));
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t b = 0; b < plane; ++b)
        bytes.push_back(static_cast<std::uint8_t>(r + c * 50 + b));
  }
  return bytes;
}

std::string cifar10_complaint(const std::filesystem::path& directory,
                              Split split = Split::training) {
  const auto error = error_of([&] { open_dataset("cifar10:" + directory.native(), split); });
  REQUIRE(error);
  CHECK(error->code() == Exit::data);
  return error->what();
}

}  // namespace

TEST_CASE("cifar10: planes become pixels, batch files follow each other") {
  const TempDirectory home;
  write_file(home.path() / "data_batch_1.bin", records({3, 9}));
  write_file(home.path() / "data_batch_2.bin", records({0}));
  write_file(home.path() / "test_batch.bin", records({7}));
  write_text(home.path() / "unrelated.txt", "x");
  const auto training = open_dataset("cifar10:" + home.path().native(), Split::training);
  const auto evaluation = open_dataset("cifar10:" + home.path().native(), Split::evaluation);

  const Image image = training->read(1);

  REQUIRE(training->size() == 3);
  CHECK(training->label(0) == 3);
  CHECK(training->label(1) == 9);
  CHECK(training->label(2) == 0);
  CHECK(image.extent == Extent{32, 32});
  for (std::size_t b = 0; b < plane; ++b)
    for (std::size_t c = 0; c < 3; ++c)
      REQUIRE(image.pixels[b * 3 + c] == static_cast<std::uint8_t>(1 + c * 50 + b));
  CHECK(evaluation->size() == 1);
  CHECK(evaluation->label(0) == 7);
  CHECK(training->class_names()[9] == "truck");
}

TEST_CASE("cifar10: the archive's own directory and class names are found") {
  const TempDirectory home;
  const auto inner = home.path() / "cifar-10-batches-bin";
  write_file(inner / "data_batch_1.bin", records({1}));
  write_text(inner / "batches.meta.txt", "a\nb\nc\nd\r\ne\nf\ng\nh\ni\nj\n\n");

  const auto training = open_dataset("cifar10:" + home.path().native(), Split::training);

  CHECK(training->size() == 1);
  CHECK(training->class_names() ==
        std::vector<std::string>{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"});
}

TEST_CASE("cifar10: the manifest follows names and labels, not the place") {
  const TempDirectory one, two;
  for (const auto* home : {&one, &two})
    write_file(home->path() / "data_batch_1.bin", records({1, 2}));
  const auto hash = [](const TempDirectory& home) {
    return open_dataset("cifar10:" + home.path().native(), Split::training)->manifest_hash();
  };
  const auto before = hash(two);
  REQUIRE(hash(one) == before);

  write_file(two.path() / "data_batch_1.bin", records({1, 3}));

  CHECK(hash(two) != before);
}

TEST_CASE("cifar10: a batch that is missing or there twice is named") {
  const TempDirectory home;
  write_file(home.path() / "data_batch_1.bin", records({1}));

  SECTION("missing") { write_file(home.path() / "data_batch_3.bin", records({1})); }
  SECTION("twice") { write_file(home.path() / "data_batch_1 (copy).bin", records({1})); }
  SECTION("twice, in another form") { write_file(home.path() / "data_batch_01.bin", records({1})); }
  CHECK_THAT(cifar10_complaint(home.path()),
             Contains("data_batch_2.bin is missing, though 2 files"));
}

TEST_CASE("cifar10: a directory that may not be read is named") {
  const TempDirectory home;
  std::filesystem::permissions(home.path(), std::filesystem::perms::none);
  std::string complaint;
  {
    const TempDirectory door;
    const OrdinaryUser user(door.path());
    complaint = cifar10_complaint(home.path());
  }
  std::filesystem::permissions(home.path(), std::filesystem::perms::owner_all);

  CHECK_THAT(complaint, Contains(home.path().native()) && Contains("Permission denied"));
}

TEST_CASE("cifar10: missing, cut, empty and foreign files are named") {
  const TempDirectory home;
  const auto batch = home.path() / "data_batch_1.bin";

  CHECK_THAT(cifar10_complaint(home.path()), Contains("no data_batch_*.bin"));
  CHECK_THAT(cifar10_complaint(home.path() / "nowhere"), Contains("No such file or directory"));
  CHECK_THAT(cifar10_complaint(home.path(), Split::evaluation), Contains("test_batch.bin"));
  write_text(home.path() / "data_batch_1", "pickle");
  CHECK_THAT(cifar10_complaint(home.path()), Contains("version for Python"));
  write_file(batch, {});
  CHECK_THAT(cifar10_complaint(home.path()), Contains("data_batch_1.bin") && Contains("empty"));
  Bytes cut = records({1, 2});
  cut.pop_back();
  write_file(batch, cut);
  CHECK_THAT(cifar10_complaint(home.path()), Contains("6145 bytes") && Contains("3073"));
  write_file(batch, records({9, 10}));
  CHECK_THAT(cifar10_complaint(home.path()), Contains("label 10 in record 1"));
  write_file(batch, records({1}));
  write_text(home.path() / "batches.meta.txt", "one\ntwo\n");
  CHECK_THAT(cifar10_complaint(home.path()), Contains("2 class names"));
}
