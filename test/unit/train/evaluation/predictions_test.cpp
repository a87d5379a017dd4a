#include "train/evaluation/predictions.hpp"

#include <cmath>
#include <limits>

#include "support/catch.hpp"

using namespace ringtrain::train;

namespace {

const std::vector<std::string> names{"cat", "big, \"dog\"", "bird"};

}  // namespace

TEST_CASE("predictions: the likeliest classes with their softmax, of equal ones the lower label") {
  const std::vector<float> logits{1000, 1001, 1000, -5};
  const auto best = best_classes(logits, 3);

  REQUIRE(best.size() == 3);
  CHECK(best[0].label == 1);
  CHECK(best[1].label == 0);
  CHECK(best[2].label == 2);
  const double e = std::exp(1.0);
  CHECK(std::abs(best[0].probability - e / (e + 2)) < 1e-12);
  CHECK(std::abs(best[1].probability - 1 / (e + 2)) < 1e-12);
  CHECK(best_classes(logits, 9).size() == 4);
}

TEST_CASE("predictions: of logits that are not finite nothing is told") {
  CHECK(best_classes(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()}, 2).empty());
  CHECK(best_classes(std::vector<float>{1, std::numeric_limits<float>::infinity()}, 2).empty());
}

TEST_CASE("predictions: CSV has as many columns in each line, and quotes what it must") {
  const PredictionFormat csv("a.csv", names, 2, true), plain("-", names, 9, false);

  CHECK(csv.header() == "path,label,class1,probability1,class2,probability2,error\r\n");
  CHECK(csv.line({"a \"b\".png", 1, {{2, 0.75}, {1, 1e-7}}}) ==
        "\"a \"\"b\"\".png\",\"big, \"\"dog\"\"\",bird,0.75,\"big, \"\"dog\"\"\",1e-07,\r\n");
  CHECK(csv.line({"x", -1, {}, "cut\nshort"}) == "x,,,,,,\"cut\nshort\"\r\n");
  CHECK(plain.top_k() == 3);
  CHECK(plain.header() ==
        "path,class1,probability1,class2,probability2,class3,probability3,error\r\n");
}

TEST_CASE("predictions: JSON tells labels, classes and errors where there are any") {
  const PredictionFormat json("a.jsonl", names, 2, true);

  CHECK(json.header().empty());
  CHECK(
      json.line({"a\xff", 0, {{1, 0.5}}}) ==
      "{\"path\":\"a\xef\xbf\xbd\",\"label\":\"cat\",\"classes\":[{\"class\":\"big, \\\"dog\\\"\","
      "\"index\":1,\"probability\":0.5}]}\n");
  CHECK(json.line({"b", -1, {}, "gone"}) == "{\"path\":\"b\",\"error\":\"gone\"}\n");
}
