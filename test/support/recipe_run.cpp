#include "support/recipe_run.hpp"

#include "compute/onednn/program.hpp"
#include "ringtrain/allreduce/make_communicator.hpp"
#include "ringtrain/model/passes.hpp"
#include "support/shrink.hpp"
#include "train/engine/cpu_stepper.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain {
namespace {

train::RunPlan plan_of(const RecipeRun& run) {
  config::Options options;
  options.model = run.model;
  options.classes = run.classes;
  options.data = "synthetic";
  options.optimizer = run.optimizer;
  options.batch = run.batch;
  options.lr = run.learning_rate;
  options.ema = 0;
  if (run.model == "resnet50") {  // as the values of torchvision were made
    options.label_smoothing = 0.1;
    options.weight_decay = 5e-5;
    options.recipe = "norm-decay=0 bias-decay=0";
  }
  return train::make_run_plan(options, 1, 0, 1);
}

// Without dropout, whose random numbers no other program has.
model::Graph graph_of(const train::RunPlan& plan, int extent) {
  model::Graph graph = plan.model.graph;
  if (extent != plan.model.input.height) graph = Shrunk(std::move(graph), extent, 1).graph();
  for (model::Node& node : graph.nodes)
    if (auto* dropout = std::get_if<model::DropoutLayer>(&node.operation)) dropout->how.keep = 1;
  return graph;
}

// Steps that read the logits last, so that their memory goes to no other tensor.
std::vector<compute::TensorId> keep_logits(compute::Schedule& schedule) {
  const bool evaluates = schedule.backward == schedule.steps.size();
  std::vector<compute::TensorId> kept;
  for (const compute::Step& step : schedule.steps)
    if (const auto* loss = std::get_if<compute::SoftmaxCrossEntropy>(&step))
      kept.push_back(loss->logits);
  for (const compute::TensorId id : kept) {
    schedule.tensors.push_back(compute::Shape(schedule.tensors[id]));
    schedule.steps.push_back(compute::Add{id, id, compute::TensorId(schedule.tensors.size() - 1)});
  }
  if (evaluates) schedule.backward = schedule.steps.size();
  return kept;
}

class Training {
 public:
  Training(const RecipeRun& run, const GivenImages& images, const Take& take)
      : run_(run),
        take_(take),
        plan_(plan_of(run)),
        graph_(graph_of(plan_, run.extent)),
        communicator_(allreduce::make_communicator("solo", session_)),
        backend_(compute::make_backend(run.backend)),
        buffers_(graph_, false, memory_, memory_),
        reducer_(*communicator_, buffers_.sums.all(), 1 << 20),
        optimizer_(plan_.optimizer, buffers_.parameters, buffers_.sums.gradients(), memory_),
        state_(graph_, memory_, buffers_.parameters, buffers_.statistics, optimizer_.slots()),
        loader_(images, images.in_order(run.batch)),
        first_batch_(images, images.in_order(run.batch)) {}

  void go(const Start& start) {
    start(graph_, state_);
    first_ = state_.copy();
    evaluate();
    compute::Schedule schedule = schedule_of(model::Mode::training);
    const std::vector<compute::TensorId> logits = keep_logits(schedule);
    const auto program = compile(schedule, buffers_.sums.gradients());
    const train::StepSettings settings{1, run_.batch, run_.batch, 1, {.peak = run_.learning_rate}};
    monitor::Progress progress;
    train::LastStep last_step;
    train::CpuStepper trainer(
        {*program, buffers_, train::momenta_of(graph_), reducer_, optimizer_, progress, last_step},
        settings, {});
    for (int step = 1; step <= run_.steps; ++step) {
      const std::string folder = "step" + std::to_string(step) + "/";
      take_value(folder + "loss", trainer.step(loader_, {})->outcome.loss);
      if (step == 1) take_logits(folder, *program, logits);
      if (step == 1) take_gradients(folder);
      take_state(folder);
    }
  }

 private:
  void evaluate() {
    compute::Schedule schedule = schedule_of(model::Mode::evaluation);
    const std::vector<compute::TensorId> logits = keep_logits(schedule);
    const auto program = compile(schedule, View());
    take_value("evaluation/loss", program->run(*first_batch_.next(), 1, nullptr).loss / run_.batch);
    take_logits("evaluation/", *program, logits);
  }
  compute::Schedule schedule_of(model::Mode mode) const {
    const auto supports = [this](const compute::Schedule& s, const compute::Step& step) {
      return backend_->supports(s, step);
    };
    const auto smoothing = static_cast<float>(*plan_.options.label_smoothing);
    return model::make_schedule(graph_, run_.batch, mode, smoothing, supports);
  }
  std::unique_ptr<compute::Program> compile(const compute::Schedule& schedule, View gradients) {
    return backend_->compile(
        schedule, {buffers_.parameters, gradients, buffers_.statistics, buffers_.batch_statistics},
        1);
  }

  void take_value(const std::string& name, double value) {
    const auto single = static_cast<float>(value);
    take_(name, {}, std::span(&single, 1));
  }
  void take_logits(const std::string& folder, const compute::Program& program,
                   const std::vector<compute::TensorId>& ids) {
    const auto* onednn = dynamic_cast<const compute::onednn::OnednnProgram*>(&program);
    if (onednn == nullptr) return;  // the reference keeps its tensors to itself
    const char* const names[] = {"logits", "auxiliary_logits"};  // the last head is the main one
    for (std::size_t head = 0; head < ids.size(); ++head)
      take_(folder + names[ids.size() - 1 - head],
            {std::size_t(run_.batch), std::size_t(run_.classes)}, onednn->read(ids[head]));
  }
  void take_gradients(const std::string& folder) {
    const auto ranges = graph_.parameter_ranges();
    for (std::size_t p = 0; p < ranges.size(); ++p)
      take_(folder + "gradients/" + graph_.parameters[p].name, graph_.parameters[p].dims,
            buffers_.sums.gradients().slice(ranges[p]).host());
  }
  // Weights as they are, and how far statistics have come.
  void take_state(const std::string& folder) {
    auto values = state_.copy();  // parameters, statistics, slots
    for (std::size_t i = 0; i < values[1].size(); ++i) values[1][i] -= first_[1][i];
    for (const auto& [info, buffer, offset] : state_.layout().tensors)
      if (buffer <= 1)
        take_(folder + info.name, {info.shape.begin(), info.shape.end()},
              std::span(values[buffer]).subspan(offset, io::element_count(info)));
  }

  const RecipeRun& run_;
  const Take& take_;
  const train::RunPlan plan_;
  const model::Graph graph_;
  const allreduce::MpiSession session_;
  HostMemory memory_;
  const std::unique_ptr<allreduce::Communicator> communicator_;
  const std::unique_ptr<compute::Backend> backend_;
  train::TrainingBuffers buffers_;
  allreduce::GradientReducer reducer_;
  optim::Optimizer optimizer_;
  const train::TrainingState state_;
  io::Loader loader_, first_batch_;
  std::vector<std::vector<float>> first_;
};

}  // namespace

void run_recipe(const RecipeRun& run, const GivenImages& images, const Start& start,
                const Take& take) {
  Training(run, images, take).go(start);
}

}  // namespace ringtrain
