#pragma once
#include <cstddef>

namespace ringtrain::host {

/// Where what this process prints is seen. Under mpirun a rank writes into pipes; then it is the
/// launcher's own standard output and error that count.
struct Terminal {
  bool out = false, err = false;  ///< whether each is a terminal
  bool colours = false;           ///< on err: the user has not said NO_COLOR (no-color.org)
  std::size_t columns = 80;
};

Terminal find_terminal();

}  // namespace ringtrain::host
