#include "support/recipe_run.hpp"

#include "compute/onednn/program.hpp"
#include "ringtrain/allreduce/make_communicator.hpp"
#include "ringtrain/model/passes.hpp"
#include "support/shrink.hpp"
#include "train/engine/cpu_stepper.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain {
namespace {

RunPlan plan_of(const RecipeRun& run) {
  Options options;
  options.model = run.model;
  options.classes = run.classes;
  options.data = "synthetic";
  options.optimizer = run.optimizer;
  options.batch = run.batch;
  options.lr = run.learning_rate;
  options.ema = 0;
  return make_run_plan(options, 1, 0, 1);
}

// Without dropout, whose random numbers no other program has.
Graph graph_of(const RunPlan& plan, int extent) {
  Graph graph = plan.model.graph;
  if (extent != plan.model.input.height) graph = Shrunk(std::move(graph), extent, 1).graph();
  for (Node& node : graph.nodes)
    if (auto* dropout = std::get_if<DropoutLayer>(&node.operation)) dropout->keep = 1;
  return graph;
}

// Steps that read the logits last, so that their memory goes to no other tensor.
std::vector<TensorId> keep_logits(Schedule& schedule) {
  const bool evaluates = schedule.backward == schedule.steps.size();
  std::vector<TensorId> kept;
  for (const Step& step : schedule.steps)
    if (const auto* loss = std::get_if<SoftmaxCrossEntropy>(&step)) kept.push_back(loss->logits);
  for (const TensorId id : kept) {
    schedule.tensors.push_back(Shape(schedule.tensors[id]));
    schedule.steps.push_back(Add{id, id, TensorId(schedule.tensors.size() - 1)});
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
        communicator_(make_communicator("solo", session_)),
        backend_(make_backend(run.backend)),
        parameters_(memory_.allocate(graph_.parameter_count())),
        statistics_(memory_.allocate(graph_.statistic_count())),
        batch_statistics_(memory_.allocate(graph_.statistic_count())),
        sums_(memory_, graph_.parameter_count(), graph_.statistic_count()),
        reducer_(*communicator_, sums_.all(), 1 << 20),
        optimizer_(plan_.optimizer, parameters_, sums_.gradients(), memory_),
        state_(graph_, memory_, parameters_, statistics_, optimizer_.slots()),
        loader_(images, images.in_order(run.batch)),
        first_batch_(images, images.in_order(run.batch)) {}

  void go(const Start& start) {
    start(graph_, state_);
    first_ = state_.copy();
    evaluate();
    Schedule schedule = schedule_of(Mode::training);
    const std::vector<TensorId> logits = keep_logits(schedule);
    const auto program = compile(schedule, sums_.gradients());
    const StepSettings settings{1, run_.batch, run_.batch, 1, {.peak = run_.learning_rate}};
    Progress progress;
    LastStep last_step;
    CpuStepper trainer({*program, sums_, batch_statistics_, statistics_, View(), graph_.statistics,
                        reducer_, optimizer_, progress, last_step},
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
    Schedule schedule = schedule_of(Mode::evaluation);
    const std::vector<TensorId> logits = keep_logits(schedule);
    const auto program = compile(schedule, View());
    take_value("evaluation/loss", program->run(*first_batch_.next(), 1, nullptr).loss / run_.batch);
    take_logits("evaluation/", *program, logits);
  }
  Schedule schedule_of(Mode mode) const {
    const auto supports = [this](const Schedule& s, const Step& step) {
      return backend_->supports(s, step);
    };
    const auto smoothing = static_cast<float>(*plan_.options.label_smoothing);
    return make_schedule(graph_, run_.batch, mode, smoothing, supports);
  }
  std::unique_ptr<Program> compile(const Schedule& schedule, View gradients) {
    return backend_->compile(schedule, {parameters_, gradients, statistics_, batch_statistics_}, 1);
  }

  void take_value(const std::string& name, double value) {
    const auto single = static_cast<float>(value);
    take_(name, {}, std::span(&single, 1));
  }
  void take_logits(const std::string& folder, const Program& program,
                   const std::vector<TensorId>& ids) {
    const auto* onednn = dynamic_cast<const onednn::OnednnProgram*>(&program);
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
            sums_.gradients().slice(ranges[p]).host());
  }
  // Weights as they are, and how far statistics have come.
  void take_state(const std::string& folder) {
    auto values = state_.copy();  // parameters, statistics, slots
    for (std::size_t i = 0; i < values[1].size(); ++i) values[1][i] -= first_[1][i];
    for (const auto& [info, buffer, offset] : state_.layout().tensors)
      if (buffer <= 1)
        take_(folder + info.name, {info.shape.begin(), info.shape.end()},
              std::span(values[buffer]).subspan(offset, element_count(info)));
  }

  const RecipeRun& run_;
  const Take& take_;
  const RunPlan plan_;
  const Graph graph_;
  const MpiSession session_;
  HostMemory memory_;
  const std::unique_ptr<Communicator> communicator_;
  const std::unique_ptr<Backend> backend_;
  const Buffer parameters_, statistics_, batch_statistics_;
  ReductionBuffer sums_;
  GradientReducer reducer_;
  Optimizer optimizer_;
  const TrainingState state_;
  Loader loader_, first_batch_;
  std::vector<std::vector<float>> first_;
};

}  // namespace

void run_recipe(const RecipeRun& run, const GivenImages& images, const Start& start,
                const Take& take) {
  Training(run, images, take).go(start);
}

}  // namespace ringtrain
