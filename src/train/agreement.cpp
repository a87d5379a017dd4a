#include "train/agreement.hpp"

#include <fmt/core.h>

#include <map>
#include <sstream>

#include "ringtrain/base/error.hpp"

namespace ringtrain {
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
    for (const auto& [name, value] : claims.values)
      if (const std::string& expected = first.values.at(name); value != expected)
        table += fmt::format("\n  {}: rank 0 on {} has {}, rank {} on {} has {}", name, first.host,
                             expected, r, claims.host, value);
  }
  return table;
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

}  // namespace ringtrain
