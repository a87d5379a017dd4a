// Convolutions of one pixel made one: which are, and that training comes to the same.
#include <algorithm>

#include "ringtrain/model/passes.hpp"
#include "support/catch.hpp"
#include "support/random_batch.hpp"
#include "support/some_parameters.hpp"
#include "support/training_outcome.hpp"
#include "unit/model/schedules.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

// Refuses one kind of step where it touches slices.
template <class Kind>
bool no_slice_of(const compute::Schedule& schedule, const compute::Step& step) {
  return !std::holds_alternative<Kind>(step) || !compute::touches_slice(schedule, step);
}

struct BranchBuilder {
  GraphBuilder g;
  int layers = 0;

  compute::TensorId convolution(compute::TensorId x, int channels, int stride = 1,
                                bool bias = false, int size = 1) {
    return g.convolution("conv" + std::to_string(++layers), x,
                         {.channels = channels,
                          .height = size,
                          .width = size,
                          .stride = stride,
                          .bias = bias ? std::optional<Initialiser>(0.0) : std::nullopt});
  }
  compute::TensorId norm(compute::TensorId x) {
    return g.batch_norm("bn" + std::to_string(++layers), x, {});
  }
  compute::TensorId image() {
    return g.input(6, 5, 3, {compute::Normalisation::standardise_image, {}, {}, false});
  }
  Graph finish(const std::vector<compute::TensorId>& branches) && {
    std::vector<compute::TensorId> pooled;
    for (const compute::TensorId x : branches) pooled.push_back(g.global_pool(x));
    g.loss(g.matrix_product("fc", g.beside(pooled), 5, {}, 0.0, true));
    return std::move(g).finish();
  }
};

template <class Kind>
int steps_of(const compute::Schedule& schedule) {
  return static_cast<int>(std::ranges::count_if(schedule.steps, [](const compute::Step& step) {
    return std::holds_alternative<Kind>(step);
  }));
}

// Three convolutions of one tensor, one behind the other, and what reads them.
Graph three(int between) {
  BranchBuilder b;
  const compute::TensorId x = b.norm(b.convolution(b.image(), 4, 1, false, 3));
  std::vector<compute::TensorId> results;
  for (int i = 0; i < 3; ++i) {
    results.push_back(b.convolution(x, 2 + i));
    if (between == i) b.norm(x);  // its parameters lie between
  }
  for (compute::TensorId& y : results) y = b.g.relu(b.norm(y));
  return std::move(b).finish(results);
}

}  // namespace

TEST_CASE("merge convolutions: three of one tensor become one, forward and backward") {
  const compute::Schedule s = schedule_of(three(3), everything);

  CHECK(steps_of<compute::ConvolutionForward>(s) == 2);
  CHECK(steps_of<compute::ConvolutionWeightGradient>(s) == 2);
  CHECK(steps_of<compute::ConvolutionInputGradient>(s) == 1);
  CHECK(steps_of<compute::Add>(s) == 0);
  CHECK(steps_of<compute::BatchNormStatistics>(s) == 0);
  const auto merged = std::ranges::find_if(s.steps, [&](const compute::Step& step) {
    const auto* c = std::get_if<compute::ConvolutionForward>(&step);
    return c && s.tensors[c->y].channels == 2 + 3 + 4;
  });
  REQUIRE(merged != s.steps.end());
  const auto& c = std::get<compute::ConvolutionForward>(*merged);
  CHECK(c.w.count == 4 * (2 + 3 + 4));
  CHECK(s.vectors[c.sums] == 2 * (2 + 3 + 4));
}

TEST_CASE("merge convolutions: only weights that lie one behind the other") {
  CHECK(steps_of<compute::ConvolutionForward>(schedule_of(three(0), everything)) == 3);
  CHECK(steps_of<compute::ConvolutionForward>(schedule_of(three(1), everything)) == 3);
  CHECK(steps_of<compute::ConvolutionForward>(schedule_of(three(2), everything)) == 2);
}

TEST_CASE("merge convolutions: none with a stride, a bias, a larger window or other readers") {
  const int which = GENERATE(0, 1, 2, 3, 4);
  CAPTURE(which);
  BranchBuilder b;
  const compute::TensorId x = b.norm(b.convolution(b.image(), 4, 1, false, 3));
  const compute::TensorId one = b.convolution(x, 2);
  const compute::TensorId other =
      b.convolution(x, 2, which == 0 ? 2 : 1, which == 1, which == 2 ? 3 : 1);
  const compute::TensorId read = which == 3 ? other : b.norm(other);
  std::vector<compute::TensorId> results{b.norm(one), read};
  if (which == 4) results.push_back(b.g.relu(other));

  const compute::Schedule s = schedule_of(std::move(b).finish(results), everything);
  CHECK(steps_of<compute::ConvolutionForward>(s) == 3);
}

TEST_CASE("merge convolutions: a backend whose BatchNorm takes no slice keeps them apart") {
  const Supports refusing = GENERATE(Supports(no_slice_of<compute::BatchNormForward>),
                                     Supports(no_slice_of<compute::BatchNormBackward>));
  const auto in_one_piece = [&](const compute::Schedule& schedule, const compute::Step& step) {
    return !std::holds_alternative<compute::BatchNormStatistics>(step) && refusing(schedule, step);
  };

  CHECK(steps_of<compute::ConvolutionForward>(schedule_of(three(3), in_one_piece)) == 4);
}

TEST_CASE("merge convolutions: training comes to the same") {
  const Graph graph = three(3);
  const Batch batch = random_batch(batch_size, 6, 5, 3, 5);
  const auto parameters = some_parameters(graph);
  const Outcome apart = train_once(schedule_of(graph, nothing, false), parameters, batch);

  for (const Supports& supports : {everything, Supports(no_slice_of<compute::BatchNormApply>),
                                   Supports(no_slice_of<compute::BatchNormBackwardReduce>),
                                   Supports(no_slice_of<compute::Concat>)})
    check_agree(graph, train_once(schedule_of(graph, supports), parameters, batch), apart);
}

TEST_CASE("merge convolutions: an evaluation merges as well") {
  const compute::Schedule s = make_schedule(three(3), batch_size, Mode::evaluation, 0, everything);

  CHECK(steps_of<compute::ConvolutionForward>(s) == 2);
}
