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
#include "ringtrain/monitor/watched_reporter.hpp"
#include "train/checkpoint/resume.hpp"
#include "train/engine/near_gpu.hpp"
#include "train/performance/batch_shares.hpp"
#include "train/performance/gradient_format.hpp"
#include "train/plan/device_choice.hpp"
#include "train/preflight/doctor.hpp"
#include "train/training_run.hpp"

namespace ringtrain::train {
namespace {

// What follows evaluations, in words.
std::string best_text(const config::Options& o) {
  std::string text;
  if (o.keep_best)
    text += " --keep-best " + config::enumerator<config::Metric>().write(*o.keep_best);
  if (o.until) text += " --until " + config::metric_goal().write(*o.until);
  if (o.patience) text += fmt::format(" --patience {}", *o.patience);
  return text;
}

// What all ranks must have alike: what is computed, and which collectives are called when.
allreduce::Agreement claims(const RunPlan& plan) {
  const config::Options& o = plan.options;
  const std::string tried =
      " --tuning " + config::tune_value().write(o.tune) +
      (o.shares ? " --shares " + config::shares_value().write(*o.shares) : "");
  return {{"build", program_hash()},
          {"model", o.model},
          {"options", config::canonical_config(o)},
          {"run",
           fmt::format(
               "--eval-every {} --check-every {}{}{}{}{}{}{}{}{}{}{}{}", o.eval_every,
               *o.check_every, tried, best_text(o), o.shard_optimizer ? " --shard-optimizer" : "",
               o.predicts()  ? " --predict"
               : o.eval_only ? " --eval-only"
                             : "",
               o.init_from.empty() ? "" : " --init-from",
               o.watchdog == config::Watching::off ? " --watchdog off" : "",
               o.watchdog_silence_s == config::Options().watchdog_silence_s
                   ? ""
                   : fmt::format(" --watchdog-silence {}s", o.watchdog_silence_s),
               o.timeline.empty() ? "" : " --timeline", o.baseline ? " --baseline" : "",
               o.require_efficiency ? " --require-efficiency" : "",
               o.verify_resume ? fmt::format(" --verify-resume {}", *o.verify_resume) : "")},
          {"training data", plan.training ? hex(plan.training->manifest_hash()) : "none"},
          {"evaluation data", plan.evaluation ? hex(plan.evaluation->manifest_hash()) : "none"}};
}

/// What set-up works with, on every rank.
struct Setup {
  const config::Options& options;  ///< as the user gave them
  host::ThreadPlan threads;
  const allreduce::MpiSession& session;
  monitor::Progress& progress;
  metrics::Reporter& output;
  bool doctor = false;  ///< on all ranks; it ends before training

  void note(const std::string& line) const { output.note(line); }
};

// What --device auto and --precision auto mean where there are GPUs.
void choose_gpu_defaults(config::Options& o, int hosts) {
  o.device = config::Device::cuda;
  if (o.precision == config::Precision::automatic) o.precision = config::Precision::fp16;
  if (!o.check_every) o.check_every = 1000;  // the state has a way to the host
  if (!o.bucket_mb) o.bucket_mb = usual_gpu_bucket_mb(hosts, bool(o.compress));
}

// The same device on all ranks, and what follows from it.
config::Options with_device(const Setup& setup) {
  config::Options chosen = setup.options;
  const DeviceChoice device = choose_device(chosen.device, chosen.precision, setup.session);
  if (device.gpu) choose_gpu_defaults(chosen, setup.session.hosts());
  if (!device.note.empty()) setup.note(device.note);
  return chosen;
}

// Before threads are started that read data. The line of the start is then no longer true.
void move_near_gpu(Setup& setup) {
  const host::ThreadPlan before = setup.threads;
  setup.threads = threads_near_gpu(before, setup.session);
  if (setup.threads.cpus != before.cpus) setup.note(setup.threads.text);
}

// This rank's plan.
RunPlan own_plan(const config::Options& chosen, const Setup& setup) {
  const auto note = [&](const std::string& line) { setup.note(line); };
  const allreduce::MpiSession& session = setup.session;
  setup.progress.enter(metrics::Phase::resume);
  const auto saved = saved_network(chosen, session, &setup.progress);
  setup.progress.enter(metrics::Phase::init);
  RunPlan plan = make_run_plan(chosen, static_cast<int>(setup.threads.cpus.size()), session.rank(),
                               session.size(), note, &setup.progress, saved);
  plan.hosts = session.hosts();
  plan.usual_bucket = !setup.options.bucket_mb;
  take_given_shares(plan, session, note);
  return plan;
}

// What the doctor knows when there may be no plan.
HostFacts facts_of_trial(const config::Options& chosen, const Setup& setup) {
  HostFacts facts = collect_host_facts(chosen, setup.threads, setup.session);
  try {
    add_plan(facts, own_plan(chosen, setup), setup.session, setup.progress);
  } catch (const Error& failure) {
    facts.failure = failure.what();
    facts.failure_code = static_cast<int>(failure.code());
  }
  return facts;
}

// The table of --doctor, where training would begin.
void show(const Diagnosis& diagnosis, const Setup& setup) {
  setup.note(diagnosis.table);
  if (diagnosis.code != 0)
    setup.session.fail_together("--doctor: training would not begin: " + diagnosis.stop,
                                static_cast<Exit>(diagnosis.code));
}

// The plan that all ranks agree on; what hosts lack is told before.
RunPlan agreed_plan(const config::Options& chosen, const Setup& setup) {
  const allreduce::MpiSession& session = setup.session;
  if (setup.doctor) show(diagnose(facts_of_trial(chosen, setup), session), setup);
  RunPlan plan = allreduce::all_or_none([&] { return own_plan(chosen, setup); }, session);
  allreduce::require_agreement(claims(plan),
                               session);  // before anything else that ranks do together
  if (!setup.doctor) {
    HostFacts facts = collect_host_facts(chosen, setup.threads, session);
    add_plan(facts, plan, session, setup.progress);
    for (const std::string& line : diagnose(facts, session).warnings)
      setup.output.write(metrics::EventRecord{"doctor", 0, line});
  }
  for (const std::string& line : plan.hints()) setup.note(line);
  return plan;
}

// Of the plan as it is when this is called.
std::unique_ptr<TrainingEngine> make_engine(const RunPlan& plan, const Setup& setup) {
  const bool gpu = plan.options.device == config::Device::cuda;
  setup.progress.enter(gpu ? metrics::Phase::init : metrics::Phase::plan);
  setup.progress.forget_steps();
  return gpu ? make_gpu_engine(plan, setup.session, setup.progress)
             : make_cpu_engine(plan, setup.threads, setup.session, setup.progress);
}

// What the first steps, or a checkpoint, decide: how gradients travel and how ranks divide a step.
void settle(RunPlan& plan, const Setup& setup) {
  const auto note = [&](const std::string& line) { setup.note(line); };
  std::function<std::unique_ptr<TrainingEngine>()> trial;  // none for the doctor
  if (!setup.doctor) trial = [&] { return make_engine(plan, setup); };
  settle_gradient_format(plan, trial, setup.session, note, setup.progress);
  settle_shares(plan, trial, setup.session, note, setup.progress);
  setup.progress.enter(metrics::Phase::init);
}

// Null where none is asked for. What cannot be written is better known before training.
std::unique_ptr<metrics::Timeline> make_timeline(const config::Options& o, int rank,
                                                 monitor::Progress& progress) {
  if (o.timeline.empty()) return nullptr;
  progress.at(Work::open, o.timeline);
  const std::string reason = rank == 0 ? why_unwritable(o.timeline) : "";
  if (!reason.empty())
    throw Error(Exit::storage, "--timeline " + o.timeline,
                reason + "; name a file that can be written");
  return std::make_unique<metrics::Timeline>(static_cast<std::size_t>(o.timeline_spans));
}

// With its timeline, where there is one.
int run_recorded(TrainingRun& training, io::WriterProcess& writer,
                 const metrics::Timeline* timeline, const Setup& setup) {
  if (timeline == nullptr) return training.run(writer);
  const std::string& path = setup.options.timeline;
  const allreduce::ClockOffset before = allreduce::measure_clock_offset(setup.session);
  const int code = training.run(writer);
  const allreduce::ClockOffset after = allreduce::measure_clock_offset(setup.session);
  setup.progress.at(Work::open, path);
  const metrics::SavedTimeline saved =
      metrics::save_timeline(*timeline, path, before, after, setup.session);
  setup.progress.enter(metrics::Phase::exit);
  if (saved.there)
    setup.note(saved.text);
  else
    setup.output.write(metrics::EventRecord{"timeline", 0, saved.text});
  return code;
}

// Evaluations and limits of time are not for parts: they take the time they take.
PartResult train_part(const TrainingPart& part, RunPlan& plan, const Setup& setup,
                      monitor::Watchdog& watchdog, const Stopwatch& since_start,
                      io::WriterProcess& writer) {
  setup.progress.enter(metrics::Phase::init);
  plan.options.resume = part.resume;
  plan.options.checkpoint_dir = part.directory;
  plan.options.max_time_s.reset();
  plan.evaluation.reset();
  const std::unique_ptr<TrainingEngine> engine = make_engine(plan, setup);
  const std::unique_ptr<metrics::Reporter> silent = metrics::make_silent_reporter();
  io::WriterProcess none;
  TrainingRun training({plan, setup.session, setup.progress, *silent}, *engine, watchdog,
                       since_start, part.steps);
  training.run(part.saves ? writer : none);
  setup.progress.enter(metrics::Phase::init);
  return training.end();
}

std::unique_ptr<metrics::Reporter> make_watched_reporter(const config::Options& options,
                                                         const allreduce::MpiSession& session,
                                                         monitor::Progress& progress) {
  auto reporter = session.rank() == 0
                      ? metrics::make_reporter(options, metrics::standard_sinks(options), &progress)
                      : metrics::make_silent_reporter();
  return std::make_unique<monitor::WatchedReporter>(std::move(reporter), progress);
}

}  // namespace

int run(const config::Options& options, const host::ThreadPlan& threads,
        const allreduce::MpiSession& session, io::WriterProcess& writer,
        const Stopwatch& since_start) {
  std::unique_ptr<metrics::Timeline>
      timeline;  // the watchdog's thread may read it: it goes after that one
  monitor::Watchdog watchdog(session,
                             options);  // before any path of the user's, which may not answer
  monitor::Progress& progress = watchdog.progress();
  const auto output = make_watched_reporter(options, session, progress);
  output->note(threads.text);
  if (std::error_code failure; !options.checkpoint_dir.empty())
    session.fault_context().resume_from(
        std::filesystem::absolute(options.checkpoint_dir, failure).string());
  timeline = make_timeline(options, session.rank(), progress);
  progress.record_in(timeline.get());
  progress.enter(metrics::Phase::init);

  Setup setup{options, threads, session, progress, *output};
  const config::Options chosen = with_device(setup);
  if (chosen.device == config::Device::cuda) move_near_gpu(setup);
  setup.doctor = !session.broadcast(options.doctor ? "on" : "").empty();
  RunPlan plan = agreed_plan(chosen, setup);
  settle(plan, setup);
  if (plan.options.verify_resume && !setup.doctor)
    return verify_resume(
        config::Options(plan.options), session, [&](const std::string& line) { setup.note(line); },
        [&](const TrainingPart& part) {
          return train_part(part, plan, setup, watchdog, since_start, writer);
        });

  const std::unique_ptr<TrainingEngine> engine = make_engine(plan, setup);
  for (const std::string& line : engine->notes()) setup.note(line);
  watchdog.watch_gpu(engine->gpu_bus_id());
  TrainingRun training({plan, session, progress, *output}, *engine, watchdog, since_start);
  if (setup.doctor) return training.dry_run(writer);
  const int code = run_recorded(training, writer, timeline.get(), setup);
  training.require_efficiency();
  return code;
}

}  // namespace ringtrain::train
