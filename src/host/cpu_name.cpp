#include "ringtrain/host/cpu_name.hpp"

#include <fstream>

#include "ringtrain/base/printable.hpp"

namespace ringtrain {

std::string cpu_name() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("model name"))
      if (const auto colon = line.find(": "); colon != line.npos)
        return printable(line.substr(colon + 2));
  return "a CPU";
}

}  // namespace ringtrain
