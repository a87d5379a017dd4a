#include "io/checkpoint/checkpoint_name.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <functional>
#include <system_error>

#include "io/checkpoint/checkpoint_opener.hpp"
#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

constexpr std::string_view prefix = "step-", suffix = ".h5", unfinished = ".tmp";
using Listing = UniqueHandle<DIR*, ::closedir>;

// Returns errno; 0: all of them are read.
int list(int directory, std::vector<std::string>& names) {
  names.clear();
  // a description of its own: closedir() closes it, and its position is not shared
  const int fd = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  const Listing listing(::fdopendir(fd));
  if (listing.get() == nullptr) {
    ::close(fd);
    throw Error(Exit::limit, "fdopendir", reason_of(ENOMEM));
  }
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(listing.get());
    if (entry == nullptr) return errno;
    names.emplace_back(entry->d_name);
  }
}

}  // namespace

std::string checkpoint_name(std::uint64_t step) { return fmt::format("step-{:010}.h5", step); }

std::optional<std::uint64_t> checkpoint_step(std::string_view name) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  const std::string_view digits =
      name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  std::uint64_t step = 0;
  const auto [end, failure] = std::from_chars(digits.begin(), digits.end(), step);
  if (failure != std::errc{} || end != digits.end() || checkpoint_name(step) != name)
    return std::nullopt;
  return step;
}

std::string temporary_name(std::string_view name, std::string_view maker) {
  return fmt::format(".{}.{}{}", name, maker, unfinished);
}

bool is_temporary_name(std::string_view name) {
  if (!name.starts_with('.') || !name.ends_with(unfinished)) return false;
  name.remove_prefix(1);
  name.remove_suffix(std::min(unfinished.size(), name.size()));
  if (checkpoint_step(name)) return true;
  const auto dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  const std::string_view of = name.substr(0, dot), maker = name.substr(dot + 1);
  return (checkpoint_step(of) || of == "lock" || of == "last-save.txt" || of == best_name) &&
         !maker.empty() && maker.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
}

std::vector<std::string> names_in(int directory) {
  std::vector<std::string> names;
  for (RetryBudget retries; const int error = list(directory, names);) {
    std::error_code none;
    const auto path =
        std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", directory), none);
    const Error failure(code_of(error, Exit::storage),
                        "list the checkpoint directory " + printable(path.native()),
                        reason_of(error));
    if (error == ESTALE) throw StaleCheckpoint(failure);  // and so this descriptor stays
    if (!retries.wait(path, error, 0, nullptr)) throw failure;
  }
  return names;
}

std::vector<std::string> checkpoint_names(int directory) {
  std::vector<std::string> names = names_in(directory);
  std::erase_if(names, [](const std::string& name) { return !checkpoint_step(name); });
  std::ranges::sort(names, std::greater{},
                    [](const std::string& name) { return checkpoint_step(name); });
  return names;
}

}  // namespace ringtrain::io
