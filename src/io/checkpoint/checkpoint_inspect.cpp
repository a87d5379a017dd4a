#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>

#include "io/checkpoint/checkpoint_opener.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"

namespace ringtrain::io {
namespace {

struct Statistics {
  float low = std::numeric_limits<float>::infinity(), high = -low;
  double mean = 0, deviation = 0;
};

Statistics statistics_of(const CheckpointFile& file, std::size_t tensor) {
  Statistics s;
  double sum = 0, squares = 0;
  const auto count = static_cast<double>(element_count(file.tensors()[tensor]));
  file.read_in_pieces(tensor, [&](std::span<const float> values) {
    for (const float value : values) {
      s.low = std::min(s.low, value);
      s.high = std::max(s.high, value);
      sum += value;
    }
  });
  s.mean = sum / count;
  file.read_in_pieces(tensor, [&](std::span<const float> values) {
    for (const float value : values) squares += (value - s.mean) * (value - s.mean);
  });
  s.deviation = std::sqrt(squares / count);
  return s;
}

std::string scalars(const CheckpointFile& file) {
  const CheckpointMetadata& m = file.metadata();
  return fmt::format(
      "file         {}\nrun          {}\nlineage      {}\nmodel        {} ({})\nstep         "
      "{}\nepoch        {}\n"
      "position     {}\nseed         {}\nranks        {}\nglobal batch {}\nbuckets      {}\n"
      "config       {}\noptimizer    {}\nplans        {}\n",
      printable(file.path().string()), printable(file.run_id()),
      file.lineage().empty() ? "none" : file.lineage(), printable(m.model), hex(m.model_hash),
      m.step, m.epoch, m.position, m.seed, m.world_size, m.global_batch, m.buckets.size(),
      printable(m.config), printable(m.optimizer), printable(m.plans));
}

// Of many classes the first ones.
std::string classes(const std::string& text) {
  constexpr std::size_t most_shown = 10;
  std::vector<std::string> names = class_names_in(text);
  const std::size_t count = names.size();
  names.resize(std::min(count, most_shown));
  return printable(
      fmt::format("{}: {}{}", count, fmt::join(names, ", "), count > most_shown ? ", ..." : ""));
}

// What files of earlier builds do not say.
std::string description(const CheckpointMetadata& m) {
  std::string text;
  if (!m.input.empty()) text += fmt::format("input        {}\n", printable(m.input));
  if (!m.class_names.empty()) text += fmt::format("classes      {}\n", classes(m.class_names));
  if (m.network.empty()) return text;
  text += "network\n";
  for (const std::string& line : split(m.network, '\n'))
    if (!line.empty()) text += fmt::format("  {}\n", printable(line));
  return text;
}

std::string row(const CheckpointFile& file, std::size_t tensor) {
  const TensorInfo& info = file.tensors()[tensor];
  const std::uint64_t count = element_count(info);
  const std::string shape = fmt::format("[{}]", fmt::join(info.shape, ","));
  const std::string head =
      fmt::format("{:<48} {:<18} {:>12}", info.name, shape, count * sizeof(float));
  if (count == 0) return head + "\n";
  const Statistics s = statistics_of(file, tensor);
  return fmt::format("{} {:>12.5g} {:>12.5g} {:>12.5g} {:>12.5g}\n", head, s.low, s.high, s.mean,
                     s.deviation);
}

}  // namespace

std::string inspect(const std::filesystem::path& path) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) return inspect_folder(path);
  const CheckpointFile file = CheckpointFile::open(path);
  file.verify();
  std::string text = scalars(file) + description(file.metadata());
  text += fmt::format("\n{:<48} {:<18} {:>12} {:>12} {:>12} {:>12} {:>12}\n", "tensor", "shape",
                      "bytes", "min", "max", "mean", "deviation");
  for (std::size_t i = 0; i < file.tensors().size(); ++i) text += row(file, i);
  text += fmt::format("\nevery byte verified: {} tensors\nstate-hash {}\n", file.tensors().size(),
                      hex(file.state_hash()));
  return text;
}

}  // namespace ringtrain::io
