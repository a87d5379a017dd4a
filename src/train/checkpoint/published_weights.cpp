#include "train/checkpoint/published_weights.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/model/torch_state.hpp"

namespace ringtrain::train {
namespace {

using Extents = std::vector<std::uint64_t>;

constexpr std::size_t most_misfits = 3, most_channels = 1'000'000;

/// The shape that torch gives a tensor of ours.
Extents torch_shape(const Extents& ours) {
  if (ours.size() != 4) return ours;
  return {ours[0], ours[3], ours[1], ours[2]};
}

// A 1x1 convolution and a fully connected layer are the same; so are (C, 1, 1) and (C).
Extents without_trailing_ones(Extents shape) {
  while (shape.size() > 1 && shape.back() == 1) shape.pop_back();
  return shape;
}

bool fits(const io::TensorInfo& theirs, const Extents& needed) {
  return without_trailing_ones(theirs.shape) == without_trailing_ones(needed);
}

bool is_loaded(const io::TensorInfo& info) { return io::is_weight(info) || io::is_statistic(info); }

std::set<std::string> names_of(const TrainingState& state) {
  std::set<std::string> names;
  for (const io::TensorPlace& place : state.layout().tensors)
    if (is_loaded(place.info)) names.insert(io::without_folder(place.info.name));
  return names;
}

std::string extents_text(const Extents& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

class PublishedReader {
 public:
  PublishedReader(const io::WeightsFile& file, const model::Graph& graph, const LooseTensors& loose,
                  const TrainingState& state)
      : file_(file),
        loose_(loose),
        state_(state),
        network_(names_of(state)),
        names_(network_names(file.tensors(), network_)),
        layouts_(model::row_layouts(graph)),
        used_(names_.size(), false) {
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (const auto [first, is_new] = places_.emplace(names_[i], i); !is_new)
        refuse_repeated(first->second, i);
  }

  PublishedReading read() {
    PublishedReading reading{state_.copy(), {}};
    for (const io::TensorPlace& place : state_.layout().tensors)
      if (is_loaded(place.info) || io::is_average(place.info)) take(place, reading.values);
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (!used_[i]) leave(i);
    require_no_misfits();
    reading.lines = {taken_line(), drawn_line(), unused_line()};
    return reading;
  }

 private:
  void take(const io::TensorPlace& place, std::vector<std::vector<float>>& values);
  void miss(const std::string& name, const Extents& needed, std::optional<std::size_t> found);
  void leave(std::size_t tensor);
  void require_finite(std::size_t tensor, const std::vector<float>& values) const;
  [[noreturn]] void refuse_repeated(std::size_t first, std::size_t second) const;
  bool is_one_everywhere(std::size_t tensor) const;
  void require_no_misfits() const;
  std::string taken_line() const;
  std::string drawn_line() const;
  std::string unused_line() const;

  const io::WeightsFile& file_;
  const LooseTensors& loose_;
  const TrainingState& state_;
  const std::set<std::string> network_;
  const std::vector<std::string> names_;  // in the network, by tensor of the file
  const std::map<std::string, model::RowLayout> layouts_;
  std::map<std::string, std::size_t> places_;
  std::vector<bool> used_;
  std::size_t weights_ = 0, statistics_ = 0, counters_ = 0, ones_ = 0;
  std::vector<std::string> misfits_, drawn_;
  std::set<std::uint64_t> classes_;  // of the file, where only those differ
  bool only_classes_ = true;
};

void PublishedReader::take(const io::TensorPlace& place, std::vector<std::vector<float>>& values) {
  const std::string name = io::without_folder(place.info.name);
  const Extents needed = torch_shape(place.info.shape);
  const auto found = places_.find(name);
  const bool average = io::is_average(place.info);
  if (found == places_.end() || !fits(file_.tensors()[found->second], needed)) {
    if (!average)
      miss(name, needed, found == places_.end() ? std::nullopt : std::optional(found->second));
    return;
  }
  std::vector<float> theirs(io::element_count(place.info));
  file_.read(found->second, theirs);
  require_finite(found->second, theirs);
  const auto layout = layouts_.find(name);
  const model::RowLayout row = layout == layouts_.end() ? model::RowLayout{} : layout->second;
  model::from_torch_layout(theirs, row,
                           std::span(values[place.buffer]).subspan(place.offset, theirs.size()));
  used_[found->second] = true;
  if (!average) ++(io::is_weight(place.info) ? weights_ : statistics_);
}

void PublishedReader::miss(const std::string& name, const Extents& needed,
                           std::optional<std::size_t> found) {
  if (found) used_[*found] = true;
  const std::string theirs = found ? extents_text(file_.tensors()[*found].shape) : "";
  if (loose_.may_differ.contains(name)) {
    drawn_.push_back(fmt::format("{} {}, {}", name, extents_text(needed),
                                 found ? "there " + theirs : "not there"));
    return;
  }
  Extents other = found ? file_.tensors()[*found].shape : Extents{};
  const bool same_but_first = loose_.heads.contains(name) && other.size() == needed.size() &&
                              !other.empty() &&
                              std::equal(other.begin() + 1, other.end(), needed.begin() + 1);
  only_classes_ &= same_but_first;
  if (same_but_first) classes_.insert(other[0]);
  misfits_.push_back(
      found ? fmt::format("has {} {}, needed is {}", name, theirs, extents_text(needed))
            : fmt::format("has no {} {}", name, extents_text(needed)));
}

void PublishedReader::require_finite(std::size_t tensor, const std::vector<float>& values) const {
  const auto bad = std::ranges::find_if_not(values, [](float v) { return std::isfinite(v); });
  if (bad == values.end()) return;
  throw Error(Exit::no_valid_checkpoint, "--init-from " + brief(file_.path().string()),
              fmt::format("tensor {} has {} at place {}, which is not finite in fp32: take a file "
                          "of a training that did not diverge",
                          brief(file_.tensors()[tensor].name, 100), *bad, bad - values.begin()));
}

void PublishedReader::refuse_repeated(std::size_t first, std::size_t second) const {
  throw Error(Exit::incompatible_checkpoint, "--init-from " + brief(file_.path().string()),
              fmt::format("has {} and {}, which are both {} here: save only one of them",
                          brief(file_.tensors()[first].name, 100),
                          brief(file_.tensors()[second].name, 100), brief(names_[first], 100)));
}

bool PublishedReader::is_one_everywhere(std::size_t tensor) const {
  std::vector<float> values(io::element_count(file_.tensors()[tensor]));
  file_.read(tensor, values);
  return std::ranges::all_of(values, [](float value) { return value == 1; });
}

// What the network has no place for. BatchNorms that have no gamma are those of files whose is 1.
void PublishedReader::leave(std::size_t tensor) {
  constexpr std::string_view weight = "weight";
  const std::string& name = names_[tensor];
  const io::TensorInfo& info = file_.tensors()[tensor];
  const bool of_norm =
      name.ends_with("." + std::string(weight)) &&
      network_.contains(name.substr(0, name.size() - weight.size()) + "running_mean");
  if (name.ends_with("num_batches_tracked") || name == "n_averaged") {
    ++counters_;
  } else if (of_norm && info.shape.size() == 1 && info.shape[0] <= most_channels &&
             is_one_everywhere(tensor)) {
    ++ones_;
  } else {
    only_classes_ = false;
    misfits_.push_back(
        of_norm
            ? fmt::format("has {}, which is not 1 everywhere, but the network has no gamma there",
                          brief(info.name, 100))
            : fmt::format("has {} {}, which this network has not", brief(info.name, 100),
                          extents_text(info.shape)));
  }
}

void PublishedReader::require_no_misfits() const {
  if (misfits_.empty()) return;
  const std::size_t shown = std::min(misfits_.size(), most_misfits);
  const std::span first(misfits_.data(), shown);
  std::string text = fmt::format("of another network: {}", fmt::join(first, "; "));
  if (misfits_.size() > shown) text += fmt::format("; and {} more", misfits_.size() - shown);
  if (only_classes_ && classes_.size() == 1)
    text += fmt::format("; --classes {} makes it fit", *classes_.begin());
  throw Error(Exit::incompatible_checkpoint, "--init-from " + brief(file_.path().string()), text);
}

std::string PublishedReader::taken_line() const {
  return fmt::format("--init-from {} ({}{}): taken {} tensors of weights, {} of running statistics",
                     brief(file_.path().filename().string()), file_.format(),
                     file_.section().empty() ? "" : ", its " + file_.section(), weights_,
                     statistics_);
}

std::string PublishedReader::drawn_line() const {
  if (drawn_.empty()) return "--init-from: drawn anew: nothing";
  return fmt::format("--init-from: drawn anew, as the file has no such: {}",
                     fmt::join(drawn_, "; "));
}

std::string PublishedReader::unused_line() const {
  std::string text = "--init-from: not used: ";
  if (counters_ > 0) text += fmt::format("{} counters of batches; ", counters_);
  if (ones_ > 0) text += fmt::format("{} gammas, which are 1; ", ones_);
  if (counters_ + ones_ == 0) text += "nothing; ";
  return text +
         "such a file does not say how images are made: the network's lines `images` and "
         "`input` do";
}

}  // namespace

PublishedReading read_published(const io::WeightsFile& file, const model::Graph& graph,
                                const LooseTensors& loose, const TrainingState& state) {
  return PublishedReader(file, graph, loose, state).read();
}

}  // namespace ringtrain::train
