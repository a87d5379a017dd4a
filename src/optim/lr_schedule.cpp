#include "ringtrain/optim/lr_schedule.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "ringtrain/base/text.hpp"

namespace ringtrain::optim {
namespace {

constexpr double warmup_start = 0.01;
// Positions are quotients of whole numbers: a staircase must not come one step late by rounding.
constexpr double rounding = 1e-9;

double part(std::string_view name, const std::string& text, double low, double high) try {
  return number_between(text, low, high);
} catch (const BadValue& bad) {
  throw BadValue(fmt::format("{} {}", name, bad.what()));
}

Decay parse_parts(const std::vector<std::string>& parts) {
  if (parts.size() == 1 && parts[0] == "constant") return {};
  if (parts.size() == 1 && parts[0] == "cosine") return {.kind = Decay::Kind::cosine};
  if (parts.size() != 3 || (parts[0] != "step" && parts[0] != "exponential"))
    throw BadValue("must be constant, cosine, step:EPOCHS:FACTOR or exponential:EPOCHS:FACTOR");
  return {.kind = parts[0] == "step" ? Decay::Kind::step : Decay::Kind::exponential,
          .epochs = part("EPOCHS", parts[1], 0.001, 1e6),
          .factor = part("FACTOR", parts[2], 0.000001, 1000)};
}

double warmup(double epoch, double epochs) {
  if (epoch >= epochs) return 1;
  return warmup_start + (1 - warmup_start) * epoch / epochs;
}

double decayed(const LearningRate& rate, double epoch) {
  const Decay& d = rate.decay;
  switch (d.kind) {
    case Decay::Kind::constant:
      return 1;
    case Decay::Kind::step:
      return std::pow(d.factor, std::floor(epoch / d.epochs + rounding));
    case Decay::Kind::exponential:
      return std::pow(d.factor, epoch / d.epochs);
    case Decay::Kind::cosine:
      break;
  }
  const double span = rate.total_epochs - rate.warmup_epochs;
  if (span <= 0) return 1;
  const double done = std::clamp((epoch - rate.warmup_epochs) / span, 0.0, 1.0);
  return (1 + std::cos(std::numbers::pi * done)) / 2;
}

}  // namespace

Decay parse_decay(std::string_view text) { return parse_parts(split(text, ':')); }

std::string to_string(const Decay& decay) {
  switch (decay.kind) {
    case Decay::Kind::constant:
      return "constant";
    case Decay::Kind::step:
      return fmt::format("step:{}:{}", decay.epochs, decay.factor);
    case Decay::Kind::exponential:
      return fmt::format("exponential:{}:{}", decay.epochs, decay.factor);
    case Decay::Kind::cosine:
      break;
  }
  return "cosine";
}

double LearningRate::at(double epoch) const {
  return peak * warmup(epoch, warmup_epochs) * decayed(*this, epoch);
}

}  // namespace ringtrain::optim
