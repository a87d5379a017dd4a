#include <cmath>
#include <numeric>

#include "compute/reference/state.hpp"
#include "support/catch.hpp"
#include "support/random_batch.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::reference;

namespace {

State blank_state(std::vector<Shape> shapes, std::size_t parameters = 0,
                  std::size_t statistics = 0) {
  Schedule schedule;
  schedule.tensors = std::move(shapes);
  schedule.parameters = parameters;
  schedule.statistics = statistics;
  return State(schedule, 1);
}

}  // namespace

TEST_CASE("reference: a max-pool's gradient goes to the first maximum in row order") {
  State s = blank_state({{1, 2, 2, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 2, 2, 1}});
  s[0] = {0, 5, 5, 5};
  s[2] = {3};

  run(MaxPoolForward{{2, 2, 2, 2}, 0, 1}, s);
  run(MaxPoolBackward{{2, 2, 2, 2}, 0, 1, 2, 3}, s);

  CHECK(s[1] == std::vector<double>{5});
  CHECK(s[3] == std::vector<double>{0, 3, 0, 0});
}

TEST_CASE("reference: average pooling leaves the padding out of the divisor") {
  State s = blank_state({{1, 2, 2, 1}, {1, 2, 2, 1}});
  s[0] = {1, 2, 3, 4};

  run(AveragePoolForward{{3, 3, 2, 2, 1, 1, 2, 2}, 0, 1}, s);

  CHECK(s[1][0] == Approx(2.5));
}

TEST_CASE("reference: a convolution by hand") {
  State s = blank_state({{1, 1, 3, 1}, {1, 1, 3, 1}}, 4);
  s[0] = {1, 2, 3};
  s.parameters = {10, 1, -1, 0.5};

  run(ConvolutionForward{Window{1, 3, 1, 1, 0, 1, 0, 1}, 0, 1, {0, 3}, ParameterRange{3, 1}}, s);

  CHECK(s[1] == std::vector<double>{1 - 2 + 0.5, 10 + 2 - 3 + 0.5, 20 + 3 + 0.5});
}

TEST_CASE("reference: BatchNorm publishes the batch's mean and unbiased variance") {
  State s = blank_state({{4, 1, 1, 1}, {4, 1, 1, 1}}, 1, 2);
  s[0] = {1, 2, 3, 6};
  BatchNormForward step{0, 1, no_tensor, std::nullopt, {0, 1}, {0, 2}};

  run(step, s);

  CHECK(s.batch_statistics[0] == Approx(3));
  CHECK(s.batch_statistics[1] == Approx(14.0 / 3));
  step.unbiased = false;
  run(step, s);
  CHECK(s.batch_statistics[1] == Approx(14.0 / 4));
}

TEST_CASE("reference: BatchNorm in evaluation uses the running statistics") {
  State s = blank_state({{1, 1, 1, 2}, {1, 1, 1, 2}}, 2, 4);
  s[0] = {3, 4};
  s.parameters = {0.5, 0.25};
  s.statistics = {1, 2, 4, 1};
  BatchNormForward step{0, 1, no_tensor, std::nullopt, {0, 2}, {0, 4}};
  step.training = false;
  step.epsilon = 0;

  run(step, s);

  CHECK(s[1] == std::vector<double>{1.5, 2.25});
}

TEST_CASE("reference: equal logits count as the lower class being better") {
  State s = blank_state({{2, 1, 1, 6}});
  Batch batch;
  set_targets(batch, {{0}, {5}});
  s.batch = &batch;

  run(SoftmaxCrossEntropy{0}, s);

  CHECK(s.result.top1 == 1);
  CHECK(s.result.top5 == 1);
  CHECK(s.result.loss == Approx(2 * std::log(6.0)));
}

namespace {

/// Logits of a plain sample, another, one that pads and a mixed one, whose targets are `batch`.
State four_samples(Batch& batch) {
  State s = blank_state({{4, 1, 1, 4}, {4, 1, 1, 4}});
  s[0] = {1, -0.5, 0.25, 2, 0, 0.75, -1, 0.5, 3, 1, -2, 0, -0.25, 1.5, 0.5, -1};
  set_targets(batch, {{1}, {3}, {-1}, {0, 2, 0.75f}});
  s.batch = &batch;
  s.sample_weight = 0.25;
  return s;
}

void check_gradient(State& s, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(s[1][i] == Approx(expected[i]).epsilon(1e-6).margin(1e-8));
}

}  // namespace

TEST_CASE("reference: weights of classes are those of torch, with label smoothing") {
  Batch batch;
  State s = four_samples(batch);
  SoftmaxCrossEntropy step{0, 1, 0.1f};
  step.class_weights = {0.5f, 2, 0.25f, 1.25f};

  run(step, s);

  // F.cross_entropy(logits, targets, weight=weights, label_smoothing=0.1, reduction="sum") / 4 and
  // its gradient, of torch 1.13 in double precision
  CHECK(s.result.loss / 4 == Approx(1.9890941519).epsilon(1e-7));
  const std::vector<double> expected = {
      0.104492543,  -0.43848728,  0.049272428, 0.28472231,  0.056530983, 0.113791718,
      0.02038371,   -0.190706411, 0,           0,           0,           0,
      -0.074289608, 0.063520559,  0.012341401, -0.001572352};
  check_gradient(s, expected);
}

// timm.loss.BinaryCrossEntropy(smoothing=0.1, target_threshold, sum_classes, weight) on soft
// targets and its gradient, of torch in double precision
TEST_CASE("reference: binary cross-entropy is torch's") {
  Batch batch;
  State s = four_samples(batch);
  SoftmaxCrossEntropy step{0, 1, 0.1f};
  struct Expected {
    bool weighted;
    SoftmaxCrossEntropy::Binary binary;
    double loss;
    std::vector<double> gradient;
  };
  const auto expected = GENERATE(values<Expected>({
      {false,
       {false, 0},
       0.7115471457,
       {0.0441286612, -0.0342162082, 0.0335735313, 0.0534873174, 0.0296875, 0.0408861687,
        0.0152463388, -0.0189087918, 0, 0, 0, 0, -0.0163860313, 0.0495359048, 0.0232787082,
        0.0152463388}},
      {false,
       {false, 0.2f},
       0.6982658957,
       {0.0456911612, -0.0389037082, 0.0351360313, 0.0550498174, 0.03125, 0.0424486687,
        0.0168088388, -0.0235962918, 0, 0, 0, 0, -0.0351360313, 0.0510984048, -0.0235962918,
        0.0168088388}},
      {false,
       {true, 0},
       2.846188583,
       {0.176514645, -0.136864833, 0.134294125, 0.213949269, 0.11875, 0.163544675, 0.0609853553,
        -0.0756351672, 0, 0, 0, 0, -0.0655441252, 0.198143619, 0.0931148328, 0.0609853553}},
      {false,
       {true, 0.2f},
       2.793063583,
       {0.182764645, -0.155614833, 0.140544125, 0.220199269, 0.125, 0.169794675, 0.0672353553,
        -0.0943851672, 0, 0, 0, 0, -0.140544125, 0.204393619, -0.0943851672, 0.0672353553}},
      {true,
       {false, 0.2f},
       0.8179405973,
       {0.0228455806, -0.0778074164, 0.00878400783, 0.0688122717, 0.015625, 0.0848973374,
        0.00420220971, -0.0294953647, 0, 0, 0, 0, -0.0175680157, 0.10219681, -0.00589907295,
        0.0210110485}},
      {true,
       {true, 0},
       3.240903014,
       {0.0882573223, -0.273729666, 0.0335735313, 0.267436587, 0.059375, 0.32708935, 0.0152463388,
        -0.094543959, 0, 0, 0, 0, -0.0327720626, 0.396287238, 0.0232787082, 0.0762316942}},
  }));
  if (expected.weighted) step.class_weights = {0.5f, 2, 0.25f, 1.25f};
  step.binary = expected.binary;

  run(step, s);

  CHECK(s.result.loss / 4 == Approx(expected.loss).epsilon(1e-7));
  check_gradient(s, expected.gradient);
}

TEST_CASE("reference: a sample that comes again in an epoch loses other elements") {
  State s = blank_state({{2, 1, 1, 64}, {2, 1, 1, 64}});
  Batch batch;
  batch.samples.resize(2);
  s.batch = &batch;
  std::ranges::fill(s[0], 1);
  const auto same = [&] {
    run(Dropout{{0.5f, 1}, 0, 1}, s);
    return std::equal(s[1].begin(), s[1].begin() + 64, s[1].begin() + 64);
  };

  CHECK(same());
  batch.samples[1].repeat = 1;
  CHECK_FALSE(same());
}

TEST_CASE("reference: logits that are no numbers are never right") {
  State s = blank_state({{1, 1, 1, 6}});
  Batch batch;
  set_targets(batch, {{0}});
  s.batch = &batch;
  std::ranges::fill(s[0], std::nan(""));

  run(SoftmaxCrossEntropy{0}, s);

  CHECK(s.result.top1 == 0);
  CHECK(s.result.top5 == 0);
}

TEST_CASE("reference: a border mirrors the image without its edge, by hand") {
  CHECK(reflected(-1, 3) == 1);
  CHECK(reflected(-2, 3) == 2);
  CHECK(reflected(1, 3) == 1);
  CHECK(reflected(3, 3) == 1);
  CHECK(reflected(4, 3) == 0);
}

TEST_CASE("reference: a convolution in two groups with dilation 2, by hand") {
  State s = blank_state({{1, 1, 5, 2}, {1, 1, 3, 2}}, 4);
  s[0] = {1, 10, 2, 20, 3, 30, 4, 40, 5, 50};
  s.parameters = {1, -1, 2, 3};  // two taps of each group

  run(ConvolutionForward{{Window{1, 2}, 2, 2}, 0, 1, {0, 4}}, s);

  CHECK(s[1] == std::vector<double>{1 - 3, 20 + 90, 2 - 4, 40 + 120, 3 - 5, 60 + 150});
}

TEST_CASE("reference: an erased rectangle has its value after normalising, in all channels") {
  State s = blank_state({{2, 3, 2, 2}});
  Batch batch;
  batch.images.assign(24, 255);
  batch.samples.resize(2);
  batch.samples[0].erased = {.top = 1, .left = 1, .height = 2, .width = 1, .value = -7};
  s.batch = &batch;
  Input step{0, Normalisation::mean_deviation, {0.5f, 0.5f}, {0.25f, 0.25f}};

  run(step, s);
  CHECK(s[0] == std::vector<double>(24, 2));
  step.erase = true;
  run(step, s);

  std::vector<double> expected(24, 2);
  for (const int i : {6, 7, 10, 11}) expected[i] = -7;
  CHECK(s[0] == expected);
}

TEST_CASE("reference: standardisation divides by the deviation, at least 1/sqrt(elements)") {
  State s = blank_state({{2, 1, 2, 2}});
  Batch batch;
  batch.images = {0, 2, 4, 6, 9, 9, 9, 9};
  batch.samples.resize(2);
  s.batch = &batch;
  Input step{0, Normalisation::standardise_image, {}, {}, true};

  run(step, s);

  CHECK(s[0][0] == Approx(-3 / std::sqrt(5.0)));
  CHECK(s[0][7] == 0);
}
