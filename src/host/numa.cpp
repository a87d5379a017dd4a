#include "ringtrain/host/numa.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>

#include "ringtrain/base/text.hpp"

namespace ringtrain::host {
namespace {

// Of "0-3,8".
std::vector<int> numbers_of_ranges(const std::string& text) {
  std::vector<int> numbers;
  for (const std::string& range : split(text, ',')) {
    const std::vector<std::string> ends = split(range, '-');
    const auto first = number_in<int>(ends.front()), last = number_in<int>(ends.back());
    if (!first || !last) return {};
    for (int number = *first; number <= *last; ++number) numbers.push_back(number);
  }
  return numbers;
}

std::string line_of(const std::string& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

}  // namespace

// CUDA writes hexadecimal digits large, the kernel small. -1: the machine has one node only.
std::vector<int> cpus_near(std::string bus_id, const std::string& root) {
  for (char& c : bus_id) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto node = number_in<int>(line_of(root + "/sys/bus/pci/devices/" + bus_id + "/numa_node"));
  if (!node || *node < 0) return {};
  return numbers_of_ranges(
      line_of(root + "/sys/devices/system/node/node" + std::to_string(*node) + "/cpulist"));
}

std::vector<std::vector<int>> cores_near(const std::vector<std::vector<int>>& cores,
                                         const std::vector<std::vector<int>>& near, int rank) {
  const std::size_t ranks = near.size();
  std::vector<std::vector<std::vector<int>>> dealt(ranks);
  std::vector<bool> taken(cores.size());
  const auto deal = [&](std::size_t r, std::size_t core) {
    const std::size_t part = cores.size() * (r + 1) / ranks - cores.size() * r / ranks;
    if (taken[core] || dealt[r].size() == part) return;
    taken[core] = true;
    dealt[r].push_back(cores[core]);
  };
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<std::size_t> own;
    for (std::size_t core = 0; core < cores.size(); ++core)
      if (std::ranges::find_first_of(cores[core], near[r]) != cores[core].end())
        own.push_back(core);
    const auto place = static_cast<std::size_t>(
        std::count(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(r), near[r]));
    const auto all = static_cast<std::size_t>(std::ranges::count(near, near[r]));
    for (std::size_t i = own.size() * place / all; i < own.size() * (place + 1) / all; ++i)
      deal(r, own[i]);
  }
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t core = 0; core < cores.size(); ++core) deal(r, core);
  return dealt[static_cast<std::size_t>(rank)];
}

}  // namespace ringtrain::host
