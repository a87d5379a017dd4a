#pragma once
#include <functional>
#include <string>

namespace ringtrain::io {

/// For the saves that are still under way when the trainer is killed.
struct LastSaveLimits {
  double timeout_s = 0;   ///< for the saves under way; then the process is to end
  int lock_file = -1;     ///< of the directory; -1: has none
  std::string lock_text;  ///< for it, so that a new run knows that it is worth waiting
  bool begins = true;     ///< else a timeout that runs already goes on
};

/// The writer process: serves the trainer's requests until the trainer's end of `socket` closes.
/// Then it saves what was handed over and tells of it in last-save.txt, unless the trainer closed
/// the directory itself. `prepare` is called when a directory is open, without a lock file before
/// another writer opens it, and with a default-made LastSaveLimits when it is closed.
void serve_trainer(int socket, const std::function<void(const LastSaveLimits&)>& prepare);

}  // namespace ringtrain::io
