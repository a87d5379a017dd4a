#include "train/performance/sum_tuner.hpp"

#include "support/catch.hpp"
#include "train/performance/gradient_format.hpp"

using namespace ringtrain;
using namespace ringtrain::train;

namespace {

allreduce::SumPlan at_once(int sums) { return {.at_once = sums}; }

// Steps of so many seconds, one for each plan, round by round.
SumTrials trials_of(const std::vector<std::vector<double>>& rounds) {
  std::vector<allreduce::SumPlan> plans;
  for (std::size_t p = 0; p < rounds.front().size(); ++p) plans.push_back(at_once(int(p) + 1));
  SumTrials trials(plans);
  for (const auto& round : rounds)
    for (const double seconds : round) trials.see(seconds);
  return trials;
}

}  // namespace

TEST_CASE("sum trials: plans take turns, a step each") {
  SumTrials trials({at_once(1), at_once(2), at_once(4)});
  CHECK(trials.rounds() == 0);
  for (int round = 1; round <= 2; ++round) {
    for (const int sums : {1, 2, 4}) {
      CHECK(trials.plan() == at_once(sums));
      trials.see(0.5 * sums);
      CHECK(trials.rounds().has_value() == (sums == 4));
    }
    CHECK(trials.rounds() == round);
  }
  CHECK(trials.steps() == 6);
  CHECK(trials.spent_s() == 7);
  REQUIRE(trials.tried().size() == 3);
  CHECK(trials.tried()[2].plan == at_once(4));
  CHECK(trials.tried()[2].step_s == 2);
}

TEST_CASE("sum trials: the fastest is best, where it is clearly faster than the first") {
  CHECK(trials_of({{1, 0.9, 0.8}, {1, 0.9, 0.8}, {1, 0.9, 0.8}, {1, 0.9, 0.8}}).best() == 2);
  CHECK(trials_of({{1, 0.9, 0.92}, {1, 0.9, 0.92}}).best() == 1);
  CHECK(trials_of({{1, 0.96, 0.97}, {1, 0.96, 0.97}}).best() == 0);
  CHECK(trials_of({{1, 1.2, 2}, {1, 1.2, 2}}).best() == 0);
  CHECK(trials_of({{1}}).best() == 0);
}

TEST_CASE("sum trials: a machine that slows for some rounds makes no plan look better") {
  // Twice as slow from the third round on: each round is judged by itself.
  CHECK(trials_of({{1, 0.9}, {1, 0.9}, {2, 1.8}, {2, 1.8}}).best() == 1);
  CHECK(trials_of({{1, 1}, {1, 1}, {2, 2}, {2, 2}}).best() == 0);
}

TEST_CASE("sum trials: faster in half of the rounds is noise") {
  CHECK(trials_of({{1, 0.5}, {1, 0.5}, {1, 1.01}, {1, 1.02}}).best() == 0);
  CHECK(trials_of({{1, 0.5}, {1, 0.5}, {1, 0.6}, {1, 1.02}}).best() == 1);
}

TEST_CASE("sum trials: one slow step of the first plan is no reason") {
  CHECK(trials_of({{9, 1}, {1, 1}, {1, 1}, {1, 1}}).best() == 0);
}

TEST_CASE("gradient formats: one that changes gradients more must be clearly faster") {
  const GradientFormat exact, half{.element = Element::bf16},
      small{.compression = {.kind = allreduce::Compression::Kind::powersgd, .rank = 4}};
  const auto best = [&](double exact_s, double half_s, double small_s) {
    return best_format(
        std::vector<TriedFormat>{{exact, exact_s}, {half, half_s}, {small, small_s}});
  };

  CHECK(best(1, 1, 1) == 0);
  CHECK(best(1, 0.96, 0.96) == 0);
  CHECK(best(1, 0.9, 0.89) == 1);
  CHECK(best(1, 0.9, 0.8) == 2);
  CHECK(best(1, 0.96, 0.9) == 2);
  CHECK(text_of(half) == "--gradient-dtype bf16");
  CHECK(text_of(small) == "--compress powersgd:4");
}
