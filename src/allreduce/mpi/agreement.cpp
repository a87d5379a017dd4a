#include "ringtrain/allreduce/mpi/agreement.hpp"

#include <fmt/core.h>

#include <map>
#include <sstream>

#include "ringtrain/base/error.hpp"

namespace ringtrain::allreduce {
namespace {

struct Claims {
  std::string host;
  std::map<std::string, std::string> values;
};

Claims read_claims(const std::string& text) {
  std::istringstream lines(text);
  Claims claims;
  std::getline(lines, claims.host);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t tab = line.find('\t');
    claims.values[line.substr(0, tab)] = line.substr(tab + 1);
  }
  return claims;
}

}  // namespace

std::string disagreement(const std::vector<std::string>& ranks) {
  if (ranks.empty()) return {};
  const Claims first = read_claims(ranks[0]);
  std::string table;
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const Claims claims = read_claims(ranks[r]);
    for (const auto& [name, value] : claims.values) {
      const auto found = first.values.find(name);
      const std::string expected = found == first.values.end() ? "nothing" : found->second;
      if (value != expected)
        table += fmt::format("\n  {}: rank 0 on {} has {}, rank {} on {} has {}", name, first.host,
                             expected, r, claims.host, value);
    }
  }
  return table;
}

void require_success(const std::optional<Error>& mine, const MpiSession& session) {
  const bool alike = session.all_equal(mine ? mine->what() : "");
  if (alike && !mine) return;
  const std::string who =
      alike ? ""
            : fmt::format("rank {}/{} on {}: ", session.rank(), session.size(), session.host());
  // "code message" of each rank, empty where it is well
  std::string first;
  for (const std::string& text : session.gather(
           mine ? fmt::format("{} {}{}", static_cast<int>(mine->code()), who, mine->what()) : ""))
    if (first.empty()) first = text;
  first = session.broadcast(first);
  const std::size_t space = first.find(' ');
  session.fail_together(first.substr(space + 1), static_cast<Exit>(std::stoi(first)));
}

void require_agreement(const Agreement& mine, const MpiSession& session) {
  std::string text = session.host() + "\n";
  for (const auto& [name, value] : mine) text += name + "\t" + value + "\n";
  const std::string table = session.broadcast(disagreement(session.gather(text)));
  if (table.empty()) return;
  session.fail_together("the ranks were not started alike:" + table +
                            "\n  start all ranks with the same build, options and data",
                        Exit::usage);
}

}  // namespace ringtrain::allreduce
