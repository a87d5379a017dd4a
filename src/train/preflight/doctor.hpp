#pragma once
#include <span>
#include <string>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "train/preflight/facts.hpp"

namespace ringtrain::train {

/// What the checks made of all ranks' facts.
struct Diagnosis {
  std::string table = {};  ///< of all checks, for --doctor
  /// For every run: what, where and what to do, one a line.
  std::vector<std::string> warnings = {};
  std::string stop = {};  ///< why training would not begin; empty: it would
  int code = 0;           ///< that it would end with
};

/// `ranks`: the facts of every rank, one at least.
Diagnosis diagnose(std::span<const HostFacts> ranks);
/// The same of the facts that all ranks bring. On rank 0; the others learn `stop` and `code` only.
/// Collective.
Diagnosis diagnose(const HostFacts& mine, const allreduce::MpiSession& session);

}  // namespace ringtrain::train
