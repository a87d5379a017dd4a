#include "ringtrain/optim/lr_schedule.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <utility>

#include "ringtrain/base/text.hpp"

namespace ringtrain::optim {
namespace {

using Kind = Decay::Kind;

// Positions are quotients of whole numbers: a staircase must not come one step late by rounding.
constexpr double rounding = 1e-9;
constexpr double most_epochs = 1e6, most_factor = 1000, least_factor = 1e-6;
// torch.optim.lr_scheduler.OneCycleLR: pct_start, 1 / div_factor, 1 / final_div_factor of it
constexpr Milestone onecycle_peak{30, true};
constexpr double onecycle_first = 1.0 / 25, onecycle_last = onecycle_first / 1e4;

struct Form {
  Kind kind;
  std::string_view name;
  std::string_view parts;  // each behind a colon; those in brackets may be left out
};

constexpr std::array forms = std::to_array<Form>({
    {Kind::constant, "constant", ""},
    {Kind::step, "step", "EPOCHS:FACTOR"},
    {Kind::multistep, "multistep", "EPOCH,EPOCH,...:FACTOR"},
    {Kind::exponential, "exponential", "EPOCHS:FACTOR"},
    {Kind::cosine, "cosine", "[FLOOR]"},
    {Kind::linear, "linear", "[FLOOR]"},
    {Kind::polynomial, "polynomial", "POWER:[FLOOR]"},
    {Kind::onecycle, "onecycle", "[EPOCH]"},
    {Kind::piecewise, "piecewise", "EPOCH=FACTOR,..."},
});

double part(std::string_view name, std::string_view text, double low, double high) try {
  return number_between(text, low, high);
} catch (const BadValue& bad) {
  throw BadValue(fmt::format("{} {}", name, bad.what()));
}

double epochs_in(std::string_view text) { return part("EPOCHS", text, 0.001, most_epochs); }
double factor_in(std::string_view text) { return part("FACTOR", text, least_factor, most_factor); }

Milestone position_in(std::string_view text) {
  if (!text.ends_with('%')) return {part("EPOCH", text, 0, most_epochs), false};
  return {part("EPOCH", text.substr(0, text.size() - 1), 0, 100), true};
}

std::string to_string(const Milestone& at) {
  return fmt::format("{}{}", at.value, at.percent ? "%" : "");
}

bool rises(const Decay::Knot& a, const Decay::Knot& b) {
  return a.at.percent == b.at.percent && a.at.value < b.at.value;
}

void check_order(const std::vector<Decay::Knot>& knots) {
  if (std::ranges::adjacent_find(knots, std::not_fn(rises)) != knots.end())
    throw BadValue("must name its epochs in rising order, all as numbers or all in percent");
}

std::vector<Decay::Knot> milestones(const std::string& text) {
  std::vector<Decay::Knot> knots;
  for (const std::string& at : split(text, ',')) knots.push_back({.at = position_in(at)});
  check_order(knots);
  return knots;
}

std::vector<Decay::Knot> points(const std::string& text) {
  std::vector<Decay::Knot> knots;
  for (const std::string& point : split(text, ',')) {
    const std::vector<std::string> sides = split(point, '=');
    if (sides.size() != 2) throw BadValue("must be piecewise:EPOCH=FACTOR,EPOCH=FACTOR,...");
    knots.push_back({position_in(sides[0]), part("FACTOR", sides[1], 0, most_factor)});
  }
  check_order(knots);
  return knots;
}

[[noreturn]] void refuse() {
  std::string all;
  for (const Form& form : forms) {
    all += all.empty() ? "" : ", ";
    all += form.name;
    if (!form.parts.empty()) all += fmt::format(":{}", form.parts);
  }
  throw BadValue(fmt::format("must be one of {}; behind it :by-epoch, if it changes so", all));
}

// `parts` are what stands behind the name, as many as its form has.
Decay decay_of(Kind kind, const std::vector<std::string>& parts) {
  Decay d{.kind = kind};
  const auto floor = [&](std::size_t at) {
    return parts.size() > at ? part("FLOOR", parts[at], 0, 1) : 0;
  };
  switch (kind) {
    case Kind::constant:
      break;
    case Kind::step:
    case Kind::exponential:
      d.epochs = epochs_in(parts[0]);
      d.factor = factor_in(parts[1]);
      break;
    case Kind::multistep:
      d.knots = milestones(parts[0]);
      d.factor = factor_in(parts[1]);
      break;
    case Kind::cosine:
    case Kind::linear:
      d.factor = floor(0);
      break;
    case Kind::polynomial:
      d.power = part("POWER", parts[0], 0.01, 100);
      d.factor = floor(1);
      break;
    case Kind::onecycle:
      d.knots = {{.at = parts.empty() ? onecycle_peak : position_in(parts[0])}};
      break;
    case Kind::piecewise:
      d.knots = points(parts[0]);
      break;
  }
  return d;
}

bool takes(const Form& form, std::size_t parts) {
  const auto most = form.parts.empty() ? 0 : 1 + std::ranges::count(form.parts, ':');
  const auto optional = std::ranges::count(form.parts, '[');
  return std::cmp_less_equal(parts, most) && std::cmp_greater_equal(parts, most - optional);
}

// Half a cosine from `from` to `to` while `done` goes from 0 to 1.
double along_cosine(double from, double to, double done) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * done)) / 2;
}

double share(double from, double to, double at) {
  return to > from ? std::clamp((at - from) / (to - from), 0.0, 1.0) : 1;
}

double between_knots(const LearningRate& rate, double epoch) {
  const std::vector<Decay::Knot>& knots = rate.decay.knots;
  const auto place = [&](const Decay::Knot& knot) { return knot.at.epoch(rate.total_epochs); };
  const auto next = std::ranges::upper_bound(knots, epoch, {}, place);
  if (next == knots.begin()) return next->factor;
  if (next == knots.end()) return knots.back().factor;
  const Decay::Knot& before = *(next - 1);
  return std::lerp(before.factor, next->factor, share(place(before), place(*next), epoch));
}

double along_one_cycle(const LearningRate& rate, double epoch) {
  const double peak = rate.decay.knots[0].at.epoch(rate.total_epochs);
  if (epoch < peak) return along_cosine(onecycle_first, 1, share(0, peak, epoch));
  return along_cosine(1, onecycle_last, share(peak, rate.total_epochs, epoch));
}

double decayed(const LearningRate& rate, double epoch) {
  const Decay& d = rate.decay;
  const bool fits = rate.total_epochs > rate.warmup_epochs;
  const double done = fits ? share(rate.warmup_epochs, rate.total_epochs, epoch) : 0;
  switch (d.kind) {
    case Kind::constant:
      break;
    case Kind::step:
      return std::pow(d.factor, std::floor(epoch / d.epochs + rounding));
    case Kind::multistep:
      return std::pow(d.factor, std::ranges::count_if(d.knots, [&](const Decay::Knot& knot) {
                        return knot.at.epoch(rate.total_epochs) <= epoch + rounding;
                      }));
    case Kind::exponential:
      return std::pow(d.factor, epoch / d.epochs);
    case Kind::cosine:
      return along_cosine(1, d.factor, done);
    case Kind::linear:
      return std::lerp(1, d.factor, done);
    case Kind::polynomial:
      return d.factor + (1 - d.factor) * std::pow(1 - done, d.power);
    case Kind::onecycle:
      return along_one_cycle(rate, epoch);
    case Kind::piecewise:
      return between_knots(rate, epoch);
  }
  return 1;
}

double warmup(const LearningRate& rate, double epoch) {
  if (epoch >= rate.warmup_epochs) return 1;
  return rate.warmup_factor + (1 - rate.warmup_factor) * epoch / rate.warmup_epochs;
}

// What stands behind the name, without its colon.
std::string parts_text(const Decay& d) {
  const auto floor = [&](std::string_view before) {
    return d.factor == 0 ? std::string(before)
                         : fmt::format("{}{}{}", before, before.empty() ? "" : ":", d.factor);
  };
  std::string knots;
  for (const Decay::Knot& knot : d.knots) {
    if (!knots.empty()) knots += ',';
    knots += to_string(knot.at);
    if (d.kind == Kind::piecewise) knots += fmt::format("={}", knot.factor);
  }
  switch (d.kind) {
    case Kind::constant:
      return "";
    case Kind::step:
    case Kind::exponential:
      return fmt::format("{}:{}", d.epochs, d.factor);
    case Kind::multistep:
      return fmt::format("{}:{}", knots, d.factor);
    case Kind::cosine:
    case Kind::linear:
      return floor("");
    case Kind::polynomial:
      return floor(fmt::format("{}", d.power));
    case Kind::onecycle:
      return d.knots[0].at == onecycle_peak ? "" : knots;
    case Kind::piecewise:
      break;
  }
  return knots;
}

}  // namespace

Decay parse_decay(std::string_view text) {
  std::vector<std::string> parts = split(text, ':');
  const bool by_epoch = parts.size() > 1 && parts.back() == "by-epoch";
  if (by_epoch) parts.pop_back();
  const auto* form = std::ranges::find(forms, std::string_view(parts[0]), &Form::name);
  if (form == forms.end() || !takes(*form, parts.size() - 1)) refuse();
  parts.erase(parts.begin());
  Decay decay = decay_of(form->kind, parts);
  decay.by_epoch = by_epoch;
  return decay;
}

std::string to_string(const Decay& decay) {
  const std::string parts = parts_text(decay);
  return fmt::format("{}{}{}{}", std::ranges::find(forms, decay.kind, &Form::kind)->name,
                     parts.empty() ? "" : ":", parts, decay.by_epoch ? ":by-epoch" : "");
}

double LearningRate::at(double epoch) const {
  if (decay.by_epoch) epoch = std::floor(epoch + rounding);
  return peak * warmup(*this, epoch) * decayed(*this, epoch);
}

}  // namespace ringtrain::optim
