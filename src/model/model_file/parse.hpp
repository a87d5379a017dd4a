#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/model/graph.hpp"

namespace ringtrain::model {

/// One line of a model file: [NAME =] WORD [INPUT ...] [OPTION=VALUE ...].
struct Line {
  int number = 0;    ///< from 1
  std::string name;  ///< empty: the line has none
  std::string word;
  std::vector<std::string> inputs;
  std::map<std::string, std::string> options;
};

/// The lines of a file, without its byte order mark.
std::vector<std::string> lines_of(std::string_view text);

/// Reads one line; nothing where it is blank or a comment. Throws Error (usage) without the place.
std::optional<Line> read_line(std::string_view text, int number);

/// The longest word of a line, and the longest name in full.
inline constexpr std::size_t longest_word = 200;

/// Throws Error (usage) when `text` cannot be the name of anything.
void check_name(std::string_view text);

/// The names that a line's name stands for: `stage.{1..3}` is three. Throws Error (usage).
std::vector<std::string> expanded(const std::string& name);

/// A number, also written as a quotient: 1/192. Throws BadValue.
double number_or_quotient(const std::string& text, double low, double high);

/// The options of one line, `$` parameters filled in. All throw Error (usage) that says which
/// option is wrong and what it must be.
class Values {
 public:
  /// `word`: what the line is about, in messages.
  Values(std::string word, std::map<std::string, std::string> texts)
      : word_(std::move(word)), texts_(std::move(texts)) {}

  /// Throws, with the nearest name, when an option is none of `names`.
  void expect_only(const std::vector<std::string>& names) const;
  /// Likewise, of names with spaces between.
  void expect_only(std::string_view names) const;
  bool has(const std::string& option) const { return texts_.contains(option); }

  /// Without `usual` the option must be there.
  int whole(const std::string& option, int low, int high, std::optional<int> usual = {}) const;
  double number(const std::string& option, double low, double high, double usual) const;
  /// Nothing where the option says `none`.
  std::optional<double> number_or_none(const std::string& option, double low, double high,
                                       std::optional<double> usual) const;
  /// As many numbers as `usual` has, with `separator` between them.
  std::vector<double> numbers(const std::string& option, char separator, double low, double high,
                              const std::vector<double>& usual) const;
  bool yes(const std::string& option, bool usual) const;
  /// One of `words`.
  std::string choice(const std::string& option, const std::vector<std::string>& words,
                     const std::string& usual) const;
  std::string text(const std::string& option, const std::string& usual) const;

  /// What `read` makes of the option's text, or of `usual`; it throws BadValue.
  template <class Read>
  auto read(const std::string& option, const std::string& usual, const Read& read) const {
    const std::string said = text(option, usual);
    try {
      return read(said);
    } catch (const BadValue& bad) {
      throw Error(Exit::usage, brief(option + "=" + said), bad.what());
    }
  }

  /// HEIGHTxWIDTH, or one number for both; the option must be there.
  struct Extent {
    int height, width;
  };
  Extent extent(const std::string& option, int high) const;

 private:
  void need(const std::string& option) const;

  std::string word_;
  std::map<std::string, std::string> texts_;
};

/// Why a graph whose layers fit each other is no network to train, by the node to look at.
struct Fault {
  std::size_t node = 0;
  std::string what, why;
};

/// A result that nothing reads; no loss, or two; no parameters, or too many. `graph` has a node.
std::optional<Fault> first_fault(const Graph& graph);

}  // namespace ringtrain::model
