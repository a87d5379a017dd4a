#include "train/text.hpp"

#include <catch2/catch.hpp>

using namespace ringtrain;

TEST_CASE("brief: leaves the middle out of long texts, between two characters of UTF-8") {
  std::string euros;
  for (int i = 0; i < 200; ++i) euros += "\u20ac";  // three bytes each: 200 is inside one

  CHECK(brief(std::string(400, 'a')) == std::string(400, 'a'));
  CHECK(brief(std::string(401, 'a')) == std::string(200, 'a') + " ... " + std::string(200, 'a'));
  CHECK(brief(euros) == euros.substr(0, 66 * 3) + " ... " + euros.substr(0, 66 * 3));
  CHECK(brief("\x1b[2J") == "\\x1b[2J");
}
