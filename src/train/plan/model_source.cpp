#include "train/plan/model_source.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/config/option_values.hpp"
#include "ringtrain/model/model_file.hpp"

namespace ringtrain::train {
namespace {

constexpr std::size_t most_model_text = 1 << 20;

Error refused(const std::string& file, std::string_view why) {
  return Error(Exit::usage, "--model-file " + brief(file), why);
}

std::string system_reason() { return std::generic_category().message(errno); }

// O_NONBLOCK: opening a FIFO would wait for ever.
std::string read_text(const std::string& file) {
  const FileDescriptor open(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (open.get() < 0 || ::fstat(open.get(), &status) < 0) throw refused(file, system_reason());
  if (!S_ISREG(status.st_mode)) throw refused(file, "is not a regular file");
  std::string text(most_model_text + 1, '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const auto got = ::read(open.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno != EINTR) throw refused(file, system_reason());
    if (got == 0) break;
    done += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  if (done > most_model_text) throw refused(file, "a model file has at most 1 MiB");
  text.resize(done);
  return text;
}

template <class Read>
void expect_readable(const std::string& option, const std::string& text, const Read& read) try {
  static_cast<void>(read(text));
} catch (const BadValue& bad) {
  throw Error(Exit::usage, brief(option + "=" + text), bad.what());
}

void check(const model::Recipe& recipe) {
  expect_readable("optimizer", recipe.optimizer, config::enumerator<optim::OptimizerKind>().read);
  expect_readable("lr-schedule", recipe.schedule, optim::parse_decay);
}

}  // namespace

ModelSource::ModelSource(const config::Options& options)
    : file_(options.model_file),
      text_(file_.empty() ? model::model_text(options.model) : read_text(file_)),
      classes_(options.classes) {}

model::Model ModelSource::make(std::optional<int> usual) const {
  return model::read_model_file(text_, brief(file_), classes_ ? classes_ : usual, check);
}

std::string ModelSource::identity(const model::Model& model) const {
  return file_.empty() ? model.name
                       : fmt::format("{} (file {})", model.name, hex(hash_text(text_)));
}

std::string ModelSource::text(const model::Model& model) const {
  return model::with_classes(text_, model.classes);
}

std::string ModelSource::place() const { return file_.empty() ? "built in" : brief(file_); }

}  // namespace ringtrain::train
