#pragma once

namespace ringtrain {

enum class OptimizerKind { sgd, momentum, nesterov, rmsprop, adam, adamw };

}  // namespace ringtrain
