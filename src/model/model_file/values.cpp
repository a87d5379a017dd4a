#include "model/model_file/values.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ringtrain/base/nearest.hpp"

namespace ringtrain {

double number_or_quotient(const std::string& text, double low, double high) {
  const std::size_t slash = text.find('/');
  if (slash == text.npos) return number_between(text, low, high);
  const auto above = number_in<double>(text.substr(0, slash));
  const auto below = number_in<double>(text.substr(slash + 1));
  const double quotient = above && below ? *above / *below : std::nan("");
  // written so that a NaN fails too
  if (quotient >= low && quotient <= high) return quotient;
  throw BadValue(fmt::format("must be a number, or a quotient of two, from {} to {}", low, high));
}

void Values::expect_only(const std::vector<std::string>& names) const {
  for (const auto& [option, text] : texts_) {
    if (std::ranges::find(names, option) != names.end()) continue;
    const std::string why = names.empty() ? word_ + " takes no options"
                                          : fmt::format("{} has no such option; the nearest is {}",
                                                        word_, nearest(option, names));
    throw Error(Exit::usage, brief(option + "=" + text), why);
  }
}

void Values::expect_only(std::string_view names) const {
  expect_only(names.empty() ? std::vector<std::string>{} : split(names, ' '));
}

void Values::need(const std::string& option) const {
  if (!has(option)) throw Error(Exit::usage, word_, fmt::format("needs {}=...", option));
}

std::string Values::text(const std::string& option, const std::string& usual) const {
  const auto found = texts_.find(option);
  return found == texts_.end() ? usual : found->second;
}

int Values::whole(const std::string& option, int low, int high, std::optional<int> usual) const {
  if (usual && !has(option)) return *usual;
  need(option);
  return read(option, "", [&](const std::string& text) {
    return static_cast<int>(whole_between(text, low, high));
  });
}

double Values::number(const std::string& option, double low, double high, double usual) const {
  if (!has(option)) return usual;
  return read(option, "",
              [&](const std::string& text) { return number_or_quotient(text, low, high); });
}

std::optional<double> Values::number_or_none(const std::string& option, double low, double high,
                                             std::optional<double> usual) const {
  if (!has(option)) return usual;
  if (text(option, "") == "none") return std::nullopt;
  return number(option, low, high, 0);
}

std::vector<double> Values::numbers(const std::string& option, char separator, double low,
                                    double high, const std::vector<double>& usual) const {
  if (!has(option)) return usual;
  return read(option, "", [&](const std::string& text) {
    std::vector<double> numbers;
    for (const std::string& part : split(text, separator))
      numbers.push_back(number_or_quotient(part, low, high));
    if (numbers.size() != usual.size())
      throw BadValue(fmt::format("must be {} numbers with '{}' between", usual.size(), separator));
    return numbers;
  });
}

bool Values::yes(const std::string& option, bool usual) const {
  return choice(option, {"yes", "no"}, usual ? "yes" : "no") == "yes";
}

std::string Values::choice(const std::string& option, const std::vector<std::string>& words,
                           const std::string& usual) const {
  return read(option, usual, [&](const std::string& text) {
    if (std::ranges::find(words, text) != words.end()) return text;
    throw BadValue(fmt::format("must be one of {}", fmt::join(words, ", ")));
  });
}

Values::Extent Values::extent(const std::string& option, int high) const {
  need(option);
  return read(option, "", [&](const std::string& text) -> Extent {
    const std::vector<std::string> sides = split(text, 'x');
    if (sides.size() > 2) throw BadValue("must be one number, or HEIGHTxWIDTH");
    const auto side = [&](const std::string& s) {
      return static_cast<int>(whole_between(s, 1, high));
    };
    return {side(sides.front()), side(sides.back())};
  });
}

}  // namespace ringtrain
