#pragma once
#include "ringtrain/config/options.hpp"

namespace ringtrain::train {

/// Does what needs no other rank: --help, --version, --print-config, --model list, --inspect,
/// --plan, --pack.
/// Prints to standard output; a failure leaves as an Error.
void run_local(const config::Command& command);

/// The table of `--model list`.
std::string model_table();

}  // namespace ringtrain::train
