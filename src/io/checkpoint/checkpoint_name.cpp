#include "io/checkpoint/checkpoint_name.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <functional>
#include <system_error>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/file.hpp"

namespace ringtrain::io {
namespace {

constexpr std::string_view prefix = "step-", suffix = ".h5", unfinished = ".tmp";
using Listing = UniqueHandle<DIR*, ::closedir>;

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
  return (checkpoint_step(of) || of == "lock" || of == "last-save.txt") && !maker.empty() &&
         maker.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
}

std::vector<std::string> names_in(int directory) {
  // a description of its own: closedir() closes it, and its position is not shared
  const int fd = check_storage(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                               "open of the checkpoint directory");
  const Listing listing(::fdopendir(fd));
  if (listing.get() == nullptr) {
    ::close(fd);
    throw Error("fdopendir", "out of memory");
  }
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(listing.get());
    if (entry == nullptr) break;
    names.emplace_back(entry->d_name);
  }
  check_storage(errno == 0 ? 0 : -1, "readdir of the checkpoint directory");
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
