#include <algorithm>
#include <variant>

#include "model/passes/some_backward.hpp"
#include "model/passes/uses.hpp"
#include "ringtrain/model/passes.hpp"

namespace ringtrain::model {
namespace {

// What the pieces of one BatchNorm hand to each other.
struct Vectors {
  Vectors(compute::Schedule& schedule, int channels)
      : sums(new_vector(schedule, 2 * channels)),
        scale(new_vector(schedule, channels)),
        bias(new_vector(schedule, channels)),
        mean(new_vector(schedule, channels)),
        inverse_deviation(new_vector(schedule, channels)),
        g_scale(new_vector(schedule, channels)),
        x_scale(new_vector(schedule, channels)),
        shift(new_vector(schedule, channels)) {}
  compute::VectorId sums, scale, bias, mean, inverse_deviation, g_scale, x_scale, shift;
};

struct Pieces {
  std::vector<compute::Step> forward, backward;
};

std::vector<compute::Step> forward_pieces(const compute::Schedule& schedule,
                                          const compute::BatchNormForward& norm, const Vectors& v) {
  return {compute::BatchNormStatistics{norm.x, v.sums},
          compute::BatchNormFinalize{v.sums, schedule.tensors[norm.x].pixels(), norm.gamma,
                                     norm.beta, norm.statistics, norm.epsilon, norm.unbiased,
                                     v.scale, v.bias, v.mean, v.inverse_deviation},
          compute::BatchNormApply{
              norm.x,
              norm.y,
              {v.scale, v.bias, norm.residual, compute::no_vector, compute::no_vector, norm.then}}};
}

std::vector<compute::Step> backward_pieces(compute::Schedule& schedule,
                                           const compute::BatchNormBackward& norm,
                                           const Vectors& v) {
  compute::TensorId g = norm.dresidual;
  if (g == compute::no_tensor &&
      (norm.then != compute::Activation::none || norm.dy2 != compute::no_tensor))
    g = new_tensor(schedule, compute::Shape(schedule.tensors[norm.x]));
  const compute::BatchNormSums how{
      norm.x,    norm.y,     norm.dy2,  g,
      norm.then, norm.gamma, norm.beta, schedule.tensors[norm.x].pixels(),
      v.scale,   v.bias,     v.mean,    v.inverse_deviation,
      v.g_scale, v.x_scale,  v.shift};
  return {compute::BatchNormBackwardReduce{norm.dy, how},
          compute::BatchNormBackwardApply{g == compute::no_tensor ? norm.dy : g, norm.x, norm.dx,
                                          v.g_scale, v.x_scale, v.shift}};
}

// The pieces of a BatchNorm, with new tensors and vectors in `schedule`; nullopt, and a schedule as
// before, where one of them is not supported. Pieces know the statistics of one rank only.
std::optional<Pieces> pieces_of(compute::Schedule& schedule,
                                const compute::BatchNormForward& forward,
                                const compute::BatchNormBackward& backward,
                                const Supports& supports) {
  if (forward.all_ranks) return std::nullopt;
  const std::size_t tensors = schedule.tensors.size(), vectors = schedule.vectors.size();
  const Vectors v(schedule, schedule.tensors[forward.x].channels);
  Pieces pieces{forward_pieces(schedule, forward, v), backward_pieces(schedule, backward, v)};
  const auto supported = [&](const compute::Step& step) { return supports(schedule, step); };
  if (std::ranges::all_of(pieces.forward, supported) &&
      std::ranges::all_of(pieces.backward, supported))
    return pieces;
  schedule.tensors.resize(tensors);
  schedule.vectors.resize(vectors);
  return std::nullopt;
}

// Where the BatchNormForward or BatchNormBackward with the parameters of `norm` is.
template <class Kind>
std::size_t find(const compute::Schedule& schedule, const auto& norm) {
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const auto* other = std::get_if<Kind>(&schedule.steps[s]);
    if (other && other->beta == norm.beta) return s;
  }
  return no_step;
}

void replace(compute::Schedule& schedule, std::size_t at, std::vector<compute::Step> steps) {
  const auto place = schedule.steps.begin() + static_cast<std::ptrdiff_t>(at);
  schedule.steps.insert(schedule.steps.erase(place), steps.begin(), steps.end());
  if (at < schedule.backward) schedule.backward += steps.size() - 1;
}

}  // namespace

bool splits(const compute::Schedule& schedule, const compute::Step& step,
            const Supports& supports) {
  compute::Schedule scratch = schedule;
  if (const auto* norm = std::get_if<compute::BatchNormForward>(&step))
    return norm->training && pieces_of(scratch, *norm, some_backward(*norm), supports);
  if (const auto* norm = std::get_if<compute::BatchNormBackward>(&step)) {
    const std::size_t forward = find<compute::BatchNormForward>(schedule, *norm);
    return forward != no_step &&
           pieces_of(scratch, std::get<compute::BatchNormForward>(schedule.steps[forward]), *norm,
                     supports);
  }
  return false;
}

compute::Schedule split_batch_norm(compute::Schedule schedule, const Supports& supports) {
  for (std::size_t s = schedule.backward; s-- > 0;) {
    const auto* forward = std::get_if<compute::BatchNormForward>(&schedule.steps[s]);
    if (!forward || !forward->training) continue;
    const std::size_t back = find<compute::BatchNormBackward>(schedule, *forward);
    if (back == no_step) continue;
    auto pieces = pieces_of(schedule, *forward,
                            std::get<compute::BatchNormBackward>(schedule.steps[back]), supports);
    if (!pieces) continue;
    replace(schedule, back, std::move(pieces->backward));  // first: it comes later
    replace(schedule, s, std::move(pieces->forward));
  }
  return schedule;
}

}  // namespace ringtrain::model
