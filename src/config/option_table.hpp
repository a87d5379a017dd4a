#pragma once
#include <functional>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "config/slurm_resources.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/config/options.hpp"

namespace ringtrain::config {

/// Also what was left out, as the network fills it in; or what was given alone, reading no network.
enum class PrintConfig { all, given };

/// All that one command line can say.
struct Request {
  Options options;
  std::string config = {}, inspect = {};
  std::string pack_source = {}, pack_target = {};
  std::optional<int> pack_short_side = {};
  Export exported = {};
  std::optional<SlurmResources> batch_job = {};
  std::optional<PrintConfig> print_config = {};
  bool print_model = false, version = false, json = false, man_page = false;
  bool help = false;
  std::optional<Shell> completion = {};
};

/// One option, for the parser, the help, configuration files and canonical_config() alike.
struct OptionEntry {
  std::string name;
  std::string argument;  ///< empty: a flag
  std::string description;
  std::string unset = {};  ///< what stands in for a value that was not given
  std::string alone = {};  ///< the value of an option that may stand without one; empty: it may not
  std::string group = {};
  std::function<void(const std::string&)> set = {};  ///< throws BadValue
  std::function<std::string()> value = {};           ///< empty while unset
  bool bare = false;                                 ///< TOML and JSON write it without quotes
  bool in_files = true;                              ///< may stand in a configuration file
  bool joins = false;                                ///< all that are given make one list

  bool is_flag() const { return argument.empty(); }
};

/// Every option of this release, in the order of the help. The entries write into `request`.
std::vector<OptionEntry> option_table(Request& request);

/// Null where there is none of that name.
const OptionEntry* find_option(const std::vector<OptionEntry>& table, const std::string& name);
/// What to try instead of `name`, for a message. `prefix`: "--", or "" in a configuration file.
std::string option_hint(std::string_view name, const std::vector<OptionEntry>& table,
                        std::string_view prefix);

/// The words of a command line with this program's names in place of those that only have other
/// dashes, or that mean the same in other trainers.
std::vector<std::string> in_own_words(std::vector<std::string> words,
                                      const std::vector<OptionEntry>& table);
/// What is said of an option (`--name`) that other trainers have and this one has under no name;
/// empty: it is not known.
std::string foreign_option(std::string name, std::string_view value);
/// What is said behind the fault of a value that other trainers know; empty: it is not known.
std::string foreign_value(std::string_view option, std::string value);
/// All that the two above and in_own_words() know of our options, for a test.
std::vector<std::string> foreign_texts();

/// The error of a wrong command or file; both texts as brief() makes them.
Error usage_error(std::string_view what, std::string_view reason);

/// Everything `--help` prints, at most 80 columns wide.
std::string help_text(const std::vector<OptionEntry>& table);
/// A configuration file that says what `table` holds now; what is unset stands as a comment.
std::string toml_text(const std::vector<OptionEntry>& table);

/// The manual page, as man reads it (roff).
std::string man_page(const std::vector<OptionEntry>& table, std::string_view version);
/// What makes the shell complete options and values of `train` and `ringtrain`.
std::string completion(const std::vector<OptionEntry>& table, Shell shell);

/// A line of a configuration file; of a flag, the value is `true` or `false`.
struct FileLine {
  std::string key, value;
};
/// The lines of a configuration file, which is called `file` in messages: TOML with one key and one
/// value a line, under the headings of the help or none; text without quotes is read, too. Keys are
/// options of `table` that may stand in files, values fit them. Throws Error(Exit::usage) with line
/// and key.
std::vector<FileLine> read_config(std::istream& text, const std::string& file,
                                  const std::vector<OptionEntry>& table);

/// Reads standard input, up to what no configuration has. The path of a file in memory that has it,
/// which this process and programs that it becomes keep open.
std::string keep_standard_input();

/// Why `path`, which is called `name`, can be no configuration file; empty: it may be one.
std::string why_no_config_file(const std::string& path, const std::string& name);

}  // namespace ringtrain::config
