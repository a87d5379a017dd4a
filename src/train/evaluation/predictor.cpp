#include "train/evaluation/predictor.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "ringtrain/base/atomic_file.hpp"
#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/io/loader/loader.hpp"
#include "train/evaluation/predictions.hpp"
#include "train/evaluation/views.hpp"

namespace ringtrain::train {
namespace {

using Write = std::function<void(const std::string& text)>;

/// Of all ranks.
struct Totals {
  double top1 = 0, labelled = 0, unreadable = 0, not_finite = 0;
  std::uint64_t images = 0;
};

bool has_labels(const io::Dataset& images) {
  for (std::uint64_t i = 0; i < images.size(); ++i)
    if (images.label(i) >= 0) return true;
  return false;
}

class Predictor {
 public:
  Predictor(const RunContext& run, TrainingEngine& engine, StopControl& control)
      : run_(run),
        program_(engine.evaluation(), run.plan.model.recipe.views),
        control_(control),
        images_(*run.plan.evaluation),
        format_(run.options().output, run.plan.class_names, run.options().top_k,
                has_labels(images_)) {}

  /// Through rank 0's `write`.
  void run(const Write& write);
  void tell(double seconds) const;
  /// Before all images were seen.
  bool stopped() const { return totals_.images < images_.size(); }
  const Totals& totals() const { return totals_; }

 private:
  io::LoaderOptions loader_options() const;
  std::string lines_of(const Batch& batch, const io::Loader& loader);
  /// What a rank found in a batch, summed over the ranks, and whether all stop.
  bool add_up(const compute::StepResult& result);

  const RunContext& run_;
  ViewedProgram program_;
  StopControl& control_;
  const io::Dataset& images_;
  const PredictionFormat format_;
  Totals totals_;
  Totals here_;  // of this rank and the batch under way
};

io::LoaderOptions Predictor::loader_options() const {
  io::LoaderOptions o = run_.plan.loader(io::Split::evaluation);
  o.on_retry = [this] { run_.progress.enter(metrics::Phase::evaluation); };
  o.report = run_.session.reporter();
  return o;
}

std::string Predictor::lines_of(const Batch& batch, const io::Loader& loader) {
  const std::vector<float> logits = program_.logits();
  const std::size_t classes = logits.size() / batch.samples.size();
  std::string lines;
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const std::uint64_t image = batch.samples[i].index;
    if (image >= images_.size()) break;  // what follows fills the batch up
    Prediction told{images_.name(image), images_.label(image)};
    told.error = loader.why_unreadable(image);
    here_.unreadable += !told.error.empty();
    if (told.error.empty()) {
      told.best = best_classes(std::span(logits).subspan(i * classes, classes), format_.top_k());
      here_.not_finite += told.best.empty();
      if (told.best.empty()) told.error = "the network's output is not finite";
    }
    lines += format_.line(told);
  }
  return lines;
}

bool Predictor::add_up(const compute::StepResult& result) {
  const host::StepRequest mine = control_.wanted();
  std::array<double, 7> sums = {double(mine.stop),   double(mine.signal != 0), double(mine.signal),
                                double(result.top1), double(result.samples),   here_.unreadable,
                                here_.not_finite};
  run_.session.sum(sums);
  control_.agree(host::agreed_request(sums[0], sums[1], sums[2]));
  totals_.top1 += sums[3];
  totals_.labelled += sums[4];
  totals_.unreadable += sums[5];
  totals_.not_finite += sums[6];
  here_ = {};
  return control_.stopping();
}

void Predictor::run(const Write& write) {
  io::Loader loader(images_, loader_options());
  const auto step = static_cast<std::uint64_t>(run_.plan.micro_batch);
  try {
    write(format_.header());
    for (bool stops = false; !stops && totals_.images < images_.size();) {
      run_.progress.enter(metrics::Phase::evaluation);
      const Batch& batch = *loader.next();
      const compute::StepResult result = program_.run(batch);
      const std::string lines = lines_of(batch, loader);
      run_.progress.enter(metrics::Phase::ranks);
      for (const std::string& of_rank : run_.session.gather(lines)) write(of_rank);
      totals_.images = std::min(images_.size(), totals_.images + step);
      stops = add_up(result);
    }
  } catch (const std::exception& failure) {
    run_.session.abort(failure);  // while the loader lives: a thread of it may be stuck in a read
  }
}

void Predictor::tell(double seconds) const {
  const std::string& output = run_.options().output;
  const double told = double(totals_.images) - totals_.unreadable;
  std::string text =
      fmt::format("predicted {}{} images in {:.1f} s, {:.1f} a second", told,
                  totals_.unreadable > 0 ? fmt::format(" of {}", totals_.images) : "", seconds,
                  double(totals_.images) / seconds);
  if (stopped()) text += fmt::format(", of {}", images_.size());
  if (totals_.unreadable > 0) text += fmt::format("; {} could not be read", totals_.unreadable);
  if (totals_.not_finite > 0)
    text += fmt::format("; {} without a finite output", totals_.not_finite);
  if (totals_.labelled > 0)
    text += fmt::format("; top-1 {:.2f} % of {} with a label",
                        100 * totals_.top1 / totals_.labelled, totals_.labelled);
  if (stopped() && output != "-")
    text += "; the run was asked to end, and " + printable(output) + " is as it was";
  run_.note(text + (stopped() || output == "-" ? "" : "; written to " + printable(output)));
}

void write_out(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Error(Exit::storage, "write to standard output", reason_of(errno));
    done += static_cast<std::size_t>(written);
  }
}

// To standard output as it comes, else to a file that is there once it is whole. What is stopped
// leaves no file.
void write_all_to(const std::string& output, Predictor& predictor) {
  if (output == "-") return predictor.run(write_out);
  const std::string reason = write_output(output, Durable::in_a_while, [&](std::ostream& file) {
    predictor.run([&](const std::string& text) {
      file << text << std::flush;
      if (!file) throw Error(Exit::storage, "--output " + printable(output), reason_of(errno));
    });
    if (predictor.stopped()) file.setstate(std::ios::failbit);
  });
  if (!reason.empty() && !predictor.stopped())
    throw Error(Exit::storage, "--output " + printable(output), reason);
}

}  // namespace

void predict(const RunContext& run, TrainingEngine& engine, StopControl& control) {
  const std::string& output = run.options().output;
  const bool writes = run.session.rank() == 0;
  const std::string unwritable =
      run.session.broadcast(writes && output != "-" ? why_unwritable(output) : "");
  if (!unwritable.empty())
    run.session.fail_together("--output " + printable(output) + ": " + unwritable, Exit::storage);
  run.progress.pause();
  const Stopwatch watch;
  Predictor predictor(run, engine, control);
  if (writes)
    write_all_to(output, predictor);
  else
    predictor.run([](const std::string&) {});
  run.progress.enter(metrics::Phase::output);
  predictor.tell(watch.elapsed());
  const Totals& all = predictor.totals();
  if (predictor.stopped() && control.signal() == 0)
    run.session.fail_together("--predict: --max-time is up before all images are predicted",
                              Exit::storage);
  if (all.unreadable == double(all.images) && all.images > 0)
    control.fail(Error(Exit::data, "--predict",
                       "none of the images could be read; the output says why of each"));
  else if (all.unreadable + all.not_finite == double(all.images))
    control.fail(Error(Exit::not_finite, "--predict",
                       "the network gives no image a finite output: its weights have diverged"));
}

}  // namespace ringtrain::train
