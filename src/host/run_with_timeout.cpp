#include "ringtrain/host/run_with_timeout.hpp"

#include <future>
#include <system_error>
#include <thread>
#include <utility>

namespace ringtrain::host {

// The thread is left behind where it hangs: the process is about to end.
std::string run_with_timeout(std::chrono::milliseconds time, std::function<std::string()> work,
                             const std::string& late) try {
  std::promise<std::string> said;
  std::future<std::string> outcome = said.get_future();
  std::thread([work = std::move(work), said = std::move(said)]() mutable {
    said.set_value(work());
  }).detach();
  return outcome.wait_for(time) == std::future_status::ready ? outcome.get() : late;
} catch (const std::system_error&) {
  return late;  // no thread is to be had
}

}  // namespace ringtrain::host
