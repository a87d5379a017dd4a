// The whole program with a site that watches or harms training; the linker puts it in the place of
// make_cpu_engine() and Loader::next() (--wrap, see CMakeLists.txt). What it does is said by
//   FAULT="flip RANK STEP TENSOR"  after STEP, one bit of RANK's TENSOR is another
//   FAULT="nan STEP TENSOR"        in STEP, and in no other, one number of TENSOR is none
//   FAULT="forget TENSOR"          a resume leaves TENSOR zero
//   FAULT="shift SAMPLES"          a resume goes on so many samples later
//   SAMPLES=FILE                   FILE.RANK gets "STEP EPOCH SAMPLE" for each sample trained on
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "train/engine/engine.hpp"

namespace ringtrain {

std::unique_ptr<train::TrainingEngine>
cpu_site(const train::RunPlan&, const host::ThreadPlan&, const allreduce::MpiSession&, monitor::Progress&) asm(
    "__real__ZN9ringtrain5train15make_cpu_engineERKNS0_7RunPlanERKNS_4host10ThreadPlanERKNS_"
    "9allreduce10MpiSessionERNS_7monitor8ProgressE");
std::unique_ptr<train::TrainingEngine>
watched_site(const train::RunPlan&, const host::ThreadPlan&, const allreduce::MpiSession&, monitor::Progress&) asm(
    "__wrap__ZN9ringtrain5train15make_cpu_engineERKNS0_7RunPlanERKNS_4host10ThreadPlanERKNS_"
    "9allreduce10MpiSessionERNS_7monitor8ProgressE");
const Batch* next_batch(io::Loader*) asm("__real__ZN9ringtrain2io6Loader4nextEv");
const Batch* watched_batch(io::Loader*) asm("__wrap__ZN9ringtrain2io6Loader4nextEv");

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Fault {
  std::string kind, tensor;
  int rank = -1;
  std::uint64_t step = 0, samples = 0;
};

Fault fault() {
  std::istringstream text(variable("FAULT"));
  Fault fault;
  text >> fault.kind;
  if (fault.kind == "flip") text >> fault.rank;
  if (fault.kind == "flip" || fault.kind == "nan") text >> fault.step;
  if (fault.kind == "shift")
    text >> fault.samples;
  else
    text >> fault.tensor;
  return fault;
}

std::uint64_t step_under_way = 0;  // 0: none
std::ofstream samples;

std::span<float> values_of(const train::TrainingState& state, const std::string& tensor) {
  for (const io::TensorPlace& place : state.layout().tensors)
    if (place.info.name == tensor)
      return state.buffers()[place.buffer]
          .slice(place.offset, io::element_count(place.info))
          .host();
  throw Error("FAULT", "no tensor is called " + tensor);
}

class WatchedTrainer final : public train::Stepper {
 public:
  WatchedTrainer(std::unique_ptr<train::Stepper> trainer, const train::StepSettings& settings,
                 train::Position start, const train::TrainingState& state, int rank)
      : train::Stepper(settings, start), trainer_(std::move(trainer)), state_(state), rank_(rank) {
    if (start.step > 0 && fault_.kind == "forget")
      std::ranges::fill(values_of(state, fault_.tensor), 0.0f);
  }

  std::optional<train::StepReport> step(io::Loader& loader,
                                        const host::StepRequest& request) override {
    step_under_way = position().step + 1;
    const bool spoils = fault_.kind == "nan" && fault_.step == position().step + 1;
    float* const number = spoils ? &values_of(state_, fault_.tensor).back() : nullptr;
    const float before = spoils ? *number : 0;
    if (spoils) *number = std::numeric_limits<float>::quiet_NaN();
    auto report = trainer_->step(loader, request);
    if (spoils) *number = before;
    step_under_way = 0;
    advance();
    if (fault_.kind == "flip" && fault_.rank == rank_ && fault_.step == position().step) flip();
    return report;
  }
  std::optional<train::StepReport> finish_step() override { return trainer_->finish_step(); }

 private:
  void flip() {
    float& value = values_of(state_, fault_.tensor).back();
    value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1u);
  }

  const std::unique_ptr<train::Stepper> trainer_;
  const train::TrainingState& state_;
  const int rank_;
  const Fault fault_ = fault();
};

class WatchedSite final : public train::TrainingEngine {
 public:
  WatchedSite(std::unique_ptr<train::TrainingEngine> engine, const train::RunPlan& plan,
              const allreduce::MpiSession& session)
      : engine_(std::move(engine)), plan_(plan), rank_(session.rank()) {}

  std::vector<std::string> notes() const override { return engine_->notes(); }
  allreduce::Communicator& communicator() override { return engine_->communicator(); }
  const train::TrainingState& state() override { return engine_->state(); }
  train::Snapshotter& state_copy() override { return engine_->state_copy(); }
  std::unique_ptr<train::Stepper> make_stepper(train::Position start) override {
    if (start.step > 0) start.samples += fault().samples;
    return std::make_unique<WatchedTrainer>(engine_->make_stepper(start), plan_.trainer(), start,
                                            state(), rank_);
  }
  std::unique_ptr<train::Stepper> make_solo_stepper() override {
    return engine_->make_solo_stepper();
  }
  compute::Program& evaluation() override { return engine_->evaluation(); }
  std::vector<std::uint64_t> bucket_bounds() override { return engine_->bucket_bounds(); }
  void sum(const Range& bucket) override { engine_->sum(bucket); }
  const allreduce::RingChoice* ring() const override { return engine_->ring(); }
  std::vector<allreduce::SumPlan> sum_plans() const override { return engine_->sum_plans(); }
  void set_sum_plan(const allreduce::SumPlan& plan) override { engine_->set_sum_plan(plan); }
  bool sums_overlap() override { return engine_->sums_overlap(); }
  std::vector<double> bucket_leads(double backward_s) override {
    return engine_->bucket_leads(backward_s);
  }
  std::string device() const override { return engine_->device(); }
  std::string plans() const override { return engine_->plans(); }
  std::optional<std::size_t> first_non_finite_gradient() override {
    return engine_->first_non_finite_gradient();
  }
  void close() override { engine_->close(); }

 private:
  const std::unique_ptr<train::TrainingEngine> engine_;
  const train::RunPlan& plan_;
  const int rank_;
};

}  // namespace

std::unique_ptr<train::TrainingEngine> watched_site(const train::RunPlan& plan,
                                                    const host::ThreadPlan& threads,
                                                    const allreduce::MpiSession& session,
                                                    monitor::Progress& progress) {
  const std::string file = variable("SAMPLES");
  if (!file.empty()) samples.open(file + "." + std::to_string(session.rank()), std::ios::app);
  return std::make_unique<WatchedSite>(cpu_site(plan, threads, session, progress), plan, session);
}

const Batch* watched_batch(io::Loader* loader) {
  const Batch* batch = next_batch(loader);
  if (step_under_way > 0 && samples.is_open())
    for (int i = 0; i < batch->size(); ++i)
      samples << step_under_way << ' ' << batch->epochs[i] << ' ' << batch->samples[i] << std::endl;
  return batch;
}

}  // namespace ringtrain
