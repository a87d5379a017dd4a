#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/allreduce/mpi_session.hpp"

namespace ringtrain {

/// What must be the same on all ranks, by name.
using Agreement = std::vector<std::pair<std::string, std::string>>;

/// Compares `mine` over all ranks; where one differs, prints a table of the differences by rank and
/// host and ends the job with Exit::usage on every rank. Collective.
void require_agreement(const Agreement& mine, const MpiSession& session);

/// The table: a line for each rank that differs from rank 0, empty when none does. Each text is
/// "host\n" and then "name\tvalue\n" for each item.
std::string disagreement(const std::vector<std::string>& ranks);

}  // namespace ringtrain
