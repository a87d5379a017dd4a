#include "allreduce/job_end.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>

namespace ringtrain {
namespace {

using namespace std::chrono_literals;

// A name in the abstract socket name space belongs to one process of a host, and ends with it.
bool claim(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::copy_n(name.data(), length, address.sun_path + 1);
  const int claimed = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);  // held until the exit
  return ::bind(claimed, reinterpret_cast<const sockaddr*>(&address),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)) == 0;
}

}  // namespace

bool wait_to_report(const std::string& job, int host) noexcept {
  if (!claim("ringtrain-end-" + job)) {
    std::this_thread::sleep_for(4s);
    return false;
  }
  std::this_thread::sleep_for(host == 0 ? 0ms : 300ms);
  return true;
}

void exit_after(int seconds, int code) noexcept {
  std::thread([=] {
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    ::_exit(code);
  }).detach();
}

}  // namespace ringtrain
