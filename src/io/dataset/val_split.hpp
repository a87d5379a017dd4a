#pragma once
#include <string>
#include <vector>

#include "ringtrain/io/dataset/dataset.hpp"

namespace ringtrain::io {

/// Whether each of a class's files is evaluated on. `names` within the class `label`. A file that
/// comes or goes moves no other one but the one at the border.
std::vector<bool> drawn_for_evaluation(const std::vector<std::string>& names,
                                       const std::string& label, const ValSplit& split);

}  // namespace ringtrain::io
