#pragma once
#include <cstddef>

namespace ringtrain {

/// Where what this process prints is seen. Under mpirun a rank writes into pipes; then it is the
/// launcher's own standard output and error that count.
struct Terminal {
  bool out = false, err = false;  ///< whether each is a terminal
  std::size_t columns = 80;
};

Terminal find_terminal();

}  // namespace ringtrain
