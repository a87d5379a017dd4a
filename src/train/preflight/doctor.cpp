#include "train/preflight/doctor.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "ringtrain/base/text.hpp"

namespace ringtrain::train {
namespace {

constexpr std::array<Check, 12> checks = {
    check_plan,   check_hosts,  check_threads,       check_gpus,   check_mpi,  check_network,
    check_fabric, check_memory, check_shared_memory, check_limits, check_data, check_checkpoints};

// Ranks come in order, so theirs stay ascending.
std::vector<Finding> merged(const std::vector<Finding>& findings) {
  std::vector<Finding> all;
  for (const Finding& finding : findings) {
    const auto same = std::ranges::find_if(all, [&](const Finding& other) {
      return other.what == finding.what && other.advice == finding.advice;
    });
    if (same == all.end())
      all.push_back(finding);
    else
      same->ranks.insert(same->ranks.end(), finding.ranks.begin(), finding.ranks.end());
  }
  for (Finding& finding : all) std::ranges::sort(finding.ranks);
  return all;
}

}  // namespace

std::vector<CheckResult> examine(std::span<const HostFacts> ranks) {
  std::vector<CheckResult> all;
  for (const Check check : checks) {
    CheckResult& one = all.emplace_back(check(ranks));
    one.findings = merged(one.findings);
  }
  return all;
}

namespace {

constexpr std::size_t width = 100, indent = 24;
constexpr std::size_t most_hosts = 4;  // named one by one

std::string words_of(Finding::Weight weight) {
  constexpr std::string_view words[] = {"note", "warning", "stop"};
  return std::string(words[static_cast<std::size_t>(weight)]);
}

std::string ranks_on(const std::vector<int>& ranks, const std::string& host) {
  return fmt::format("rank{} {} on {}", ranks.size() == 1 ? "" : "s", ranges_text(ranks), host);
}

// "ranks 0-1 on node1, rank 2 on node2"; empty for the whole job.
std::string where(const std::vector<int>& ranks, std::span<const HostFacts> facts) {
  if (ranks.empty()) return "";
  std::map<int, std::vector<int>> by_host;
  for (const int r : ranks) by_host[facts_of(facts, r).host_number].push_back(r);
  if (by_host.size() > most_hosts) return ranks_on(ranks, plural(by_host.size(), "host"));
  std::vector<std::string> places;
  for (const auto& [host, there] : by_host)
    places.push_back(ranks_on(there, facts_of(facts, there[0]).host));
  return fmt::format("{}", fmt::join(places, ", "));
}

std::string line_of(const Finding& finding, std::span<const HostFacts> facts) {
  const std::string place = where(finding.ranks, facts);
  std::string line = finding.what;
  if (!place.empty()) line += fmt::format(" ({})", place);
  if (!finding.advice.empty()) line += "; " + finding.advice;
  return printable(line);
}

std::string row_of(const CheckResult& one, std::span<const HostFacts> facts) {
  const auto worst = std::ranges::max_element(one.findings, {}, &Finding::weight);
  const std::string mark = worst == one.findings.end() ? "ok" : words_of(worst->weight);
  std::string row = fmt::format("  {:<8} {:<12} {}\n", mark, one.name,
                                wrapped(printable(one.seen), indent, width));
  for (const Finding& finding : one.findings)
    row += fmt::format("{:>{}}{}\n", "> ", indent, wrapped(line_of(finding, facts), indent, width));
  return row;
}

}  // namespace

Diagnosis diagnose(std::span<const HostFacts> ranks) {
  Diagnosis diagnosis{.table = "checks before training\n"};
  for (const CheckResult& one : examine(ranks)) {
    diagnosis.table += row_of(one, ranks);
    for (const Finding& finding : one.findings) {
      if (finding.weight != Finding::Weight::note)
        diagnosis.warnings.push_back(fmt::format("{}: {}", one.name, line_of(finding, ranks)));
      if (finding.weight == Finding::Weight::stop && diagnosis.code == 0) {
        diagnosis.stop = line_of(finding, ranks);
        diagnosis.code = finding.code;
      }
    }
  }
  diagnosis.table.pop_back();
  return diagnosis;
}

Diagnosis diagnose(const HostFacts& mine, const allreduce::MpiSession& session) {
  std::vector<HostFacts> ranks;
  for (const std::string& text : session.gather(to_text(mine)))
    ranks.push_back(facts_from_text(text));
  Diagnosis diagnosis;
  if (!ranks.empty()) diagnosis = diagnose(ranks);
  diagnosis.stop = session.broadcast(diagnosis.stop);
  session.broadcast(std::as_writable_bytes(std::span(&diagnosis.code, 1)), 0);
  return diagnosis;
}

}  // namespace ringtrain::train
