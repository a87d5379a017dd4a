#include "ringtrain/optim/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
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
  const auto text = GENERATE("constant", "exponential:4:0.25", "cosine", "step:7:0.1", "linear",
                             "polynomial:2:0.1", "multistep:30%,80%:0.2");
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

namespace {

double share_of(const LearningRate& rate, double epoch) {
  return std::clamp((epoch - rate.warmup_epochs) / (rate.total_epochs - rate.warmup_epochs), 0.0,
                    1.0);
}

}  // namespace

// The formulas are those of torch.optim.lr_scheduler, with a place in the run for a step's number.
TEST_CASE("learning rate: each schedule is its formula at a thousand places") {
  struct Case {
    const char* text;
    double warmup;
    std::function<double(const LearningRate&, double)> formula;
  };
  const double pi = std::acos(-1.0);
  const auto c = GENERATE_COPY(values<Case>({
      {"cosine:0.01", 5,
       [=](auto& r, double e) { return 0.01 + 0.99 * (1 + std::cos(pi * share_of(r, e))) / 2; }},
      {"linear", 0, [](auto&, double e) { return 1 - e / 90; }},
      {"linear:0.25", 2, [](auto& r, double e) { return 1 - 0.75 * share_of(r, e); }},
      {"polynomial:2", 0, [](auto&, double e) { return (1 - e / 90) * (1 - e / 90); }},
      {"polynomial:3:0.5", 3,
       [](auto& r, double e) { return 0.5 + 0.5 * std::pow(1 - share_of(r, e), 3); }},
      {"multistep:30,60,80:0.1", 5,
       [](auto&, double e) { return e < 30   ? 1
                                    : e < 60 ? 0.1
                                    : e < 80 ? 0.01
                                             : 0.001; }},
      {"multistep:50%,75%:0.2", 0,
       [](auto&, double e) { return e < 45     ? 1
                                    : e < 67.5 ? 0.2
                                               : 0.04; }},
      {"onecycle", 0,
       [=](auto&, double e) {
         return e < 27 ? 1.0 / 25 + (1 - 1.0 / 25) * (1 - std::cos(pi * e / 27)) / 2
                       : 4e-6 + (1 - 4e-6) * (1 + std::cos(pi * (e - 27) / 63)) / 2;
       }},
      {"piecewise:0%=0.2,23%=1,100%=0.07", 0,
       [](auto&, double e) {
         return e < 20.7 ? 0.2 + 0.8 * e / 20.7 : 1 - 0.93 * (e - 20.7) / (90 - 20.7);
       }},
      {"piecewise:5=0.5,10=2", 0,
       [](auto&, double e) { return e < 5    ? 0.5
                                    : e > 10 ? 2
                                             : 0.5 + 1.5 * (e - 5) / 5; }},
  }));
  CAPTURE(c.text);
  const LearningRate rate{.peak = 1,
                          .decay = parse_decay(c.text),
                          .warmup_epochs = c.warmup,
                          .total_epochs = 90,
                          .warmup_factor = 0.1};

  for (int i = 0; i < 1000; ++i) {
    const double epoch = 90.0 * i / 1000;
    const double warmup = epoch < c.warmup ? 0.1 + 0.9 * epoch / c.warmup : 1;
    CAPTURE(epoch);
    REQUIRE(std::abs(rate.at(epoch) - warmup * c.formula(rate, epoch)) <= 1e-12);
  }
}

TEST_CASE("learning rate: by epoch, all steps of an epoch have the rate of its first") {
  const auto text =
      GENERATE("cosine", "linear:0.1", "exponential:2:0.5", "onecycle", "piecewise:0=1,10=0");
  CAPTURE(text);
  LearningRate rate{.peak = 1, .decay = parse_decay(text), .total_epochs = 10};
  if (!rate.decay.warms_up()) rate.warmup_epochs = 2;
  LearningRate stepped = rate;
  stepped.decay = parse_decay(std::string(text) + ":by-epoch");

  for (double epoch = 0; epoch < 10; epoch += 0.125)
    CHECK(stepped.at(epoch) == rate.at(std::floor(epoch)));
  CHECK(stepped.at(3 - 1e-12) == rate.at(3));  // a quotient that was rounded down
}

TEST_CASE("learning rate: schedules are written as they are read") {
  const auto text =
      GENERATE("constant", "step:350:0.1", "exponential:2.5:0.94", "cosine", "cosine:0.01",
               "linear", "linear:0.5:by-epoch", "polynomial:2", "polynomial:0.9:0.001", "onecycle",
               "onecycle:12.5", "onecycle:7%", "multistep:150,225:0.1", "multistep:57%,80%:0.2",
               "piecewise:0%=0.2,7%=1,100%=0.07", "piecewise:0=0,5=0.4,24=0:by-epoch");

  CHECK(to_string(parse_decay(text)) == text);
}

TEST_CASE("learning rate: a schedule that is none is refused with what it must be") {
  const auto text = GENERATE(
      "", "root", "step", "step:2", "step:2:0.1:3", "step:0:0.1", "step:2:-1", "cosine:2",
      "exponential:nan:1", "constant:1", "by-epoch", "cosine:0:0", "polynomial", "polynomial:0",
      "multistep:30", "multistep::0.1", "multistep:30,30:0.1", "multistep:60,30:0.1",
      "multistep:30,50%:0.1", "multistep:101%:0.1", "piecewise", "piecewise:0", "piecewise:0=1=2",
      "piecewise:1=1,0=1", "piecewise:0=-1", "onecycle:-1", "onecycle:nan%", "linear:by-epoch:0");
  CAPTURE(text);

  CHECK_THROWS_WITH(parse_decay(text), Catch::Contains("must "));
}
