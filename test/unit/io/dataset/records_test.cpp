#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstring>

#include "io/files/records_file.hpp"
#include "io/image/decoder.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/philox.hpp"
#include "ringtrain/io/dataset/pack.hpp"
#include "ringtrain/io/loader/loader.hpp"
#include "support/catch.hpp"
#include "unit/io/checkpoint/checkpoint_fixture.hpp"
#include "unit/io/files/tfrecord_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

constexpr int images = 7;

/// The same images as an image folder and as TFRecords.
struct Sources {
  TempDirectory folder, shards, target;

  Sources() {
    std::string records[2];
    for (int i = 0; i < images; ++i) {
      const Bytes image = encode_jpeg(gradient_image({20 + i, 30}, i));
      const std::string name = i < 3 ? "cat" : "dog";
      write_file(folder.path() / "train" / name / (std::to_string(i) + ".jpg"), image);
      records[i / 4] += framed(image_example(image, i < 3 ? 1 : 2, name));
    }
    const Bytes image = encode_png(gradient_image({5, 6}));
    write_file(folder.path() / "val/dog/0.png", image);
    write_text(shards.path() / shard_name("train", 0, 2), records[0]);
    write_text(shards.path() / shard_name("train", 1, 2), records[1]);
    write_text(shards.path() / shard_name("val", 0, 1), framed(image_example(image, 2, "dog")));
  }

  void pack(std::optional<int> short_side = {}, const std::string& source = {}) const {
    ringtrain::io::pack({.source = source.empty() ? folder.path().native() : source,
                         .target = target.path().native(),
                         .short_side = short_side,
                         .images_a_file = 3,
                         .data = {.threads = 2}});
  }
  fs::path file(int number, std::string_view split = "train") const {
    return target.path() / shard_name(split, number, split == "train" ? 3 : 1, ".records");
  }
  std::unique_ptr<Dataset> packed(Split split = Split::training) const {
    return open_dataset("records:" + target.path().native(), split);
  }
  std::string complaint() const {
    const auto error = error_of([&] { packed(); });
    REQUIRE(error);
    CHECK(error->code() == Exit::data);
    return error->what();
  }
};

struct Seen {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;
  std::vector<std::uint64_t> samples;
};

/// What a loader makes of two epochs and a half.
Seen seen_of(const Dataset& data) {
  Loader loader(data,
                {.seed = 3,
                 .global_batch = 3,
                 .share = {0, 3},
                 .threads = 2,
                 .augmentation = {.output = {8, 8},
                                  .operations = {RandomResizedCrop{}, RandomHorizontalFlip{}}}});
  Seen seen;
  for (int b = 0; b < 6; ++b) {
    const Batch& batch = *loader.next();
    seen.pixels.insert(seen.pixels.end(), batch.images.begin(), batch.images.end());
    for (const Sample& sample : batch.samples) {
      seen.labels.push_back(sample.target.label);
      seen.samples.push_back(sample.index);
    }
  }
  return seen;
}

/// A file of which only the head and a table are there, however long it is.
class HollowFile final : public ByteSource {
 public:
  HollowFile(std::uint64_t table_offset, const RecordTable& table, std::uint64_t more_table)
      : table_(encode_table(table)),
        size_(table_offset + table_.size() + more_table),
        head_(encode_head({size_, table_offset, 1})) {}
  std::uint64_t size() const override { return size_; }
  std::span<const std::uint8_t> at(Part part) override {
    if (part.offset == 0) return {reinterpret_cast<const std::uint8_t*>(head_.data()), part.size};
    if (part.size > table_.size()) throw std::bad_alloc();
    return table_;
  }

 private:
  const std::vector<std::uint8_t> table_;
  const std::uint64_t size_;
  const std::array<std::uint64_t, records_head_bytes / 8> head_;
};

}  // namespace

TEST_CASE("records: an image folder, its TFRecords and either packed are the same samples") {
  const Sources sources;
  const std::string folder = "images:" + sources.folder.path().native();
  const std::string shards = "tfrecord:" + sources.shards.path().native();
  sources.pack({}, GENERATE(true, false) ? folder : shards);
  const auto expected = open_dataset(folder, Split::training);
  const Seen wanted = seen_of(*expected);

  for (const std::string& spec : {shards, "records:" + sources.target.path().native()}) {
    CAPTURE(spec);
    const auto data = open_dataset(spec, Split::training);
    const Seen seen = seen_of(*data);
    CHECK(data->size() == images);
    CHECK(data->class_names() == expected->class_names());
    CHECK(seen.samples == wanted.samples);
    CHECK(seen.labels == wanted.labels);
    CHECK(seen.pixels == wanted.pixels);
    const auto evaluation = open_dataset(spec, Split::evaluation);
    CHECK(evaluation->size() == 1);
    CHECK(evaluation->label(0) == 1);
    CHECK(evaluation->read(0).pixels == gradient_image({5, 6}).pixels);
  }
}

TEST_CASE("records: an evaluation needs no training beside it") {
  const Sources sources;
  sources.pack();
  for (int number = 0; number < 3; ++number) fs::remove(sources.file(number));

  const auto evaluation = sources.packed(Split::evaluation);

  CHECK(evaluation->class_names() == std::vector<std::string>{"cat", "dog"});
  CHECK(evaluation->label(0) == 1);
}

TEST_CASE("records: an evaluation has the labels that the network learned") {
  const Sources sources;
  sources.pack();
  std::string said;
  DatasetOptions options{.class_names = {"dog", "ant", "cat"},
                         .tell = [&](const std::string& line) { said = line; }};
  const auto open = [&] {
    return open_dataset("records:" + sources.target.path().native(), Split::evaluation, options);
  };
  CHECK(open()->label(0) == 1);  // training is beside it
  CHECK(said.empty());
  options.only_evaluated = true;
  CHECK(open()->label(0) == 0);
  CHECK_THAT(said, Contains("labels are by the names of the classes that the network learned"));
  options.class_names = {"dove", "cat"};
  CHECK(open()->class_names() == std::vector<std::string>{"cat", "dog"});
  CHECK_THAT(said, Contains("the checkpoint lacks classes of the pack"));

  const bool elsewhere = GENERATE(true, false);
  options.elsewhere = elsewhere;
  if (!elsewhere)
    for (int number = 0; number < 3; ++number) fs::remove(sources.file(number));
  const auto refused = error_of([&] { open(); });
  REQUIRE(refused);
  CHECK(refused->code() == Exit::data);
  CHECK_THAT(refused->what(), Contains("class dog: training has no such class"));
  options.class_names = {"dog", "ant", "dog"};
  CHECK_THAT(error_of([&] { open(); })->what(), Contains("classes 0 and 2 are both called so"));
  options.class_names = {"ant", "cat", "dog"};
  CHECK(open()->label(0) == 2);
  CHECK(open()->classes() == 3);
  options.class_names = {};
  CHECK(open()->label(0) == 1);
  CHECK_THAT(said, Contains("no checkpoint names the classes: labels are the pack's own"));
}

TEST_CASE("records: wnids have the network's labels, in training as in evaluation") {
  const TempDirectory folder, target;
  for (const char* place : {"train/n00000003/1", "train/n00000001/1", "val/n00000003/1"})
    write_file(folder.path() / place, encode_png(gradient_image({5, 6})));
  pack({.source = folder.path().native(), .target = target.path().native()});
  std::string said;
  DatasetOptions options{.class_names = {"n00000003", "n00000001"},
                         .only_evaluated = GENERATE(true, false),
                         .wnids = {"n00000001", "n00000002", "n00000003"},
                         .elsewhere = GENERATE(true, false),
                         .tell = [&](const std::string& line) { said = line; }};
  const auto open = [&](Split split) {
    return open_dataset("records:" + target.path().native(), split, options);
  };

  CHECK(open(Split::evaluation)->label(0) == 2);
  CHECK_THAT(said, Contains("labels are those of the network's wnids"));
  CHECK(open(Split::training)->class_names() == options.wnids);
  CHECK((open(Split::training)->label(0) == 0 && open(Split::training)->label(1) == 2));
  CHECK(open(Split::training)->read(1).pixels == gradient_image({5, 6}).pixels);

  options.wnids = {"n00000001", "n00000002"};
  for (const Split split : {Split::training, Split::evaluation}) {
    const auto refused = error_of([&] { open(split); });
    REQUIRE(refused);
    CHECK(refused->code() == Exit::data);
    CHECK_THAT(refused->what(), Contains("class n00000003: the network's 1,000 classes have no"));
  }
}

TEST_CASE("records: classes that shards did not name keep their numbers") {
  const TempDirectory shards, target;
  const bool from_1 = GENERATE(true, false);
  const auto record = [&](int label) {
    return framed(image_example(encode_png(gradient_image({5, 6})), label + (from_1 ? 1 : 0)));
  };
  write_text(shards.path() / shard_name("train", 0, 1), record(0) + record(1));
  write_text(shards.path() / shard_name("val", 0, 1), record(1));
  pack({.source = "tfrecord:" + shards.path().native(), .target = target.path().native()});
  std::string said;
  DatasetOptions options{.class_names = {"cat", "dog", "emu"},
                         .only_evaluated = true,
                         .elsewhere = GENERATE(true, false),
                         .tell = [&](const std::string& line) { said = line; }};
  const auto open = [&] {
    return open_dataset("records:" + target.path().native(), Split::evaluation, options);
  };

  CHECK(open()->label(0) == 1);
  CHECK(open()->classes() == 2);
  CHECK_THAT(said, Contains("it names no classes: labels are the pack's own"));
  options.class_names = {"2", "1", "0"};  // folders may be called so
  CHECK(open()->label(0) == (from_1 ? 0 : 1));
  CHECK_THAT(said, Contains("by the names of the classes"));
}

TEST_CASE("records: packing again keeps whole files, makes missing ones, and refuses others") {
  const Sources sources;
  sources.pack();
  const std::string before = file_bytes(sources.file(1));
  const auto time = fs::last_write_time(sources.file(0));
  fs::remove(sources.file(1));
  const std::string leftover =
      fmt::format("{}.1-{:x}.part", sources.file(1).native(), ::gethostid());
  write_text(leftover, "from a pack that was killed");

  sources.pack();

  CHECK(file_bytes(sources.file(1)) == before);
  CHECK(fs::last_write_time(sources.file(0)) == time);
  CHECK(!fs::exists(leftover));
  CHECK(std::distance(fs::directory_iterator(sources.target.path()), {}) == 5);  // and its lock
  const auto other_size = error_of([&] { sources.pack(16); });
  REQUIRE(other_size);
  CHECK(other_size->code() == Exit::usage);
  CHECK_THAT(other_size->what(), Contains("of other data or packed with other options"));
  write_file(sources.folder.path() / "train/dog/8.jpg", Bytes{1, 2, 3});
  write_file(sources.folder.path() / "train/dog/9.jpg", Bytes{1, 2, 3});
  write_file(sources.folder.path() / "train/dog/a.jpg", Bytes{1, 2, 3});
  const auto other_count = error_of([&] { sources.pack(); });
  REQUIRE(other_count);
  CHECK_THAT(other_count->what(), Contains("-of-00003.records is there, of other data"));
}

TEST_CASE("records: large images are scaled to the shorter side, others copied as they are") {
  const Sources sources;
  sources.pack(23);
  const auto data = sources.packed(),
             full = open_dataset("images:" + sources.folder.path().native(), Split::training);

  for (int i = 0; i < images; ++i) {
    const Image image = data->read(i);
    const int height = 20 + i;
    if (height <= 23) {
      CHECK(image.pixels == full->read(i).pixels);
      continue;
    }
    CHECK(image.extent.height == 23);
    CHECK(image.extent.width == (30 * 23 + height / 2) / height);
    CHECK(std::abs(image.pixels[0] - full->read(i).pixels[0]) < 8);
    const auto middle = [](const Image& of) {
      return int{of.pixels[(of.extent.height / 2 * of.extent.width + of.extent.width / 2) *
                           std::size_t{Image::channels}]};
    };
    CHECK(std::abs(middle(image) - middle(full->read(i))) < 8);
  }
}

TEST_CASE("records: what cannot be read is packed as such and keeps its place") {
  const Sources sources;
  write_file(sources.folder.path() / "train/cat/0.jpg", {});
  write_text(sources.folder.path() / "train/dog/4.jpg", "no picture");
  const auto short_side = GENERATE(std::optional<int>(), std::optional<int>(16));
  sources.pack(short_side);
  const auto data = sources.packed();

  CHECK(data->size() == images);
  CHECK_THROWS_AS(data->read(0), UnreadableSample);
  CHECK_THROWS_AS(data->read(4), UnreadableSample);
  CHECK(data->read(3).pixels.size() > 0);
  CHECK(data->label(4) == 1);
}

TEST_CASE("records: a source of which much cannot be read is not packed") {
  const Sources sources;
  for (int i = 0; i < 11; ++i)
    write_file(sources.folder.path() / "train/cat" / (std::to_string(i) + ".jpg"), {});

  const auto error = error_of([&] { sources.pack(); });

  REQUIRE(error);
  CHECK(error->code() == Exit::data);
  CHECK_THAT(error->what(), Contains("more than 0.1 %") && Contains("0 bytes"));
  for (int again = 0; again < 3; ++again) {
    const auto repeated = error_of([&] { sources.pack(); });
    REQUIRE(repeated);
    CHECK(repeated->code() == Exit::data);
    CHECK_THAT(repeated->what(), Contains("more than 0.1 %"));
  }
}

TEST_CASE("records: targets that cannot be written and sources without images are named") {
  const Sources sources;
  const auto complaint = [&](std::string source, std::string target, Exit code) -> std::string {
    const auto error =
        error_of([&] { pack({.source = std::move(source), .target = std::move(target)}); });
    REQUIRE(error);
    CHECK(error->code() == code);
    return error->what();
  };
  const std::string folder = sources.folder.path();
  const TempDirectory unlockable;
  fs::create_directory(unlockable.path() / ".pack.lock");
  const FileDescriptor other(
      ::open((sources.target.path() / ".pack.lock").c_str(), O_RDWR | O_CREAT, 0600));
  REQUIRE(::flock(other.get(), LOCK_EX) == 0);

  CHECK_THAT(complaint("shapes", "x", Exit::usage), Contains("no encoded images"));
  CHECK_THAT(complaint("/nowhere", "x", Exit::data), Contains("/nowhere: No such file"));
  CHECK_THAT(complaint(folder, "/proc/nowhere", Exit::storage), Contains("/proc/nowhere"));
  CHECK_THAT(complaint(folder, sources.target.path(), Exit::locked), Contains("another process"));
  CHECK_THAT(complaint(folder, unlockable.path(), Exit::storage),
             Contains(".pack.lock: Is a directory"));
}

TEST_CASE("records: every byte of a file is verified before it is used") {
  const Sources sources;
  sources.pack();
  const std::string good = file_bytes(sources.file(0));

  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string changed = good;
    changed[i] ^= 0x20;
    MemorySource source({reinterpret_cast<const std::uint8_t*>(changed.data()), changed.size()});
    const auto use = [&] {
      const RecordsHead head = read_head(source);
      for (const Record& record : read_table(source, head).records)
        unpack_record(source.at({record.offset, record.bytes}));
    };
    REQUIRE_THROWS_AS(use(), Undecodable);
  }
}

TEST_CASE("records: what is wrong with a file is told before training, with what to do") {
  const Sources sources;
  sources.pack();
  const std::string good = file_bytes(sources.file(0));

  for (const std::size_t length : {std::size_t{1}, std::size_t{63}, good.size() - 1}) {
    write_text(sources.file(0), good.substr(0, length));
    CHECK_THAT(sources.complaint(), Contains("train-00000-of-00003") && Contains("copy the file"));
  }
  write_text(sources.file(0), std::string(100, 'x'));
  CHECK_THAT(sources.complaint(), Contains("no file that train --pack made"));
  write_text(sources.file(0), "");
  CHECK_THAT(sources.complaint(), Contains("0 bytes"));
  fs::remove(sources.file(0));
  CHECK_THAT(sources.complaint(), Contains("train-00000-of-00003.records is missing"));
  write_text(sources.file(0), good);
  CHECK(sources.packed()->size() == images);
}

TEST_CASE("records: files of two packs are not mixed") {
  const Sources one, two;
  one.pack();
  two.pack(16);
  fs::copy_file(two.file(1), one.file(1), fs::copy_options::overwrite_existing);

  CHECK_THAT(one.complaint(),
             Contains("train-00001-of-00003.records") && Contains("pack all again"));
}

TEST_CASE("records: a damaged record costs its own sample only") {
  const Sources sources;
  sources.pack();
  std::string bytes = file_bytes(sources.file(0));
  bytes[records_head_bytes + 100] ^= 1;
  write_text(sources.file(0), bytes);
  const auto data = sources.packed();

  const auto error = error_of([&] { data->read(0); });
  REQUIRE(error);
  CHECK_THAT(error->what(), Contains("train-00000-of-00003.records, record 0 at byte 64") &&
                                Contains("wrong checksum"));
  CHECK(data->read(1).pixels.size() > 0);
}

TEST_CASE("records: a table whose records lie outside of the file is refused") {
  const auto refused = [](Record record) {
    const auto table = encode_table({{record}, {"a", "b"}});
    std::vector<std::uint8_t> file(100);
    file.insert(file.end(), table.begin(), table.end());
    const auto head = encode_head({file.size(), 100, 1});
    std::memcpy(file.data(), head.data(), records_head_bytes);
    MemorySource source(file);
    try {
      read_table(source, read_head(source));
    } catch (const Undecodable&) {
      return true;
    }
    return false;
  };

  CHECK(!refused({64, 36, 1}));
  CHECK(refused({64, 37, 1}));
  CHECK(refused({63, 10, 1}));
  CHECK(refused({101, 0, 1}));
  CHECK(refused({~std::uint64_t{0}, 36, 1}));
  CHECK(refused({64, 0xFFFFFFFF, 1}));
  CHECK(refused({64, 36, 2}));
  CHECK(refused({64, 36, -1}));
}

TEST_CASE("records: a table or record too large is refused before memory is taken for it") {
  const auto complaint = [](std::uint64_t record_bytes, std::uint64_t more_table) -> std::string {
    const std::uint64_t table_offset = records_head_bytes + record_bytes;
    HollowFile file(table_offset,
                    {{{records_head_bytes, static_cast<std::uint32_t>(record_bytes), 0}}, {"a"}},
                    more_table);
    try {
      read_table(file, read_head(file));
    } catch (const Undecodable& failure) {
      return failure.what();
    }
    return "";
  };
  constexpr std::uint64_t most = (1u << 29) + 8;

  CHECK(complaint(most, 0) == "");
  CHECK_THAT(complaint(most + 1, 0),
             Contains("a record has 536870921 bytes, more than the 536870920 allowed"));
  CHECK_THAT(complaint(8, std::uint64_t{1} << 50),
             Contains("its table has") && Contains("more than the 1073741824 allowed"));
}

TEST_CASE("record table: hostile counts are refused before memory is taken for them") {
  for (const std::uint64_t count : {std::uint64_t{3}, std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
    for (const auto& counts :
         {std::pair(count, std::uint64_t{0}), std::pair(std::uint64_t{0}, count)}) {
      std::vector<std::uint64_t> words{counts.first, counts.second, 0};
      words.push_back(record_hash({reinterpret_cast<const std::uint8_t*>(words.data()), 24}));
      CHECK_THROWS_AS(decode_table({reinterpret_cast<const std::uint8_t*>(words.data()), 32}),
                      Undecodable);
    }
  }
}
