#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <random>

#include "ringtrain/allreduce/communicator/communicator.hpp"
#include "ringtrain/allreduce/hierarchical/tune_ring.hpp"
#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/statistics.hpp"
#include "ringtrain/compute/backend.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/host/control_groups.hpp"
#include "ringtrain/host/stream_copy.hpp"
#include "ringtrain/host/threads.hpp"
#include "ringtrain/monitor/phase_scope.hpp"
#include "train/engine/cpu_stepper.hpp"
#include "train/engine/engine.hpp"
#include "train/engine/schedule.hpp"
#include "train/state/sharded_snapshot.hpp"
#include "train/sums/cpu_sums.hpp"
#include "train/sums/kept_compression.hpp"

namespace ringtrain::train {
namespace {

class CpuEngine final : public TrainingEngine, EngineProbe {
 public:
  CpuEngine(const RunPlan& plan, const host::ThreadPlan& threads,
            const allreduce::MpiSession& session, monitor::Progress& progress);

  std::vector<std::string> notes() const override { return notes_; }
  allreduce::Communicator& communicator() override { return *communicator_; }
  const TrainingState& state() override { return state_; }
  Snapshotter& state_copy() override { return *copy_; }
  std::unique_ptr<Stepper> make_stepper(Position start) override {
    if (kept_compression_) kept_compression_->restore();
    last_step_.position = start;
    CpuStepper::Parts all = parts(reducer_, optimizer_);
    if (statistics_sums_)
      all.sum_over_ranks = [this](View values) {
        const monitor::PhaseInterruption waiting(progress_, metrics::Phase::communication);
        statistics_sums_->start_allreduce(values);
        statistics_sums_->finish();
      };
    return std::make_unique<CpuStepper>(all, plan_.trainer(), start);
  }
  std::unique_ptr<Stepper> make_solo_stepper() override;
  compute::Program& evaluation() override { return *evaluation_; }
  EngineProbe& probe() override { return *this; }
  std::vector<std::uint64_t> bucket_bounds() override { return bounds(reducer_); }
  void sum(const Range& bucket) override { reducer_.sum(bucket); }
  const allreduce::RingChoice* ring() const override { return ring_ ? &*ring_ : nullptr; }
  std::vector<double> measure_host_links() override {
    if (!host_links_) return {};
    progress_.enter(metrics::Phase::communication);
    return host_links_->measure();
  }
  std::optional<BatchSeconds> time_batches(int other) override;
  bool sums_overlap() override { return communicator_->overlaps(); }
  std::vector<double> bucket_leads(double) override { return reducer_.leads_s(); }
  std::string device() const override { return device_; }
  std::string plans() const override { return plans_; }
  std::string first_non_finite() override;
  void close() override {
    communicator_->close();
    if (statistics_sums_) statistics_sums_->close();
  }

 private:
  // The copy itself is what a save costs the step loop.
  class Copy final : public Snapshotter {
   public:
    Copy(const TrainingState& state, LastStep& last_step) : state_(state), last_step_(last_step) {}
    void start(std::span<const std::span<float>> targets) override {
      expects(targets.size() == state_.buffers().size(), "Snapshotter: one target a buffer");
      for (std::size_t i = 0; i < targets.size(); ++i)
        host::stream_copy(state_.buffers()[i].host(), targets[i]);
    }
    bool done() override { return true; }
    void release() override {}
    std::optional<Position> copy_last(std::span<const std::span<float>> targets) override {
      const std::lock_guard held(last_step_.mutex);
      for (std::size_t i = 0; i < targets.size(); ++i)  // without threads: OpenMP's have other work
        std::ranges::copy(state_.buffers()[i].host(), targets[i].begin());
      return last_step_.position;
    }

   private:
    const TrainingState& state_;
    LastStep& last_step_;
  };

  View initial();
  allreduce::SumOptions gradient_sums() const {
    return {.wire = plan_.options.gradient_dtype,
            .compressed = bool(plan_.options.compress),
            .hook = shards_ ? &update_part_ : nullptr};
  }
  std::unique_ptr<compute::Program> compile(model::Mode mode, const compute::Buffers& buffers,
                                            std::optional<int> images = {});
  double seconds_of(compute::Program& program, int images) const;
  // A rank alone updates all parameters.
  struct LoneOptimizer {
    optim::Optimizer optimizer;
  };
  class LoneTrainer final : LoneOptimizer, public CpuStepper {
   public:
    explicit LoneTrainer(CpuEngine& engine)
        : LoneOptimizer{{engine.plan_.optimizer, engine.learning(engine.buffers_.parameters),
                         engine.buffers_.sums.gradients(), engine.memory_}},
          CpuStepper(engine.parts(engine.no_sums_, optimizer), engine.plan_.trainer(), Position{}) {
    }
  };

  std::vector<std::uint64_t> bounds(const allreduce::GradientReducer& reducer) {
    return reducer.bounds(
        final_places(make_schedule(plan_, *backend_, model::Mode::training), buffers_.sums));
  }
  // What learns of a buffer of parameters.
  View learning(View parameters) const {
    return parameters.slice(0, plan_.model.graph.learning_count());
  }
  std::optional<Shards> make_shards_if_any();
  std::optional<optim::Optimizer::Part> part() const {
    if (!shards_) return std::nullopt;
    return optim::Optimizer::Part{shards_->own(), plan_.options.on_nan == config::OnNan::skip};
  }
  std::vector<optim::Optimizer::Slot> whole_slots() const;
  TrainingState make_state();
  std::unique_ptr<Snapshotter> make_copy(const allreduce::MpiSession& session);
  CpuStepper::Parts parts(allreduce::GradientReducer& reducer, optim::Optimizer& optimizer) {
    return {*training_, buffers_,     momenta_of(plan_.model.graph), reducer, optimizer, progress_,
            last_step_, never_sleeps_};
  }

  const RunPlan& plan_;
  monitor::Progress& progress_;
  const int ranks_here_;     // on this host
  const bool never_sleeps_;  // compute threads that wait for each other
  const std::string plans_, device_;
  const std::optional<allreduce::RingChoice> ring_;
  std::optional<allreduce::HostLinks> host_links_;  // where there is a ring
  const std::vector<std::string> notes_;
  HostMemory memory_;
  const std::unique_ptr<allreduce::Communicator> communicator_, alone_;
  const std::unique_ptr<allreduce::Communicator>
      statistics_sums_;  // in forward and backward; null: none
  const std::unique_ptr<compute::Backend> backend_;
  TrainingBuffers buffers_;
  const Buffer average_;  // of all parameters; empty: the run has none
  const std::optional<Shards> shards_;
  optim::Optimizer optimizer_;
  const allreduce::ReduceHook update_part_;                  // where there are shards
  const std::unique_ptr<KeptCompression> kept_compression_;  // null: there is none
  TrainingState state_;
  LastStep last_step_;
  const std::unique_ptr<Snapshotter> copy_;
  allreduce::GradientReducer reducer_, no_sums_;
  std::unique_ptr<compute::Program> training_, evaluation_;
};

// What changes rounding: oneDNN divides weight gradients by thread, and the order of a sum depends
// on which ranks share a host, unless all or none do (see HierarchicalAllreduce); compression
// begins between hosts.
std::string plans_of(const RunPlan& plan, const allreduce::MpiSession& session,
                     const host::ThreadPlan& threads) {
  const bool plain =
      session.hosts() == 1 || (session.hosts() == session.size() && !plan.options.compress);
  const std::string hosts = plain ? "" : fmt::format(R"("hosts":{},)", session.host_of());
  const Element element = config::cpu_element_of(plan.options.precision);
  const std::string precision =
      element == Element::fp32 ? "" : fmt::format(R"("precision":"{}",)", name_of(element));
  return fmt::format(R"({{{}{}"threads":{}}})", hosts, precision, threads.threads);
}

// What the user asked of GPUs that are not trained on.
std::vector<std::string> without_effect(const config::Options& o) {
  std::vector<std::string> names;
  if (o.autotune) names.push_back("--autotune");
  if (o.fusion != config::ConvolutionFusion::automatic) names.push_back("--fusion off");
  if (o.no_graph) names.push_back("--no-graph");
  if (o.nccl_register) names.push_back("--nccl-register");
  if (o.nccl_blocking) names.push_back("--nccl-blocking");
  if (names.empty()) return {};
  return {fmt::format("{}: no effect, because this run computes on CPUs", fmt::join(names, ", "))};
}

std::vector<std::string> notes_of(const RunPlan& plan, const allreduce::MpiSession& session,
                                  const std::optional<allreduce::RingChoice>& ring) {
  std::vector<std::string> notes = notes_of_sums(plan, session, ring);
  std::ranges::move(without_effect(plan.options), std::back_inserter(notes));
  return notes;
}

CpuEngine::CpuEngine(const RunPlan& plan, const host::ThreadPlan& threads,
                     const allreduce::MpiSession& session, monitor::Progress& progress)
    : plan_(plan),
      progress_(progress),
      ranks_here_(session.local_size()),
      never_sleeps_(threads.threads == 1 || threads.active_wait),
      plans_(plans_of(plan, session, threads)),
      device_(fmt::format("{}, {} of its cores", host::cpu_name(), threads.threads)),
      ring_(ring_of(plan, session)),
      notes_(notes_of(plan, session, ring_)),
      communicator_(make_gradient_sums(plan, session, ring_, !threads.active_wait, progress)),
      alone_(allreduce::make_solo_communicator()),
      statistics_sums_(make_statistics_sums(plan, session,
                                            !threads.active_wait || session.hosts() > 1, progress)),
      backend_(
          compute::make_onednn_backend(&progress, config::cpu_element_of(plan.options.precision))),
      buffers_(plan.model.graph, plan.optimizer.ema > 0, memory_, communicator_->memory()),
      average_(memory_.allocate(plan.optimizer.ema > 0 ? buffers_.parameters.size() : 0)),
      shards_(make_shards_if_any()),
      optimizer_(plan.optimizer, learning(initial()), buffers_.sums.gradients(), memory_, part(),
                 average_.view()),
      update_part_([this](View part) { optimizer_.replace(buffers_.sums.gradients_in(part)); }),
      kept_compression_(KeptCompression::make(plan, *communicator_, session)),
      state_(make_state()),
      copy_(make_copy(session)),
      reducer_(*communicator_, buffers_.sums.all(), plan.bucket_bytes(), buffers_.sums.place_of(0),
               gradient_sums()),
      no_sums_(*alone_, buffers_.sums.all()) {
  if (ring_) {
    reducer_.start_late(ring_->plan.late);
    host_links_.emplace(session);
  }
  training_ = compile(model::Mode::training, buffers_);
  evaluation_ = compile(model::Mode::evaluation,
                        {average_.view().size() > 0 ? average_.view() : buffers_.parameters, View(),
                         buffers_.evaluated_statistics(), buffers_.batch_statistics});
}

std::string CpuEngine::first_non_finite() {
  const model::Graph& graph = plan_.model.graph;
  const auto holder_of = [](const std::vector<Range>& ranges, std::size_t at) {
    const auto found =
        std::ranges::find_if(ranges, [&](const Range& r) { return at >= r.first && at < r.end(); });
    return static_cast<std::size_t>(found - ranges.begin());
  };
  if (const auto at = optim::first_non_finite(buffers_.sums.gradients()))
    return "the gradient of " + graph.parameters[holder_of(graph.parameter_ranges(), *at)].name;
  const auto at = optim::first_non_finite(buffers_.sums.statistics());
  if (!at) return "";
  const std::vector<Range> ranges = graph.statistics_ranges();
  const std::size_t holder = holder_of(ranges, *at);
  const model::Statistic& norm = graph.statistics[holder];
  const bool mean = *at < ranges[holder].first + norm.channels;
  return fmt::format("statistics/{}.running_{}", norm.name, mean ? "mean" : "var");
}

std::optional<Shards> CpuEngine::make_shards_if_any() {
  if (!plan_.shards_optimizer()) return std::nullopt;
  const allreduce::GradientReducer as_in_steps(*communicator_, buffers_.sums.all(),
                                               plan_.bucket_bytes());
  return make_shards(*communicator_, bounds(as_in_steps), buffers_.sums.place_of(0));
}

// The average of all parameters, in place of that of those that learn.
std::vector<optim::Optimizer::Slot> CpuEngine::whole_slots() const {
  std::vector<optim::Optimizer::Slot> slots = optimizer_.slots();
  if (average_.view().size() > 0) slots.back().values = average_;
  return slots;
}

TrainingState CpuEngine::make_state() {
  TrainingState state(plan_.model.graph, memory_, buffers_.parameters, buffers_.statistics,
                      whole_slots(), buffers_.averaged_statistics, shards_ ? &*shards_ : nullptr);
  if (plan_.counts_skipped()) state.add("optimizer/skipped", optimizer_.skipped());
  if (kept_compression_) kept_compression_->add_to(state);
  return state;
}

std::unique_ptr<Snapshotter> CpuEngine::make_copy(const allreduce::MpiSession& session) {
  if (!shards_ && !kept_compression_) return std::make_unique<Copy>(state_, last_step_);
  const bool saves = !plan_.options.checkpoint_dir.empty();  // ranks but the first may not know
  return std::make_unique<ShardedSnapshotter>(state_, last_step_, session, saves,
                                              plan_.options.interface);
}

std::unique_ptr<Stepper> CpuEngine::make_solo_stepper() {
  if (shards_) return std::make_unique<LoneTrainer>(*this);
  return std::make_unique<CpuStepper>(parts(no_sums_, optimizer_), plan_.trainer(), Position{});
}

// The optimizer's moving average starts from the first parameters, so these come before it.
View CpuEngine::initial() {
  const InitialValues first = initial_values(plan_, &progress_);
  buffers_.set(first.parameters, first.statistics, memory_);
  if (average_.view().size() > 0) memory_.write(first.parameters, average_);
  return buffers_.parameters;
}

// Linux kills a process when memory runs out, so this host's ranks take a quarter of what is left.
std::optional<EngineProbe::BatchSeconds> CpuEngine::time_batches(int other) {
  const double times = double(other) / plan_.share.count;
  if (times * double(training_->bytes()) * ranks_here_ > 0.25 * double(host::available_memory()))
    return std::nullopt;
  try {
    const auto program = compile(model::Mode::training, buffers_, other);
    return BatchSeconds{seconds_of(*training_, plan_.share.count), seconds_of(*program, other)};
  } catch (const Error&) {  // a limit of the process is no reason to end the job
  } catch (const std::bad_alloc&) {
  }
  return std::nullopt;
}

// Random images with colour jitter where training has it: it is a part of the step.
double CpuEngine::seconds_of(compute::Program& program, int images) const {
  const compute::Shape& shape = plan_.graph(model::Mode::training).tensors[0];
  Batch batch;
  batch.resize(images, shape.height, shape.width, shape.channels);
  std::minstd_rand numbers(1);
  for (std::uint8_t& value : batch.images) value = static_cast<std::uint8_t>(numbers() >> 8);
  const bool jitters = plan_.augmentation.find<io::RandomColorJitter>() != nullptr;
  for (Sample& sample : batch.samples) {
    sample.target = {0};
    if (jitters) sample.jitter = {.brightness = 1, .contrast = 0.9f};
  }
  constexpr double enough_s = 0.3;
  std::vector<double> seconds;
  for (const Stopwatch watch;
       std::ssize(seconds) < BatchSeconds::least_runs || watch.elapsed() < enough_s;) {
    const compute::StepResult result = program.run(batch, 1.0 / images, [](std::size_t) {});
    seconds.push_back(result.forward_seconds + result.backward_seconds);
    progress_.advance();
  }
  seconds.erase(seconds.begin());
  return median_of(seconds);
}

std::unique_ptr<compute::Program> CpuEngine::compile(model::Mode mode,
                                                     const compute::Buffers& buffers,
                                                     std::optional<int> images) {
  progress_.at(Work::plan, images                          ? "a larger batch"
                           : mode == model::Mode::training ? "the steps of training"
                                                           : "an evaluation");
  return backend_->compile(make_schedule(plan_, *backend_, mode, images), buffers,
                           plan_.options.seed);
}

}  // namespace

std::unique_ptr<TrainingEngine> make_cpu_engine(const RunPlan& plan,
                                                const host::ThreadPlan& threads,
                                                const allreduce::MpiSession& session,
                                                monitor::Progress& progress) {
  return std::make_unique<CpuEngine>(plan, threads, session, progress);
}

}  // namespace ringtrain::train
