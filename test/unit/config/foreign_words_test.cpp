#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>

#include "config/option_table.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/config/options.hpp"
#include "ringtrain/io/dataset/dataset.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::config;
using Catch::Contains;

namespace {

/// What becomes of a command line before anything is printed: its configuration, or its refusal.
std::string outcome(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words{"train"};
  for (std::string word; stream >> word;) words.push_back(word);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  try {
    Command command = parse(static_cast<int>(argv.size()), argv.data());
    io::expect_kind_of_data(command.options.data);
    Request request{.options = command.options};
    return toml_text(option_table(request));
  } catch (const Error& refused) {
    CHECK(refused.code() == Exit::usage);
    return std::string("refused: ") + refused.what();
  }
}

/// Lines of source | words | taken, answered or absent | ours.
std::vector<std::vector<std::string>> foreign_lines() {
  std::vector<std::vector<std::string>> lines;
  std::ifstream file(FOREIGN_WORDS);
  for (std::string line; std::getline(file, line);)
    if (!line.starts_with('#')) lines.push_back(split(line, '|'));
  return lines;
}

}  // namespace

TEST_CASE("foreign words: each is taken, answered by the name that it has here, or not there") {
  const auto lines = foreign_lines();
  REQUIRE(lines.size() == 126);
  for (const auto& line : lines) {
    CAPTURE(line[0], line[1]);
    const std::string got = outcome(line[1]);
    if (line[2] == "taken") {
      CHECK(got == outcome(line[3]));
      CHECK_THAT(got, !Contains("unknown option"));
    } else if (line[2] == "answered") {
      CHECK_THAT(got, Catch::StartsWith("refused: ") && Contains(line[3]));
    } else {
      REQUIRE(line[2] == "absent");
      CHECK_THAT(got, Catch::StartsWith("refused: ") && !Contains("did you mean") &&
                          !Contains("say ") && !Contains("it is --"));
      CHECK_THAT(got, Contains("ringtrain does not have it") || Contains("must be ") ||
                          Contains("known are ") || Contains("no such model"));
    }
  }
}

TEST_CASE("foreign words: what is answered are options of this program") {
  Request request;
  const std::vector<OptionEntry> table = option_table(request);
  const std::regex option("--([a-z][a-z-]*)");
  for (const std::string& text : foreign_texts())
    for (std::sregex_iterator found(text.begin(), text.end(), option), end; found != end; ++found) {
      CAPTURE(text);
      CHECK(((*found)[1] == "host" || find_option(table, (*found)[1]) != nullptr));
    }
}

TEST_CASE("foreign words: underscores are dashes, and values stay as they are") {
  CHECK(outcome("--weight_decay 0.1 --label_smoothing=0.2 --checkpoint_dir a_b --keep 1") ==
        outcome("--weight-decay 0.1 --label-smoothing=0.2 --checkpoint-dir a_b --keep 1"));
  CHECK(outcome("-b32 -j3") == outcome("--batch 32 --data-threads 3"));
  CHECK_THAT(outcome("--no_such_thing 3"),
             Contains("unknown option --no_such_thing") && !Contains("did you mean"));
  CHECK_THAT(outcome("--batch-size many"), Contains("--batch many: must be a whole number"));
  CHECK_THAT(outcome("--opt"), Contains("--optimizer X"));
}
