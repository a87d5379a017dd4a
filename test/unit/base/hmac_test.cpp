#include "ringtrain/base/hmac.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"

using namespace ringtrain;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string hex_of(const Sha256& code) {
  std::string text;
  for (const std::byte b : code) {
    text += "0123456789abcdef"[std::to_integer<int>(b >> 4)];
    text += "0123456789abcdef"[std::to_integer<int>(b & std::byte{15})];
  }
  return text;
}

}  // namespace

TEST_CASE("HMAC-SHA256: what RFC 4231 has") {
  CHECK(hex_of(hmac_sha256(bytes_of(std::string(20, '\x0b')), bytes_of("Hi There"))) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex_of(hmac_sha256(bytes_of("Jefe"), bytes_of("what do ya want for nothing?"))) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex_of(hmac_sha256(bytes_of(std::string(20, '\xaa')), bytes_of(std::string(50, '\xdd')))) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  const std::string long_key(131, '\xaa');
  CHECK(hex_of(hmac_sha256(bytes_of(long_key),
                           bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("secrets are the same in all bytes, or are not") {
  const std::string a = "a secret", b = "a secreT", shorter = "a secre";
  CHECK(same_secret(bytes_of(a), bytes_of(std::string(a))));
  CHECK_FALSE(same_secret(bytes_of(a), bytes_of(b)));
  CHECK_FALSE(same_secret(bytes_of(a), bytes_of(shorter)));
}

TEST_CASE("random bits come anew") {
  std::vector<std::byte> first(32), second(32);
  fill_randomly(first);
  fill_randomly(second);
  CHECK(first != second);
  CHECK(std::ranges::count(first, std::byte{}) < 16);
}
