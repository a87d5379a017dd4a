#include "ringtrain/base/late_library.hpp"

#include <dlfcn.h>

#include "ringtrain/base/error.hpp"

namespace ringtrain {

void LateLibrary::load() {
  library_ = ::dlopen(soname_, RTLD_NOW | RTLD_LOCAL);
  if (library_ != nullptr) return;
  const char* words = ::dlerror();
  why_ = words == nullptr ? soname_ : words;
}

std::string LateLibrary::why_missing() {
  std::call_once(once_, [this] { load(); });
  return why_;
}

void* LateLibrary::address_of(const char* function) {
  if (!why_missing().empty())
    throw Error(Exit::usage, std::string("load ") + soname_,
                why_ +
                    "; in a checkout scripts/setup.sh installs it, elsewhere name its folder in "
                    "LD_LIBRARY_PATH");
  void* address = ::dlsym(library_, function);
  if (address == nullptr) throw Error(soname_, std::string("has no ") + function);
  return address;
}

}  // namespace ringtrain
