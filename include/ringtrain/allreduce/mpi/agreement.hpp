#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce {

/// What must be the same on all ranks, by name.
using Agreement = std::vector<std::pair<std::string, std::string>>;

/// Compares `mine` over all ranks; where one differs, prints a table of the differences by rank and
/// host and ends the job with Exit::usage on every rank. Collective.
void require_agreement(const Agreement& mine, const MpiSession& session);

/// Ends the job when some rank failed: with the first such rank's message and code on all of them.
/// The rank is named unless all failed alike. Collective.
void require_success(const std::optional<Error>& mine, const MpiSession& session);

/// What `make` returns, on ranks that all call it alike, once none of them failed. Collective.
template <class Make>
auto all_or_none(const Make& make, const MpiSession& session) {
  std::optional<decltype(make())> made;
  std::optional<Error> failure;
  try {
    made.emplace(make());
  } catch (const Error& error) {
    failure = error;
  }
  require_success(failure, session);
  return std::move(*made);
}

/// The table: a line for each rank that differs from rank 0, empty when none does. Each text is
/// "host\n" and then "name\tvalue\n" for each item.
std::string disagreement(const std::vector<std::string>& ranks);

}  // namespace ringtrain::allreduce
