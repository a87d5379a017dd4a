#pragma once
#include <vector>

#include "ringtrain/config/options.hpp"
#include "ringtrain/model/zoo.hpp"
#include "ringtrain/optim/optimizer.hpp"

namespace ringtrain::train {

/// What multiplies learning rates and weight decay.
struct ParameterFactors {
  std::vector<optim::RateFactor> rates;
  std::vector<double> decays;  ///< one a parameter, in graph order
};

/// As the options say; --head-lr counts where --lr is known. Throws Error (usage) where a pattern
/// matches nothing, with the nearest name, and where there is no head.
ParameterFactors parameter_factors(const config::Options& options, const model::Model& model);

}  // namespace ringtrain::train
