#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/base/memory/view.hpp"
#include "ringtrain/base/text.hpp"
#include "ringtrain/config/options.hpp"

namespace ringtrain::config {

/// How the value of an option is read from text and written back. read() throws BadValue.
template <class T>
struct Codec {
  std::function<T(const std::string&)> read;
  std::function<std::string(const T&)> write;
  bool bare = false;  ///< TOML and JSON write it without quotes
};

Codec<std::string> any_text();
/// Reads one; the command line has as many as follow the option.
Codec<std::vector<std::string>> paths();
/// FILE.csv, FILE.jsonl or "-".
Codec<std::string> output_value();
Codec<int> whole(int low, int high);
Codec<std::int64_t> long_whole(std::int64_t low, std::int64_t high);
Codec<std::uint64_t> seed_value();
Codec<double> number(double low, double high);
Codec<double> time_span();
/// From 3 s on: heartbeats come once a second.
Codec<double> silence();
Codec<optim::Decay> decay_value();
Codec<CheckpointEvery> checkpoint_every();
Codec<Resume> resume_value();
Codec<allreduce::Compression> compression_value();
Codec<Tune> tune_value();
/// SHARE[:SEED]
Codec<ValSplit> val_split_value();
/// METRIC=VALUE
Codec<MetricGoal> metric_goal();
Codec<Shares> shares_value();
/// PATTERN=FACTOR, or several with commas between
Codec<std::vector<NameFactor>> name_factors();

/// How activations are stored on a GPU; auto is fp16.
Element element_of(Precision precision);
/// And on CPUs, which have no fp16; auto is fp32.
Element cpu_element_of(Precision precision);

/// What users call the enumerators, in their order.
template <class E>
inline constexpr std::array<std::string_view, 0> names_of{};
template <>
inline constexpr std::array names_of<Device> = {"auto", "cpu", "cuda"};
template <>
inline constexpr std::array names_of<Precision> = {"auto", "fp32", "bf16", "fp16"};
template <>
inline constexpr std::array names_of<Element> = {"fp32", "fp16", "bf16"};
template <>
inline constexpr std::array names_of<OnNan> = {"stop", "skip"};
template <>
inline constexpr std::array names_of<Allreduce> = {"auto", "ring", "mpi", "nccl"};
template <>
inline constexpr std::array names_of<ShowProgress> = {"auto", "on", "off"};
template <>
inline constexpr std::array names_of<Watching> = {"on", "off"};
template <>
inline constexpr std::array names_of<ConvolutionFusion> = {"auto", "off"};
template <>
inline constexpr std::array names_of<Metric> = {"top1", "top5", "loss"};
template <>
inline constexpr std::array names_of<Weights> = {"auto", "raw", "ema"};
template <>
inline constexpr std::array names_of<Shell> = {"bash", "zsh", "fish"};
template <>
inline constexpr std::array names_of<ExportFormat> = {"onnx", "safetensors", "torch"};
template <>
inline constexpr std::array names_of<optim::OptimizerKind> = {
    "sgd", "momentum", "nesterov", "rmsprop", "adam", "adamw", "lars", "lion"};

/// `names` with `separator` between them.
template <class Names>
std::string joined(const Names& names, std::string_view separator) {
  std::string all;
  for (const auto& name : names)
    all += (all.empty() ? "" : std::string(separator)) + std::string(name);
  return all;
}

template <class E>
Codec<E> enumerator() {
  return {.read =
              [](const std::string& text) {
                for (std::size_t i = 0; i < names_of<E>.size(); ++i)
                  if (names_of<E>[i] == text) return static_cast<E>(i);
                throw BadValue("must be one of " + joined(names_of<E>, ", "));
              },
          .write = [](const E& value) -> std::string {
            return names_of<E>[static_cast<std::size_t>(value)];
          }};
}

}  // namespace ringtrain::config
