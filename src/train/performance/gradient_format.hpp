#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "train/engine/engine.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {

/// In which numbers gradients travel between hosts, and how compressed.
struct GradientFormat {
  Element element = Element::fp32;
  allreduce::Compression compression = {};

  bool operator==(const GradientFormat&) const = default;
};

/// What the user would type for it: "--gradient-dtype bf16".
std::string text_of(const GradientFormat& format);

/// A format, and the medians of its trials, in seconds a step.
struct TriedFormat {
  GradientFormat format;
  double step_s = 0;
};

/// The fastest format; but an earlier one, which changes the gradients less, unless a later one
/// takes less than 0.95 of its time.
std::size_t best_format(std::span<const TriedFormat> tried);

/// The format in a checkpoint's configuration; none: it does not say.
std::optional<GradientFormat> format_in(std::string_view config);

/// With --tuning all: decides in which format gradients travel, at the same global batch: as in the
/// checkpoint that training goes on from; else as trials show to be fastest, each of which trains a
/// throw-away engine of `make_engine`; without that nothing is tried. Sets the plan's options.
/// Tells the user, and `progress` which file is read. Collective.
void settle_gradient_format(RunPlan& plan,
                            const std::function<std::unique_ptr<TrainingEngine>()>& make_engine,
                            const allreduce::MpiSession& session, const Tell& tell,
                            monitor::Progress& progress);

}  // namespace ringtrain::train
