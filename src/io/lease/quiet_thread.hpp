#pragma once
#include <csignal>
#include <thread>
#include <utility>

namespace ringtrain::io {

/// A thread that takes no signal of its process: signals are for the main thread.
template <class Work>
std::thread quiet_thread(Work work) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace ringtrain::io
