#include "ringtrain/io/dataset/dataset.hpp"

#include <map>
#include <set>

#include "ringtrain/base/hash.hpp"
#include "support/catch.hpp"
#include "unit/io/dataset/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;

TEST_CASE("data set: a specification that names nothing is a usage error that helps") {
  const auto complaint = [](std::string_view spec) {
    const auto error = error_of([&] { open_dataset(spec, Split::training); });
    REQUIRE(error);
    CHECK(error->code() == Exit::usage);
    return std::string(error->what());
  };

  CHECK_THAT(complaint("shaps"), Contains("did you mean shapes?") && Contains("images:DIR"));
  CHECK_THAT(complaint("cifar:/data"), Contains("did you mean cifar10?"));
  CHECK_THAT(complaint("image:/data"), Contains("did you mean images?"));
  CHECK_THAT(complaint(""), Contains("no such kind"));
  CHECK_THAT(complaint("/photos"), Contains("did you mean images:/photos?"));
  CHECK_THAT(complaint("./photos"), Contains("did you mean images:./photos?"));
  CHECK_THAT(complaint("a/photos"), Contains("did you mean images:a/photos?"));
  CHECK_THAT(complaint("imagefolder:/photos"), Contains("did you mean images:/photos?"));
  CHECK_THAT(complaint("cifar100:/data"), !Contains("did you mean"));
  CHECK_THAT(complaint("tfds/mnist"), Contains("never downloads") && !Contains("did you mean"));
  CHECK_THAT(complaint("photos"), Contains("images:DIR") && !Contains("did you mean"));
  CHECK_THAT(complaint("cifar10"), Contains("cifar10:DIR"));
  CHECK_THAT(complaint("images:"), Contains("images:DIR"));
  CHECK_THAT(complaint("shapes:/data"), Contains("takes no directory"));
  CHECK_THAT(complaint("\x1b[2J"), Contains("\\x1b[2J"));
}

TEST_CASE("synthetic: has the extent and classes asked for, and always the same images") {
  const DatasetOptions options{.extent = {5, 7}, .classes = 13};
  const auto one = open_dataset("synthetic", Split::training, options);
  const auto two = open_dataset("synthetic", Split::training, options);

  CHECK(one->classes() == 13);
  CHECK(one->read(3).extent == Extent{5, 7});
  CHECK(one->read(3).pixels == two->read(3).pixels);
  CHECK(one->read(3).pixels != one->read(4).pixels);
  CHECK(one->manifest_hash() == two->manifest_hash());
  std::set<int> labels;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    REQUIRE((one->label(i) >= 0 && one->label(i) < 13));
    labels.insert(one->label(i));
  }
  CHECK(labels.size() > 5);
}

TEST_CASE("shapes: ten balanced classes, different images in each split") {
  const auto training = open_dataset("shapes", Split::training);
  const auto evaluation = open_dataset("shapes", Split::evaluation);

  CHECK(training->size() == 10'000);
  CHECK(evaluation->size() == 2'000);
  CHECK(training->classes() == 10);
  std::map<int, int> counts;
  for (std::uint64_t i = 0; i < training->size(); ++i) ++counts[training->label(i)];
  for (const auto& [label, count] : counts) CHECK(count == 1000);
  CHECK(training->read(0).extent == Extent{32, 32});
  CHECK(training->read(0).pixels != evaluation->read(0).pixels);
  CHECK(training->read(0).pixels != training->read(10).pixels);
  CHECK(training->manifest_hash() != evaluation->manifest_hash());
}

TEST_CASE("shapes: every build draws the same bytes") {
  const auto training = open_dataset("shapes", Split::training);
  std::uint64_t hash = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) hash = hash_of(training->read(i).pixels, hash);

  // Changes with any change of the drawing, which then makes accuracies incomparable.
  CHECK(hex(hash) == "77ee794479b499f8");
}

TEST_CASE("data set: fewer samples than one step takes are named") {
  const auto shapes = open_dataset("shapes", Split::evaluation);

  CHECK_NOTHROW(check_enough(*shapes, 2000));
  const auto error = error_of([&] { check_enough(*shapes, 2001); });
  REQUIRE(error);
  CHECK(error->code() == Exit::data);
  CHECK_THAT(error->what(),
             Contains("2000") && Contains("one step takes 2001 images, on all ranks"));
}
