#include "ringtrain/optim/optimizer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "optim/optimizer_kernels.hpp"

namespace ringtrain::optim {
namespace {

// Fixed, so that sums do not depend on the threads; small, so that the moving average and the
// squares find a chunk's parameters still in the cache.
constexpr std::size_t chunk_size = 4096;
constexpr std::size_t worth_threads = 16;  // chunks; below, waking threads costs more than it saves

std::size_t chunks_of(std::size_t size) { return (size + chunk_size - 1) / chunk_size; }

Range chunk_of(std::size_t chunk, std::size_t begin, std::size_t end) {
  const std::size_t first = std::max(begin, chunk * chunk_size);
  return {first, std::min(end, (chunk + 1) * chunk_size) - first};
}

/// Calls `work` with every chunk index of [begin, end), on all threads when that pays.
template <class Work>
void for_chunks(std::size_t begin, std::size_t end, const Work& work) {
  const std::size_t first = begin / chunk_size, last = chunks_of(end);
#pragma omp parallel for schedule(static) if (last - first >= worth_threads)
  for (std::size_t chunk = first; chunk < last; ++chunk) work(chunk, chunk_of(chunk, begin, end));
}

bool is_adam(OptimizerKind kind) {
  return kind == OptimizerKind::adam || kind == OptimizerKind::adamw;
}

void apply(OptimizerKind kind, const kernels::Part& part, const kernels::Factors& factors) {
  switch (kind) {
    case OptimizerKind::sgd:
      return kernels::sgd(part, factors);
    case OptimizerKind::momentum:
      return kernels::momentum(part, factors);
    case OptimizerKind::nesterov:
      return kernels::nesterov(part, factors);
    case OptimizerKind::rmsprop:
      return kernels::rmsprop(part, factors);
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return kernels::adam(part, factors);
    case OptimizerKind::lars:
      return kernels::lars(part, factors);
    case OptimizerKind::lion:
      return kernels::lion(part, factors);
  }
}

/// The Euclidean length of `range`; the same bits for any number of threads. `squares`: one a
/// chunk.
double norm(View values, Range range, std::span<double> squares) {
  for_chunks(range.first, range.end(), [&](std::size_t chunk, Range part) {
    squares[chunk] = kernels::sum_of_squares(values.data() + part.first, part.count);
  });
  const std::size_t first = range.first / chunk_size;
  const auto used = squares.subspan(first, chunks_of(range.end()) - first);
  return std::sqrt(std::accumulate(used.begin(), used.end(), 0.0));
}

Range common(Range a, Range b) {
  const std::size_t first = std::max(a.first, b.first), end = std::min(a.end(), b.end());
  return {first, end > first ? end - first : 0};
}

// The factor of the rate at `place`, and where another may begin.
std::pair<double, std::size_t> rate_at(const std::vector<RateFactor>& rates, std::size_t place) {
  const auto next =
      std::ranges::find_if(rates, [&](const RateFactor& rate) { return rate.range.end() > place; });
  if (next == rates.end()) return {1, std::numeric_limits<std::size_t>::max()};
  if (next->range.first > place) return {1, next->range.first};
  return {next->factor, next->range.end()};
}

void check_rates(const std::vector<RateFactor>& rates, std::size_t parameters) {
  std::size_t end = 0;
  for (const RateFactor& rate : rates) {
    expects(rate.range.first >= end && rate.range.end() <= parameters,
            "Optimizer: ranges of rates ascend, do not overlap and lie inside the parameters");
    end = rate.range.end();
  }
}

}  // namespace

Optimizer::Optimizer(const OptimizerSettings& settings, View parameters, View gradients,
                     Memory& memory, std::optional<Part> part, View average)
    : settings_(settings),
      parameters_(parameters),
      gradients_(gradients),
      part_(std::move(part)),
      rule_slots_(compute::slots_of(settings.kind)),
      slot_size_(place_part()),
      segments_(decay_segments(settings, parameters.size())),
      covered_(segments_.size()),
      ratios_(segments_.size(), 1.0),
      squares_(chunks_of(parameters.size())),
      chunk_squares_(squares_.size()),
      skipped_(memory.allocate(1)) {
  expects(parameters.size() == gradients.size(), "Optimizer: a gradient for each parameter");
  expects(!part_ || settings.kind != OptimizerKind::lars, "Optimizer: lars has all parameters");
  add_rule_slots(memory);
  if (settings_.ema > 0) {
    if (average.size() == 0) {
      buffers_.push_back(memory.allocate(parameters_.size()));
      average = buffers_.back();
    }
    slots_.push_back({"ema", average.slice(0, parameters_.size())});
  }
  reset();
}

// Returns how many numbers a slot of the rule has.
std::size_t Optimizer::place_part() {
  if (!part_) return parameters_.size();
  std::size_t size = 0;
  for (const Range& range : part_->ranges) {
    part_places_.push_back(size);
    size += range.count;
  }
  return size;
}

void Optimizer::add_rule_slots(Memory& memory) {
  for (const compute::OptimizerSlot& slot : rule_slots_) {
    buffers_.push_back(memory.allocate(slot_size_));
    slots_.push_back({slot.name, buffers_.back()});
    if (revertible()) before_.push_back(memory.allocate(slot_size_));
  }
}

std::vector<compute::DecaySegment> decay_segments(const OptimizerSettings& settings,
                                                  std::size_t parameters) {
  check_rates(settings.rates, parameters);
  std::vector<compute::DecaySegment> segments;
  std::size_t covered = 0;
  const auto cover = [&](std::size_t end, double decay, bool scaled = false) {
    while (covered < end) {
      const auto [rate, until] = rate_at(settings.rates, covered);
      covered = std::min(end, until);
      segments.push_back({covered, decay, scaled, rate});
    }
  };
  for (const WeightDecay& decay : settings.decays) {
    expects(decay.range.first >= covered && decay.range.end() <= parameters,
            "Optimizer: decaying ranges ascend, do not overlap and lie inside the parameters");
    cover(decay.range.first, 0);
    cover(decay.range.end(), settings.weight_decay * decay.factor,
          settings.kind == OptimizerKind::lars);
  }
  cover(parameters, 0);
  return segments;
}

void Optimizer::reset() {
  for (std::size_t slot = 0; slot < rule_slots(); ++slot)
    std::ranges::fill(slots_[slot].values.host(), rule_slots_[slot].start);
  if (const auto ema = average()) std::ranges::copy(parameters_.host(), ema->data());
  *skipped_.view().data() = 0;
}

std::optional<View> Optimizer::average() const {
  if (settings_.ema <= 0) return std::nullopt;
  return slots_.back().values;
}

void Optimizer::begin(const UpdateScalars& scalars) {
  now_ = scalars;
  updates_ = now_.step - static_cast<std::int64_t>(*skipped_.view().data());
  const double updates = static_cast<double>(updates_) + 1;
  bias1_ = is_adam(settings_.kind) ? 1 - std::pow(settings_.beta1, updates) : 1;
  bias2_ = is_adam(settings_.kind) ? 1 - std::pow(settings_.beta2, updates) : 1;
  average_decay_ = settings_.average.decay(settings_.ema, static_cast<double>(updates_));
  std::ranges::fill(squares_, 0.0);
  std::ranges::fill(covered_, 0);
}

void Optimizer::clip() {
  if (settings_.clip_norm == 0 || gradients_.size() == 0) return;
  expects(!part_, "Optimizer::clip: of all parameters");
  double squares = 0;
  std::size_t first = 0;
  for (const compute::DecaySegment& segment : segments_) {
    const double part =
        segment.rate == 0 ? 0 : norm(gradients_, {first, segment.end - first}, chunk_squares_);
    squares += part * part;
    first = segment.end;
  }
  const double length = now_.gradient_scale * std::sqrt(squares);
  const double factor = settings_.clip_norm / (length + compute::clip_epsilon);
  if (factor < 1) now_.gradient_scale *= factor;
}

void Optimizer::update(Range summed) {
  expects(!part_, "Optimizer::update: of all parameters");
  parameters_.slice(summed);  // throws when it is not inside
  if (settings_.kind == OptimizerKind::lars)
    update_tensors(summed);
  else
    update_now(summed);
}

void Optimizer::update_tensors(Range summed) {
  std::size_t first = 0;
  for (std::size_t s = 0; s < segments_.size(); first = segments_[s++].end) {
    const Range tensor{first, segments_[s].end - first}, part = common(tensor, summed);
    if (part.count == 0) continue;
    if (!segments_[s].scaled) {
      update_now(part);
      continue;
    }
    covered_[s] += part.count;
    if (covered_[s] == tensor.count) {
      ratios_[s] = trust_ratio(tensor, segments_[s].decay);
      update_now(tensor);
    }
  }
}

double Optimizer::trust_ratio(Range tensor, double decay) {
  const double w = norm(parameters_, tensor, chunk_squares_);
  const double g = now_.gradient_scale * norm(gradients_, tensor, chunk_squares_);
  return w > 0 && g > 0 ? settings_.trust_coefficient * w / (g + decay * w) : 1;
}

void Optimizer::update_now(Range range) {
  const auto work = [&](std::size_t chunk, Range part) { squares_[chunk] += update_chunk(part); };
  for_chunks(range.first, range.end(), work);
}

bool Optimizer::stays_finite() {
  std::size_t first = 0;
  for (std::size_t s = 0; s < segments_.size(); first = segments_[s++].end)
    if (segments_[s].scaled)
      ratios_[s] = trust_ratio({first, segments_[s].end - first}, segments_[s].decay);
  const std::size_t chunks = chunks_of(parameters_.size());
  bool finite = true;
#pragma omp parallel for schedule(static) reduction(&& : finite) if (chunks >= worth_threads)
  for (std::size_t chunk = 0; chunk < chunks; ++chunk)
    finite = finite && chunk_stays_finite(chunk_of(chunk, 0, parameters_.size()));
  return finite;
}

// On copies, by the rule itself.
bool Optimizer::chunk_stays_finite(Range chunk) const {
  alignas(64) std::array<std::array<float, chunk_size>, 3> copies;
  std::copy_n(parameters_.data() + chunk.first, chunk.count, copies[0].data());
  for (std::size_t slot = 0; slot < rule_slots(); ++slot)
    std::copy_n(slot_values(slot, chunk.first), chunk.count, copies[1 + slot].data());
  for_segments(chunk, [&](Range range, std::size_t segment) {
    const std::size_t at = range.first - chunk.first;
    apply(settings_.kind,
          {.w = &copies[0][at],
           .g = gradients_.data() + range.first,
           .slot0 = rule_slots() > 0 ? &copies[1][at] : nullptr,
           .slot1 = rule_slots() > 1 ? &copies[2][at] : nullptr,
           .size = range.count},
          factors(segment));
  });
  const auto used = std::span(copies).first(1 + rule_slots());
  return std::ranges::all_of(
      used, [&](const auto& copy) { return kernels::all_finite(copy.data(), chunk.count); });
}

/// Calls `work` with the parts of `range` whose parameters decay alike, and their segment.
template <class Work>
void Optimizer::for_segments(Range range, const Work& work) const {
  auto segment = std::ranges::upper_bound(segments_, range.first, {}, &compute::DecaySegment::end);
  for (std::size_t first = range.first; first < range.end(); ++segment) {
    const std::size_t end = std::min<std::size_t>(segment->end, range.end());
    work(Range{first, end - first}, static_cast<std::size_t>(segment - segments_.begin()));
    first = end;
  }
}

/// Of the parameters before the update.
double Optimizer::decayed_squares(Range range, std::size_t segment) const {
  const double decay = segments_[segment].decay;
  if (decay == 0) return 0;
  return decay * kernels::sum_of_squares(parameters_.data() + range.first, range.count);
}

/// Returns the decay-weighted squares.
double Optimizer::update_chunk(Range chunk) const {
  double squares = 0;
  for_segments(chunk, [&](Range range, std::size_t segment) {
    squares += decayed_squares(range, segment);
    apply_rule(range, segment, parameters_.data() + range.first);
    move_average(range);
  });
  return squares;
}

void Optimizer::apply_rule(Range range, std::size_t segment, float* w) const {
  const std::size_t place = slot_place(range);
  apply(settings_.kind,
        {.w = w,
         .g = gradients_.data() + range.first,
         .slot0 = slot_values(0, place),
         .slot1 = slot_values(1, place),
         .size = range.count},
        factors(segment));
}

void Optimizer::move_average(Range range) const {
  const auto ema = average();
  if (!ema || average_decay_ == 1) return;
  kernels::move_average(ema->data() + range.first, parameters_.data() + range.first, range.count,
                        static_cast<float>(1 - average_decay_));
  if (settings_.average.lookahead)
    std::copy_n(ema->data() + range.first, range.count, parameters_.data() + range.first);
}

void Optimizer::replace(Range summed) {
  if (summed.count == 0) return;
  slot_place(summed);  // throws when it is not inside
  for_chunks(summed.first, summed.end(), [&](std::size_t, Range chunk) { replace_chunk(chunk); });
}

void Optimizer::replace_chunk(Range chunk) const {
  const std::size_t place = slot_place(chunk);
  for (std::size_t slot = 0; slot < before_.size(); ++slot)
    std::copy_n(slot_values(slot, place), chunk.count, before_[slot].view().data() + place);
  float* const g = gradients_.data() + chunk.first;
  if (!kernels::all_finite(g, chunk.count)) return;
  alignas(64) std::array<float, chunk_size> w;
  std::copy_n(parameters_.data() + chunk.first, chunk.count, w.data());
  for_segments(chunk, [&](Range range, std::size_t segment) {
    apply_rule(range, segment, w.data() + (range.first - chunk.first));
  });
  for (std::size_t slot = 0; slot < rule_slots(); ++slot)
    if (!kernels::all_finite(slot_values(slot, place), chunk.count))
      w[0] = std::numeric_limits<float>::quiet_NaN();
  std::copy_n(w.data(), chunk.count, g);
}

void Optimizer::adopt() {
  for_chunks(0, parameters_.size(),
             [&](std::size_t chunk, Range range) { squares_[chunk] = adopt_chunk(range); });
}

double Optimizer::adopt_chunk(Range chunk) const {
  double squares = 0;
  for_segments(chunk, [&](Range range, std::size_t segment) {
    squares += decayed_squares(range, segment);
    std::copy_n(gradients_.data() + range.first, range.count, parameters_.data() + range.first);
    move_average(range);
  });
  return squares;
}

void Optimizer::revert() {
  expects(revertible(), "Optimizer::revert: of a part that can");
  for (std::size_t slot = 0; slot < before_.size(); ++slot)
    std::ranges::copy(before_[slot].view().host(), slots_[slot].values.data());
}

/// Where a slot has the values of `range`, which lies in one range of the part.
std::size_t Optimizer::slot_place(Range range) const {
  if (!part_) return range.first;
  const auto next = std::ranges::upper_bound(part_->ranges, range.first, {}, &Range::first);
  expects(next != part_->ranges.begin() && range.end() <= std::prev(next)->end(),
          "Optimizer::replace: inside a range of the part");
  const auto own = static_cast<std::size_t>(std::prev(next) - part_->ranges.begin());
  return part_places_[own] + range.first - part_->ranges[own].first;
}

float* Optimizer::slot_values(std::size_t slot, std::size_t place) const {
  return slot < rule_slots() ? slots_[slot].values.data() + place : nullptr;
}

kernels::Factors Optimizer::factors(std::size_t segment) const {
  const double decay = segments_[segment].decay, rate = segments_[segment].rate;
  const auto single = [](double value) { return static_cast<float>(value); };
  const bool decoupled = compute::decouples_decay(settings_.kind);
  return {.scale = single(now_.gradient_scale),
          .decay = decoupled ? 0.0f : single(decay),
          .lr = single(now_.learning_rate / bias1_ * rate * ratios_[segment]),
          .momentum = single(settings_.momentum),
          .mean_square_decay = single(settings_.mean_square_decay),
          .beta1 = single(settings_.beta1),
          .beta2 = single(settings_.beta2),
          .epsilon = single(settings_.epsilon),
          .root_scale = single(1 / std::sqrt(bias2_)),
          .shrink = decoupled ? single(1 - now_.learning_rate * rate * decay) : 1.0f};
}

double Optimizer::l2_loss() const {
  if (compute::decouples_decay(settings_.kind)) return 0;
  return std::accumulate(squares_.begin(), squares_.end(), 0.0) / 2;
}

void move_average(View average, View values, double decay) {
  expects(average.size() == values.size(), "move_average: equal sizes");
  for_chunks(0, values.size(), [&](std::size_t, Range chunk) {
    kernels::move_average(average.data() + chunk.first, values.data() + chunk.first, chunk.count,
                          static_cast<float>(1 - decay));
  });
}

std::optional<std::size_t> first_non_finite(View values) {
  const std::size_t chunks = chunks_of(values.size());
  std::size_t bad = chunks;
#pragma omp parallel for schedule(static) reduction(min : bad) if (chunks >= worth_threads)
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    const Range range = chunk_of(chunk, 0, values.size());
    if (!kernels::all_finite(values.data() + range.first, range.count)) bad = std::min(bad, chunk);
  }
  if (bad == chunks) return std::nullopt;
  const auto rest = values.host().subspan(bad * chunk_size);
  const auto found = std::ranges::find_if(rest, [](float x) { return !std::isfinite(x); });
  return bad * chunk_size + static_cast<std::size_t>(found - rest.begin());
}

}  // namespace ringtrain::optim
