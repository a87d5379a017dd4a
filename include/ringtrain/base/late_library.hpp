#pragma once
#include <mutex>
#include <string>
#include <vector>

namespace ringtrain {

/// A shared library that is loaded when it is first needed, so that the program starts where it is
/// missing. It stays loaded. From any thread.
class LateLibrary {
 public:
  explicit LateLibrary(const char* soname) : soname_(soname) {}
  /// Why it cannot be loaded, in the loader's words; empty where it is.
  std::string why_missing();
  /// A function of the library, by the type of its declaration. Throws Error(Exit::usage) where the
  /// library, and Error where the function is missing.
  template <class F>
  F* find(const char* function) {
    return reinterpret_cast<F*>(address_of(function));
  }

 private:
  void load();
  void* address_of(const char* function);

  const char* soname_;
  std::once_flag once_;
  void* library_ = nullptr;
  std::string why_;
};

/// A library, and its versions: of the headers that this program was compiled with, and of what the
/// dynamic linker found for it.
struct LibraryVersion {
  std::string name;
  std::string built_with, runs_with;
};
using LibraryVersions = std::vector<LibraryVersion>;

}  // namespace ringtrain
