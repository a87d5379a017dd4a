#include "monitor/telemetry/procfs.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ringtrain/base/text.hpp"

namespace ringtrain::monitor {
namespace {

using Words = std::vector<std::string_view>;

Words words_in(std::string_view text, std::string_view separators) {
  Words words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(separators), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

double number_at(const Words& words, std::size_t place) {
  return place < words.size() ? number_in<double>(words[place]).value_or(0) : 0;
}

}  // namespace

CpuTimes host_times(std::string_view text, double ticks_a_second) {
  enum { user = 1, nice, system, idle, iowait, irq, softirq, steal };
  const Words words = words_in(text.substr(0, text.find('\n')), " ");
  CpuTimes times;
  for (const int busy : {user, nice, system, irq, softirq})
    times.busy += number_at(words, busy) / ticks_a_second;
  times.stolen = number_at(words, steal) / ticks_a_second;
  times.disk_waits = number_at(words, iowait) / ticks_a_second;
  return times;
}

double runnable_tasks(std::string_view text) { return number_at(words_in(text, " /"), 3); }

double resident_pages(std::string_view text) { return number_at(words_in(text, " "), 1); }

InterfaceTotals interface_totals(std::string_view text) {
  enum { name, bytes_in, bad_in = 3, dropped_in, bytes_out = 9, bad_out = 11, dropped_out };
  InterfaceTotals totals;
  for (const std::string_view line : words_in(text, "\n")) {
    const Words words = words_in(line, " :");
    if (line.find(':') == line.npos || words.empty() || words[name] == "lo") continue;
    for (const int bytes : {bytes_in, bytes_out}) totals.bytes += number_at(words, bytes);
    for (const int lost : {bad_in, dropped_in, bad_out, dropped_out})
      totals.lost += number_at(words, lost);
  }
  return totals;
}

double retransmitted_segments(std::string_view text) {
  Words names;
  for (const std::string_view line : words_in(text, "\n")) {
    if (!line.starts_with("Tcp:")) continue;
    const Words words = words_in(line, " ");
    for (std::size_t i = 0; i < names.size(); ++i)
      if (names[i] == "RetransSegs") return number_at(words, i);
    names = words;
  }
  return 0;
}

double throttled_s(std::string_view text) {
  for (const std::string_view line : words_in(text, "\n")) {
    const Words words = words_in(line, " ");
    if (words.empty()) continue;
    if (words[0] == "throttled_usec") return number_at(words, 1) / 1e6;
    if (words[0] == "throttled_time") return number_at(words, 1) / 1e9;  // version 1
  }
  return std::nan("");
}

}  // namespace ringtrain::monitor
