#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain::io {

/// Whether there are names, and all are called as WordNet's nouns: n and eight digits.
bool are_wnids(const std::vector<std::string>& names);
/// Why a wnid has no label.
inline constexpr std::string_view no_such_wnid =
    "the network's 1,000 classes have no such wnid, so its label is unknown; take it out";

/// Whether `names` holds each of `wanted`.
bool has_all(const std::vector<std::string>& names, const std::vector<std::string>& wanted);

/// The lines of a file, without empty ones; none where it is not there.
std::vector<std::string> names_in_file(const std::filesystem::path& file);

/// What a network's classes are numbered by.
class LabelsByName {
 public:
  /// `names`, by label, outlive it. `unknown`: what is wrong with a name that is not among them.
  LabelsByName(const std::vector<std::string>& names, std::string_view unknown);

  struct Found {
    int label = -1;
    std::string why_not = {};  ///< there is no label, or more than one; else empty
  };
  Found find(const std::string& name) const;

 private:
  const std::vector<std::string>& names_;
  const std::string_view unknown_;
  std::map<std::string_view, int> labels_;
  std::map<std::string_view, int> second_;  // of names that two classes have
};

}  // namespace ringtrain::io
