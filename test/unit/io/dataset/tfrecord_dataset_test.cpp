#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "io/dataset/shards/sharded_dataset.hpp"
#include "io/files/tfrecord.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/io/loader/loader.hpp"
#include "support/catch.hpp"
#include "unit/io/files/tfrecord_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;
using Catch::StartsWith;
namespace fs = std::filesystem;

namespace {

Bytes png_picture(int seed) { return encode_png(gradient_image({8, 9}, seed)); }

std::string record(int seed, std::int64_t label, std::string_view synset = {}) {
  return framed(image_example(png_picture(seed), label, synset));
}

/// One of `label` in which damage made another label of it.
std::string mislabelled(int seed, std::int64_t label, std::int64_t other) {
  std::string text = record(seed, other);
  return text.replace(text.size() - 4, 4, record(seed, label), text.size() - 4, 4);
}

/// Shards in a directory, and a cache folder of their own.
struct Home {
  TempDirectory directory, cache;
  std::vector<std::string> told;
  int index_wait_s = 300;
  std::vector<std::string> learned = {};

  void shard(std::string_view split, int number, int of, std::string_view bytes) const {
    write_text(directory.path() / shard_name(split, number, of), bytes);
  }
  std::unique_ptr<Dataset> open(Split split = Split::training) {
    const auto tell = [this](const std::string& line) { told.push_back(line); };
    told.clear();
    return open_dataset("tfrecord:" + directory.path().native(), split,
                        {.class_names = learned,
                         .cache_folder = cache.path(),
                         .threads = 3,
                         .index_wait_s = index_wait_s,
                         .tell = tell});
  }
  std::string complaint(Split split = Split::training) {
    const auto error = error_of([&] { open(split); });
    REQUIRE(error);
    CHECK(error->code() == Exit::data);
    return error->what();
  }
  fs::path only_cache() const {
    for (const auto& entry : fs::directory_iterator(cache.path()))
      if (entry.path().extension() == ".index") return entry.path();
    return {};
  }
};

/// Overwrites a file without a trace in its size and time.
void overwrite(const fs::path& path, std::size_t at, std::string_view bytes) {
  const auto time = fs::last_write_time(path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  fs::last_write_time(path, time);
}

/// While it lives, this process may have fewer files open.
class FewFiles {
 public:
  explicit FewFiles(rlim_t most) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{most, before_.rlim_max};
    check_errno(::setrlimit(RLIMIT_NOFILE, &few), "setrlimit");
  }
  ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;

 private:
  rlimit before_{};
};

/// While it lives, this process may write 10 bytes of a file.
class SmallFiles {
 public:
  SmallFiles() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{10, before_.rlim_max};
    check_errno(::setrlimit(RLIMIT_FSIZE, &small), "setrlimit");
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

/// Why reading `sample` ends the job.
std::string failure_of_job(const Dataset& data, std::uint64_t sample) {
  try {
    data.read(sample);
  } catch (const UnreadableSample& failure) {
    return std::string("of the sample alone: ") + failure.what();
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::data);
    return failure.what();
  }
  return "it was read";
}

std::vector<int> labels_of(const Dataset& data) {
  std::vector<int> labels;
  for (std::uint64_t i = 0; i < data.size(); ++i) labels.push_back(data.label(i));
  return labels;
}

}  // namespace

TEST_CASE("tfrecord: samples come shard after shard, labels from 1 become classes from 0") {
  Home home;
  home.shard("train", 0, 2, record(0, 2, "n02") + record(1, 1, "n01"));
  home.shard("train", 1, 2, record(2, 4) + record(3, 2, "other name"));
  home.shard("validation", 0, 1, record(4, 4));
  write_text(home.directory.path() / "README", "x");

  const auto training = home.open(), evaluation = home.open(Split::evaluation);

  CHECK(labels_of(*training) == std::vector{1, 0, 3, 1});
  CHECK(training->class_names() == std::vector<std::string>{"n01", "n02", "3", "4"});
  CHECK_THAT(training->description(),
             Contains("4 images of 4 classes (1 without images)") && Contains("2 shards"));
  for (int i = 0; i < 4; ++i) CHECK(training->read(i).pixels == gradient_image({8, 9}, i).pixels);
  CHECK(labels_of(*evaluation) == std::vector{3});
  CHECK(evaluation->class_names() == training->class_names());
  CHECK(evaluation->read(0).pixels == gradient_image({8, 9}, 4).pixels);
}

TEST_CASE("tfrecord: labels from 0 stay as they are") {
  Home home;
  home.shard("train", 0, 1, record(0, 2) + record(1, 0));
  home.shard("val", 0, 1, record(2, 1));

  CHECK(labels_of(*home.open()) == std::vector{2, 0});
  CHECK_THAT(home.told[0], Contains("2 images of 3 classes") && Contains("labels from 0"));
  CHECK(home.open()->classes() == 3);
  CHECK(labels_of(*home.open(Split::evaluation)) == std::vector{1});
}

TEST_CASE("tfrecord: without shards for evaluation there is nothing to evaluate on") {
  Home home;
  home.shard("train", 0, 1, record(0, 1));

  CHECK(home.open(Split::evaluation) == nullptr);
}

TEST_CASE("tfrecord: an evaluation needs no training beside it") {
  Home home;
  home.shard("validation", 0, 1, record(2, 3) + record(3, 1));

  CHECK(labels_of(*home.open(Split::evaluation)) == std::vector{2, 0});
  CHECK_THAT(home.told.back(), Contains("labels from 1; that is a guess"));
  CHECK_THAT(home.complaint(), Contains("no shards there"));
}

TEST_CASE("tfrecord: what a network learned says where an evaluation's labels begin") {
  using Names = std::vector<std::string>;
  Home home;
  home.shard("validation", 0, 1, record(2, 3, "dog") + record(3, 1, "cat"));
  const auto labels = [&](Names learned) {
    home.learned = std::move(learned);
    const auto data = home.open(Split::evaluation);
    CHECK(data->class_names() == home.learned);
    CHECK_THAT(home.told.back(), !Contains("guess"));
    return labels_of(*data);
  };

  CHECK(labels({"bird", "cat", "cow", "dog"}) == std::vector{3, 1});
  CHECK(labels({"cat", "cow", "dog", "emu"}) == std::vector{2, 0});
  CHECK(labels({"x", "y", "z"}) == std::vector{2, 0});  // by their number
  home.learned = {"w", "x", "y", "z"};
  home.open(Split::evaluation);
  CHECK_THAT(home.told.back(), Contains("labels from 1; that is a guess"));
  home.learned = {"cat"};
  CHECK_THAT(home.complaint(Split::evaluation), Contains("label 3") && Contains("1 to 1"));

  home.shard("validation", 0, 1, record(2, 3) + record(3, 1));
  CHECK(labels({"0", "1", "2", "3"}) == std::vector{3, 1});
  CHECK(labels({"1", "2", "3", "4"}) == std::vector{2, 0});
}

TEST_CASE("tfrecord: files that do not make a whole set are named") {
  Home home;
  CHECK_THAT(home.complaint(), Contains("no shards there") && Contains("train-00000-of-01024"));
  home.shard("train", 1, 3, record(0, 1));
  CHECK_THAT(home.complaint(), Contains("train-00000-of-00003 is missing; 1 of 3"));
  home.shard("train", 0, 3, record(0, 1));
  CHECK_THAT(home.complaint(), Contains("train-00002-of-00003 is missing; 2 of 3"));
  home.shard("train", 2, 3, record(0, 1));
  CHECK(home.open()->size() == 3);

  home.shard("train", 1, 4, record(0, 1));
  CHECK_THAT(home.complaint(), Contains("train-00002-of-00003") &&
                                   Contains("train-00001-of-00004 belong to different sets"));
  fs::remove(home.directory.path() / shard_name("train", 1, 4));
  write_text(home.directory.path() / shard_name("train", 1, 3, ".tfrecord"), record(0, 1));
  CHECK_THAT(home.complaint(), Contains("belong to different sets"));
  fs::remove(home.directory.path() / shard_name("train", 1, 3, ".tfrecord"));
  home.shard("train", 1, 3, "");
  CHECK_THAT(home.complaint(), Contains("train-00001-of-00003") && Contains("empty (0 bytes)"));
  fs::remove(home.directory.path() / shard_name("train", 1, 3));
  REQUIRE(::mkfifo((home.directory.path() / shard_name("train", 1, 3)).c_str(), 0600) == 0);
  CHECK_THAT(home.complaint(), Contains("not a regular file"));
}

TEST_CASE("tfrecord: a shard or directory that may not be read is named") {
  Home home;
  home.shard("train", 0, 1, record(0, 1));
  fs::permissions(home.directory.path() / shard_name("train", 0, 1), fs::perms::none);
  const OrdinaryUser user(home.directory.path());

  CHECK_THAT(home.complaint(), Contains("train-00000-of-00001") && Contains("Permission denied"));
  const auto error = error_of([&] { open_dataset("tfrecord:/proc/1/fd", Split::training); });
  REQUIRE(error);
  CHECK_THAT(error->what(), Contains("/proc/1/fd: Permission denied"));
}

TEST_CASE("tfrecord: the first damaged shard is the one that is told") {
  Home home;
  for (int i = 0; i < 20; ++i) home.shard("train", i, 20, record(i, 1) + (i >= 9 ? "rest" : ""));

  CHECK_THAT(home.complaint(),
             Contains("train-00009-of-00020: it ends at byte") && Contains("copy the file again"));
}

TEST_CASE("tfrecord: a label that training does not have is told with its place") {
  Home home;
  home.shard("train", 0, 1, record(0, 1) + record(1, 3));
  home.shard("validation", 0, 2, record(0, 3));
  home.shard("validation", 1, 2, record(0, 1) + record(0, 4));

  CHECK_THAT(home.complaint(Split::evaluation),
             Contains("validation-00001-of-00002") && Contains("label 4") && Contains("1 to 3"));
  home.shard("validation", 1, 2, record(0, 0));
  CHECK_THAT(home.complaint(Split::evaluation), Contains("label 0"));
}

TEST_CASE("tfrecord: a damaged record or image is unreadable alone, told with shard and byte") {
  Home home;
  const std::string whole = record(0, 1), wrecked = [&] {
    std::string text = whole;
    text[whole.size() - 30] ^= 1;
    return text;
  }();
  home.shard("train", 0, 2, record(1, 1));
  home.shard("train", 1, 2,
             whole + wrecked + framed(image_example({}, 1)) +
                 framed(image_example({'t', 'e', 'x', 't'}, 1)) + whole);
  const auto data = home.open();
  const auto reader = data->reader();
  const auto why = [&](std::uint64_t sample) -> std::string {
    try {
      reader->pixels({.extent = reader->open(sample)});
    } catch (const UnreadableSample& failure) {
      return failure.what();
    }
    return "";
  };

  CHECK(why(1) == "");
  CHECK_THAT(why(2), Contains("train-00001-of-00002, record 1 at byte " +
                              std::to_string(whole.size() + 12)) &&
                         Contains("wrong checksum"));
  CHECK_THAT(why(3), Contains("record 2") && Contains("0 bytes"));
  CHECK_THAT(why(4), Contains("record 3") && Contains("neither JPEG nor PNG"));
  CHECK(why(5) == "");
}

TEST_CASE("tfrecord: a damaged label costs its own sample, never the classes") {
  const auto first = GENERATE(0, 1);
  Home home;
  home.shard("train", 0, 2,
             mislabelled(0, 1, 100) + record(1, 1) + mislabelled(2, 2, 3) + record(3, 2));
  home.shard(
      "train", 1, 2,
      mislabelled(4, 1, 0) + mislabelled(5, 2, 0) + mislabelled(6, 2, 90) + record(7, first));
  home.shard("val", 0, 1, record(0, 2) + mislabelled(1, 1, 0) + mislabelled(2, 2, 9));
  const auto unreadable = [](const Dataset& data) {
    std::vector<std::uint64_t> samples;
    for (std::uint64_t i = 0; i < data.size(); ++i)
      if (error_of([&] { data.read(i); })) samples.push_back(i);
    return samples;
  };

  for (int kept = 0; kept < 2; ++kept) {
    const auto training = home.open(), evaluation = home.open(Split::evaluation);
    CHECK(training->classes() == 3 - first);
    CHECK(training->label(1) == 1 - first);
    CHECK(training->label(7) == 0);
    CHECK(unreadable(*training) == std::vector<std::uint64_t>{0, 2, 4, 5, 6});
    CHECK(evaluation->label(0) == 2 - first);
    CHECK(unreadable(*evaluation) == std::vector<std::uint64_t>{1, 2});
  }
}

TEST_CASE("tfrecord: a kept index is used without a look at the shards") {
  Home home;
  home.shard("train", 0, 2, record(0, 1) + record(1, 2));
  home.shard("train", 1, 2, record(2, 3));
  const auto before = home.open();

  overwrite(home.directory.path() / shard_name("train", 1, 2), 0, "no longer a TFRecord file");
  const auto after = home.open();

  CHECK(after->manifest_hash() == before->manifest_hash());
  CHECK(after->class_names() == before->class_names());
  CHECK(labels_of(*after) == labels_of(*before));
  CHECK(labels_of(*after) == std::vector{0, 1, 2});
  CHECK(after->read(1).pixels == gradient_image({8, 9}, 1).pixels);
  CHECK_THROWS_AS(after->read(2), UnreadableSample);
  CHECK(home.told.size() == 1);  // what it is
}

TEST_CASE("tfrecord: a stale index is made again") {
  Home home;
  const fs::path shard = home.directory.path() / shard_name("train", 0, 1);
  home.shard("train", 0, 1, record(0, 1) + record(1, 2));
  REQUIRE(labels_of(*home.open()) == std::vector{0, 1});

  SECTION("after a change of size") { home.shard("train", 0, 1, record(0, 2) + record(1, 30)); }
  SECTION("after a change of time alone") {
    home.shard("train", 0, 1, record(0, 2) + record(1, 3));
    fs::last_write_time(shard, fs::last_write_time(shard) + std::chrono::seconds(1));
  }
  CHECK(home.open()->label(0) == 1);
  CHECK(std::distance(fs::directory_iterator(home.cache.path()), {}) == 2);  // and its lock
}

TEST_CASE("tfrecord: an index with any byte changed or missing is made again") {
  Home home;
  home.shard("train", 0, 1, record(0, 1, "n01") + record(1, 2));
  const auto labels = labels_of(*home.open());
  const fs::path cache = home.only_cache();
  std::ifstream in(cache, std::ios::binary);
  const std::string good(std::istreambuf_iterator<char>(in), {});
  REQUIRE(good.size() > 100);

  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string changed = good;
    changed[i] ^= 4;
    for (const std::string& text : {changed, good.substr(0, i)}) {
      write_text(cache, text);
      const auto data = home.open();
      REQUIRE(labels_of(*data) == labels);
      REQUIRE(data->class_names()[0] == "n01");
    }
  }
}

TEST_CASE("tfrecord: a cache folder that takes nothing costs one line") {
  Home home;
  home.shard("train", 0, 1, record(0, 1));
  fs::permissions(home.cache.path(), fs::perms(0555));
  const OrdinaryUser user(home.directory.path());

  CHECK(home.open()->size() == 1);
  REQUIRE(home.told.size() == 2);
  CHECK_THAT(home.told[0], Contains("is not kept") && Contains("Permission denied"));
}

TEST_CASE("tfrecord: why an index cannot be written is told") {
  Home home;
  home.shard("train", 0, 1, record(0, 1));
  {
    const SmallFiles limit;
    CHECK(home.open()->size() == 1);
  }

  REQUIRE(home.told.size() == 2);
  CHECK_THAT(home.told[0], Contains("is not kept") && Contains("File too large"));
  CHECK(home.only_cache().empty());
  CHECK(std::distance(fs::directory_iterator(home.cache.path()), {}) == 1);  // the lock
}

TEST_CASE("tfrecord: a lock that nobody gives back costs a limited time and one line") {
  Home home;
  home.shard("train", 0, 1, record(0, 1));
  home.open();
  const fs::path index = home.only_cache(), lock = index.native() + ".lock";
  fs::remove(index);
  const FileDescriptor other(::open(lock.c_str(), O_RDWR));
  REQUIRE(::flock(other.get(), LOCK_EX) == 0);
  home.index_wait_s = 0;

  CHECK(home.open()->size() == 1);
  REQUIRE(home.told.size() == 2);
  CHECK_THAT(home.told[0], Contains("is not kept") && Contains(lock.native()) &&
                               Contains("for more than 0 s; end that one if it is stuck"));
  CHECK(!fs::exists(index));
}

TEST_CASE("index cache: who waited for no index makes one without holding up others") {
  const TempDirectory cache;
  const std::vector<ShardFile> files{{"train-00000-of-00001", 1, 2}};
  const DatasetOptions options{.cache_folder = cache.path()};
  const auto index = [] { return ShardIndex{{0}, {}}; };
  cached_index("/data", files, options, index);
  fs::path lock;
  for (const auto& entry : fs::directory_iterator(cache.path()))
    if (entry.path().extension() == ".lock") lock = entry.path();
  fs::remove(fs::path(lock).replace_extension());
  const FileDescriptor mine(::open(lock.c_str(), O_RDWR));
  FileDescriptor other(::open(lock.c_str(), O_RDWR));
  REQUIRE(::flock(other.get(), LOCK_EX) == 0);

  std::jthread holder([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    other = {};
  });
  bool is_free = false;
  cached_index("/data", files, options, [&] {
    is_free = ::flock(mine.get(), LOCK_EX | LOCK_NB) == 0;
    return index();
  });

  CHECK(is_free);
}

TEST_CASE("tfrecord: more shards than files that may be open") {
  const FewFiles limit(100);
  Home home;
  for (int i = 0; i < 300; ++i) home.shard("train", i, 300, record(i % 5, 1 + i % 5));

  const auto data = home.open();

  for (std::uint64_t i = 0; i < data->size(); i += 7)
    REQUIRE(data->read(i).pixels == gradient_image({8, 9}, static_cast<int>(i % 5)).pixels);
}

TEST_CASE("tfrecord: a shard that is opened anew and is another file by then ends the job") {
  const FewFiles limit(100);
  Home home;
  for (int i = 0; i < 30; ++i) home.shard("train", i, 30, record(0, 1));
  const auto data = home.open();
  const fs::path last = home.directory.path() / shard_name("train", 29, 30);
  const auto time = fs::last_write_time(last);
  fs::last_write_time(last, time + std::chrono::seconds(1));

  try {
    data->read(29);
    FAIL("it was read");
  } catch (const Error& failure) {
    CHECK(failure.code() == Exit::data);
    CHECK_THAT(failure.what(),
               Contains(last.native()) && Contains("another file has taken its place"));
  }
  fs::last_write_time(last, time);
  CHECK(data->read(29).pixels == gradient_image({8, 9}, 0).pixels);
}

TEST_CASE("tfrecord: a shard that is gone or may not be read ends the job") {
  const FewFiles limit(100);
  Home home;
  for (int i = 0; i < 30; ++i) home.shard("train", i, 30, record(0, 1));
  const auto data = home.open();
  const fs::path last = home.directory.path() / shard_name("train", 29, 30);

  SECTION("gone") {
    fs::remove(last);
    CHECK_THAT(failure_of_job(*data, 29), Contains(last.native()) && Contains("No such file"));
  }
  SECTION("not to be read") {
    fs::permissions(last, fs::perms::none);
    const OrdinaryUser user(home.directory.path());
    CHECK_THAT(failure_of_job(*data, 29), Contains(last.native()) && Contains("Permission denied"));
  }
}

TEST_CASE("tfrecord: a record whose label is not the index's ends the job") {
  const auto first = GENERATE(0, 1);
  Home home;
  home.shard("train", 0, 1, record(0, first) + record(1, 2) + mislabelled(2, 1, 2));
  const auto before = home.open();
  CHECK(before->read(1).pixels == gradient_image({8, 9}, 1).pixels);
  CHECK_THROWS_AS(before->read(2), UnreadableSample);
  const auto shard = home.directory.path() / shard_name("train", 0, 1);
  overwrite(shard, record(0, first).size(), record(1, 1) + record(2, 1));

  const auto data = home.open();

  CHECK(data->read(0).pixels == gradient_image({8, 9}, 0).pixels);
  CHECK_THAT(failure_of_job(*data, 1), StartsWith("read ") &&
                                           Contains("train-00000-of-00001, record 1") &&
                                           Contains("its label is 1, and 2 in the index") &&
                                           Contains("delete the kept index"));
  CHECK_THAT(failure_of_job(*data, 2), Contains("record 2"));
}

TEST_CASE("tfrecord: a shard that is replaced between its listing and its opening is refused") {
  const TempDirectory directory;
  const fs::path shard = directory.path() / shard_name("train", 0, 1);
  write_text(shard, record(0, 0));
  ShardedData data{
      "tfrecord", directory.path(), {}, {{1}, {{{12, 20, 0}}, {"a"}}}, unpack_tfrecord};
  data.files = find_shards(directory.path(), std::array<std::string_view, 1>{"train"},
                           std::array<std::string_view, 1>{""});
  CHECK(make_sharded_dataset(data, 100)->size() == 1);
  fs::last_write_time(shard, fs::last_write_time(shard) + std::chrono::seconds(1));

  const auto error = error_of([&] { make_sharded_dataset(data, 100); });

  REQUIRE(error);
  CHECK_THAT(error->what(), Contains("another file has taken its place"));
}

// A sanitizer's look at virtual tables needs a pipe, which the limit forbids.
TEST_CASE("data: a limit of open files is told, not taken for damage of the samples",
          "[unsanitized]") {
  const FewFiles limit(100);
  Home home;
  for (int i = 0; i < 30; ++i) home.shard("train", i, 30, record(0, 1));
  write_file(home.directory.path() / "train/cat/0.png", png_picture(0));
  const auto shards = home.open();
  const auto images = open_dataset("images:" + home.directory.path().native(), Split::training);
  std::vector<FileDescriptor> all;
  while (all.empty() || all.back().get() >= 0) all.emplace_back(::open("/dev/null", O_RDONLY));

  for (const auto& [data, sample] : {std::pair(shards.get(), 29), std::pair(images.get(), 0)}) {
    std::string why;
    try {
      data->read(sample);
    } catch (const UnreadableSample&) {
      why = "the sample";
    } catch (const Error& failure) {
      why = failure.what();
      CHECK(failure.code() == Exit::limit);
    }
    CHECK_THAT(why, Contains("Too many open files; `ulimit -n` is 100: raise it"));
  }
  all.clear();
  CHECK(shards->read(29).pixels == gradient_image({8, 9}, 0).pixels);
}

TEST_CASE("tfrecord: scripts/make_tfrecords.py makes shards of an image folder") {
  const TempDirectory folder;
  const Home home;
  for (int i = 0; i < 6; ++i)
    write_file(folder.path() / (i < 5 ? "train" : "val") / (i < 2 ? "cat" : "dog") /
                   (std::to_string(i) + ".png"),
               png_picture(i));
  fs::create_directories(folder.path() / "train/dog/no image");
  const auto [wanted, made] = GENERATE(std::pair(2, 2), std::pair(9, 5));
  const std::string command = std::string("python3 '") + RINGTRAIN_SOURCE_DIR +
                              "/scripts/make_tfrecords.py' '" + folder.path().native() + "' '" +
                              home.directory.path().native() + "' " + std::to_string(wanted);
  REQUIRE(std::system(command.c_str()) == 0);
  CHECK(fs::exists(home.directory.path() / shard_name("train", 0, made)));

  for (const Split split : {Split::training, Split::evaluation}) {
    const auto images = open_dataset("images:" + folder.path().native(), split);
    const auto shards = open_dataset("tfrecord:" + home.directory.path().native(), split);
    CHECK(shards->class_names() == images->class_names());
    REQUIRE(labels_of(*shards) == labels_of(*images));
    for (std::uint64_t i = 0; i < images->size(); ++i)
      CHECK(shards->read(i).pixels == images->read(i).pixels);
  }
}
