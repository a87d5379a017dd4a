// What a whole planned network promises, beyond the results of single steps.
#include <malloc.h>
#include <omp.h>

#include <cstring>

#include "compute/onednn/isa.hpp"
#include "support/allocations.hpp"
#include "support/backend_comparison.hpp"
#include "support/networks.hpp"
#include "support/random_batch.hpp"
#include "support/sanitized.hpp"

using namespace ringtrain;
using namespace ringtrain::compute;

namespace {

// A network, its buffers with random parameters, and one batch.
struct Job {
  explicit Job(const Schedule& schedule, const std::string& name = "onednn")
      : backend(name == "onednn" ? make_onednn_backend(nullptr, tested_element())
                                 : make_backend(name)),
        parameters(backend->memory().allocate(schedule.parameters)),
        gradients(backend->memory().allocate(schedule.parameters)),
        statistics(backend->memory().allocate(schedule.statistics)),
        batch_statistics(backend->memory().allocate(schedule.statistics)),
        batch(random_batch(schedule.tensors[0])) {
    Philox random(2, Purpose::initialise);
    for (float& v : parameters.view().host()) v = static_cast<float>(0.1 * random.normal());
    program = backend->compile(schedule, {parameters, gradients, statistics, batch_statistics}, 1);
  }
  StepResult run(const Program::Final& final = nullptr) { return program->run(batch, 1, final); }
  onednn::OnednnProgram& onednn() { return dynamic_cast<onednn::OnednnProgram&>(*program); }

  std::unique_ptr<Backend> backend;
  Buffer parameters, gradients, statistics, batch_statistics;
  Batch batch;
  std::unique_ptr<Program> program;
};

std::vector<float> copy(View view) { return {view.host().begin(), view.host().end()}; }

// The convolutions of ResNet-50, Inception v3 and others that differ in kind, one after the other.
Schedule convolutions_of_many_networks() {
  struct Layer {
    Shape x;
    int out;
    Window window;
  };
  const Layer layers[] = {{{2, 224, 224, 3}, 64, {7, 7, 2, 2, 3, 3, 3, 3}},
                          {{2, 56, 56, 64}, 256, {}},
                          {{2, 56, 56, 256}, 512, {1, 1, 2, 2}},
                          {{2, 56, 56, 128}, 128, {3, 3, 2, 2, 1, 1, 1, 1}},
                          {{2, 7, 7, 2048}, 512, {}},
                          {{2, 73, 73, 64}, 80, {}},
                          {{2, 73, 73, 80}, 192, {3, 3}},
                          {{2, 35, 35, 48}, 64, {5, 5, 1, 1, 2, 2, 2, 2}},
                          {{2, 35, 35, 288}, 384, {3, 3, 2, 2}},
                          {{2, 17, 17, 160}, 192, {1, 7, 1, 1, 0, 3, 0, 3}},
                          {{2, 17, 17, 160}, 160, {7, 1, 1, 1, 3, 0, 3, 0}},
                          {{2, 5, 5, 128}, 768, {5, 5}},
                          {{2, 8, 8, 448}, 384, {1, 3, 1, 1, 0, 1, 0, 1}},
                          // what a small network of a user's own may have
                          {{2, 14, 14, 8}, 8, {3, 3, 1, 1, 1, 1, 1, 1}},
                          {{2, 14, 14, 1}, 5, {3, 3, 2, 2, 0, 0, 1, 1}},
                          {{2, 14, 14, 20}, 10, {5, 5, 1, 1, 2, 2, 2, 2}}};
  Schedule s;
  s.batch = 2;
  for (const Layer& layer : layers) {
    const Window& w = layer.window;
    const Shape y{2, (layer.x.height + w.top + w.bottom - w.height) / w.stride_y + 1,
                  (layer.x.width + w.left + w.right - w.width) / w.stride_x + 1, layer.out};
    const auto x = static_cast<TensorId>(s.tensors.size());
    const ParameterRange weights{s.parameters,
                                 std::size_t(layer.out) * w.height * w.width * layer.x.channels};
    s.parameters += weights.count;
    s.tensors.insert(s.tensors.end(), {layer.x, y, layer.x, y});
    if (layer.x.height == 224)
      s.steps.push_back(Input{x, Normalisation::standardise_image, {}, {}});
    s.steps.push_back(ConvolutionForward{w, x, x + 1, weights});
    if (layer.x.channels != 3)
      s.steps.push_back(ConvolutionInputGradient{w, x + 3, x + 2, weights});
    s.steps.push_back(ConvolutionWeightGradient{w, x, x + 3, weights});
  }
  s.backward = 1;
  return s;
}

}  // namespace

TEST_CASE("onednn: no step of a real network falls back to a reference kernel", "[onednn]") {
  if (onednn::effective_isa() == onednn::Isa::baseline)
    skip_test("oneDNN has no fast weight gradients for processors without AVX2");
  const Schedule schedule =
      GENERATE(networks::cifar10_cnn(4), networks::resnet20(4), convolutions_of_many_networks());
  Job job(schedule);

  REQUIRE(!job.onednn().implementations().empty());
  for (const std::string& kernel : job.onednn().implementations()) {
    CAPTURE(kernel);
    CHECK(kernel.find("ref") == std::string::npos);
    CHECK((kernel.starts_with("jit") || kernel.starts_with("brg") || kernel == "winograd" ||
           kernel == "amx"));
  }
}

TEST_CASE("onednn: a training step of cifar10_cnn and resnet20 agrees with the reference",
          "[onednn]") {
  const bool residual = GENERATE(false, true);
  const Schedule schedule = residual ? networks::resnet20(2) : networks::cifar10_cnn(2);
  Job job(schedule), oracle(schedule, "reference");

  const StepResult result = job.run(), expected = oracle.run();

  const Element element = tested_element();
  const double tolerance = tolerance_of(element, 1e-5);
  CHECK(result.loss == Approx(expected.loss).epsilon(tolerance));
  CHECK(result.samples == 2);
  CHECK(relative_error(copy(job.gradients), copy(oracle.gradients)) <
        (residual || element == Element::bf16 ? 10 * tolerance : tolerance));
  CHECK(relative_error(copy(job.batch_statistics), copy(oracle.batch_statistics)) < tolerance);
}

TEST_CASE("onednn: the number of threads changes no bit but of convolution weight gradients",
          "[onednn][many steps]") {
  const bool residual = thread_sanitized ? false : GENERATE(false, true);
  const Schedule schedule = residual ? networks::resnet20(6) : networks::cifar10_cnn(6);
  const std::vector<int> counts = thread_sanitized ? std::vector{1, 3} : std::vector{1, 2, 3, 5};
  const int before = omp_get_max_threads();
  std::vector<std::vector<float>> gradients;
  std::vector<double> losses;
  for (const int threads : counts) {
    omp_set_num_threads(threads);
    Job job(schedule);
    losses.push_back(job.run().loss);
    gradients.push_back(copy(job.gradients));
    for (const Step& step : schedule.steps)
      if (const auto* convolution = std::get_if<ConvolutionWeightGradient>(&step)) {
        std::fill_n(&gradients.back()[convolution->w.first], convolution->w.count, 0.f);
        if (convolution->b)
          std::fill_n(&gradients.back()[convolution->b->first], convolution->b->count, 0.f);
      }
  }
  omp_set_num_threads(before);

  for (std::size_t i = 1; i < losses.size(); ++i) {
    CHECK(losses[i] == losses[0]);
    CHECK(std::memcmp(gradients[i].data(), gradients[0].data(),
                      gradients[0].size() * sizeof(float)) == 0);
  }
}

TEST_CASE("onednn: the same batch gives the same bits again", "[onednn][many steps]") {
  Job job(networks::resnet20(3));

  const double loss = job.run().loss;
  const std::vector<float> gradients = copy(job.gradients);

  CHECK(job.run().loss == loss);
  CHECK(copy(job.gradients) == gradients);
}

TEST_CASE("onednn: what is called final is not written again, and all becomes final", "[onednn]") {
  const Schedule schedule = networks::cifar10_cnn(2);
  Job job(schedule);
  std::vector<float> early(schedule.parameters, -1.f);
  std::size_t known = schedule.parameters;
  int calls = 0;

  job.run([&](std::size_t first) {
    REQUIRE(first < known);
    const auto gradients = job.gradients.view().host();
    std::copy(gradients.begin() + first, gradients.begin() + known, early.begin() + first);
    known = first;
    ++calls;
  });

  CHECK(known == 0);
  CHECK(calls == 5);
  CHECK(early == copy(job.gradients));
}

TEST_CASE("onednn: an evaluation calls nothing final and writes no gradient", "[onednn]") {
  Schedule schedule = networks::cifar10_cnn(2);
  schedule.steps.resize(schedule.backward);
  std::get<SoftmaxCrossEntropy>(schedule.steps.back()).dlogits = no_tensor;
  Job job(schedule);

  const StepResult result = job.run([](std::size_t) { FAIL("nothing becomes final"); });

  CHECK(result.samples == 2);
  CHECK(result.forward_seconds > 0);
  CHECK(result.backward_seconds == 0);
  CHECK(copy(job.gradients) == std::vector<float>(schedule.parameters, 0.f));
}

TEST_CASE("onednn: running our own kernels allocates nothing", "[onednn]") {
  const Shape s{2, 6, 6, 20};
  Schedule schedule;
  schedule.tensors = {{2, 6, 6, 3}, {2, 6, 6, 23}, s, s, s, {2, 3, 3, 36}, {2, 1, 1, 324}, s};
  schedule.parameters = schedule.statistics = 40;
  schedule.batch = 2;
  schedule.steps = {
      Input{0, Normalisation::standardise_image, {}, {}, true},
      Concat{{0, 2}, 1},
      ChannelSlice{1, 2, 2},
      BatchNormForward{2, 3, no_tensor, ParameterRange{0, 20}, {20, 20}, {0, 40}},
      LrnForward{{}, 3, 4},
      ShortcutForward{4, 5, 2},
      Dropout{{0.5f, 1}, 5, 5},
      Pointwise{Activation::relu, 6, 6},
      SoftmaxCrossEntropy{6, no_tensor},
      LrnBackward{{}, 3, 4, 7},
      BatchNormBackward{2, no_tensor, 7, no_tensor, 4, no_tensor, ParameterRange{0, 20}, {20, 20}}};
  schedule.backward = 9;
  Job job(schedule);
  job.run();

  const std::size_t before = allocations();
  job.run();

  CHECK(allocations() == before);
}

TEST_CASE("onednn: memory in use does not grow from step to step", "[onednn][many steps]") {
  Job job(networks::resnet20(2));
  job.run();
  job.run();

  const std::size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  for (int i = 0; i < 3; ++i) job.run();

  CHECK(mallinfo2().uordblks + mallinfo2().hblkhd == before);
}

TEST_CASE("onednn: activations share memory", "[onednn]") {
  const Schedule schedule = networks::resnet20(48);
  std::size_t sum = 0;
  for (const Shape& shape : schedule.tensors) sum += shape.elements() * bytes_of(tested_element());
  const Job trainer(schedule);

  CHECK(trainer.program->bytes() < sum * 6 / 10);
}

TEST_CASE("onednn: a step that cannot be planned is named with oneDNN's reason", "[onednn]") {
  Schedule schedule;
  schedule.tensors = {{2, 5, 5, 3}, {2, 9, 9, 4}};
  schedule.parameters = 108;
  schedule.steps = {Pointwise{Activation::relu, 0, 0},
                    ConvolutionForward{Window{3, 3, 1, 1, 1, 1, 1, 1}, 0, 1, {0, 108}}};

  try {
    Job job(schedule);
    FAIL("a 3x3 convolution cannot enlarge an image");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("step 1 (ConvolutionForward)") != std::string::npos);
    CHECK(std::string(error.what()).find("invalid_arguments") != std::string::npos);
  }
}

TEST_CASE("onednn: a backward step without its forward step is refused", "[onednn]") {
  static_cast<void>(tested_element());  // or the test is skipped
  Schedule schedule;
  schedule.tensors = std::vector<Shape>(4, Shape{2, 4, 4, 3});
  schedule.parameters = 3;
  schedule.steps = {BatchNormBackward{0, no_tensor, 1, no_tensor, 2, no_tensor, {}, {0, 3}}};

  CHECK_THROWS_AS(Job(schedule), Error);
}

TEST_CASE("onednn: what a program will need is known without making it", "[onednn]") {
  const Schedule schedule = convolutions_of_many_networks();

  const HostNeeds needs = host_needs(schedule, nullptr, tested_element());

  CHECK(needs.activations > 0);
  CHECK(needs.workspace > 0);
  CHECK(needs.activations + needs.workspace == Job(schedule).program->bytes());
}
