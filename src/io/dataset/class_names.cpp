#include "io/dataset/class_names.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "ringtrain/base/file.hpp"
#include "ringtrain/base/text.hpp"

namespace ringtrain::io {
namespace {

bool is_wnid(std::string_view name) {
  return name.size() == 9 && name[0] == 'n' &&
         std::ranges::all_of(name.substr(1), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

bool are_wnids(const std::vector<std::string>& names) {
  return !names.empty() && std::ranges::all_of(names, is_wnid);
}

bool has_all(const std::vector<std::string>& names, const std::vector<std::string>& wanted) {
  const std::set<std::string_view> known(names.begin(), names.end());
  return std::ranges::all_of(wanted, [&](const auto& name) { return known.contains(name); });
}

std::vector<std::string> names_in_file(const std::filesystem::path& file) {
  std::error_code unknown;
  if (!std::filesystem::exists(file, unknown)) return {};
  return lines_in(read_small_file(file, "read the classes in " + brief(file.native())));
}

LabelsByName::LabelsByName(const std::vector<std::string>& names, std::string_view unknown)
    : names_(names), unknown_(unknown) {
  for (int label = 0; label < std::ssize(names_); ++label)
    if (!labels_.emplace(names_[label], label).second) second_.emplace(names_[label], label);
}

LabelsByName::Found LabelsByName::find(const std::string& name) const {
  const auto known = labels_.find(name), second = second_.find(name);
  if (second != second_.end())
    return {.why_not = fmt::format("the network's classes {} and {} are both called so, so "
                                   "its label is unknown; take it out",
                                   known->second, second->second)};
  if (known != labels_.end()) return {.label = known->second};
  for (const std::string& other : names_)
    if (const auto spellings = composed_otherwise(other, name))
      return {.why_not = fmt::format(
                  "training's class {} is spelt otherwise: {} there, {} here, which look alike "
                  "(Unicode's NFC and NFD; macOS makes the latter); give both the same name",
                  printable(other), spellings->first, spellings->second)};
  return {.why_not = std::string(unknown_)};
}

}  // namespace ringtrain::io
