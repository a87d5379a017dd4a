#include "ringtrain/train/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "train/optimizer_kernels.hpp"

namespace ringtrain {
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

}  // namespace

Optimizer::Optimizer(const OptimizerSettings& settings, View parameters, View gradients,
                     Memory& memory)
    : settings_(settings),
      parameters_(parameters),
      gradients_(gradients),
      segments_(decay_segments(settings, parameters.size())),
      covered_(segments_.size()),
      ratios_(segments_.size(), 1.0),
      squares_(chunks_of(parameters.size())),
      norms_(squares_.size()) {
  expects(parameters.size() == gradients.size(), "Optimizer: a gradient for each parameter");
  add_rule_slots(memory);
  if (settings_.ema > 0) add_slot("ema", 0, memory);
  reset();
}

void Optimizer::add_slot(const char* name, float start, Memory& memory) {
  buffers_.push_back(memory.allocate(parameters_.size()));
  slots_.push_back({name, buffers_.back()});
  starts_.push_back(start);
}

void Optimizer::add_rule_slots(Memory& memory) {
  switch (settings_.kind) {
    case OptimizerKind::sgd:
      break;
    case OptimizerKind::momentum:
    case OptimizerKind::nesterov:
    case OptimizerKind::lars:
      add_slot("momentum", 0, memory);
      break;
    case OptimizerKind::rmsprop:
      add_slot("mean_square", 1, memory);  // TensorFlow starts at one
      add_slot("momentum", 0, memory);
      break;
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      add_slot("adam_m", 0, memory);
      add_slot("adam_v", 0, memory);
      break;
  }
}

std::vector<DecaySegment> decay_segments(const OptimizerSettings& settings,
                                         std::size_t parameters) {
  std::vector<DecaySegment> segments;
  std::size_t covered = 0;
  const auto cover = [&](std::size_t end, double decay, bool scaled = false) {
    if (end > covered) segments.push_back({end, decay, scaled});
    covered = end;
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
  for (std::size_t slot = 0; slot < slots_.size(); ++slot)
    std::ranges::fill(slots_[slot].values.host(), starts_[slot]);
  if (const auto ema = average()) std::ranges::copy(parameters_.host(), ema->data());
}

std::optional<View> Optimizer::average() const {
  if (settings_.ema <= 0) return std::nullopt;
  return slots_.back().values;
}

double Optimizer::average_decay() const { return ema_decay(settings_.ema, now_.step); }

void Optimizer::begin(const UpdateScalars& scalars) {
  now_ = scalars;
  const double updates = static_cast<double>(now_.step) + 1;
  bias1_ = is_adam(settings_.kind) ? 1 - std::pow(settings_.beta1, updates) : 1;
  bias2_ = is_adam(settings_.kind) ? 1 - std::pow(settings_.beta2, updates) : 1;
  std::ranges::fill(squares_, 0.0);
  std::ranges::fill(covered_, 0);
}

void Optimizer::update(Range summed) {
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
    } else if ((covered_[s] += part.count) == tensor.count) {
      ratios_[s] = trust_ratio(tensor, segments_[s].decay);
      update_now(tensor);
    }
  }
}

double Optimizer::trust_ratio(Range tensor, double decay) {
  const double w = norm(parameters_, tensor, norms_);
  const double g = now_.gradient_scale * norm(gradients_, tensor, norms_);
  return w > 0 && g > 0 ? settings_.trust_coefficient * w / (g + decay * w) : 1;
}

void Optimizer::update_now(Range range) {
  const auto work = [&](std::size_t chunk, Range part) { squares_[chunk] += update_chunk(part); };
  for_chunks(range.first, range.end(), work);
}

/// Returns the decay-weighted squares of the parameters before the update.
double Optimizer::update_chunk(Range chunk) const {
  auto segment = std::ranges::upper_bound(segments_, chunk.first, {}, &DecaySegment::end);
  double squares = 0;
  for (std::size_t first = chunk.first; first < chunk.end(); ++segment) {
    const Range range{first, std::min(segment->end, chunk.end()) - first};
    if (segment->decay != 0)
      squares += segment->decay * kernels::sum_of_squares(parameters_.data() + first, range.count);
    update_segment(range, static_cast<std::size_t>(segment - segments_.begin()));
    first = range.end();
  }
  return squares;
}

void Optimizer::update_segment(Range range, std::size_t segment) const {
  float* w = parameters_.data() + range.first;
  apply(settings_.kind,
        {.w = w,
         .g = gradients_.data() + range.first,
         .slot0 = slot_values(0, range.first),
         .slot1 = slot_values(1, range.first),
         .size = range.count},
        factors(segment));
  if (const auto ema = average())
    kernels::move_average(ema->data() + range.first, w, range.count,
                          static_cast<float>(1 - ema_decay(settings_.ema, now_.step)));
}

float* Optimizer::slot_values(std::size_t slot, std::size_t first) const {
  return slot < slots_.size() ? slots_[slot].values.data() + first : nullptr;
}

kernels::Factors Optimizer::factors(std::size_t segment) const {
  const double decay = segments_[segment].decay;
  const auto single = [](double value) { return static_cast<float>(value); };
  const bool decoupled = settings_.kind == OptimizerKind::adamw;
  return {.scale = single(now_.gradient_scale),
          .decay = decoupled ? 0.0f : single(decay),
          .lr = single(now_.learning_rate * ratios_[segment] / bias1_),
          .momentum = single(settings_.momentum),
          .mean_square_decay = single(settings_.mean_square_decay),
          .beta1 = single(settings_.beta1),
          .beta2 = single(settings_.beta2),
          .epsilon = single(settings_.epsilon),
          .root_scale = single(1 / std::sqrt(bias2_)),
          .shrink = decoupled ? single(1 - now_.learning_rate * decay) : 1.0f};
}

double Optimizer::l2_loss() const {
  if (settings_.kind == OptimizerKind::adamw) return 0;
  return std::accumulate(squares_.begin(), squares_.end(), 0.0) / 2;
}

double ema_decay(double limit, std::int64_t step) {
  const auto updates = static_cast<double>(step);
  return std::min(limit, (1 + updates) / (10 + updates));
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

}  // namespace ringtrain
