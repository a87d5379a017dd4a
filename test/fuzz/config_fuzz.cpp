// Any bytes as a configuration file (--config): options, which are the same once they are printed
// and read again, or refused with Error (usage) of printable text.
#define RINGTRAIN_VERSION "fuzzed"  // which options.cpp prints
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "config/option_table.hpp"
#include "config/options.cpp"
#include "config/version.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/config/options.hpp"

namespace ringtrain {

// No network is known: model files have a fuzz test of their own.
namespace model {
std::vector<std::string> model_names() { return {}; }
std::string_view model_text(const std::string&) { return {}; }
std::string with_words(std::string_view, std::string_view) { return {}; }
}  // namespace model

namespace config {

// What only the command line asks for; the real ones need every library that the program has.
std::string version_text() { return {}; }
std::string version_json() { return {}; }
std::string program_to_start() { return {}; }
std::string sbatch_script(const SlurmResources&, const Options&, const std::vector<std::string>&,
                          const std::string&) {
  return {};
}

}  // namespace config

namespace {

void expect(bool kept) {
  if (!kept) __builtin_trap();
}

/// A terminal that shows the message must not obey it.
void check(const Error& refused) {
  expect(refused.code() == Exit::usage &&
         std::string_view(refused.what()).find('\x1b') == std::string_view::npos);
}

/// What --print-config writes of the file's options. Their values fit, or the file is refused.
std::string printed(const std::string& text) {
  static config::Request request;
  static const std::vector<config::OptionEntry> table = config::option_table(request);
  static const std::string name = "net.toml";
  std::istringstream lines(text);
  const std::vector<config::FileLine> values = config::read_config(lines, name, table);
  request = {};
  for (const config::FileLine& line : values) config::find_option(table, line.key)->set(line.value);
  return config::toml_text(table);
}

void read_values(const std::string& text) {
  const std::string once = printed(text);
  if (!is_utf8(text)) return;  // nothing is escaped then
  std::string twice;
  try {
    twice = printed(once);
  } catch (const Error&) {  // told below
  }
  expect(once == twice);
}

/// As the program does it, which takes a hundred times as long.
void read_file(const std::string& text) {
  static const FileDescriptor memory(::memfd_create("fuzz", MFD_CLOEXEC));
  static const std::string path = "/proc/self/fd/" + std::to_string(memory.get());
  const auto size = static_cast<ssize_t>(text.size());
  expect(::ftruncate(memory.get(), size) == 0 &&
         ::pwrite(memory.get(), text.data(), text.size(), 0) == size);
  const std::array words{"train", "--config", path.c_str()};
  config::parse(static_cast<int>(words.size()), words.data());
}

}  // namespace
}  // namespace ringtrain

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace ringtrain;
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  static unsigned count = 0;
  try {
    read_values(text);
    if (++count % 256 == 0) read_file(text);
  } catch (const Error& refused) {
    check(refused);
  } catch (const CLI::ParseError&) {  // parse() makes an Error of it
  }
  return 0;
}
