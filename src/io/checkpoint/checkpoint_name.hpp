#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/io/checkpoint/checkpoint.hpp"

namespace ringtrain::io {

/// The step in a name of checkpoint_name()'s form.
std::optional<std::uint64_t> checkpoint_step(std::string_view name);
/// The name under which file `name` grows until it is complete. `maker`: hexadecimal digits and
/// dashes that nobody else uses, so that no two writers share a file.
std::string temporary_name(std::string_view name, std::string_view maker);
/// Whether `name` is that of a file under way; checkpoints of earlier builds name no maker.
bool is_temporary_name(std::string_view name);

/// Names in an open directory, in no order. What may pass is tried again, for eight seconds; then
/// throws Error(Exit::storage) with the directory's path; StaleCheckpoint where it is to be
/// opened anew.
std::vector<std::string> names_in(int directory);
/// Names of checkpoints in it, by falling step.
std::vector<std::string> checkpoint_names(int directory);

}  // namespace ringtrain::io
