#include <zlib.h>

#include "support/catch.hpp"
#include "unit/io/dataset/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;

namespace {

/// An array of bytes in IDX.
Bytes idx(const std::vector<std::uint32_t>& extents, const Bytes& values) {
  Bytes file{0, 0, 8, std::uint8_t(extents.size())};
  for (const std::uint32_t extent : extents)
    for (int shift = 24; shift >= 0; shift -= 8) file.push_back(std::uint8_t(extent >> shift));
  file.insert(file.end(), values.begin(), values.end());
  return file;
}

Bytes gzipped(const Bytes& bytes) {
  z_stream stream{};
  REQUIRE(::deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  Bytes all(::deflateBound(&stream, bytes.size()) + 32);
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = all.data();
  stream.avail_out = static_cast<uInt>(all.size());
  REQUIRE(::deflate(&stream, Z_FINISH) == Z_STREAM_END);
  all.resize(stream.total_out);
  ::deflateEnd(&stream);
  return all;
}

const Bytes mnist_pixels{0, 50, 100, 150, 200, 250, 1, 2, 3, 4, 5, 6};  // two images of 2x3
const Bytes mnist_images = idx({2, 2, 3}, mnist_pixels), mnist_labels = idx({2}, {7, 0});

std::unique_ptr<Dataset> open_mnist_in(const TempDirectory& home, Split split = Split::training) {
  return open_dataset("mnist:" + home.path().native(), split);
}

std::string mnist_complaint(const Bytes& image_file, const Bytes& label_file) {
  const TempDirectory home;
  write_file(home.path() / "train-images-idx3-ubyte", image_file);
  write_file(home.path() / "train-labels-idx1-ubyte", label_file);
  const auto error = error_of([&] { open_mnist_in(home); });
  REQUIRE(error);
  CHECK(error->code() == Exit::data);
  return error->what();
}

void expect_sound(const Dataset& data) {
  REQUIRE(data.size() == 2);
  CHECK(data.label(0) == 7);
  CHECK(data.label(1) == 0);
  CHECK(data.read(1).extent == Extent{2, 3});
  CHECK(data.read(1).pixels == Bytes{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6});
}

}  // namespace

TEST_CASE("mnist: files as they are, compressed, and as torchvision keeps them") {
  const TempDirectory plain, packed, torchvision;
  write_file(plain.path() / "train-images-idx3-ubyte", mnist_images);
  write_file(plain.path() / "train-labels-idx1-ubyte", mnist_labels);
  write_file(packed.path() / "t10k-images-idx3-ubyte.gz", gzipped(mnist_images));
  write_file(packed.path() / "t10k-labels-idx1-ubyte.gz", gzipped(mnist_labels));
  write_file(torchvision.path() / "raw/train-images.idx3-ubyte", mnist_images);
  write_file(torchvision.path() / "raw/train-labels.idx1-ubyte", gzipped(mnist_labels));

  expect_sound(*open_mnist_in(plain));
  expect_sound(*open_mnist_in(packed, Split::evaluation));
  expect_sound(*open_mnist_in(torchvision));
  CHECK(open_mnist_in(plain)->manifest_hash() == open_mnist_in(torchvision)->manifest_hash());
  CHECK(open_mnist_in(plain)->class_names()[7] == "7");
}

TEST_CASE("mnist: classes have the names of classes.txt, else Fashion-MNIST's by the path") {
  const TempDirectory home;
  for (const char* folder : {"Fashion-MNIST", "own"}) {
    write_file(home.path() / folder / "train-images-idx3-ubyte", mnist_images);
    write_file(home.path() / folder / "train-labels-idx1-ubyte", mnist_labels);
  }
  write_text(home.path() / "own/classes.txt", "a\r\nb\nc\nd\ne\nf\ng\nlast\n\n");
  const auto names = [&](const char* folder) {
    return open_dataset("mnist:" + (home.path() / folder).native(), Split::training)->class_names();
  };

  CHECK(names("Fashion-MNIST")[9] == "Ankle boot");
  CHECK(names("own").size() == 8);
  CHECK(names("own").back() == "last");
}

TEST_CASE("mnist: what is missing, damaged or does not fit is said with the path") {
  const TempDirectory home;
  write_file(home.path() / "train-images-idx3-ubyte", mnist_images);
  CHECK_THAT(error_of([&] { open_mnist_in(home); })->what(),
             Contains("train-labels-idx1-ubyte is not there, nor train-labels-idx1-ubyte.gz"));
  CHECK_THAT(mnist_complaint(mnist_labels, mnist_labels),
             Contains("train-images-idx3-ubyte: does not begin as IDX"));
  CHECK_THAT(mnist_complaint(idx({2, 2, 3}, {1}), mnist_labels),
             Contains("its 1 bytes are not the 12"));
  CHECK_THAT(mnist_complaint(idx({0, 2, 3}, {}), mnist_labels), Contains("extent that cannot be"));
  CHECK_THAT(mnist_complaint(idx({1u << 31, 1u << 31, 1u << 31}, {}), mnist_labels),
             Contains("extent that cannot be"));
  CHECK_THAT(mnist_complaint(idx({1, 4097, 1}, Bytes(4097)), idx({1}, {1})),
             Contains("4097x1 are too large"));
  CHECK_THAT(mnist_complaint(mnist_images, idx({3}, {1, 2, 3})),
             Contains("has 3 labels, but train-images-idx3-ubyte has 2"));
  CHECK_THAT(mnist_complaint(mnist_images, idx({2}, {1, 10})),
             Contains("label 10, but there are 10 classes"));
  Bytes cut = gzipped(mnist_images);
  cut.resize(cut.size() - 9);
  CHECK_THAT(mnist_complaint(cut, mnist_labels),
             Contains("its gzip data are damaged, or not whole"));
}

TEST_CASE("mnist: what gzip compressed is not unpacked beyond what its head says") {
  Bytes many = idx({1, 28, 28}, Bytes(784));
  many.resize(5 << 20);
  CHECK_THAT(mnist_complaint(gzipped(many), mnist_labels), Contains("are not the 784 that"));
  CHECK_THAT(mnist_complaint(gzipped(many), mnist_labels),
             !Contains(std::to_string(many.size() - 16)));
  CHECK_THAT(mnist_complaint(gzipped(Bytes(5 << 20)), mnist_labels),
             Contains("does not begin as IDX"));
}
