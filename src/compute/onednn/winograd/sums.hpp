#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "compute/onednn/kernels/batch_norm/pieces.hpp"
#include "compute/onednn/winograd/norms.hpp"
#include "compute/onednn/winograd/rounds.hpp"

namespace ringtrain::compute::onednn {

/// The pieces of BatchNorms that a convolution takes in.
struct TakenIn {
  std::optional<AppliedNorm> prologue = std::nullopt;
  VectorId sums = no_vector;
  std::optional<BatchNormSums> epilogue = std::nullopt;
};

inline Norm norm_of(const Moments& moments, bool relu) {
  return {moments.mean, moments.scale, moments.shift, relu};
}
inline Norm norm_of(const std::optional<AppliedNorm>& prologue, const Tensor& x, Planner& planner) {
  return prologue ? norm_of(named_moments(prologue->scale, x, planner),
                            prologue->then == Activation::relu)
                  : Norm{};
}

/// What of a BatchNorm follows a convolution's results, as a NormBehind of tensors.
struct NormOfResults {
  NormOfResults(const std::optional<BatchNormSums>& how, Planner& planner) {
    if (!how) return;
    x = planner.tensor(how->x);
    y = tensor_or_none(how->y, planner);
    skip = tensor_or_none(how->skip, planner);
    norm = norm_of(named_moments(how->scale, x, planner), how->then == Activation::relu);
  }
  template <class T>
  NormBehind<T> planes() const {
    return {norm, plane_of<const T>(x), plane_of<const T>(y), plane_of<const T>(skip)};
  }
  std::array<const Tensor*, 3> all() const { return {&x, &y, &skip}; }

  Norm norm;
  Tensor x, y, skip;  // without data where there is none
};

/// Sums of results, for each group of tiles and then of all. Groups do not depend on the number of
/// threads, nor do the sums.
class ResultSums {
 public:
  ResultSums(const TakenIn& taken, const Tensor& results, const TileGrid& grid, Planner& planner)
      : results_(results),
        groups_((grid.tiles + row_group - 1) / row_group),
        threads_(planner.threads()),
        sums_(taken.sums == no_vector ? nullptr : named_sums(taken.sums, results, planner)) {
    if (taken.epilogue) gradient_.emplace(*taken.epilogue, planner);
    if (any()) place_ = planner.scratch(groups_ * group_floats() * sizeof(float));
    if (sums_ == nullptr) return;
    counts_.resize(groups_);
    const Plane<float> plane = plane_of<float>(results);
    for (std::size_t tile = 0; tile < grid.tiles; ++tile) {
      const auto at = grid.place(plane, tile);
      counts_[tile / row_group] +=
          std::min(grid.height, plane.height - at.y) * std::min(grid.width, plane.width - at.x);
    }
  }
  bool any() const { return sums_ != nullptr || gradient_; }
  /// Of the group of this tile.
  float* of_group(const Frame& frame, std::size_t tile) const {
    return place_.in(frame) + tile / row_group * group_floats();
  }
  void finish(const Frame& frame) const {
    if (gradient_)
      gradient_->take(threads_, [&](std::size_t c) {
        std::pair<double, double> sums{};
        for_each_group(frame, c, [&](std::size_t, double g, double dot, double) {
          sums.first += g;
          sums.second += dot;
        });
        return sums;
      });
    else
      for_each_item(threads_, results_.shape.channels, [&](std::size_t c) {
        double &sum = sums_[c], &squares = sums_[results_.padded_channels() + c];
        sum = squares = 0;
        for_each_group(frame, c, [&](std::size_t g, double rest, double distances, double origin) {
          sum += rest + counts_[g] * origin;
          squares += distances + (2 * rest + counts_[g] * origin) * origin;
        });
      });
  }

 private:
  std::size_t group_floats() const { return std::size_t(3) * results_.padded_channels(); }
  // f(group, first sum, second sum, origin) of one channel.
  template <class F>
  void for_each_group(const Frame& frame, std::size_t c, const F& f) const {
    const int block = results_.block;
    const float* from = place_.in(frame) + c / block * 3 * block + c % block;
    for (std::size_t group = 0; group < groups_; ++group, from += group_floats())
      f(group, from[0], from[block], from[2 * block]);
  }

  Tensor results_;
  std::size_t groups_;
  int threads_;
  double* sums_;
  std::vector<double> counts_;  // pixels of each group
  std::optional<GradientSums> gradient_;
  Scratch place_;
};

}  // namespace ringtrain::compute::onednn
