#include "ringtrain/io/dataset/class_weights.hpp"

#include "support/catch.hpp"
#include "unit/io/dataset/data_support.hpp"

using namespace ringtrain;
using namespace ringtrain::io;
using namespace ringtrain::test;
using Catch::Contains;

namespace {

const std::vector<std::string> animals{"cat", "dog, small", "1"};

std::vector<float> weights_in(std::string_view csv, int classes = 3) {
  const TempDirectory home;
  write_text(home.path() / "w.csv", csv);
  return read_class_weights((home.path() / "w.csv").native(), animals, classes);
}

std::string weights_complaint(std::string_view csv) {
  const auto error = error_of([&] { weights_in(csv); });
  REQUIRE(error);
  CHECK(error->code() == Exit::usage);
  CHECK_THAT(error->what(), Contains("--class-weights "));
  return error->what();
}

}  // namespace

TEST_CASE("class weights: balanced, the samples of each class weigh equally much") {
  CHECK(class_counts(CountingDataset(11, {2, 2})) == std::vector<std::uint64_t>{4, 4, 3});
  // sklearn.utils.class_weight.compute_class_weight("balanced", ...) of 3, 1 and 2 samples
  CHECK(balanced_weights({3, 1, 2}, 3) == std::vector<float>{2 / 3.f, 2, 1});
  CHECK(balanced_weights({5, 5}, 2) == std::vector<float>{1, 1});
  CHECK(balanced_weights({3, 0, 1}, 5) == std::vector<float>{2 / 3.f, 1, 2, 1, 1});
}

TEST_CASE("class weights: rows are of names or else numbers, in any order, with a head or not") {
  using Weights = std::vector<float>;

  CHECK(weights_in("cat,1\n\"dog, small\",0.5\n1,2e1\n") == Weights{1, 0.5f, 20});
  CHECK(weights_in("Class,Weight\r\n1,3\r\n0,2\r\n\"dog, small\",0\r\n") == Weights{2, 0, 3});
  CHECK(weights_in("cat,1\n\"dog, small\",2\n2,3\n4,7\n", 5) == Weights{1, 2, 3, 1, 7});
}

TEST_CASE("class weights: what is wrong with a file is told") {
  CHECK_THAT(weights_complaint("cat,1\n1,1\n"),
             Contains("has no row of 1 of the 3 classes: dog, small"));
  CHECK_THAT(weights_complaint(""), Contains("has no row of 3 of the 3 classes"));
  CHECK_THAT(weights_complaint("cat,1\ncat,2\n"), Contains("has two rows of class cat"));
  CHECK_THAT(weights_complaint("cat,1\n0,2\n"), Contains("has two rows of class 0"));
  CHECK_THAT(weights_complaint("cow,1\n"), Contains("cow is no class of the training"));
  CHECK_THAT(weights_complaint("3,1\n"), Contains("3 is no class of the training"));
  CHECK_THAT(weights_complaint("-1,1\n"), Contains("-1 is no class of the training"));
  for (const char* weight : {"-1", "nan", "inf", "1e7", "", "x"}) {
    CAPTURE(weight);
    CHECK_THAT(weights_complaint("cat," + std::string(weight) + "\n"),
               Contains("of cat must be a number from 0 to 1"));
  }
  CHECK_THAT(weights_complaint("class,heavy\n1,-1\n"), Contains("weight -1 of 1 must be"));
  CHECK_THAT(weights_complaint("cat\n"), Contains("row 1 is no class,weight: cat"));
  CHECK_THAT(weights_complaint("cat,1\ndog,small,1\n"), Contains("row 2 is no class,weight"));
  CHECK_THAT(weights_complaint("\"cat,1\n"), Contains("line 1: a quote does not end"));
  CHECK_THAT(weights_complaint("cat,0\n\"dog, small\",0\n1,0\n"), Contains("nothing is learned"));
  const auto gone = error_of([] { read_class_weights("/gone.csv", animals, 3); });
  REQUIRE(gone);
  CHECK_THAT(gone->what(), Contains("--class-weights /gone.csv"));
}
