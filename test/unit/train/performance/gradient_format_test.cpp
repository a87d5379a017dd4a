#include "train/performance/gradient_format.hpp"

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::train;

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
