#include "bench/complaints/worker.hpp"

#include <atomic>
#include <thread>

#include "bench/complaints/or_end.hpp"
#include "bench/complaints/worker_log.hpp"
#include "train/engine/schedule.hpp"

namespace ringtrain {
namespace {

class Worker {
 public:
  Worker(const train::RunPlan& plan, const WorkerSettings& settings, const Stream& server);
  void train();

 private:
  std::unique_ptr<compute::Program> compile();
  double step(const Batch& batch, bool save);
  void pull();
  void push_as_final(bool save);
  bool save_is_due();

  const train::RunPlan& plan_;
  const WorkerSettings& settings_;
  const Stream& server_;
  const std::vector<compute::ParameterRange> variables_;
  const std::unique_ptr<compute::Backend> backend_ = compute::make_onednn_backend();
  Buffer parameters_, gradients_, statistics_, batch_statistics_;
  const std::unique_ptr<compute::Program> program_;
  const double sample_weight_;
  std::atomic<std::size_t> final_from_;  // gradients from there on are final
  Stopwatch since_save_;
};

Worker::Worker(const train::RunPlan& plan, const WorkerSettings& settings, const Stream& server)
    : plan_(plan),
      settings_(settings),
      server_(server),
      variables_(plan.model.graph.parameter_ranges()),
      parameters_(backend_->memory().allocate(plan.model.graph.parameter_count())),
      gradients_(backend_->memory().allocate(plan.model.graph.parameter_count())),
      statistics_(backend_->memory().allocate(plan.model.graph.statistic_count())),
      batch_statistics_(backend_->memory().allocate(plan.model.graph.statistic_count())),
      program_(compile()),
      sample_weight_(
          1.0 / (settings.updates == Updates::synchronous ? plan.global_batch : plan.share.count)) {
  const Greeting greeting{settings.worker};
  server_.send(std::as_bytes(std::span(&greeting, 1)));
}

std::unique_ptr<compute::Program> Worker::compile() {
  return backend_->compile(train::make_schedule(plan_, *backend_, model::Mode::training),
                           {parameters_, gradients_, statistics_, batch_statistics_},
                           plan_.options.seed);
}

void Worker::train() {
  io::Loader loader(*plan_.training, plan_.loader(io::Split::training));
  WorkerLog log(plan_, settings_.worker);
  pull();
  Stopwatch watch;
  for (std::int64_t s = 1; s <= *plan_.options.steps; ++s) {
    const double loss = step(*loader.next(), save_is_due());
    log.step(s, loss, watch.lap());
  }
}

// Returns the mean loss of the batch.
double Worker::step(const Batch& batch, bool save) {
  final_from_ = parameters_.view().size();
  std::jthread pusher([&] { or_end([&] { push_as_final(save); }); });
  const auto final = [&](std::size_t first) {
    final_from_ = first;
    final_from_.notify_one();
  };
  compute::StepResult result;
  or_end([&] { result = program_->run(batch, sample_weight_, final); });
  final(0);
  pull();
  return result.loss / result.samples;
}

void Worker::push_as_final(bool save) {
  for (std::size_t v = variables_.size(); v-- > 0;) {
    for (std::size_t now = final_from_; now > variables_[v].first; now = final_from_)
      final_from_.wait(now);
    server_.send(
        std::as_bytes(gradients_.view().slice(variables_[v].first, variables_[v].count).host()));
  }
  const EndOfStep end{save};
  server_.send(std::as_bytes(std::span(&end, 1)));
}

void Worker::pull() {
  for (std::size_t v = variables_.size(); v-- > 0;)
    server_.receive(std::as_writable_bytes(
        parameters_.view().slice(variables_[v].first, variables_[v].count).host()));
}

bool Worker::save_is_due() {
  if (settings_.worker != 0 || settings_.save_every_s == 0) return false;
  if (since_save_.elapsed() < settings_.save_every_s) return false;
  since_save_.lap();
  write_stderr("Saving checkpoint\n");
  return true;
}

}  // namespace

void work(const train::RunPlan& plan, const WorkerSettings& settings, const Stream& server) {
  Worker(plan, settings, server).train();
}

}  // namespace ringtrain
