#include "ringtrain/host/limits.hpp"

#include <fmt/core.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

#include "host/kernel_numbers.hpp"
#include "ringtrain/host/control_groups.hpp"

namespace ringtrain::host {
namespace {

std::optional<rlim_t> process_limit(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

// Whether a thread's stack was beyond it, or would be.
bool lacks_addresses() {
  constexpr rlim_t usual_stack = rlim_t{8} << 20;
  const auto addresses = process_limit(RLIMIT_AS);
  const auto stack = process_limit(RLIMIT_STACK).value_or(usual_stack);
  const auto most = rlim_t{number_behind("/proc/self/status", "VmPeak:")} * 1024;
  return addresses && most + stack > *addresses;
}

// The failed call may have left room again, as others have ended with it.
std::string group_that_refused() {
  for (const std::string& group : control_groups("pids")) {
    const auto most = number_in_file(group + "/pids.max", no_limit);
    if (most == no_limit) continue;
    const bool refused = number_in_file(group + "/pids.current", 0) >= most ||
                         number_behind(group + "/pids.events", "max") > 0;
    if (refused)
      return fmt::format(
          "the control group {} allows {} (pids.max): raise it (docker: --pids-limit)", group,
          most);
  }
  return "";
}

std::string reached_limit() {
  if (lacks_addresses()) return reason_of(ENOMEM);
  if (const std::string group = group_that_refused(); !group.empty()) return group;
  if (const auto processes = process_limit(RLIMIT_NPROC))
    return fmt::format("`ulimit -u` allows this user {}: raise it (limits.conf: nproc)",
                       *processes);
  return "this host allows no more: raise its kernel.threads-max, kernel.pid_max or "
         "vm.max_map_count";
}

bool can_start_thread() {
  try {
    std::thread([] {}).join();
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

}  // namespace

std::string why_no_thread() {
  return "no more threads and processes; " + reached_limit() +
         ", or give fewer --threads and --data-threads";
}

Error as_error(const std::exception& failure) {
  if (const auto* const error = dynamic_cast<const Error*>(&failure)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&failure) != nullptr)
    return {Exit::limit, "allocate memory", reason_of(ENOMEM)};
  if (lacks_thread(failure)) return {Exit::limit, "start a thread", why_no_thread()};
  const auto* const system = dynamic_cast<const std::system_error*>(&failure);
  if (system != nullptr && code_of(system->code().value(), Exit::internal) == Exit::limit)
    return {Exit::limit, failure.what(), reason_of(system->code().value())};
  return {failure.what(), "not expected"};
}

std::optional<Error> failure_of_exit(int code) {
  if (code != EXIT_FAILURE || can_start_thread()) return std::nullopt;
  return Error(Exit::limit, "start a thread", why_no_thread());
}

}  // namespace ringtrain::host
