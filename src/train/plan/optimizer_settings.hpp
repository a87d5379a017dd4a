#pragma once
#include "ringtrain/config/options.hpp"
#include "ringtrain/model/zoo.hpp"
#include "ringtrain/optim/optimizer.hpp"

namespace ringtrain::train {

/// How a network is updated, as the options and its recipe say, in a run of so many updates and
/// epochs. Throws Error (usage) where a pattern of a factor is wrong, and where lookahead has no
/// average.
optim::OptimizerSettings optimizer_settings(const config::Options& options,
                                            const model::Model& model, double updates,
                                            double epochs);

}  // namespace ringtrain::train
