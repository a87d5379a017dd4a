#include "compute/cuda/kernels/device/softmax_work.hpp"
#include "support/kernel_case.hpp"
#include "support/step_cases.hpp"
#include "unit/compute/cuda/kernel_inputs.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;
using namespace ringtrain::compute::cuda::kernels;

namespace {

/// A head on random logits, some of them equal, run by the kernels and by the reference.
struct Head {
  KernelCase c;
  SoftmaxCrossEntropy step;
  Batch batch;
  // On the heap, where a GPU sees them; the totals are what an earlier head left.
  std::vector<LossTotals> totals{{2, 3, 4, 5}};
  std::vector<float> sample_weight{0.5f}, loss_scale{8};
  SoftmaxOperands operands{};

  Head(Element element, int classes, const SoftmaxCrossEntropy& head,
       const std::vector<Target>& targets)
      : c(element, {{int(targets.size()), 1, 1, classes}, {int(targets.size()), 1, 1, classes}}, 1,
          [](double v) { return std::round(4 * v) / 2; }),
        step(head) {
    set_targets(batch, targets);
    c.state.batch = &batch;
    c.state.sample_weight = sample_weight[0];
    operands = {element,
                targets.size(),
                classes,
                classes,
                c[0],
                c[step.dlogits],
                batch.samples.data(),
                step.smoothing,
                step.weight,
                step.counts,
                sample_weight.data(),
                nullptr,
                nullptr,
                totals.data(),
                step.class_weights.empty() ? nullptr : step.class_weights.data()};
  }

  void run_kernel(const std::vector<TensorId>& written) {
    std::vector<SampleLoss> workspace(batch.samples.size());
    operands.workspace = workspace.data();
    c.run_kernel(written, [&](auto& queue) { work::softmax_cross_entropy(operands, queue); },
                 {bytes_of_values(totals), bytes_of_values(workspace)});
  }
  void check_totals() const {
    const StepResult& expected = c.state.result;
    CHECK(totals[0].loss - 2 == Approx(expected.loss).epsilon(1e-5));
    CHECK(totals[0].samples - 3 == expected.samples);
    CHECK(totals[0].top1 - 4 == expected.top1);
    CHECK(totals[0].top5 - 5 == expected.top5);
  }
};

}  // namespace

TEST_CASE(
    "cuda kernels: softmax cross-entropy agrees, mixed and padded samples and ties included") {
  const Element element = any_element();
  const int classes = GENERATE(1, 5, 10, 17, 128, 129, 1001);
  const bool weighted = GENERATE(false, true);
  CAPTURE(element, classes, weighted);
  SoftmaxCrossEntropy step{0, 1, 0.1f, 0.4f};
  if (weighted) step.class_weights = some_class_weights(classes);
  Head head(element, classes, step, all_kinds_of_targets(classes));

  head.run_kernel({1});
  reference::run_step(head.step, head.c.state);

  head.check_totals();
  CHECK(relative_norm(head.c.read(1), head.c.state[1]) < tolerance(element));
}

TEST_CASE("cuda kernels: binary cross-entropy agrees") {
  const Element element = any_element();
  const int classes = GENERATE(1, 10, 129, 1001);
  SoftmaxCrossEntropy step{0, 1, 0.1f, 0.4f};
  if (GENERATE(false, true)) step.class_weights = some_class_weights(classes);
  step.binary = {GENERATE(false, true), GENERATE(0.f, 0.2f)};
  CAPTURE(element, classes, step.binary->sums, step.binary->threshold);
  Head head(element, classes, step, all_kinds_of_targets(classes));
  head.operands.binary = true;
  head.operands.how = *step.binary;

  head.run_kernel({1});
  reference::run_step(head.step, head.c.state);

  head.check_totals();
  CHECK(relative_norm(head.c.read(1), head.c.state[1]) < tolerance(element));
}

TEST_CASE("cuda kernels: softmax holds for logits far from zero and from each other") {
  const double shift = GENERATE(-1000., 0., 1000.);
  const int classes = GENERATE(5, 300), highest = GENERATE(0, 4, 100, 299) % classes;
  CAPTURE(shift, classes, highest);
  Head head(Element::fp32, classes, {0, 1, 0.1f}, {{0}, {-1}, {classes - 1, 0, 0.6f}});
  for (double& v : head.c.state[0]) v = 10 * v + shift;
  head.c.state[0][highest] += 500;
  head.c.write(0);

  head.run_kernel({1});
  reference::run_step(head.step, head.c.state);

  head.check_totals();
  CHECK(relative_norm(head.c.read(1), head.c.state[1]) < 1e-5);
}

TEST_CASE("cuda kernels: losses of more samples than a block has threads add up") {
  std::vector<Target> targets;
  for (int n = 0; n < 600; ++n) targets.push_back({n % 8 - 1});
  Head head(Element::fp32, 7, {0}, targets);

  head.run_kernel({});
  reference::run_step(head.step, head.c.state);

  head.check_totals();
}

TEST_CASE("cuda kernels: dlogits may lie over logits and are multiplied by the loss scale") {
  Head head(Element::fp32, 130, {0, 0, 0.1f}, {{0}, {64}, {129, 2, 0.2f}});
  head.operands.loss_scale = head.loss_scale.data();

  head.run_kernel({0});
  reference::run_step(head.step, head.c.state);

  for (double& v : head.c.state[0]) v *= 8;
  CHECK(relative_norm(head.c.read(0), head.c.state[0]) < 1e-5);
}

TEST_CASE("cuda kernels: a head without counts adds to the loss only") {
  Head head(Element::fp32, 6, {0, no_tensor, 0, 0.4f, false}, {{1}, {-1}, {5}});

  head.run_kernel({});
  reference::run_step(head.step, head.c.state);

  head.check_totals();
}

TEST_CASE("cuda kernels: what pads a row of dlogits becomes zero") {
  Head head(Element::fp16, 16, {0, 1}, {{1}, {-1}, {9}});
  head.operands.classes = 10;
  head.operands.pitch = 16;
  head.run_kernel({1});

  const auto dlogits = head.c.read(1);

  for (int n = 0; n < 3; ++n)
    for (int c = 10; c < 16; ++c) CHECK(dlogits[n * 16 + c] == 0);
  CHECK(dlogits[1] < 0);
}

TEST_CASE("cuda kernels: logits that are no numbers are never right, and show in the loss") {
  Head head(Element::fp32, 6, {0}, {{0}});
  std::ranges::fill(head.c.state[0], NAN);
  head.c.write(0);

  head.run_kernel({});

  CHECK(head.totals[0].top5 == 5);
  CHECK(std::isnan(head.totals[0].loss));
}
