#include "ringtrain/train/run.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>

#include "ringtrain/allreduce/mpi/agreement.hpp"
#include "ringtrain/base/atomic_file.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/program.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/metrics/trace/save_timeline.hpp"
#include "ringtrain/monitor/watchdog/watchdog.hpp"
#include "ringtrain/monitor/watched_output.hpp"
#include "train/checkpoint/resume.hpp"
#include "train/performance/batch_shares.hpp"
#include "train/performance/gradient_format.hpp"
#include "train/plan/device_choice.hpp"
#include "train/preflight/doctor.hpp"
#include "train/training_run.hpp"

namespace ringtrain {
namespace {

// What all ranks must have alike: what is computed, and which collectives are called when.
Agreement claims(const RunPlan& plan) {
  const Options& o = plan.options;
  const std::string tried = " --tuning " + tune_value().write(o.tune) +
                            (o.shares ? " --shares " + shares_value().write(*o.shares) : "");
  return {{"build", program_hash()},
          {"model", o.model},
          {"options", canonical_config(o)},
          {"run", fmt::format(
                      "--eval-every {} --check-every {}{}{}{}{}{}{}{}{}{}{}", o.eval_every,
                      *o.check_every, tried, o.shard_optimizer ? " --shard-optimizer" : "",
                      o.eval_only ? " --eval-only" : "", o.init_from.empty() ? "" : " --init-from",
                      o.watchdog == Watching::off ? " --watchdog off" : "",
                      o.watchdog_silence_s == Options().watchdog_silence_s
                          ? ""
                          : fmt::format(" --watchdog-silence {}s", o.watchdog_silence_s),
                      o.timeline.empty() ? "" : " --timeline", o.baseline ? " --baseline" : "",
                      o.require_efficiency ? " --require-efficiency" : "",
                      o.verify_resume ? fmt::format(" --verify-resume {}", *o.verify_resume) : "")},
          {"training data", hex(plan.training->manifest_hash())},
          {"evaluation data", plan.evaluation ? hex(plan.evaluation->manifest_hash()) : "none"}};
}

// What --device auto and --precision auto mean where there are GPUs.
void choose_gpu_defaults(Options& o, int hosts) {
  o.device = Device::cuda;
  if (o.precision == Precision::automatic) o.precision = Precision::fp16;
  if (!o.check_every) o.check_every = 1000;  // the state has a way to the host
  // A ring's latency grows with the ranks; between GPUs, fewer sums hide more of it.
  if (!o.bucket_mb) o.bucket_mb = hosts == 1 ? 4 : 16;
}

// What the doctor knows when there may be no plan.
HostFacts facts_of_trial(const std::function<RunPlan()>& make, const Options& options,
                         const ThreadPlan& threads, const MpiSession& session, Progress& progress) {
  HostFacts facts = collect_host_facts(options, threads, session);
  try {
    add_plan(facts, make(), session, progress);
  } catch (const Error& failure) {
    facts.failure = failure.what();
    facts.failure_code = static_cast<int>(failure.code());
  }
  return facts;
}

// The table of --doctor, where training would begin.
void show(const Diagnosis& diagnosis, const MpiSession& session, Reporter& output) {
  output.note(diagnosis.table);
  if (diagnosis.code != 0)
    session.fail_together("--doctor: training would not begin: " + diagnosis.stop,
                          static_cast<Exit>(diagnosis.code));
}

void warn(const Diagnosis& diagnosis, Reporter& output) {
  for (const std::string& line : diagnosis.warnings) output.event({"doctor", 0, line});
}

// Null where none is asked for. What cannot be written is better known before training.
std::unique_ptr<Timeline> make_timeline(const Options& o, int rank, Progress& progress) {
  if (o.timeline.empty()) return nullptr;
  progress.at(Work::open, o.timeline);
  const std::string reason = rank == 0 ? why_unwritable(o.timeline) : "";
  if (!reason.empty()) throw Error(Exit::storage, "--timeline " + o.timeline, reason);
  return std::make_unique<Timeline>(static_cast<std::size_t>(o.timeline_spans));
}

// With its timeline, where there is one.
int run_recorded(TrainingRun& training, WriterProcess& writer, const Timeline* timeline,
                 const std::string& path, const MpiSession& session, Progress& progress,
                 Reporter& output) {
  if (timeline == nullptr) return training.run(writer);
  const ClockOffset before = measure_clock_offset(session);
  const int code = training.run(writer);
  const ClockOffset after = measure_clock_offset(session);
  progress.at(Work::open, path);
  const SavedTimeline saved = save_timeline(*timeline, path, before, after, session);
  progress.enter(Activity::exit);
  if (saved.there)
    output.note(saved.text);
  else
    output.event({"timeline", 0, saved.text});
  return code;
}

// Evaluations and limits of time are not for legs: they take the time they take.
LegEnd train_leg(const Leg& leg, RunPlan& plan,
                 const std::function<std::unique_ptr<TrainingEngine>()>& make_engine,
                 const MpiSession& session, Watchdog& watchdog, const Stopwatch& since_start,
                 WriterProcess& writer) {
  watchdog.progress().enter(Activity::init);
  plan.options.resume = leg.resume;
  plan.options.checkpoint_dir = leg.directory;
  plan.options.max_time_s.reset();
  plan.evaluation.reset();
  const std::unique_ptr<TrainingEngine> engine = make_engine();
  const std::unique_ptr<Reporter> silent = make_silent_reporter();
  WriterProcess none;
  TrainingRun training(plan, *engine, session, watchdog, *silent, since_start, leg.steps);
  training.run(leg.saves ? writer : none);
  watchdog.progress().enter(Activity::init);
  return training.end();
}

// Whether the checkpoint that rank 0 would go on from counts steps that were left out.
bool finds_skipped(const RunPlan& plan, const MpiSession& session, Progress& progress) {
  if (!plan.counts_updates() || plan.options.eval_only) return false;
  progress.enter(Activity::resume);
  const bool mine = session.rank() == 0 &&
                    saves_skipped(plan.options.resume, plan.options.checkpoint_dir, &progress);
  return !session.broadcast(mine ? "yes" : "").empty();
}

}  // namespace

int run(const Options& options, const ThreadPlan& threads, const MpiSession& session,
        WriterProcess& writer, const Stopwatch& since_start) {
  std::unique_ptr<Timeline> timeline;   // the watchdog's thread may read it: it goes after that one
  Watchdog watchdog(session, options);  // before any path of the user's, which may not answer
  Progress& progress = watchdog.progress();
  const auto output = std::make_unique<WatchedReporter>(
      session.rank() == 0 ? make_reporter(options, standard_sinks(options), &progress)
                          : make_silent_reporter(),
      progress);
  output->note(threads.text);
  if (std::error_code failure; !options.checkpoint_dir.empty())
    session.fault_context().resume_from(
        std::filesystem::absolute(options.checkpoint_dir, failure).string());
  timeline = make_timeline(options, session.rank(), progress);
  progress.record_in(timeline.get());
  progress.enter(Activity::init);
  Options chosen = options;
  const DeviceChoice device = choose_device(options.device, options.precision, session);
  if (device.gpu) choose_gpu_defaults(chosen, session.hosts());
  if (!device.why_not.empty()) output->note("training on CPUs: " + device.why_not);
  const auto make = [&] {
    const auto note = [&](const std::string& line) { output->note(line); };
    RunPlan plan = make_run_plan(chosen, static_cast<int>(threads.cpus.size()), session.rank(),
                                 session.size(), note, &progress);
    plan.hosts = session.hosts();
    take_given_shares(plan, session, [&](const std::string& line) { output->note(line); });
    return plan;
  };
  const bool doctor = !session.broadcast(options.doctor ? "on" : "").empty();
  if (doctor)
    show(diagnose(facts_of_trial(make, chosen, threads, session, progress), session), session,
         *output);
  RunPlan plan = all_or_none(make, session);
  require_agreement(claims(plan), session);  // before anything else that ranks do together
  if (!doctor) {
    HostFacts facts = collect_host_facts(chosen, threads, session);
    add_plan(facts, plan, session, progress);
    warn(diagnose(facts, session), *output);
  }
  for (const std::string& line : plan.hints()) output->note(line);
  const auto make_engine = [&] {
    progress.enter(plan.options.device == Device::cuda ? Activity::init : Activity::plan);
    progress.forget_steps();
    return plan.options.device == Device::cuda ? make_gpu_engine(plan, session, progress)
                                               : make_cpu_engine(plan, threads, session, progress);
  };
  const auto tell = [&](const std::string& line) { output->note(line); };
  // The doctor ends before training: it tries nothing.
  const std::function<std::unique_ptr<TrainingEngine>()> trial_site =
      doctor ? nullptr : std::function(make_engine);
  settle_gradient_format(plan, trial_site, session, tell, progress);
  settle_shares(plan, trial_site, session, tell, progress);
  plan.keeps_skipped = finds_skipped(plan, session, progress);
  progress.enter(Activity::init);
  if (plan.options.verify_resume && !doctor)
    return verify_resume(
        Options(plan.options), session, [&](const std::string& line) { output->note(line); },
        [&](const Leg& leg) {
          return train_leg(leg, plan, make_engine, session, watchdog, since_start, writer);
        });
  const std::unique_ptr<TrainingEngine> engine = make_engine();
  for (const std::string& line : engine->notes()) output->note(line);
  watchdog.watch_gpu(engine->gpu_bus_id());
  TrainingRun training(plan, *engine, session, watchdog, *output, since_start);
  if (doctor) return training.dry_run(writer);
  const int code =
      run_recorded(training, writer, timeline.get(), options.timeline, session, progress, *output);
  training.require_efficiency();
  return code;
}

}  // namespace ringtrain
