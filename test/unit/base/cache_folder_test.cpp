#include <string>

#include "ringtrain/base/program.hpp"
#include "support/catch.hpp"
#include "support/variable.hpp"

using namespace ringtrain;

namespace {

std::string folder(const char* cache, const char* home) {
  const Variable one("XDG_CACHE_HOME", cache), other("HOME", home);
  return cache_folder();
}

}  // namespace

TEST_CASE("cache folder: where the XDG specification says") {
  CHECK(folder("/some/cache", "/home/me") == "/some/cache/ringtrain");
  CHECK(folder(nullptr, "/home/me") == "/home/me/.cache/ringtrain");
  CHECK(folder("", "/home/me") == "/home/me/.cache/ringtrain");
}

TEST_CASE("cache folder: paths that are not absolute mean nothing") {
  CHECK(folder("cache", "/home/me") == "/home/me/.cache/ringtrain");
  CHECK(folder("cache", "me").empty());
  CHECK(folder(nullptr, nullptr).empty());
}
