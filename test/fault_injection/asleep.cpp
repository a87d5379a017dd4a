// The whole program, in which a rank falls asleep for ever, or takes all memory there is; the
// linker puts these functions in the place of the program's (--wrap, see CMakeLists.txt).
//   ASLEEP="RANK WHERE CALL"  at its CALLth time in init, data, all-reduce or save; when, is in
//                             $FOLDER/fault
//   START_LIMIT_S="SECONDS"   without progress at the start are too long
//   HUNGRY="RANK CALL"        from its CALLth batch on, 16 MiB a batch
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"
#include "ringtrain/allreduce/mpi/launch_environment.hpp"
#include "ringtrain/monitor/watchdog/liveness.hpp"
#include "train/checkpoint/checkpoint_manager.hpp"
#include "train/engine/engine.hpp"

namespace ringtrain {

std::unique_ptr<train::TrainingEngine>
cpu_site(const train::RunPlan&, const host::ThreadPlan&, const allreduce::MpiSession&, monitor::Progress&) asm(
    "__real__ZN9ringtrain5train15make_cpu_engineERKNS0_7RunPlanERKNS_4host10ThreadPlanERKNS_"
    "9allreduce10MpiSessionERNS_7monitor8ProgressE");
std::unique_ptr<train::TrainingEngine>
sleepy_site(const train::RunPlan&, const host::ThreadPlan&, const allreduce::MpiSession&, monitor::Progress&) asm(
    "__wrap__ZN9ringtrain5train15make_cpu_engineERKNS0_7RunPlanERKNS_4host10ThreadPlanERKNS_"
    "9allreduce10MpiSessionERNS_7monitor8ProgressE");
const Batch* next_batch(io::Loader*) asm("__real__ZN9ringtrain2io6Loader4nextEv");
const Batch* sleepy_batch(io::Loader*) asm("__wrap__ZN9ringtrain2io6Loader4nextEv");
void finish_sums(allreduce::GradientReducer*) asm(
    "__real__ZN9ringtrain9allreduce15GradientReducer6finishEv");
void sleepy_sums(allreduce::GradientReducer*) asm(
    "__wrap__ZN9ringtrain9allreduce15GradientReducer6finishEv");
bool settle(train::CheckpointManager*, const Deadline&) asm(
    "__real__ZN9ringtrain5train17CheckpointManager6settleERKNS_8DeadlineE");
bool sleepy_settle(train::CheckpointManager*, const Deadline&) asm(
    "__wrap__ZN9ringtrain5train17CheckpointManager6settleERKNS_8DeadlineE");
double usual_limit_s(metrics::Phase, double,
                     double) asm("__real__ZN9ringtrain7monitor7limit_sENS_7metrics5PhaseEdd");
double shorter_limit_s(metrics::Phase, double,
                       double) asm("__wrap__ZN9ringtrain7monitor7limit_sENS_7metrics5PhaseEdd");

namespace {

// As `date +%s.%N` writes it, where lost_ranks.sh looks for it.
void tell_when() {
  const char* folder = std::getenv("FOLDER");
  if (folder == nullptr) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::ofstream(std::string(folder) + "/fault")
      << std::fixed << std::chrono::duration<double>(now).count() << "\n";
}

void maybe_sleep(const std::string& here) {
  static int calls = 0;
  const char* text = std::getenv("ASLEEP");
  std::istringstream words(text == nullptr ? "" : text);
  int rank = -1, call = 0;
  std::string where;
  words >> rank >> where >> call;
  if (where != here || rank != allreduce::launch_from_environment().rank) return;
  if (calls + 1 == call) tell_when();
  while (calls + 1 == call) ::pause();
  ++calls;
}

void maybe_eat() {
  static int calls = 0;
  const char* text = std::getenv("HUNGRY");
  std::istringstream words(text == nullptr ? "" : text);
  int rank = -1, call = 0;
  words >> rank >> call;
  if (rank != allreduce::launch_from_environment().rank || ++calls < call) return;
  static std::vector<std::vector<char>> eaten;
  eaten.emplace_back(std::size_t{16} << 20, 'x');
}

}  // namespace

std::unique_ptr<train::TrainingEngine> sleepy_site(const train::RunPlan& plan,
                                                   const host::ThreadPlan& threads,
                                                   const allreduce::MpiSession& session,
                                                   monitor::Progress& progress) {
  maybe_sleep("init");
  return cpu_site(plan, threads, session, progress);
}

const Batch* sleepy_batch(io::Loader* loader) {
  maybe_sleep("data");
  maybe_eat();
  return next_batch(loader);
}

void sleepy_sums(allreduce::GradientReducer* reducer) {
  maybe_sleep("all-reduce");
  finish_sums(reducer);
}

double shorter_limit_s(metrics::Phase phase, double median_step_s, double last_save_s) {
  const double usual_s = usual_limit_s(phase, median_step_s, last_save_s);
  const char* text = std::getenv("START_LIMIT_S");
  const bool starts = phase > metrics::Phase::init && phase < metrics::Phase::data_wait;
  return text != nullptr && starts ? std::min(usual_s, std::atof(text)) : usual_s;
}

bool sleepy_settle(train::CheckpointManager* checkpoints, const Deadline& deadline) {
  maybe_sleep("save");
  return settle(checkpoints, deadline);
}

}  // namespace ringtrain
