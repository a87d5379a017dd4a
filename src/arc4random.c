// The C++ runtime that is linked into portable programs refers to glibc 2.36's arc4random(), for a
// std::random_device that no code here makes. This one stands in, for this program only, so that an
// older glibc will do.
#include <stdlib.h>
#include <sys/random.h>

__attribute__((visibility("hidden"))) unsigned arc4random(void) {
  unsigned value = 0;
  if (getrandom(&value, sizeof value, 0) != sizeof value) abort();
  return value;
}
