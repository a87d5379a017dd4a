// Networks that nobody in the zoo is like: what a file may say, backends can train.
#include <cmath>

#include "ringtrain/compute/backend.hpp"
#include "ringtrain/model/passes.hpp"
#include "support/catch.hpp"
#include "support/model_files.hpp"
#include "support/random_batch.hpp"
#include "support/some_parameters.hpp"
#include "unit/model/schedules.hpp"

using namespace ringtrain;
using namespace ringtrain::model;

namespace {

constexpr int class_count = 5;

struct BackendOutcome {
  compute::StepResult result;
  std::vector<float> gradients;
};

BackendOutcome train_on_backend(const std::string& backend_name, const Graph& graph, bool fuse) {
  const auto backend = compute::make_backend(backend_name);
  const Supports supports = [&](const compute::Schedule& tensors, const compute::Step& step) {
    return backend->supports(tensors, step);
  };
  const compute::Schedule schedule =
      make_schedule(graph, batch_size, Mode::training, 0.1f, supports, fuse);
  Buffer parameters = backend->memory().allocate(graph.parameter_count()),
         gradients = backend->memory().allocate(graph.parameter_count()),
         statistics = backend->memory().allocate(graph.statistic_count()),
         batch_statistics = backend->memory().allocate(graph.statistic_count());
  std::ranges::transform(some_parameters(graph), parameters.view().host().begin(),
                         [](double v) { return static_cast<float>(v); });
  compute::Shape image = graph.tensors[0];
  image.batch = batch_size;
  const Batch batch = random_batch(image, class_count);
  BackendOutcome outcome;
  outcome.result =
      backend->compile(schedule, {parameters, gradients, statistics, batch_statistics}, 7)
          ->run(batch, 1.0 / batch_size, nullptr);
  outcome.gradients.assign(gradients.view().host().begin(), gradients.view().host().end());
  return outcome;
}

void check_near(const std::vector<float>& actual, const std::vector<float>& expected) {
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(double(expected[i])));
    difference = std::max(difference, std::abs(double(actual[i]) - double(expected[i])));
  }
  CHECK(largest > 0);
  CHECK(difference < 1e-4 * largest);
}

}  // namespace

TEST_CASE("model file: images of one and four channels train alike on oneDNN and the reference") {
  const Model model = read_model(
      fmt::format("model m classes=5\ninput size=9x7 channels={}\n"
                  "a = convolution channels=4 kernel=3\nbn = batch_norm\nrelu\n"
                  "b = convolution channels=9 kernel=3 stride=2\nc = convolution input channels=9 "
                  "kernel=1 stride=2\nsum b c\nfc = matrix_product outputs=$classes\nloss\n",
                  GENERATE(1, 4)));

  const BackendOutcome expected = train_on_backend("reference", model.graph, false);
  const BackendOutcome outcome = train_on_backend("onednn", model.graph, GENERATE(false, true));

  CHECK(outcome.result.loss == Approx(expected.result.loss).epsilon(1e-5));
  check_near(outcome.gradients, expected.gradients);
}

TEST_CASE("model file: odd networks train alike on oneDNN and the reference, fused or not") {
  const std::string layers = GENERATE(
      as<std::string>{},
      // one tensor twice, ReLU twice
      "a = convolution channels=4 kernel=3\nsum a a\nb = relu\nc = relu\nconcat b c b a",
      // the image itself, everywhere
      "a = convolution channels=3 kernel=3\nsum a input\nb = relu\nc = relu input\nd = lrn input "
      "radius=2\ne = dropout input\nf = batch_norm input\nconcat b c d e f input",
      // both heads on one result, and a residual around them
      "a = matrix_product outputs=5\nloss auxiliary=yes weight=0.5\nb = matrix_product a "
      "outputs=5\nsum b a",
      // strides wider than windows, padding on all sides, pools in pools
      "a = convolution channels=4 kernel=2 stride=3 padding=1\nmax_pool size=2 stride=3\n"
      "average_pool size=2 stride=1 padding=1\nmax_pool size=3 stride=1 padding=1",
      // convolutions after the pixels are gone
      "a = matrix_product outputs=6\nb = convolution channels=7 kernel=1\nrelu\nc = batch_norm "
      "gamma=none\nd = convolution channels=3 kernel=3 bias=1",
      // shortcuts that do nothing, or only add channels
      "a = convolution channels=4 kernel=1x3\nshortcut\nb = shortcut channels=9\ns = shortcut "
      "stride=2\n"
      "c = average_pool b size=1 stride=2\nt = sum s c\nsum t t",
      // activations behind all that takes them in, alone, and behind a residual
      "a = convolution channels=5 kernel=3 bias=0.1\nsilu\nb = batch_norm\nhard_swish\n"
      "c = convolution channels=5 kernel=1\nrelu6\nd = batch_norm\ns = sigmoid\nsum s a\ngelu\n"
      "hard_sigmoid\ne = batch_norm\nsum e a\nf = gelu_tanh\ng = relu6 e\nsum f g\nsigmoid\n"
      "h = matrix_product outputs=6\nsilu",
      // groups of the image, squeeze-excite of one pixel and of many, what has no gradient
      "a = convolution channels=6 kernel=3 groups=3 bias=0.1\nkept = silu\nglobal_pool\n"
      "q = convolution channels=2 kernel=1 bias=uniform_fan_in\nrelu\n"
      "r = convolution channels=6 kernel=1 bias=0\nt = hard_sigmoid\ns = scale kept t\n"
      "scale t t\nu = global_pool\nscale s u\nv = convolution channels=3 kernel=1\n"
      "w = global_pool input\nx = scale v w\ny = scale input w\nconcat x y",
      // one pixel's channels, a branch that is left out, filters and borders
      "a = convolution channels=6 kernel=3\nkept = layer_norm epsilon=0.1\n"
      "b = convolution channels=6 kernel=5 stride=2 groups=6\nc = convolution channels=12 kernel=3 "
      "groups=2\nd = convolution channels=6 kernel=1\nl = layer_scale init=0.5\n"
      "m = linear channels=6\ne = stochastic_depth keep=0.7\nf = blur_pool kept\nsum e "
      "f\nreflect_pad border=2\n"
      "average_pool size=3 stride=2 padding=1 count-padding=yes\nmultiply factor=0.5",
      // dropout of dropout, LRN wider than its channels
      "a = convolution channels=2 kernel=3\nlrn radius=5 beta=0.5\ndropout keep=0.9\ndropout "
      "keep=0.8\nbn = batch_norm\nrelu");
  CAPTURE(layers);
  const Model model = read_model("model m classes=5\ninput size=9x7\n" + layers +
                                 "\nfc = matrix_product "
                                 "outputs=$classes\nloss\n");

  const BackendOutcome expected = train_on_backend("reference", model.graph, false);
  const bool fuse = GENERATE(false, true);
  const BackendOutcome outcome = train_on_backend("onednn", model.graph, fuse);

  CHECK(outcome.result.loss == Approx(expected.result.loss).epsilon(1e-5));
  CHECK(outcome.result.samples == expected.result.samples);
  check_near(outcome.gradients, expected.gradients);
  check_near(train_on_backend("reference", model.graph, true).gradients, expected.gradients);
}
