#include <fmt/core.h>

#include <filesystem>
#include <map>

#include "support/catch.hpp"
#include "unit/io/dataset/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;

namespace {

const Image predicted_picture = gradient_image({8, 9});

/// As numpy.save() writes it.
Bytes npy(std::string_view header, const Bytes& values) {
  std::string text(header);
  text += '\n';
  Bytes file{0x93,
             'N',
             'U',
             'M',
             'P',
             'Y',
             1,
             0,
             std::uint8_t(text.size()),
             std::uint8_t(text.size() >> 8)};
  file.insert(file.end(), text.begin(), text.end());
  file.insert(file.end(), values.begin(), values.end());
  return file;
}

std::string npy_header(std::string_view shape, std::string_view type = "|u1") {
  return fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, shape);
}

std::unique_ptr<Dataset> open_predicted(std::vector<std::string> paths) {
  return open_to_predict(paths, {"cat", "dog"}, {});
}

std::string predicted_complaint(const std::string& path) {
  const auto error = error_of([&] { open_predicted({path}); });
  REQUIRE(error);
  CHECK(error->code() == Exit::data);
  return error->what();
}

}  // namespace

TEST_CASE("predicted: paths in their order, folders by name, and labels by folders") {
  const TempDirectory home;
  for (const char* file :
       {"set/dog/1.png", "set/cat/dog/2.png", "set/bird/3.png", "cat/4.png", "5.png"})
    write_file(home.path() / file, encode_png(predicted_picture));
  write_text(home.path() / "set/notes.txt", "x");
  const auto at = [&](const char* path) { return (home.path() / path).native(); };

  const auto images =
      open_predicted({at("cat/4.png"), at("set"), at("5.png"), at("cat/"), at("gone.png")});

  const std::vector<std::pair<const char*, int>> expected = {
      {"cat/4.png", 0}, {"set/bird/3.png", -1}, {"set/cat/dog/2.png", 0}, {"set/dog/1.png", 1},
      {"5.png", -1},    {"cat/4.png", 0},       {"gone.png", -1}};
  REQUIRE(images->size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(images->name(i) == at(expected[i].first));
    CHECK(images->label(i) == expected[i].second);
  }
  CHECK(images->read(3).pixels == predicted_picture.pixels);
  CHECK_THROWS_AS(images->read(6), UnreadableSample);
  CHECK_THAT(images->description(), Contains("7 images; left out: 1 file of no image"));
}

TEST_CASE("predicted: folders that are called as wnids have their classes' labels") {
  const TempDirectory home;
  for (const char* file : {"n02123045/1.png", "n02084071/2.png", "n00000001/3.png", "cat/4.png"})
    write_file(home.path() / file, encode_png(predicted_picture));

  const auto images = open_to_predict({home.path().native()}, {"cat", "dog"},
                                      {.wnids = {"n02123045", "n02084071"}});

  std::map<std::string, int> labels;
  for (std::size_t i = 0; i < images->size(); ++i)
    labels[std::filesystem::path(images->name(i)).filename()] = images->label(i);
  CHECK(labels ==
        std::map<std::string, int>{{"1.png", 0}, {"2.png", 1}, {"3.png", -1}, {"4.png", 0}});
}

TEST_CASE("predicted: labels of a file are for a data set") {
  const auto error =
      error_of([] { open_to_predict({"."}, {"cat"}, {.labels_file = "labels.csv"}); });
  REQUIRE(error);
  CHECK(error->code() == Exit::usage);
}

TEST_CASE("predicted: nothing to predict is said with the path") {
  const TempDirectory home;
  write_text(home.path() / "a/notes.txt", "x");
  CHECK_THAT(predicted_complaint((home.path() / "a").native()),
             Contains("/a: there are no images; left out: 1 file"));
}

TEST_CASE("predicted: an array of NumPy's") {
  const TempDirectory home;
  const std::string file = (home.path() / "a.npy").native();

  write_file(file, npy(npy_header("2, 1, 2, 3"), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  const auto colours = open_predicted({file});
  CHECK(colours->size() == 2);
  CHECK(colours->read(1).pixels == Bytes{7, 8, 9, 10, 11, 12});
  CHECK(colours->name(1) == "1");
  CHECK(colours->label(0) == -1);

  for (const char* shape : {"1, 2, 2", "1, 2, 2, 1"}) {
    write_file(file, npy(npy_header(shape), {1, 2, 3, 4}));
    CHECK(open_predicted({file})->read(0).pixels == Bytes{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4});
  }
}

TEST_CASE("predicted: an array that cannot be taken is refused with the reason") {
  const TempDirectory home;
  const std::string file = (home.path() / "a.npy").native();
  const auto refused = [&](const Bytes& bytes) {
    write_file(file, bytes);
    return predicted_complaint(file);
  };
  CHECK_THAT(refused({'x', 'y'}), Contains("a.npy: is no file of numpy.save()"));
  CHECK_THAT(refused({0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 255, 255, 0, 0}),
             Contains("is no file of numpy.save()"));
  CHECK_THAT(refused(npy(npy_header("1, 2, 2", "<f4"), Bytes(16))), Contains("of uint8"));
  CHECK_THAT(refused(npy(npy_header("4"), Bytes(4))), Contains("of uint8"));
  CHECK_THAT(refused(npy(npy_header("0, 1, 1, 3"), {})), Contains("of uint8"));
  CHECK_THAT(refused(npy(npy_header("1, 1, 1, 2"), Bytes(2))), Contains("of uint8"));
  CHECK_THAT(refused(npy(npy_header("1, 18446744073709551615, 2"), Bytes(4))),
             Contains("of uint8"));
  CHECK_THAT(refused(npy(npy_header("9223372036854775807, 65500, 65500"), Bytes(4))),
             Contains("is the file whole?"));
  CHECK_THAT(refused(npy(npy_header("2, 2, 2"), Bytes(7))),
             Contains("its 7 bytes are not the 2 images"));
  CHECK_THAT(
      refused(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (1, 2, 2), }", Bytes(4))),
      Contains("C's order"));
}
