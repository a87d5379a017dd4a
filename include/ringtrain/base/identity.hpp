#pragma once
#include <string>

namespace ringtrain {

/// Hash of the running program's file: ranks with different builds must not train together.
std::string program_hash();
/// Names this run by time, process and host.
std::string run_id(const std::string& host);
/// Names a training that starts from scratch, and all runs that go on with it, as
/// CheckpointFile::lineage() has it: drawn anew by each call, whatever the seed of training is.
std::string new_lineage();

}  // namespace ringtrain
