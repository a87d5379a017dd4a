#include "train/stop_request.hpp"

#include <csignal>
#include <initializer_list>

namespace ringtrain {
namespace {

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t received = 0;

extern "C" void remember(int signal) { received = signal; }

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

StopRequest::StopRequest() {
  received = 0;
  for (const int signal : {SIGTERM, SIGINT}) handle(signal, remember);
}

StopRequest::~StopRequest() {
  for (const int signal : {SIGTERM, SIGINT}) handle(signal, SIG_DFL);
}

int StopRequest::signal() const { return received; }

int agreed_signal(double sum, double ranks) {
  if (ranks == 0) return 0;
  return sum == SIGINT * ranks ? SIGINT : SIGTERM;
}

}  // namespace ringtrain
