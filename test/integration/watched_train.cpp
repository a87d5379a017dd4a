// The whole program with a training that tests watch or harm; the linker puts these functions in
// the place of the program's (--wrap, see CMakeLists.txt). What they do is said by
//   FAULT="flip RANK STEP TENSOR"  after STEP, one bit of RANK's TENSOR is another
//   FAULT="nan STEP TENSOR"        in STEP, and in no other, one number of TENSOR is none
//   FAULT="inf STEP TENSOR"        after STEP, and from then on, one number of TENSOR is infinite
//   FAULT="forget TENSOR"          a resume leaves TENSOR zero
//   FAULT="shift SAMPLES"          a resume goes on so many samples later
//   SAMPLES=FILE                   FILE.RANK gets "STEP EPOCH SAMPLE" for each sample trained on
//   ASLEEP="RANK WHERE CALL"       RANK sleeps for ever at its CALLth time in WHERE (init, data,
//                                  all-reduce, save); when, is in $FOLDER/fault
//   HUNGRY="RANK CALL"             from its CALLth batch on, RANK takes 16 MiB a batch
//   START_LIMIT_S=SECONDS          without progress at the start are too long
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"
#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/monitor/watchdog/liveness.hpp"
#include "train/checkpoint/checkpoint_manager.hpp"
#include "train/engine/engine.hpp"

namespace ringtrain {

std::unique_ptr<train::TrainingEngine>
real_make_engine(const train::RunPlan&, const host::ThreadPlan&, const allreduce::MpiSession&, monitor::Progress&) asm(
    "__real__ZN9ringtrain5train15make_cpu_engineERKNS0_7RunPlanERKNS_4host10ThreadPlanERKNS_"
    "9allreduce10MpiSessionERNS_7monitor8ProgressE");
std::unique_ptr<train::TrainingEngine>
watched_make_engine(const train::RunPlan&, const host::ThreadPlan&, const allreduce::MpiSession&, monitor::Progress&) asm(
    "__wrap__ZN9ringtrain5train15make_cpu_engineERKNS0_7RunPlanERKNS_4host10ThreadPlanERKNS_"
    "9allreduce10MpiSessionERNS_7monitor8ProgressE");
const Batch* real_next(io::Loader*) asm("__real__ZN9ringtrain2io6Loader4nextEv");
const Batch* watched_next(io::Loader*) asm("__wrap__ZN9ringtrain2io6Loader4nextEv");
void real_finish(allreduce::GradientReducer*) asm(
    "__real__ZN9ringtrain9allreduce15GradientReducer6finishEv");
void watched_finish(allreduce::GradientReducer*) asm(
    "__wrap__ZN9ringtrain9allreduce15GradientReducer6finishEv");
bool real_settle(train::CheckpointManager*, const Deadline&) asm(
    "__real__ZN9ringtrain5train17CheckpointManager6settleERKNS_8DeadlineE");
bool watched_settle(train::CheckpointManager*, const Deadline&) asm(
    "__wrap__ZN9ringtrain5train17CheckpointManager6settleERKNS_8DeadlineE");
double real_limit_s(metrics::Phase, double,
                    double) asm("__real__ZN9ringtrain7monitor7limit_sENS_7metrics5PhaseEdd");
double watched_limit_s(metrics::Phase, double,
                       double) asm("__wrap__ZN9ringtrain7monitor7limit_sENS_7metrics5PhaseEdd");

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
  if (fault.kind == "flip" || fault.kind == "nan" || fault.kind == "inf") text >> fault.step;
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

class WatchedStepper final : public train::Stepper {
 public:
  WatchedStepper(std::unique_ptr<train::Stepper> stepper, const train::StepSettings& settings,
                 train::Position start, const train::TrainingState& state, int rank)
      : train::Stepper(settings, start), stepper_(std::move(stepper)), state_(state), rank_(rank) {
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
    auto report = stepper_->step(loader, request);
    if (spoils) *number = before;
    step_under_way = 0;
    advance();
    if (fault_.kind == "flip" && fault_.rank == rank_ && fault_.step == position().step) flip();
    if (fault_.kind == "inf" && fault_.step == position().step)
      values_of(state_, fault_.tensor).back() = std::numeric_limits<float>::infinity();
    return report;
  }
  std::optional<train::StepReport> finish_step() override { return stepper_->finish_step(); }

 private:
  void flip() {
    float& value = values_of(state_, fault_.tensor).back();
    value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1u);
  }

  const std::unique_ptr<train::Stepper> stepper_;
  const train::TrainingState& state_;
  const int rank_;
  const Fault fault_ = fault();
};

class WatchedEngine final : public train::TrainingEngine {
 public:
  WatchedEngine(std::unique_ptr<train::TrainingEngine> engine, const train::RunPlan& plan,
                const allreduce::MpiSession& session)
      : engine_(std::move(engine)), plan_(plan), rank_(session.rank()) {}

  std::vector<std::string> notes() const override { return engine_->notes(); }
  allreduce::Communicator& communicator() override { return engine_->communicator(); }
  const train::TrainingState& state() override { return engine_->state(); }
  train::Snapshotter& state_copy() override { return engine_->state_copy(); }
  std::unique_ptr<train::Stepper> make_stepper(train::Position start) override {
    if (start.step > 0) start.samples += fault().samples;
    return std::make_unique<WatchedStepper>(engine_->make_stepper(start), plan_.trainer(), start,
                                            state(), rank_);
  }
  std::unique_ptr<train::Stepper> make_solo_stepper() override {
    return engine_->make_solo_stepper();
  }
  compute::Program& evaluation() override { return engine_->evaluation(); }
  train::EngineProbe& probe() override { return engine_->probe(); }
  std::string device() const override { return engine_->device(); }
  std::string plans() const override { return engine_->plans(); }
  std::string first_non_finite() override { return engine_->first_non_finite(); }
  void close() override { engine_->close(); }

 private:
  const std::unique_ptr<train::TrainingEngine> engine_;
  const train::RunPlan& plan_;
  const int rank_;
};

// As `date +%s.%N` writes it, where lost_ranks.sh looks for it.
void note_fault() {
  const std::string folder = variable("FOLDER");
  if (folder.empty()) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::ofstream(folder + "/fault")
      << std::fixed << std::chrono::duration<double>(now).count() << "\n";
}

void maybe_sleep(const std::string& here) {
  static int calls = 0;
  std::istringstream words(variable("ASLEEP"));
  int rank = -1, call = 0;
  std::string where;
  words >> rank >> where >> call;
  if (where != here || rank != allreduce::launch_from_environment().rank) return;
  if (calls + 1 == call) note_fault();
  while (calls + 1 == call) ::pause();
  ++calls;
}

void maybe_eat() {
  static int calls = 0;
  std::istringstream words(variable("HUNGRY"));
  int rank = -1, call = 0;
  words >> rank >> call;
  if (rank != allreduce::launch_from_environment().rank || ++calls < call) return;
  static std::vector<std::vector<char>> eaten;
  eaten.emplace_back(std::size_t{16} << 20, 'x');
}

}  // namespace

std::unique_ptr<train::TrainingEngine> watched_make_engine(const train::RunPlan& plan,
                                                           const host::ThreadPlan& threads,
                                                           const allreduce::MpiSession& session,
                                                           monitor::Progress& progress) {
  maybe_sleep("init");
  const std::string file = variable("SAMPLES");
  if (!file.empty()) samples.open(file + "." + std::to_string(session.rank()), std::ios::app);
  return std::make_unique<WatchedEngine>(real_make_engine(plan, threads, session, progress), plan,
                                         session);
}

const Batch* watched_next(io::Loader* loader) {
  maybe_sleep("data");
  maybe_eat();
  const Batch* batch = real_next(loader);
  if (step_under_way > 0 && samples.is_open())
    for (int i = 0; i < batch->size(); ++i)
      samples << step_under_way << ' ' << batch->samples[i].epoch << ' ' << batch->samples[i].index
              << std::endl;
  return batch;
}

void watched_finish(allreduce::GradientReducer* reducer) {
  maybe_sleep("all-reduce");
  real_finish(reducer);
}

bool watched_settle(train::CheckpointManager* checkpoints, const Deadline& deadline) {
  maybe_sleep("save");
  return real_settle(checkpoints, deadline);
}

double watched_limit_s(metrics::Phase phase, double median_step_s, double last_save_s) {
  const double usual_s = real_limit_s(phase, median_step_s, last_save_s);
  const std::string text = variable("START_LIMIT_S");
  const bool starts = phase > metrics::Phase::init && phase < metrics::Phase::data_wait;
  return !text.empty() && starts ? std::min(usual_s, std::stod(text)) : usual_s;
}

}  // namespace ringtrain
