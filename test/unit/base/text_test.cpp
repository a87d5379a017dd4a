#include "ringtrain/base/text.hpp"

#include "support/catch.hpp"

using namespace ringtrain;

TEST_CASE("brief: leaves the middle out of long texts, between two characters of UTF-8") {
  std::string euros;
  for (int i = 0; i < 200; ++i) euros += "\u20ac";  // three bytes each: 200 is inside one

  CHECK(brief(std::string(400, 'a')) == std::string(400, 'a'));
  CHECK(brief(std::string(401, 'a')) == std::string(200, 'a') + " ... " + std::string(200, 'a'));
  CHECK(brief(euros) == euros.substr(0, 66 * 3) + " ... " + euros.substr(0, 66 * 3));
  CHECK(brief("\x1b[2J") == "\\x1b[2J");
}

TEST_CASE("numbers: all of the text, within bounds, or what it must be") {
  CHECK(whole_between("-3", -3, 3) == -3);
  CHECK(number_between("2.5e-3", 0, 1) == 0.0025);
  CHECK(split("a::b", ':') == std::vector<std::string>{"a", "", "b"});
  for (const char* text : {"", "4", "-4", "3 ", " 3", "+3", "0x3", "99999999999999999999"})
    CHECK_THROWS_WITH(whole_between(text, -3, 3), "must be a whole number from -3 to 3");
  for (const char* text : {"", "nan", "inf", "1e999", "1.5", "1,0"})
    CHECK_THROWS_WITH(number_between(text, 0, 1), "must be a number from 0 to 1");
}

TEST_CASE("composed otherwise: texts that differ in how their characters are made") {
  using Codes = std::pair<std::string, std::string>;

  CHECK(composed_otherwise("caf\u00e9", "cafe\u0301") == Codes("U+00E9", "U+0065 U+0301"));
  CHECK(composed_otherwise("e\u0301t\u00e9", "\u00e9te\u0301") == Codes("U+0065 U+0301", "U+00E9"));
  CHECK(composed_otherwise("\ud55c", "\u1112\u1161\u11ab") ==
        Codes("U+D55C", "U+1112 U+1161 U+11AB"));
  CHECK(composed_otherwise("\u304c", "\u304b\u3099") == Codes("U+304C", "U+304B U+3099"));
  CHECK(!composed_otherwise("cafe\u0301", "cafe\u0301"));
  CHECK(!composed_otherwise("cafe", "cafe\u0301"));
  CHECK(!composed_otherwise("caf\u00e9", "caf\u00e8"));
  CHECK(!composed_otherwise("caf\u00e9s", "cafe\u0301"));
  CHECK(!composed_otherwise("caf\xe9", "cafe\u0301"));
}

TEST_CASE("did you mean: what is abbreviated or near, and else nothing") {
  const std::vector<std::string> names{"resnet18", "resnet50", "vgg16"};

  CHECK(did_you_mean("resnet5", names) == "; did you mean resnet50?");
  CHECK(did_you_mean("vgg61", names) == "; did you mean vgg16?");
  CHECK(did_you_mean("resnext50", names) == "; did you mean resnet50?");
  CHECK(did_you_mean("vgg19", names).empty());
  CHECK(did_you_mean("resnet500", names).empty());
  CHECK(did_you_mean("rasnat50", names).empty());
  CHECK(did_you_mean("epcohs", {"epochs"}) == "; did you mean epochs?");
  CHECK(did_you_mean("vit_b_16", names).empty());
  CHECK(did_you_mean("v", names).empty());
  CHECK(did_you_mean("", names).empty());
  CHECK(did_you_mean("x", {}).empty());
}
