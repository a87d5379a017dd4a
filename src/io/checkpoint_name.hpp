#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/io/checkpoint.hpp"

namespace ringtrain {

/// The step in a name of checkpoint_name()'s form.
std::optional<std::uint64_t> checkpoint_step(std::string_view name);
/// The name under which checkpoint `name` grows until it is complete.
std::string temporary_name(std::string_view name);
bool is_temporary_name(std::string_view name);

/// Names in an open directory, in no order.
std::vector<std::string> names_in(int directory);
/// Names of checkpoints in it, by falling step.
std::vector<std::string> checkpoint_names(int directory);

}  // namespace ringtrain
