#include "ringtrain/base/text.hpp"
#include "support/catch.hpp"

using ringtrain::printable;

TEST_CASE("printable: UTF-8 stays, control characters and other bytes are escaped") {
  CHECK(printable("") == "");
  CHECK(printable("katze") == "katze");
  CHECK(printable("\u00e9\u20ac\U0001F600") == "\u00e9\u20ac\U0001F600");
  CHECK(printable("a\nb\x1b[2J\x7f") == "a\\x0ab\\x1b[2J\\x7f");
  CHECK(printable("\u00a0\u0085\u009b2J") == "\u00a0\\xc2\\x85\\xc2\\x9b2J");
  CHECK(printable("caf\xe9") == "caf\\xe9");
  CHECK(printable("\xe2\x82") == "\\xe2\\x82");           // cut short
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");           // overlong
  CHECK(printable("\xe0\x80\xaf") == "\\xe0\\x80\\xaf");  // overlong
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // a surrogate
}
