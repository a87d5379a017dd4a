#pragma once
#include <istream>
#include <string>
#include <vector>

#include "config/option_table.hpp"

namespace ringtrain::config {

/// A line of a configuration file; of a flag, the value is `true` or `false`.
struct FileLine {
  std::string key, value;
};
/// The lines of a configuration file, which is called `file` in messages: one key with one value on
/// each, in TOML. Keys are options of `table` that may stand in files. Throws Error(Exit::usage)
/// with line and key.
std::vector<FileLine> read_config(std::istream& text, const std::string& file,
                                  const std::vector<OptionEntry>& table);

/// Why `path` can be no configuration file; empty: it may be one.
std::string why_no_config_file(const std::string& path);

}  // namespace ringtrain::config
