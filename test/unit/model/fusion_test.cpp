// BatchNorm in pieces inside convolutions: the same results as apart, whatever a backend refuses.
#include <algorithm>

#include "compute/onednn/isa.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/compute/memory_plan.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"
#include "support/random_batch.hpp"
#include "support/sanitized.hpp"
#include "support/shrink.hpp"
#include "support/some_parameters.hpp"
#include "support/training_outcome.hpp"
#include "unit/model/schedules.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

template <class Kind>
const Kind* step_as(const compute::Step& step) {
  return std::get_if<Kind>(&step);
}

// What a step is, fusions included: "ConvolutionForward prologue residual y sums".
std::string form(const compute::Step& step) {
  std::string text = name_of(step);
  const auto activation = [&](const compute::AppliedNorm& how) {
    if (how.residual != compute::no_tensor) text += " residual";
    if (how.residual_scale != compute::no_vector) text += " scaled";
    if (how.y != compute::no_tensor) text += " y";
  };
  if (const auto* s = step_as<compute::BatchNormApply>(step)) activation(s->how);
  if (const auto* s = step_as<compute::ConvolutionForward>(step)) {
    if (s->prologue) text += " prologue", activation(*s->prologue);
    if (s->sums != compute::no_vector) text += " sums";
  }
  if (const auto* s = step_as<compute::ConvolutionWeightGradient>(step); s && s->prologue)
    text += " prologue", activation(*s->prologue);
  if (const auto* s = step_as<compute::ConvolutionInputGradient>(step); s && s->epilogue) {
    text += " epilogue";
    if (s->epilogue->y != compute::no_tensor) text += " y";
    if (s->epilogue->residual != compute::no_tensor) text += " residual";
    if (s->epilogue->residual_scale != compute::no_vector) text += " scaled";
    if (s->epilogue->skip != compute::no_tensor) text += " skip";
    if (s->epilogue_of_residual) text += " both";
  }
  if (const auto* s = step_as<compute::MaxPoolForward>(step); s && s->prologue)
    text += " prologue", activation(*s->prologue);
  if (const auto* s = step_as<compute::MaxPoolBackward>(step)) {
    if (s->prologue) text += " prologue", activation(*s->prologue);
    if (s->dy2 != compute::no_tensor) text += " two";
    if (s->y != compute::no_tensor) text += " result";
    if (s->epilogue) text += " epilogue";
    if (s->epilogue && s->epilogue->y != compute::no_tensor) text += " y";
    if (s->epilogue && s->epilogue->skip != compute::no_tensor) text += " skip";
  }
  if (const auto* s = step_as<compute::BatchNormBackwardApply>(step);
      s && s->dx2 != compute::no_tensor)
    text += " pair";
  if (const auto* s = step_as<compute::BatchNormForward>(step);
      s && s->residual != compute::no_tensor)
    text += " residual";
  return text;
}

// Steps whose form has all of `words`.
int steps_with(const compute::Schedule& schedule, const std::vector<std::string>& words) {
  return static_cast<int>(std::ranges::count_if(schedule.steps, [&](const compute::Step& step) {
    const std::string text = " " + form(step) + " ";
    return std::ranges::all_of(words, [&](const std::string& word) {
      return text.find(" " + word + " ") != std::string::npos;
    });
  }));
}

// Refuses a step whose form has the word (or, given two, both).
Supports all_but(const std::vector<std::string>& words) {
  return [words](const compute::Schedule& schedule, const compute::Step& step) {
    compute::Schedule one;
    one.tensors = schedule.tensors;
    one.steps = {step};
    return steps_with(one, words) == 0;
  };
}

// Refuses half of the fused steps and some of the pieces, the same ones whenever it is asked.
Supports fused_at_random(std::uint64_t seed) {
  return [seed](const compute::Schedule&, const compute::Step& step) {
    std::string key = form(step) + " " + std::to_string(seed);
    compute::for_each_tensor(
        step, [&](compute::TensorId id, compute::Access) { key += " " + std::to_string(id); });
    const bool fused = form(step) != name_of(step);
    return hash_text(key) % 32 >= (fused ? 16u : 1u);
  };
}

// What cuDNN 9 can fuse for 16-bit numbers on a GPU of compute capability 9.0.
bool like_cudnn(const compute::Schedule& schedule, const compute::Step& step) {
  if (const auto* s = step_as<compute::ConvolutionForward>(step)) {
    if (s->sums != compute::no_vector && schedule.tensors[s->x].channels % 8 != 0) return false;
    if (!s->prologue) return true;
    const bool residual = s->prologue->residual != compute::no_tensor;
    return s->sums != compute::no_vector && s->prologue->then == compute::Activation::relu &&
           (!residual ||
            (s->window == compute::ConvolutionShape() && s->prologue->y != compute::no_tensor));
  }
  if (const auto* s = step_as<compute::ConvolutionInputGradient>(step); s && s->epilogue) {
    const bool scaled = s->epilogue->residual_scale != compute::no_vector;
    return s->epilogue->y == compute::no_tensor && scaled == s->epilogue_of_residual.has_value() &&
           (s->epilogue->skip == compute::no_tensor || s->window.stride_y == 1);
  }
  return true;
}

Supports both_agree(const Supports& a, const Supports& b) {
  return [=](const compute::Schedule& schedule, const compute::Step& step) {
    return a(schedule, step) && b(schedule, step);
  };
}

void check_all(const Graph& graph, const std::vector<Supports>& backends) {
  const compute::Shape image = graph.tensors[graph.nodes[0].output];
  const Batch batch = random_batch(batch_size, image.height, image.width, 3, 5);
  const auto parameters = some_parameters(graph);
  const Outcome apart = train_once(
      make_schedule(graph, batch_size, Mode::training, 0.1f, nothing, false), parameters, batch);
  for (const Supports& supports : backends) {
    const compute::Schedule s = make_schedule(graph, batch_size, Mode::training, 0.1f, supports);
    check_agree(graph, train_once(s, parameters, batch), apart);
    CHECK(steps_with(s, {"MaxPoolBackward", "prologue", "result"}) == 0);
    CHECK(steps_with(s, {"both"}) == steps_with(s, {"both", "scaled"}));
    for (const char* reader : {"ConvolutionWeightGradient", "MaxPoolForward", "MaxPoolBackward"})
      CHECK(steps_with(s, {reader, "residual"}) == 0);
  }
}

// Each fusion refused alone.
std::vector<Supports> each_refused() {
  std::vector<Supports> result;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"ConvolutionForward", "prologue"},
                                             {"ConvolutionForward", "residual"},
                                             {"scaled"},
                                             {"y"},
                                             {"sums"},
                                             {"ConvolutionForward", "prologue", "sums"},
                                             {"ConvolutionWeightGradient", "prologue"},
                                             {"epilogue"},
                                             {"skip"},
                                             {"both"},
                                             {"two"},
                                             {"pair"},
                                             {"MaxPoolForward", "prologue"},
                                             {"MaxPoolBackward", "prologue"},
                                             {"MaxPoolBackward", "epilogue"},
                                             {"epilogue", "residual"},
                                             {"epilogue", "y"},
                                             {"BatchNormForward", "residual"},
                                             {"BatchNormStatistics"},
                                             {"BatchNormFinalize"},
                                             {"BatchNormApply", "residual"},
                                             {"BatchNormBackwardReduce"},
                                             {"BatchNormBackwardApply"},
                                             {"BatchNormForward"},
                                             {"BatchNormBackward"}})
    result.push_back(all_but(words));
  return result;
}

struct UnitBuilder {
  GraphBuilder g;
  int layers = 0;

  compute::TensorId convolution(compute::TensorId x, int channels, int size = 1, int stride = 1,
                                bool bias = false) {
    return g.convolution("conv" + std::to_string(++layers), x,
                         {.channels = channels,
                          .height = size,
                          .width = size,
                          .stride = stride,
                          .bias = bias ? std::optional<Initialiser>(0.0) : std::nullopt});
  }
  compute::TensorId norm(compute::TensorId x, bool gamma = true) {
    ++layers;
    return g.batch_norm("bn" + std::to_string(layers), x,
                        {.gamma = gamma, .unbiased = layers % 2 == 0});
  }
  compute::TensorId unit(compute::TensorId x, int channels, int size = 1, int stride = 1) {
    return g.relu(norm(convolution(x, channels, size, stride)));
  }
  compute::TensorId image() {
    return g.input(12, 10, 3, {compute::Normalisation::standardise_image, {}, {}, false});
  }
  Graph finish(compute::TensorId x) && {
    x = g.matrix_product("fc", g.global_pool(x), 5, {}, 0.0, true);
    g.loss(x);
    return std::move(g).finish();
  }
};

// Bottlenecks behind a max pool: a projection, the same extents, option A.
Graph bottlenecks() {
  UnitBuilder b;
  compute::TensorId x = b.g.max_pool(b.unit(b.image(), 4, 3), {.size = 3, .symmetric_padding = 1});
  compute::TensorId y = b.norm(b.convolution(b.unit(b.unit(x, 3), 3, 3, 2), 8));
  x = b.g.relu(b.g.sum(y, b.norm(b.convolution(x, 8, 1, 2))));
  y = b.norm(b.convolution(b.unit(b.unit(x, 3), 3, 3), 8));
  x = b.g.relu(b.g.sum(y, x));
  y = b.norm(b.convolution(b.unit(b.unit(x, 3), 3, 3, 2), 10));
  x = b.g.relu(b.g.sum(y, b.g.shortcut(x, 2, 10)));
  return std::move(b).finish(x);
}

// Everything a BatchNorm may stand beside: no ReLU, no gamma, another BatchNorm, a bias with ReLU,
// a pool that reads before the convolution does, two convolutions, a concatenation, two BatchNorms
// of one tensor.
Graph odd_neighbours() {
  UnitBuilder b;
  compute::TensorId x = b.norm(b.g.relu(b.convolution(b.image(), 4, 3, 1, true)), false);
  x = b.g.relu(b.norm(b.convolution(x, 5, 3)));
  const compute::TensorId pooled =
      b.g.average_pool(x, {.size = 3, .stride = 1, .padding = Padding::same});
  x = b.g.sum(b.convolution(x, 5, 3), pooled);
  x = b.g.relu(b.norm(x));
  const compute::TensorId both = b.unit(b.convolution(x, 6), 6);
  x = b.g.beside({b.unit(both, 3, 3), b.norm(b.convolution(both, 2)), b.norm(b.norm(x))});
  const compute::TensorId shared = b.convolution(x, 4);
  x = b.g.sum(b.g.relu(b.norm(shared)), b.norm(shared, false));
  x = b.convolution(b.norm(b.norm(x)), 4);
  const compute::TensorId branch = b.norm(b.convolution(x, 4));
  x = b.convolution(b.g.relu(b.g.sum(b.norm(x), branch)), 4);
  x = b.g.sum(b.g.relu(b.norm(x)), b.convolution(branch, 4));
  x = b.convolution(x, 6);
  x = b.g.relu(b.g.sum(b.norm(b.convolution(x, 6)), b.norm(x)));
  x = b.convolution(x, 3);
  x = b.convolution(b.g.sum(b.norm(b.convolution(x, 4)), b.norm(b.convolution(x, 4, 3))), 3);
  return std::move(b).finish(x);
}

// Max pools of a BatchNorm without ReLU, of what a convolution and another pool read as well, of a
// sum of branches, of a ReLU without BatchNorm; results that one, two and three steps read.
Graph pools() {
  UnitBuilder b;
  const auto pool = [&](compute::TensorId x, int stride = 1) {
    return b.g.max_pool(x, {.size = 3, .stride = stride, .padding = Padding::same});
  };
  compute::TensorId x = pool(b.norm(b.convolution(b.image(), 4, 3)));
  x = b.g.relu(b.g.sum(b.norm(b.convolution(x, 4)), b.norm(b.convolution(x, 4, 3))));
  x = pool(x);
  x = b.unit(b.g.sum(b.g.sum(b.convolution(x, 4), b.convolution(x, 4, 3)), pool(x)), 4);
  x = b.unit(b.g.sum(pool(x), b.convolution(x, 4)), 4);
  x = b.g.sum(pool(x), pool(pool(x)));
  x = pool(b.g.relu(b.convolution(x, 5)), 2);
  x = pool(b.unit(b.g.sum(b.convolution(x, 4), b.convolution(x, 4, 3)), 4), 2);
  return std::move(b).finish(x);
}

// Blocks that begin with several convolutions of one pixel, which are merged, and end in a
// concatenation.
Graph merged_branches() {
  UnitBuilder b;
  const auto unit = [&](compute::TensorId x) { return b.g.relu(b.norm(x, b.layers % 2 == 0)); };
  const auto block = [&](compute::TensorId x) {
    const compute::TensorId one = b.convolution(x, 3), two = b.convolution(x, 5),
                            three = b.convolution(x, 2);
    const compute::TensorId a = unit(one), c = b.norm(two), d = unit(three);
    return b.g.beside(
        {a, b.unit(c, 4, 3),
         b.unit(b.g.max_pool(d, {.size = 3, .stride = 1, .padding = Padding::same}), 3, 3)});
  };
  compute::TensorId x = block(b.unit(b.image(), 4, 3));
  const compute::TensorId one = b.convolution(x, 10), two = b.convolution(x, 10);
  x = b.g.relu(b.g.sum(b.norm(one), b.norm(two)));
  return std::move(b).finish(block(x));
}

Graph small(const std::string& model, int size, int divisor) {
  return Shrunk(make_model(model, 5).graph, size, divisor).graph();
}

}  // namespace

TEST_CASE("fusions: small networks train the same, whatever is refused") {
  const int which = GENERATE(0, 1, 2, 3);
  const Graph graph = which == 0   ? bottlenecks()
                      : which == 1 ? odd_neighbours()
                      : which == 2 ? pools()
                                   : merged_branches();
  std::vector<Supports> backends = each_refused();
  backends.push_back(everything);
  backends.push_back(nothing);
  for (std::uint64_t seed = 0; seed < (sanitized ? 15 : 60); ++seed) {
    backends.push_back(fused_at_random(seed));
    backends.push_back(both_agree(fused_at_random(seed), all_but({"residual"})));
  }

  check_all(graph, backends);
}

TEST_CASE("fusions: the networks of the zoo train the same") {
  const auto [model, size, divisor] = GENERATE(table<const char*, int, int>(
      {{"resnet20", 12, 4}, {"resnet18", 48, 16}, {"resnet50", 64, 16}}));
  CAPTURE(model);
  std::vector<Supports> backends{everything, nothing, like_cudnn};
  for (std::uint64_t seed = 0; seed < 4; ++seed) backends.push_back(fused_at_random(seed));

  check_all(small(model, size, divisor), backends);
}

TEST_CASE("fusions: what stays of resnet50's BatchNorms when everything is supported") {
  const compute::Schedule s =
      make_schedule(make_model("resnet50", 1000).graph, 8, Mode::training, 0.1f, everything);

  CHECK(steps_with(s, {"BatchNormForward"}) == 0);
  CHECK(steps_with(s, {"BatchNormBackward"}) == 0);
  CHECK(steps_with(s, {"BatchNormFinalize"}) == 53);
  // Every BatchNorm follows a convolution.
  CHECK(steps_with(s, {"BatchNormStatistics"}) == 0);
  CHECK(steps_with(s, {"ConvolutionForward", "sums"}) == 53);
  // An average pool reads the last block's activation. The four projections are scaled where they
  // are added, the stem's is in the max pool; each of the other 47 is in the convolution that reads
  // it.
  CHECK(steps_with(s, {"BatchNormApply"}) == 1);
  CHECK(steps_with(s, {"MaxPoolForward", "prologue"}) == 1);
  CHECK(steps_with(s, {"ConvolutionForward", "prologue", "scaled"}) == 4);
  CHECK(steps_with(s, {"ConvolutionForward", "prologue"}) == 47);
  // Only what the next shortcut and weight gradient read is stored: the sum after each block.
  CHECK(steps_with(s, {"ConvolutionForward", "prologue", "residual", "y"}) == 15);
  CHECK(steps_with(s, {"ConvolutionForward", "prologue", "y"}) == 15);
  CHECK(steps_with(s, {"ConvolutionWeightGradient", "prologue"}) == 32);
  // Pools, not convolutions, give the gradients of the stem's and the last block's output; the max
  // pool sums up two that convolutions give, then the stem's. A projection is summed up with the
  // branch that it is added to.
  CHECK(steps_with(s, {"BatchNormBackwardReduce"}) == 1);
  CHECK(steps_with(s, {"MaxPoolBackward", "prologue", "two", "epilogue"}) == 1);
  CHECK(steps_with(s, {"Add"}) == 0);
  CHECK(steps_with(s, {"ConvolutionInputGradient", "epilogue"}) == 47);
  CHECK(steps_with(s, {"ConvolutionInputGradient", "epilogue", "skip", "residual"}) == 15);
  CHECK(steps_with(s, {"ConvolutionInputGradient", "epilogue", "skip", "scaled", "both"}) == 4);
  CHECK(steps_with(s, {"ConvolutionInputGradient", "y"}) == 0);
  // The other summand is the gradient of the shortcut, also where that is a convolution's.
  CHECK(std::ranges::all_of(s.steps, [](const compute::Step& step) {
    const auto* c = step_as<compute::ConvolutionInputGradient>(step);
    return !c || !c->epilogue || c->epilogue->skip == compute::no_tensor ||
           c->window == compute::ConvolutionShape();
  }));
  // No library takes these into a convolution. A projection's is one with that of the branch that
  // it is added to.
  CHECK(steps_with(s, {"BatchNormBackwardApply"}) == 49);
  CHECK(steps_with(s, {"BatchNormBackwardApply", "pair"}) == 4);
  CHECK(steps_with(s, {"Pointwise"}) + steps_with(s, {"PointwiseBackward"}) == 0);
}

TEST_CASE("fusions: with the limits of cuDNN, resnet50 loses only the stem's sums") {
  const compute::Schedule s =
      make_schedule(make_model("resnet50", 1000).graph, 8, Mode::training, 0.1f, like_cudnn);

  CHECK(steps_with(s, {"BatchNormStatistics"}) == 1);
  CHECK(steps_with(s, {"BatchNormApply"}) == 1);
  CHECK(steps_with(s, {"ConvolutionForward", "prologue", "residual", "y"}) == 15);
  CHECK(steps_with(s, {"BatchNormBackwardReduce"}) == 1);
  CHECK(steps_with(s, {"BatchNormBackwardApply", "pair"}) == 4);
}

TEST_CASE("fusions: with the limits of cuDNN, resnet18 keeps the sums of its blocks apart") {
  const compute::Schedule s =
      make_schedule(make_model("resnet18", 1000).graph, 8, Mode::training, 0.1f, like_cudnn);

  // The stem's.
  CHECK(steps_with(s, {"BatchNormStatistics"}) == 1);
  // The sum after each block: no 3x3 convolution takes a residual.
  CHECK(steps_with(s, {"BatchNormApply"}) == 8);
  CHECK(steps_with(s, {"BatchNormApply", "scaled"}) == 3);
  CHECK(steps_with(s, {"ConvolutionForward", "prologue"}) == 8);
  CHECK(steps_with(s, {"ConvolutionWeightGradient", "prologue"}) == 8);
  // That of the last pool, and the three blocks before a stride: with a stride, no skip is added.
  CHECK(steps_with(s, {"BatchNormBackwardReduce"}) == 4);
}

// Of a bottleneck's outputs of convolutions (1 + 1 + 4 parts) and of ReLUs (1 + 1 + 4), two parts
// go.
TEST_CASE("fusions: the activations that only convolutions read take no memory") {
  const Graph graph = make_model("resnet50", 1000).graph;
  const auto bytes = [&](const Supports& supports) {
    const compute::Schedule s = make_schedule(graph, 8, Mode::training, 0.1f, supports);
    std::vector<std::size_t> sizes;
    for (const compute::Shape& shape : s.tensors) sizes.push_back(2 * shape.elements());
    return double(compute::plan_memory(s, sizes).bytes);
  };

  CHECK(bytes(everything) < 0.85 * bytes(all_but({"BatchNormFinalize"})));
}

TEST_CASE("fusions: a convolution moves before what reads the activation it writes") {
  UnitBuilder b;
  const compute::TensorId x = b.unit(b.image(), 4);
  const compute::TensorId pooled =
      b.g.average_pool(x, {.size = 3, .stride = 1, .padding = Padding::same});
  const compute::TensorId both = b.g.sum(pooled, b.convolution(x, 4));
  const Graph graph = std::move(b).finish(both);

  const compute::Schedule s = make_schedule(graph, 2, Mode::training, 0, everything);

  std::vector<std::string> forms;
  for (std::size_t i = 0; i < s.backward; ++i) forms.push_back(form(s.steps[i]));
  CHECK(forms == std::vector<std::string>{"Input", "ConvolutionForward sums", "BatchNormFinalize",
                                          "ConvolutionForward prologue y", "AveragePoolForward",
                                          "Add", "AveragePoolForward", "MatrixProductForward",
                                          "SoftmaxCrossEntropy"});
}

TEST_CASE("fusions: a BatchNorm without ReLU is in the convolutions on both sides") {
  UnitBuilder b;
  const compute::TensorId x = b.norm(b.convolution(b.convolution(b.image(), 4), 4));
  const compute::TensorId last = b.convolution(x, 4);
  const Graph graph = std::move(b).finish(last);

  const compute::Schedule s = make_schedule(graph, 2, Mode::training, 0, everything);

  CHECK(steps_with(s, {"ConvolutionForward", "prologue"}) == 1);
  CHECK(steps_with(s, {"ConvolutionInputGradient", "epilogue"}) == 1);
  CHECK(steps_with(s, {"BatchNormApply"}) == 0);
  CHECK(steps_with(s, {"BatchNormBackwardReduce"}) == 0);
}

TEST_CASE("fusions: a BatchNorm in pieces need not be supported as a whole") {
  const Supports pieces = [](const compute::Schedule&, const compute::Step& step) {
    return !step_as<compute::BatchNormForward>(step) && !step_as<compute::BatchNormBackward>(step);
  };
  const compute::Schedule s =
      make_schedule(make_model("resnet20", 10).graph, 2, Mode::training, 0, pieces);

  CHECK(steps_with(s, {"BatchNormForward"}) == 0);
  CHECK(steps_with(s, {"BatchNormBackward"}) == 0);
  CHECK(steps_with(s, {"Pointwise"}) == 0);
  CHECK(steps_with(s, {"Add"}) == 0);
}

TEST_CASE("fusions: one refused piece keeps a BatchNorm whole") {
  for (const char* piece : {"BatchNormStatistics", "BatchNormFinalize", "BatchNormApply",
                            "BatchNormBackwardReduce", "BatchNormBackwardApply"}) {
    CAPTURE(piece);
    const compute::Schedule s =
        make_schedule(make_model("resnet20", 10).graph, 2, Mode::training, 0, all_but({piece}));

    CHECK(steps_with(s, {"BatchNormForward"}) == 19);
    CHECK(steps_with(s, {"BatchNormBackward"}) == 19);
    CHECK(s.vectors.empty());
  }
}

TEST_CASE("fusions: an evaluation knows no pieces") {
  const Graph graph = make_model("resnet50", 1000).graph;

  CHECK(make_schedule(graph, 2, Mode::evaluation, 0, everything).vectors.empty());
}

// All others would be slower in pieces than they are as a whole.
TEST_CASE(
    "fusions: for oneDNN, BatchNorms are in pieces where Winograd convolutions take them in") {
  const auto onednn = compute::make_onednn_backend();
  const auto schedule_of = [&](const std::string& name) {
    return make_schedule(make_model(name, 10).graph, 8, Mode::training, 0,
                         [&](const compute::Schedule& s, const compute::Step& step) {
                           return onednn->supports(s, step);
                         });
  };
  if (compute::onednn::effective_isa() == compute::onednn::Isa::baseline) {
    CHECK(schedule_of("resnet20").vectors.empty());
    return;
  }
  const auto [name, whole, pieces] = GENERATE(table<std::string, int, int>(
      {{"resnet20", 4, 15}, {"resnet50", 40, 13}, {"inception_v3", 51, 45}}));
  CAPTURE(name);
  const compute::Schedule s = schedule_of(name);

  CHECK(steps_with(s, {"BatchNormForward"}) == whole);
  CHECK(steps_with(s, {"BatchNormBackward"}) == whole);
  CHECK(steps_with(s, {"BatchNormBackwardApply"}) == pieces);
  CHECK(steps_with(s, {"BatchNormBackwardReduce"}) == 0);
}
