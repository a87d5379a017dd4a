#include "ringtrain/optim/lr_schedule.hpp"

#include <cmath>
#include <stdexcept>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::optim;

TEST_CASE("learning rate: a staircase steps exactly at the epochs it names") {
  const LearningRate rate{.peak = 0.045, .decay = parse_decay("step:2:0.94"), .total_epochs = 10};

  CHECK(rate.at(0) == Approx(0.045));
  CHECK(rate.at(1.999999) == Approx(0.045));
  CHECK(rate.at(2) == Approx(0.045 * 0.94));
  CHECK(rate.at(9) == Approx(0.045 * std::pow(0.94, 4)));
}

TEST_CASE("learning rate: a staircase is not late where positions round down") {
  const LearningRate rate{.peak = 1, .decay = parse_decay("step:0.1:0.5"), .total_epochs = 10};

  CHECK(rate.at(0.3) == Approx(0.125));  // 0.3 / 0.1 is below 3
}

TEST_CASE("learning rate: an exponential decay spreads its factor evenly") {
  const LearningRate rate{.peak = 1, .decay = parse_decay("exponential:4:0.25"), .total_epochs = 8};

  CHECK(rate.at(2) == Approx(0.5));
  CHECK(rate.at(8) == Approx(0.0625));
}

TEST_CASE("learning rate: a cosine falls from the end of warm-up to zero at the end") {
  const LearningRate rate{
      .peak = 2, .decay = parse_decay("cosine"), .warmup_epochs = 5, .total_epochs = 25};

  CHECK(rate.at(5) == Approx(2));
  CHECK(rate.at(15) == Approx(1));
  CHECK(rate.at(25) == Approx(0).margin(1e-12));
  CHECK(rate.at(26) == Approx(0).margin(1e-12));
}

TEST_CASE("learning rate: warm-up rises linearly and joins every schedule without a jump") {
  const auto text = GENERATE("constant", "exponential:4:0.25", "cosine", "step:7:0.1");
  CAPTURE(text);
  const LearningRate rate{
      .peak = 1, .decay = parse_decay(text), .warmup_epochs = 3, .total_epochs = 20};

  CHECK(rate.at(0) == Approx(0.01));
  CHECK(rate.at(1.5) < rate.at(3));
  CHECK(rate.at(3 - 1e-9) == Approx(rate.at(3)));
}

TEST_CASE("learning rate: a run shorter than its warm-up stays finite") {
  const LearningRate rate{
      .peak = 1, .decay = parse_decay("cosine"), .warmup_epochs = 5, .total_epochs = 5};

  CHECK(rate.at(2.5) == Approx(0.505));
  CHECK(rate.at(5) == Approx(1));
}

TEST_CASE("learning rate: schedules are written as they are read") {
  const auto text = GENERATE("constant", "step:350:0.1", "exponential:2.5:0.94", "cosine");

  CHECK(to_string(parse_decay(text)) == text);
}

TEST_CASE("learning rate: a schedule that is none is refused with what it must be") {
  const auto text = GENERATE("", "linear", "step", "step:2", "step:2:0.1:3", "step:0:0.1",
                             "step:2:-1", "cosine:2", "exponential:nan:1");
  CAPTURE(text);

  CHECK_THROWS_WITH(parse_decay(text), Catch::Contains("must be"));
}
