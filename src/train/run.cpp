#include "train/run.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "ringtrain/allreduce/make_communicator.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/io/checkpoint_writer.hpp"
#include "ringtrain/model/passes.hpp"
#include "train/agreement.hpp"
#include "train/checkpoints.hpp"
#include "train/evaluator.hpp"
#include "train/option_values.hpp"
#include "train/plan.hpp"
#include "train/resume.hpp"
#include "train/stop_request.hpp"
#include "train/stopwatch.hpp"

namespace ringtrain {
namespace {

// Everything that one training job on one rank is made of, in order of construction.
class Job {
 public:
  Job(const Options& options, const MpiSession& session, WriterProcess& writer)
      : session_(session),
        plan_(make_plan(options, session.rank(), session.size())),
        config_(canonical_config(plan_.options)),
        communicator_(make_communicator(enumerator<Allreduce>().write(options.allreduce), session)),
        backend_(make_onednn_backend()),
        parameters_(memory_.allocate(graph().parameter_count())),
        statistics_(memory_.allocate(graph().statistic_count())),
        batch_statistics_(memory_.allocate(graph().statistic_count())),
        sums_(communicator_->memory(), graph().parameter_count(), graph().statistic_count()),
        start_(initial_parameters()),
        optimizer_(plan_.optimizer, parameters_, sums_.gradients(), memory_),
        state_(graph(), parameters_, statistics_, optimizer_.slots()),
        reducer_(*communicator_, sums_.all(), bucket_bytes(options)) {
    (void)writer;
    resume_state();
    training_ = compile(Mode::training, parameters_);
    evaluation_ = compile(Mode::evaluation, optimizer_.average().value_or(parameters_.view()));
  }

  int run() {
    Trainer trainer({*training_, sums_, batch_statistics_, statistics_, graph().statistics,
                     reducer_, optimizer_},
                    plan_.trainer(), start_position_);
    LoaderOptions loader_options = plan_.loader(Split::training);
    loader_options.start = start_position_.samples;
    Loader loader(*plan_.training, loader_options);
    StopRequest stop;
    Stopwatch watch;
    double since = 0;
    int count = 0;
    while (trainer.position().step < plan_.steps) {
      const double rate = trainer.learning_rate();
      const StepOutcome outcome = trainer.step(loader, stop.signal() != 0);
      since += watch.lap();
      ++count;
      const auto step = trainer.position().step;
      if (session_.rank() == 0 && step % 50 == 0) {
        const StepSeconds& s = trainer.seconds();
        fmt::print(
            "step {}, loss = {:.4f} top1 {:.3f} ({:.1f} examples/s) lr {} | wait {:.2f} fwd {:.2f} "
            "bwd {:.2f} exposed {:.2f} update {:.2f} ms\n",
            step, outcome.loss, outcome.top1, count * plan_.global_batch / since, rate,
            s.data_wait * 1e3, s.forward * 1e3, s.backward * 1e3, s.exposed * 1e3, s.update * 1e3);
        std::fflush(stdout);
        since = 0;
        count = 0;
      }
      if (outcome.stop) break;
    }
    const Evaluation e =
        evaluate(*evaluation_, *plan_.evaluation, plan_.loader(Split::evaluation), session_);
    if (session_.rank() == 0)
      fmt::print("top1 {:.4f} top5 {:.4f} loss {:.4f} {} examples in {:.2f} s\n", e.top1, e.top5,
                 e.loss, e.examples, e.seconds);
    return 0;
  }

 private:
  static std::size_t bucket_bytes(const Options& options) {
    return static_cast<std::size_t>(options.bucket_mb * (1 << 20));
  }
  const Graph& graph() const { return plan_.model.graph; }

  // Draws the first parameters before the optimizer's moving average starts from them.
  bool initial_parameters() {
    initialise(graph(), plan_.options.seed, parameters_.view().host(), statistics_.view().host());
    return true;
  }

  void resume_state() {}

  std::unique_ptr<Program> compile(Mode mode, View parameters) {
    const Supports supports = [this](const Step& step) { return backend_->supports(step); };
    const Schedule schedule =
        make_schedule(graph(), plan_.share.count, mode,
                      static_cast<float>(*plan_.options.label_smoothing), supports);
    const View gradients = mode == Mode::training ? sums_.gradients() : View();
    return backend_->compile(schedule, {parameters, gradients, statistics_, batch_statistics_},
                             plan_.options.seed);
  }

  const MpiSession& session_;
  const Plan plan_;
  const std::string config_;
  HostMemory memory_;
  const std::unique_ptr<Communicator> communicator_;
  const std::unique_ptr<Backend> backend_;
  Buffer parameters_, statistics_, batch_statistics_;
  StepSums sums_;
  bool start_;
  Optimizer optimizer_;
  TrainingState state_;
  GradientReducer reducer_;
  Position start_position_;
  std::unique_ptr<Program> training_, evaluation_;
};

}  // namespace

int run(const Options& options, const MpiSession& session, WriterProcess& writer) {
  return Job(options, session, writer).run();
}

}  // namespace ringtrain
