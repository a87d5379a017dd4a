// What a file of at most 1 KB says of itself costs its reader no more memory than such a file may:
// docs/evidence/faults.md has the table.
#include <fmt/core.h>

#include <cstring>
#include <functional>

#include "io/dataset/shards/sharded_dataset.hpp"
#include "io/files/records_file.hpp"
#include "io/files/tfrecord.hpp"
#include "io/image/decoder.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/io/dataset/dataset.hpp"
#include "support/catch.hpp"
#include "support/memory_limit.hpp"
#include "unit/io/checkpoint/checkpoint_bytes.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"
#include "unit/io/files/tfrecord_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;
using Catch::Matchers::StartsWith;

namespace {

constexpr std::size_t most_bytes = 1024;

template <class T>
void append(Bytes& bytes, T number) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(&number);
  bytes.insert(bytes.end(), first, first + sizeof number);
}

std::uint64_t hash_of_all(const Bytes& bytes) {
  return hash_bytes(std::as_bytes(std::span(bytes)));
}

/// A table of samples that says so of itself, with a right checksum.
Bytes table(std::uint64_t records, std::uint64_t names, const Bytes& rest = {}) {
  Bytes bytes;
  append(bytes, records);
  append(bytes, names);
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  append(bytes, hash_of_all(bytes));
  return bytes;
}

/// A file of packed images with that table, and a head with right checksums.
Bytes records_file(const Bytes& table, std::uint64_t file_bytes = 0) {
  const std::uint64_t size = records_head_bytes + table.size();
  const auto head = encode_head({file_bytes == 0 ? size : file_bytes, records_head_bytes, 7});
  Bytes bytes(size);
  std::memcpy(bytes.data(), head.data(), sizeof head);
  std::ranges::copy(table, bytes.begin() + records_head_bytes);
  return bytes;
}

std::string opened(const std::string& spec) {
  return in_limited_memory([&] {
    const auto data = open_dataset(spec, Split::training);
    return fmt::format("{} classes", data->classes());
  });
}

/// What decoding comes to, with the largest image that is allowed.
std::string decoded(const Bytes& bytes) {
  REQUIRE(bytes.size() <= most_bytes);
  return in_limited_memory([&] {
    const auto decoder = make_image_decoder(DatasetOptions().max_pixels);
    Image image;
    const Extent extent = decoder->open(bytes);
    decoder->pixels({.extent = extent}, image);
    return std::string("an image");
  });
}

/// A JPEG of that kind whose header says another extent.
Bytes jpeg_of(JpegKind kind, std::uint16_t height, std::uint16_t width) {
  Bytes bytes = encode_jpeg(gradient_image({8, 8}), kind, 30);
  for (std::size_t i = 0; i + 8 < bytes.size(); ++i) {
    const bool frame = bytes[i] == 0xFF && (bytes[i + 1] == 0xC0 || bytes[i + 1] == 0xC2);
    if (!frame) continue;
    bytes[i + 5] = static_cast<std::uint8_t>(height >> 8);
    bytes[i + 6] = static_cast<std::uint8_t>(height);
    bytes[i + 7] = static_cast<std::uint8_t>(width >> 8);
    bytes[i + 8] = static_cast<std::uint8_t>(width);
    break;
  }
  bytes.resize(std::min(bytes.size(), most_bytes));
  return bytes;
}

std::uint32_t crc_of(std::span<const std::uint8_t> bytes) {  // PNG's
  std::uint32_t crc = ~0u;
  for (const std::uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

void put_big_endian(Bytes& bytes, std::size_t at, std::uint32_t number) {
  for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = std::uint8_t(number >> (24 - 8 * i));
}

/// A PNG whose header says another extent, with a right checksum.
Bytes png_of(PngKind kind, std::uint32_t height, std::uint32_t width) {
  Bytes bytes = encode_png(gradient_image({2, 2}), kind);
  put_big_endian(bytes, 16, width);
  put_big_endian(bytes, 20, height);
  put_big_endian(bytes, 29, crc_of(std::span(bytes).subspan(12, 17)));
  return bytes;
}

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which limit no memory
TEST_CASE("hostile: what limits memory sees what takes too much") {
  CHECK(in_limited_memory([] { return std::string(4 * hostile_memory, 'x'); }) == "out of memory");
  CHECK(in_limited_memory([] { return std::string(1 << 20, 'x').substr(0, 2); }) == "xx");
}
#endif

TEST_CASE("hostile: a table of samples has no more of them than bytes, and no more names") {
  const std::uint64_t many = GENERATE(100, 1 << 24, std::uint64_t(1) << 40, ~std::uint64_t(0));
  const bool names = GENERATE(false, true);
  CAPTURE(many, names);
  const Bytes bytes = records_file(names ? table(0, many, Bytes(300)) : table(many, 0, Bytes(300)));
  const TempDirectory home;
  write_file(home.path() / "train-00000-of-00001.records", bytes);

  CHECK_THAT(opened("records:" + home.path().native()),
             StartsWith("refused: ") && Contains("the table of samples"));
}

TEST_CASE("hostile: names of no bytes are limited in number, wherever a table comes from") {
  const Bytes bytes = table(0, 2'000'000, Bytes(8'000'000));  // whose names would take 64 MB

  CHECK_THAT(in_limited_memory([&] {
               decode_table(bytes);
               return std::string("accepted");
             }),
             StartsWith("refused: ") && Contains("2000000 classes, more than the 1000001 allowed"));
}

TEST_CASE("hostile: a file of records says no other size than it has") {
  const TempDirectory home;
  write_file(home.path() / "train-00000-of-00001.records",
             records_file(table(0, 0), std::uint64_t(1) << 50));

  CHECK_THAT(opened("records:" + home.path().native()),
             StartsWith("refused: ") && Contains("bytes where it should have"));
}

TEST_CASE("hostile: lengths and labels in TFRecords") {
  const TempDirectory home;
  const auto open = [&](const std::string& text) {
    REQUIRE(text.size() <= most_bytes);
    write_text(home.path() / shard_name("train", 0, 1), text);
    return opened("tfrecord:" + home.path().native());
  };
  const Bytes image(20, 7);
  std::string longer = framed(image_example(image, 1));
  longer.resize(12);  // the head alone

  CHECK_THAT(open(longer), StartsWith("refused: ") && Contains("it ends at byte 12"));
  CHECK(open(framed(image_example(image, largest_label))) == "1000000 classes");
  CHECK_THAT(open(framed(image_example(image, std::int64_t(largest_label) + 1))),
             StartsWith("refused: ") && Contains("labels are 0 to 1000000"));
  CHECK_THAT(open(framed(std::string("\x0A\xFF\xFF\xFF\xFF\x7F", 6))),
             StartsWith("refused: ") && Contains("no tf.Example"));
}

TEST_CASE("hostile: an image says no more pixels than its bytes can hold") {
  const auto kind = GENERATE(JpegKind::rgb, JpegKind::grey, JpegKind::progressive);
  CAPTURE(static_cast<int>(kind));

  for (const auto& [height, width] : {std::pair{8192, 8192}, {65500, 1000}, {1000, 65500}})
    CHECK_THAT(decoded(jpeg_of(kind, std::uint16_t(height), std::uint16_t(width))),
               StartsWith("refused: ") && Contains("cannot be in"));
  CHECK_THAT(decoded(jpeg_of(kind, 65500, 65500)), Contains("are allowed"));
  CHECK_THAT(decoded(jpeg_of(kind, 1000, 1000)), StartsWith("refused: "));  // cut short
}

TEST_CASE("hostile: a PNG says no more bytes than its bytes can be") {
  const auto kind = GENERATE(PngKind::rgb, PngKind::grey_1, PngKind::rgb_16, PngKind::interlaced);
  CAPTURE(static_cast<int>(kind));

  for (const auto& [height, width] : {std::pair{8192, 8192}, {60'000'000, 1}, {1, 60'000'000}})
    CHECK_THAT(decoded(png_of(kind, height, width)), StartsWith("refused: "));
  CHECK_THAT(decoded(png_of(kind, 60'000, 60'000)), Contains("are allowed"));
  CHECK_THAT(decoded(png_of(kind, 100, 100)), StartsWith("refused: "));  // cut short
}

TEST_CASE("hostile: images that hold little for their size are still decoded") {
  Image plain;
  plain.reshape({2000, 1500});
  std::ranges::fill(plain.pixels, std::uint8_t{90});
  const Bytes bytes =
      GENERATE_COPY(encode_jpeg(plain, JpegKind::rgb, 1), encode_jpeg(plain, JpegKind::grey, 1),
                    encode_jpeg(plain, JpegKind::progressive, 1), encode_png(plain),
                    encode_png(plain, PngKind::grey_1), encode_png(plain, PngKind::interlaced));
  CAPTURE(bytes.size());
  const auto decoder = make_image_decoder(DatasetOptions().max_pixels);
  Image image;

  CHECK(decoder->open(bytes) == plain.extent);
  CHECK(decoder->pixels({.extent = plain.extent}, image).pixels.extent == plain.extent);
}

TEST_CASE("hostile: CIFAR-10 has whole records and ten names") {
  const TempDirectory home;
  write_file(home.path() / "data_batch_1.bin", Bytes(most_bytes, 3));

  CHECK_THAT(opened("cifar10:" + home.path().native()),
             StartsWith("refused: ") && Contains("no whole number of records"));
}

TEST_CASE("hostile: a checkpoint's header and index") {
  const TemporaryDirectory directory;
  std::string whole = file_bytes(save_one(directory, State(7)));
  const auto inspect = [&](std::string bytes) {
    REQUIRE(bytes.size() <= most_bytes);
    const auto path = directory / "step-0000000001.h5";
    write_text(path, bytes);
    return in_limited_memory([&] {
      const CheckpointFile file = CheckpointFile::open(path);
      return fmt::format("{} tensors", file.tensors().size());
    });
  };
  const std::string header = whole.substr(0, header_bytes);
  std::string of_size = header;
  put(of_size, at_file_bytes, std::uint64_t(most_bytes));
  of_size.resize(most_bytes);

  CHECK_THAT(inspect(header), StartsWith("refused: ") && Contains("bytes long instead of"));
  CHECK_THAT(inspect(with_header_hashes(header)), StartsWith("refused: "));
  for (const std::uint32_t user_block : {0u, 512u, 4096u, 1u << 22, 1u << 31, ~0u}) {
    CAPTURE(user_block);
    put(of_size, at_user_block, user_block);
    CHECK_THAT(inspect(of_size), StartsWith("refused: ") && Contains("user block size"));
  }
}

TEST_CASE("hostile: a kept index of shards is passed over") {
  const TempDirectory directory, cache;
  write_text(directory.path() / shard_name("train", 0, 1), framed(image_example(Bytes(9, 1), 1)));
  const std::string spec = "tfrecord:" + directory.path().native();
  const DatasetOptions options{.cache_folder = cache.path()};
  const std::string before = open_dataset(spec, Split::training, options)->description();
  std::filesystem::path file;
  for (const auto& entry : std::filesystem::directory_iterator(cache.path()))
    if (entry.path().extension() == ".index") file = entry.path();
  REQUIRE(std::filesystem::file_size(file) <= most_bytes);
  // Behind the words, the key, the number of shards and their ends comes the table.
  std::string bytes = file_bytes(file);
  const std::size_t at = bytes.size() - table(0, 0).size() - sizeof(Record) -
                         sizeof(std::uint32_t) - sizeof(std::uint32_t) - 2;
  const std::size_t counts = GENERATE(0, 8);
  CAPTURE(at, counts);

  put(bytes, at + counts, std::uint64_t(1) << 40);
  write_text(file, bytes);

  CHECK(in_limited_memory(
            [&] { return open_dataset(spec, Split::training, options)->description(); }) == before);
}
