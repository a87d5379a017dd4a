#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"
#include "ringtrain/allreduce/make_communicator.hpp"
#include "ringtrain/allreduce/mpi/agreement.hpp"
#include "ringtrain/allreduce/nccl/gpu_assignment.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/compute/gpu.hpp"
#include "ringtrain/host/network_interfaces.hpp"
#include "ringtrain/host/stack_trace.hpp"
#include "train/engine/engine.hpp"
#include "train/engine/engine_choices.hpp"
#include "train/engine/gpu_settings.hpp"
#include "train/engine/gpu_stepper.hpp"
#include "train/engine/schedule.hpp"
#include "train/state/sharded_snapshot.hpp"
#include "train/sums/compressed_gpu_sums.hpp"
#include "train/sums/cpu_sums.hpp"
#include "train/sums/gpu_shards.hpp"

namespace ringtrain::train {
namespace {

bool has_statistics_sums(const RunPlan& plan) {
  return plan.batch_norms_together() && plan.model.graph.moving_count() > 0 && !plan.compresses() &&
         allreduce::keeps_launch_order();
}

allreduce::CommunicatorOptions options_of_sums(const allreduce::MpiSession& session,
                                               compute::GpuBackend& backend, const RunPlan& plan,
                                               int device) {
  allreduce::CommunicatorOptions options;
  options.gpu.device = device;
  options.gpu.compute_stream = backend.stream();
  options.gpu.beside_others = has_statistics_sums(plan);
  if (plan.options.nccl_blocking)
    options.gpu.on_stuck = [&session](const Error& late) {
      write_stderr(fmt::format("train: rank {} on {} is in\n{}", session.rank(), session.host(),
                               host::main_stack()));
      session.abort(late);
    };
  return options;
}

std::unique_ptr<allreduce::Communicator> make_sums(const allreduce::MpiSession& session,
                                                   compute::GpuBackend& backend,
                                                   const RunPlan& plan, int device) {
  allreduce::CommunicatorOptions options = options_of_sums(session, backend, plan, device);
  options.gpu.register_memory = plan.options.nccl_register;
  options.gpu.captured = !plan.options.no_graph && !plan.compresses();
  if (plan.options.gradient_dtype != Element::fp32) {
    options.gpu.rounding = &backend;
    options.gpu.rounded = plan.model.graph.learning_count();
  }
  return allreduce::make_communicator("nccl", session, options);
}

// A communicator's sums run one behind the other: those of BatchNorms, of which each is waited for,
// would wait for all buckets of gradients in flight. Null: they are by the gradients' communicator.
std::unique_ptr<allreduce::Communicator> make_statistics_communicator(
    const allreduce::MpiSession& session, compute::GpuBackend& backend, const RunPlan& plan,
    int device) {
  if (!has_statistics_sums(plan)) return nullptr;
  return allreduce::make_communicator("nccl", session,
                                      options_of_sums(session, backend, plan, device));
}

// What a failure leaves on the GPU may wait for a rank that is gone, and is waited for when
// programs go: so this goes first.
class AbortOnFailure {
 public:
  AbortOnFailure(allreduce::Communicator& sums, allreduce::Communicator* statistics)
      : sums_(sums), statistics_(statistics) {}
  AbortOnFailure(const AbortOnFailure&) = delete;
  ~AbortOnFailure() {
    if (std::uncaught_exceptions() == 0) return;
    if (statistics_ != nullptr) statistics_->abort();
    sums_.abort();
  }

 private:
  allreduce::Communicator& sums_;
  allreduce::Communicator* const statistics_;
};

class GpuEngine final : public TrainingEngine, EngineProbe {
 public:
  GpuEngine(const RunPlan& plan, const allreduce::MpiSession& session, int device,
            monitor::Progress& progress);

  std::vector<std::string> notes() const override;
  std::string gpu_bus_id() const override { return backend_->bus_id(); }
  allreduce::Communicator& communicator() override { return *communicator_; }
  const TrainingState& state() override { return *state_; }
  Snapshotter& state_copy() override {
    return sharded_copy_ ? static_cast<Snapshotter&>(*sharded_copy_) : *copy_;
  }
  std::unique_ptr<Stepper> make_stepper(Position start) override {
    if (kept() != nullptr) kept()->restore();
    const int ahead = compressed_ ? 0 : GpuStepper::most_ahead;  // the host waits for sums anyway
    return std::make_unique<GpuStepper>(*training_, plan_.trainer(), start, bucket_leads(1).front(),
                                        ahead, progress_);
  }
  std::unique_ptr<Stepper> make_solo_stepper() override;
  compute::Program& evaluation() override { return *evaluation_; }
  EngineProbe& probe() override { return *this; }
  std::vector<std::uint64_t> bucket_bounds() override;
  void sum(const Range& bucket) override;
  bool sums_overlap() override { return gradient_sums().overlaps(); }
  const allreduce::RingChoice* ring() const override {
    return compressed_ ? compressed_->ring() : nullptr;
  }
  std::vector<double> measure_host_links() override {
    if (!compressed_) return {};
    progress_.enter(metrics::Phase::communication);
    return compressed_->measure_host_links();
  }
  std::vector<double> bucket_leads(double backward_s) override;
  std::string device() const override { return backend_->title(); }
  std::string plans() const override;
  std::string first_non_finite() override { return ""; }
  void close() override {
    training_->close();
    if (compressed_) compressed_->close();
    if (statistics_sums_) statistics_sums_->close();
    communicator_->close();
  }

 private:
  // What training does not wait for.
  class Copy final : public Snapshotter {
   public:
    /// null: on a rank that does not save.
    explicit Copy(std::unique_ptr<compute::GpuSnapshot> snapshot)
        : snapshot_(std::move(snapshot)) {}
    void prepare(std::span<const std::span<float>> targets) override {
      if (snapshot_) snapshot_->pin(targets);
    }
    void start(std::span<const std::span<float>> targets) override { snapshot_->start(targets); }
    bool done() override { return !snapshot_ || snapshot_->done(); }
    void release() override {
      if (snapshot_) snapshot_->release();
    }

   private:
    std::unique_ptr<compute::GpuSnapshot> snapshot_;
  };

  allreduce::Communicator& gradient_sums() const {
    return compressed_ ? compressed_->communicator() : *communicator_;
  }
  KeptCompression* kept() const { return compressed_ ? compressed_->kept() : nullptr; }
  void write_first_values();
  void make_programs();
  void make_state(const allreduce::MpiSession& session);
  void connect(const allreduce::MpiSession& session);
  compute::GpuStepSums step_sums();
  compute::Program::SumOverRanks statistics_sums();
  bool agree_on_capture(const std::string& why) const;
  std::vector<optim::Optimizer::Slot> slots() const;

  const RunPlan& plan_;
  const allreduce::MpiSession& session_;
  monitor::Progress& progress_;
  const std::unique_ptr<compute::GpuBackend> backend_;
  EngineChoices choices_;
  const std::unique_ptr<allreduce::Communicator> communicator_, statistics_sums_;
  TrainingBuffers buffers_;
  const std::unique_ptr<CompressedGpuSums> compressed_;  // null: NCCL sums
  allreduce::GradientReducer reducer_;
  std::vector<compute::GpuRefusal> refused_;  // fused steps
  const compute::Schedule schedule_;
  const std::unique_ptr<GpuShards> shards_;  // null: the ranks share no optimizer
  std::unique_ptr<compute::GpuTraining> training_;
  std::unique_ptr<compute::Program> evaluation_;
  std::optional<TrainingState> state_;
  std::optional<Copy> copy_;
  LastStep last_step_;
  std::optional<ShardedSnapshotter> sharded_copy_;  // where ranks have parts of the state
  std::string engines_;                             // the fingerprint, on rank 0 of all ranks
  const AbortOnFailure abort_;                      // the last, which goes first
};

GpuEngine::GpuEngine(const RunPlan& plan, const allreduce::MpiSession& session, int device,
                     monitor::Progress& progress)
    : plan_(plan),
      session_(session),
      progress_(progress),
      backend_(compute::make_gpu_backend(gpu_settings(plan, device, session.rank()))),
      choices_(*backend_, session),
      communicator_(make_sums(session, *backend_, plan, device)),
      statistics_sums_(make_statistics_communicator(session, *backend_, plan, device)),
      buffers_(plan.model.graph, plan.optimizer.ema > 0, backend_->memory(),
               communicator_->memory(), gpu_padding(plan)),
      compressed_(CompressedGpuSums::make(plan, session, *backend_, *communicator_,
                                          buffers_.sums.all(), progress)),
      reducer_(gradient_sums(), buffers_.sums.all(), plan.bucket_bytes(), buffers_.sums.place_of(0),
               {.wire = plan.options.gradient_dtype, .compressed = plan.compresses()},
               gpu_buckets(plan)),
      schedule_(checked_schedule(plan, *backend_, session, refused_)),
      shards_(GpuShards::make(plan, *communicator_,
                              reducer_.bounds(final_places(schedule_, buffers_.sums)),
                              buffers_.sums.place_of(0), buffers_.padded_parameters)),
      abort_(*communicator_, statistics_sums_.get()) {
  // Ranks whose gradients were final in another order would wait for each other.
  allreduce::require_agreement(
      {{"order of gradients (GPU, cuDNN or its engines differ)",
        hex(hash_text(fmt::format("{}", fmt::join(final_places(schedule_, buffers_.sums), ","))))}},
      session);
  if (ring() != nullptr) reducer_.start_late(ring()->plan.late);
  write_first_values();
  make_programs();
  make_state(session);
  const std::string mine = backend_->engines().fingerprint;
  engines_ = fingerprint_of(session.gather(mine), mine);
  connect(session);
}

// With --autotune those that lead make theirs first, as that is when engines are timed.
void GpuEngine::make_programs() {
  const bool waits = plan_.options.autotune && !choices_.leads();
  if (waits) choices_.share();
  training_ = backend_->make_training(schedule_, buffers_, plan_.options.seed, step_sums(),
                                      training_settings(plan_, buffers_.averaged_statistics));
  if (compressed_ && backend_->element() == Element::fp16)
    compressed_->follow_scale(training_->loss_scale().slice(0, 1));
  View evaluated = buffers_.parameters;
  for (const auto& [name, values] : training_->slots())
    if (name == "ema") evaluated = values;
  evaluation_ = backend_->compile(
      make_schedule(plan_, *backend_, model::Mode::evaluation),
      {evaluated, View(), buffers_.evaluated_statistics(), buffers_.batch_statistics},
      plan_.options.seed);
  if (plan_.options.autotune && choices_.leads()) choices_.share();
}

void GpuEngine::make_state(const allreduce::MpiSession& session) {
  state_.emplace(plan_.model.graph, backend_->memory(), buffers_.parameters, buffers_.statistics,
                 slots(), buffers_.averaged_statistics, shards_ ? &shards_->shards() : nullptr);
  if (backend_->element() == Element::fp16)
    state_->add("optimizer/loss_scale", training_->loss_scale());
  else if (plan_.counts_skipped())
    state_->add("optimizer/skipped", training_->loss_scale().slice(2, 1));
  const std::vector<View> on_gpu = copied_on_gpu(*state_, session.rank());
  const bool saves = !plan_.options.checkpoint_dir.empty();  // ranks but the first may not know
  const bool shares = shards_ && !session.broadcast(saves ? "saves" : "").empty();
  const bool copies = shares || (saves && session.rank() == 0);
  copy_.emplace(copies && !on_gpu.empty() ? backend_->make_snapshot(on_gpu) : nullptr);
  if (kept() == nullptr && !shards_) return;
  if (kept() != nullptr) kept()->add_to(*state_);
  sharded_copy_.emplace(*state_, last_step_, session, saves, plan_.options.interface,
                        GpuCopy{&*copy_, shards_ ? GpuStepper::most_ahead : 0});
}

std::vector<std::string> GpuEngine::notes() const {
  const bool rounds = backend_->element() == Element::fp32 &&
                      backend_->capability() >= compute::oldest_tf32_capability;
  std::vector<std::string> lines{fmt::format("GPU of rank 0: {}; computing in {}{}",
                                             backend_->title(), name_of(backend_->element()),
                                             rounds ? " (convolutions in tf32)" : "")};
  for (std::string& line : engine_lines(backend_->engines())) lines.push_back(std::move(line));
  const compute::GpuEngines engines = backend_->engines();
  if (engines.checked > 0)
    lines.push_back(fmt::format("fusion: {} kinds of cuDNN's fused steps checked in {:.1f} s",
                                engines.checked, engines.check_seconds));
  if (!refused_.empty())
    lines.push_back(fmt::format(
        "fusion: {} kinds of fused steps are computed in parts, because here cuDNN's engines for "
        "them are wrong or refused, such as {}, {}: {}",
        refused_.size(), refused_.front().pattern, refused_.front().shape, refused_.front().why));
  if (compressed_) std::ranges::copy(compressed_->notes(), std::back_inserter(lines));
  if (plan_.options.tune.mode == config::Tune::Mode::given && !compressed_)
    lines.push_back("--tuning: no effect, because NCCL sums and makes its own plans");
  if (shards_) lines.push_back(shards_->note(compute::slots_of(plan_.optimizer.kind).size()));
  const bool alone = plan_.options.shard_optimizer && !plan_.shards_optimizer();
  if ((plan_.options.compress && !compressed_) || alone)
    std::ranges::copy(notes_of_sums(plan_, session_, std::nullopt), std::back_inserter(lines));
  const std::string& why = gradient_sums().why_not_captured();
  if (!why.empty() && !plan_.options.no_graph)
    lines.push_back(fmt::format(
        "graphs: sums between GPUs are queued between CUDA graphs, as they cannot be part of one "
        "here: {}",
        why));
  return lines;
}

// NCCL connects the ranks at the first call of each kind. They come to it together, because NCCL
// does not wait long; the broadcast behind it waits for its end. Nothing is changed by the gather.
void GpuEngine::connect(const allreduce::MpiSession& session) {
  session.barrier();
  if (statistics_sums_) {
    statistics_sums_->start_allreduce(buffers_.sums.all().slice(0, 1));
    statistics_sums_->finish();
    statistics_sums_->broadcast(buffers_.sums.all().slice(0, 1), 0);
  }
  if (compressed_) {
    communicator_->start_allreduce(buffers_.sums.all().slice(0, 1));
    communicator_->finish();
  } else {
    const std::vector<std::uint64_t> bounds = bucket_bounds();
    for (std::size_t b = bounds.size() - 1; shards_ && --b > 0;) reducer_.final_from(bounds[b]);
    reducer_.finish();
    if (shards_) shards_->gather();
  }
  communicator_->broadcast(buffers_.sums.all().slice(0, 1), 0);
}

// Without padding, which changes no sum.
std::vector<std::uint64_t> GpuEngine::bucket_bounds() {
  std::vector<std::uint64_t> bounds = reducer_.bounds(final_places(schedule_, buffers_.sums));
  bounds.back() = buffers_.sums.place_of(plan_.model.graph.learning_count());
  return bounds;
}

// The broadcast waits for its end.
void GpuEngine::sum(const Range& bucket) {
  reducer_.sum(bucket);
  communicator_->broadcast(buffers_.sums.all().slice(0, 1), 0);
}

std::vector<double> GpuEngine::bucket_leads(double backward_s) {
  std::vector<double> leads = final_leads(schedule_, buffers_.sums, bucket_bounds());
  for (double& lead : leads) lead *= backward_s;
  return leads;
}

// Before the optimizer, whose moving average starts from them.
void GpuEngine::write_first_values() {
  const InitialValues first = initial_values(plan_, &progress_);
  buffers_.set(first.parameters, first.statistics, backend_->memory());
}

compute::GpuStepSums GpuEngine::step_sums() {
  std::vector<std::uint64_t> starts = reducer_.starts(final_places(schedule_, buffers_.sums));
  starts.push_back(0);  // none would be any
  return {buffers_.sums.all(),
          buffers_.sums.place_of(0),
          [this](std::size_t first) { reducer_.final_from(first); },
          [this] {
            reducer_.finish();
            if (compressed_) compressed_->accept(reducer_);
          },
          [this] {
            communicator_->check();
            if (statistics_sums_) statistics_sums_->check();
          },
          statistics_sums(),
          gradient_sums().why_not_captured().empty(),
          std::move(starts),
          [this](const std::string& why) { return agree_on_capture(why); },
          shards_ ? std::optional(shards_->part()) : std::nullopt};
}

// Ranks come to this at the same step. In the middle of training, so that the user is told here.
bool GpuEngine::agree_on_capture(const std::string& why) const {
  const std::vector<std::string> all = session_.gather(why);
  const auto refused = std::ranges::find_if_not(all, &std::string::empty);
  const bool captured = session_.broadcast(std::string(refused == all.end() ? "" : "no")).empty();
  if (!captured && session_.rank() == 0)
    write_stderr(
        fmt::format("graphs: a step cannot be captured on rank {}, so its kernels are "
                    "launched one by one: {}\n",
                    refused - all.begin(), *refused));
  return captured;
}

compute::Program::SumOverRanks GpuEngine::statistics_sums() {
  if (!plan_.batch_norms_together()) return nullptr;
  allreduce::Communicator& sums = statistics_sums_ ? *statistics_sums_ : *communicator_;
  return [&sums](View values) {
    sums.start_allreduce(values);
    sums.finish();
  };
}

std::vector<optim::Optimizer::Slot> GpuEngine::slots() const {
  std::vector<optim::Optimizer::Slot> slots;
  for (const auto& [name, values] : training_->slots()) slots.push_back({name, values});
  return slots;
}

// A second program, beside that of all ranks: they share the memory of activations.
std::unique_ptr<Stepper> GpuEngine::make_solo_stepper() try {
  compute::GpuStepSums none{buffers_.sums.all(), buffers_.sums.place_of(0), [](std::size_t) {},
                            [] {}, [] {}};
  none.starts = bucket_bounds();  // where a training of all ranks stops, this one does
  return std::make_unique<GpuStepper>(
      backend_->make_training(schedule_, buffers_, plan_.options.seed, none,
                              training_settings(plan_, buffers_.averaged_statistics)),
      plan_.trainer(), progress_);
} catch (const Error& failure) {
  if (failure.code() != Exit::usage) throw;
  throw Error(Exit::usage, "the speed of a rank alone (--baseline, --shares auto)",
              fmt::format("it takes GPU memory for an optimizer and a workspace of its own: {}",
                          failure.what()));
}

std::string GpuEngine::plans() const {
  const std::string hosts =  // compression begins between them
      compressed_ ? fmt::format(R"("hosts":{},)", session_.host_of()) : "";
  return fmt::format(R"({{{}"precision":"{}","engines":"{}"}})", hosts,
                     name_of(backend_->element()), engines_);
}

}  // namespace

std::unique_ptr<TrainingEngine> make_gpu_engine(const RunPlan& plan,
                                                const allreduce::MpiSession& session,
                                                monitor::Progress& progress) {
  const int device = allreduce::choose_gpu(session, plan.options.deterministic,
                                           host::interface_names(plan.options.interface));
  return std::make_unique<GpuEngine>(plan, session, device, progress);
}

}  // namespace ringtrain::train
