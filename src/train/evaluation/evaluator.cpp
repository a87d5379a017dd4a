#include "train/evaluation/evaluator.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/statistics.hpp"
#include "ringtrain/io/loader/loader.hpp"
#include "train/evaluation/views.hpp"
#include "train/loop/unreadable_samples.hpp"

namespace ringtrain::train {
namespace {

/// How ranks agree, while each evaluates its share, that all of them stop, save, or are done. They
/// do so in rounds: each says its word once in a round, and all hear of all. A round is under way
/// while batches are evaluated, and whether another follows depends only on what was said in it. So
/// all ranks take part in the same ones, however many batches each has.
class RequestRounds {
 public:
  explicit RequestRounds(const allreduce::MpiSession& session) : session_(session) {}

  /// Between batches: hears whether a round is over, and says this rank's word in the next. Returns
  /// what all ranks ask for, where a round has just told of any. Never waits.
  host::StepRequest look(const host::StepRequest& mine, bool done) {
    if (mine.stop || mine.signal != 0) mine_ = mine;
    if (!round_ && !over_ && (done || mine_.stop || since_round_.elapsed() > between_s)) say(done);
    if (!round_ || !round_->done()) return {};
    const auto heard = std::exchange(round_, nullptr)->values();
    const host::StepRequest all = host::agreed_request(heard[0], heard[1], heard[2]);
    over_ = all.stop || heard[3] == session_.size();
    return all;
  }
  /// A request that came too late for the last round.
  const host::StepRequest& unsaid() const { return mine_; }
  /// All are done, or all stop.
  bool over() const { return over_; }

 private:
  static constexpr double between_s = 0.2;

  void say(bool done) {
    const host::StepRequest request = std::exchange(mine_, {});
    const std::array<double, 4> word = {double(request.stop), double(request.signal != 0),
                                        double(request.signal), double(done)};
    since_round_.lap();
    round_ = session_.start_sum(word);
  }

  const allreduce::MpiSession& session_;
  std::unique_ptr<allreduce::MpiSession::SumUnderWay> round_;
  Stopwatch since_round_;
  host::StepRequest mine_;  // not said yet
  bool over_ = false;
};

// Runs the evaluation program once over the whole data set, each rank on its share, or until a
// rank asks to stop. Each is asked before every batch, and what all of them ask for is granted on
// all, two batches and half a second later at most. All ranks return the same but for
// `events`.
Evaluation evaluate(const Evaluator::Parts& parts, const std::function<host::StepRequest()>& ask) {
  ViewedProgram program(parts.engine.evaluation(), parts.run.plan.model.recipe.views);
  const io::Dataset& dataset = *parts.run.plan.evaluation;
  const allreduce::MpiSession& session = parts.run.session;
  monitor::Progress& progress = parts.run.progress;
  progress.pause();
  Stopwatch watch;
  io::LoaderOptions told = parts.run.plan.loader(io::Split::evaluation);
  told.on_retry = [&] { progress.enter(metrics::Phase::evaluation); };
  told.report = session.reporter();
  io::Loader loader(dataset, told);
  RequestRounds rounds(session);
  bool stop = false;
  const auto look = [&](bool done) {
    const host::StepRequest all = rounds.look(ask(), done);
    stop = stop || all.stop;
    if (all.stop || all.signal != 0) parts.control.agree(all);
    return rounds.over();
  };
  std::array<double, 5> sums{};  // loss, top1, top5, samples, those that could not be read
  try {
    const Batch* batch = nullptr;
    for (;;) {
      progress.enter(metrics::Phase::evaluation);
      if (look(false) || (batch = loader.next()) == nullptr) break;
      const compute::StepResult result = program.run(*batch);
      sums[0] += result.loss;
      sums[1] += result.top1;
      sums[2] += result.top5;
      sums[3] += result.samples;
      if (parts.classes != nullptr) parts.classes->add(*batch, program.logits());
    }
    progress.enter(metrics::Phase::ranks);  // once, so that a wait without end is seen to be one
    while (!rounds.over() && !look(true)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } catch (const std::exception& failure) {
    if (parts.before_abort) parts.before_abort();
    session.abort(failure);  // while the loader lives: a thread of it may be stuck in a read
  }
  sums[4] = static_cast<double>(loader.unreadable().size());
  session.sum(sums);
  const auto unreadable = static_cast<std::uint64_t>(sums[4]);
  const double samples = std::max(sums[3], 1.0);
  return {!stop,
          rounds.unsaid(),
          without_nan_sign(sums[0] / samples),
          sums[1] / samples,
          sums[2] / samples,
          static_cast<std::uint64_t>(sums[3]),
          watch.lap(),
          unreadable,
          loader.take_events(),
          sums[3] > 0 && !io::too_many_unreadable(unreadable, dataset.size())};
}

}  // namespace

void Evaluator::evaluate_at(const Position& position) {
  parts_.control.share_save_s(parts_.run.session);  // so that all ranks end it at the same time
  const auto ask = [&] {
    for (Hook* const hook : hooks_) hook->between_batches(position);
    return parts_.control.wanted();
  };
  const auto begin = metrics::Timeline::Clock::now();
  const Evaluation result = evaluate(parts_, ask);
  parts_.run.progress.record(metrics::Phase::evaluation,
                             {begin, metrics::Timeline::Clock::now(), position.step});
  if (result.whole) evaluated_step_ = position.step;
  for (Hook* const hook : hooks_) hook->evaluated(position, result);
  if (result.whole && !result.valid)
    parts_.control.fail(unreadable_data(*parts_.run.plan.evaluation, result.unreadable,
                                        result.events.empty() ? "" : result.events.back(),
                                        parts_.run.session));
}

}  // namespace ringtrain::train
