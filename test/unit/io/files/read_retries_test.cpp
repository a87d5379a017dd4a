#include "ringtrain/io/files/read_retries.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "ringtrain/base/error.hpp"
#include "ringtrain/io/loader/loader.hpp"
#include "support/catch.hpp"
#include "unit/io/dataset/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;

namespace {

struct Told {
  std::vector<std::string> lines;
  ReadRetries retries{[this](const std::string& line) { lines.push_back(line); }};
};

/// Its reads fail, tried again by the loader's retries until `heals` says that they do not.
class AilingDataset final : public Dataset {
 public:
  explicit AilingDataset(std::function<bool()> heals) : heals_(std::move(heals)) {}
  std::uint64_t size() const override { return 100; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int label(std::uint64_t) const override { return 0; }
  std::unique_ptr<SampleReader> reader() const override { return std::make_unique<Reader>(*this); }
  std::string description() const override { return "ailing"; }
  std::uint64_t manifest_hash() const override { return 0; }

 private:
  class Reader final : public SampleReader {
   public:
    explicit Reader(const AilingDataset& data) : data_(data) {}
    void share(ReadRetries& retries) override { retries_ = &retries; }
    Extent open(std::uint64_t) override {
      retries_->run("ailing/file", [&](bool) {
        if (!data_.heals_()) throw ReadFailure(EIO, 17);
      });
      image_.reshape({2, 2});
      return image_.extent;
    }
    PixelView pixels(const CropRequest&) override { return {image_.view()}; }

   private:
    const AilingDataset& data_;
    ReadRetries* retries_ = nullptr;
    Image image_;
  };

  std::function<bool()> heals_;
  std::vector<std::string> names_{"a"};
};

LoaderOptions one_by_one() {
  LoaderOptions options;
  options.augmentation.output = {2, 2};
  options.report = [](const std::string&) {};
  return options;
}

}  // namespace

TEST_CASE("read retries: what passes is read, and told in one line") {
  Told told;
  int attempts = 0;

  const int result = told.retries.run("disk/file", [&](bool again) {
    CHECK(again == (attempts > 0));
    if (++attempts < 3) throw ReadFailure(EIO, 4096);
    return 7;
  });

  CHECK(result == 7);
  CHECK(told.retries.count() == 2);
  REQUIRE(told.lines.size() == 1);
  CHECK(told.lines[0] ==
        "read disk/file: Input/output error (errno 5) at byte 4096; trying again, at most 4 times "
        "in 10 s");
}

TEST_CASE("read retries: what stays ends with path, offset, errno and advice", "[waits]") {
  Told told;
  int attempts = 0;

  const auto error = error_of([&] {
    told.retries.run("disk/file", [&](bool) {
      ++attempts;
      throw ReadFailure(ESTALE, 9);
    });
  });

  REQUIRE(error);
  CHECK(error->code() == Exit::data);
  CHECK_THAT(error->what(), Contains("read disk/file: Stale file handle (errno 116) at byte 9, 5 "
                                     "times in") &&
                                Contains("look at the disk or the mount"));
  CHECK(attempts == ReadRetries::most_attempts);
  CHECK(told.lines.size() == 1);
}

TEST_CASE("read retries: no attempt begins once the time is up, however slow each one is",
          "[waits]") {
  Told told;
  int attempts = 0;

  const auto error = error_of([&] {
    told.retries.run("disk/file", [&](bool) {
      if (++attempts == 2) std::this_thread::sleep_for(std::chrono::milliseconds(10'100));
      throw ReadFailure(ETIMEDOUT, 0);
    });
  });

  CHECK(error);
  CHECK(attempts == 2);
}

TEST_CASE("read retries: what is not there is not tried again") {
  const int error = GENERATE(ENOENT, EACCES, ELOOP, EISDIR, EMFILE);
  Told told;
  int attempts = 0;

  CHECK_THROWS_AS(told.retries.run("disk/file",
                                   [&](bool) {
                                     ++attempts;
                                     throw ReadFailure(error, 0);
                                   }),
                  ReadFailure);
  CHECK(attempts == 1);
  CHECK(told.lines.empty());
  for (const int passing : {0, EIO, ESTALE, ETIMEDOUT, EAGAIN, EHOSTDOWN, ENOTCONN, EREMOTEIO})
    CHECK(may_pass(passing));
}

TEST_CASE("read retries: a loader that is dropped waits for none") {
  std::atomic<int> attempts = 0;
  const AilingDataset data([&] {
    ++attempts;
    return false;
  });
  const auto begin = std::chrono::steady_clock::now();
  {
    const Loader loader(data, one_by_one());
    while (attempts < 3) std::this_thread::yield();  // the pause that follows takes two seconds
  }

  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(2500));
}

TEST_CASE("read retries: who waits for a batch learns that reads are tried again", "[waits]") {
  std::atomic<int> attempts = 0, moves = 0;
  const AilingDataset data([&] { return ++attempts % 4 == 0; });  // after three seconds
  LoaderOptions options = one_by_one();
  options.on_retry = [&] { ++moves; };
  Loader loader(data, options);

  CHECK(loader.next() != nullptr);

  CHECK(moves >= 1);
  CHECK(loader.unreadable().empty());
}

TEST_CASE("read retries: a file that stays away comes out of next(), and nothing in its place",
          "[waits]") {
  const AilingDataset data([] { return false; });
  Loader loader(data, one_by_one());

  CHECK_THROWS_WITH(loader.next(), Contains("ailing/file") && Contains("at byte 17, 5 times"));
  CHECK(loader.unreadable().empty());
}
