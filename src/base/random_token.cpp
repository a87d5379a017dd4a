#include "ringtrain/base/random_token.hpp"

#include <sys/random.h>

#include <cstdint>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"

namespace ringtrain {

std::string random_token() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits))
    throw Error("getrandom", "gave no random bits");
  return hex(bits);
}

}  // namespace ringtrain
