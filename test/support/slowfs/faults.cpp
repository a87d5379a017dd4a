#include "faults.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

namespace ringtrain {

using Clock = std::chrono::steady_clock;

Faults::Now Faults::look_up(std::string_view call, bool first) {
  Now now;
  std::set<std::string> counted;
  const std::scoped_lock lock(mutex_);
  std::ifstream lines(file_);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind, which;
    words >> kind;
    if (kind == "rate") words >> now.rate;
    words >> which;
    if (kind == "nth") counted.insert(line);
    if (which != call && which != "any") continue;
    double number = 0;
    std::uint64_t from_bytes = 0;
    words >> number;
    words >> from_bytes;
    if (kind == "hang") now.hangs = true;
    if (kind == "delay") now.delay = std::chrono::duration<double, std::milli>(number);
    if (kind == "fail" && written_ >= from_bytes) now.error = static_cast<int>(number);
    std::uint64_t times = 1;
    words >> times;
    if (kind != "nth") continue;
    const std::uint64_t calls = calls_[line] += first ? 1 : 0;
    if (calls >= from_bytes && calls < from_bytes + times) now.error = static_cast<int>(number);
  }
  std::erase_if(calls_, [&](const auto& entry) { return !counted.contains(entry.first); });
  return now;
}

std::string Faults::setting(std::string_view kind) const {
  std::ifstream lines(file_);
  std::string word, value;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    if (words >> word >> value && word == kind) return value;
  }
  return "";
}

Faults::Locks Faults::locks() const {
  const std::string value = setting("locks");
  if (value == "none") return Locks::none;
  return value == "refused" ? Locks::refused : Locks::work;
}

double Faults::late_s() const { return std::atof(setting("late").c_str()); }

void Faults::transfer(std::size_t bytes, double rate) {
  Clock::time_point done;
  {
    const std::scoped_lock lock(mutex_);
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / rate);
    free_at_ =
        std::max(free_at_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(takes);
    done = free_at_;
  }
  std::this_thread::sleep_until(done);
}

int Faults::suffer(std::string_view call, std::size_t bytes,
                   const std::function<bool()>& given_up) {
  Now now = look_up(call, true);
  for (; now.hangs; now = look_up(call, false)) {
    if (given_up()) return EIO;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::this_thread::sleep_for(now.delay);
  if (now.rate > 0 && bytes > 0) transfer(bytes, now.rate);
  if (now.error == 0 && call == "write") written_ += bytes;
  return now.error;
}

}  // namespace ringtrain
