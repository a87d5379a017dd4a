#include "ringtrain/config/option_values.hpp"

#include <fmt/ranges.h>

#include "ringtrain/allreduce/ring/tuning.hpp"

namespace ringtrain::config {
namespace {

constexpr std::int64_t most_rank = 1024;
constexpr std::int64_t most_block_kib = 1024;
constexpr std::int64_t most_weight = 1'000'000;
constexpr double least_ratio = 1e-6;
constexpr double most_factor = 1'000'000;
constexpr std::int64_t latest_step = 1'000'000'000'000;

template <class T>
std::string shortest(const T& value) {
  return fmt::format("{}", value);
}

bool is_whole(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

}  // namespace

Codec<std::string> any_text() {
  return {.read =
              [](const std::string& text) {
                if (text.empty()) throw BadValue("must not be empty");
                return text;
              },
          .write = [](const std::string& value) { return value; }};
}

Codec<std::vector<std::string>> paths() {
  return {.read = [](const std::string& text) { return std::vector{any_text().read(text)}; },
          .write = [](const std::vector<std::string>& all) { return joined(all, " "); }};
}

Codec<std::string> output_value() {
  return {.read =
              [](const std::string& text) {
                if (text != "-" && !text.ends_with(".csv") && !text.ends_with(".jsonl"))
                  throw BadValue(
                      "must end in .csv or .jsonl, which says the format, or be - for standard "
                      "output");
                return text;
              },
          .write = [](const std::string& value) { return value; }};
}

Codec<int> whole(int low, int high) {
  return {[=](const std::string& text) { return static_cast<int>(whole_between(text, low, high)); },
          shortest<int>, true};
}

Codec<std::int64_t> long_whole(std::int64_t low, std::int64_t high) {
  return {[=](const std::string& text) { return whole_between(text, low, high); },
          shortest<std::int64_t>, true};
}

Codec<std::uint64_t> seed_value() {
  return {[](const std::string& text) { return unsigned_number(text); }, shortest<std::uint64_t>,
          true};
}

Codec<double> number(double low, double high) {
  return {[=](const std::string& text) { return number_between(text, low, high); },
          shortest<double>, true};
}

Codec<double> time_span() { return {duration, duration_text}; }

Codec<double> silence() {
  constexpr double least_s = 3;
  const auto read = [](const std::string& text) {
    const double seconds = duration(text);
    if (seconds < least_s) throw BadValue("must be 3s or more: heartbeats come once a second");
    return seconds;
  };
  return {read, duration_text};
}

Codec<optim::Decay> decay_value() {
  return {[](const std::string& text) { return optim::parse_decay(text); },
          [](const optim::Decay& decay) { return optim::to_string(decay); }};
}

Codec<CheckpointEvery> checkpoint_every() {
  const auto read = [](const std::string& text) -> CheckpointEvery {
    if (is_whole(text)) return {.seconds = 0, .steps = whole_between(text, 1, latest_step)};
    const CheckpointEvery every{.seconds = duration(text), .steps = 0};
    if (every.seconds <= 0) throw BadValue("must be a time above 0, or a number of steps");
    return every;
  };
  const auto write = [](const CheckpointEvery& every) {
    return every.steps > 0 ? shortest(every.steps) : duration_text(every.seconds);
  };
  return {read, write};
}

Codec<Resume> resume_value() {
  const auto read = [](const std::string& text) -> Resume {
    if (text.empty()) throw BadValue("must be auto, never or a checkpoint file");
    if (text == "auto") return {.from = Resume::From::newest, .file = ""};
    if (text == "never") return {.from = Resume::From::scratch, .file = ""};
    if (text == "latest" || text == "last" || text == "newest" || text == "true" || text == "True")
      throw BadValue("say auto, which is the default: it takes the newest valid checkpoint");
    if (text == "best")
      throw BadValue(
          "name the FILE that --keep-best keeps, DIR/best.h5, or say auto for the newest");
    return {.from = Resume::From::file, .file = text};
  };
  const auto write = [](const Resume& resume) -> std::string {
    if (resume.from == Resume::From::file) return resume.file;
    return resume.from == Resume::From::newest ? "auto" : "never";
  };
  return {read, write};
}

Codec<allreduce::Compression> compression_value() {
  const auto read = [](const std::string& text) -> allreduce::Compression {
    const std::size_t colon = text.find(':');
    const std::string kind = text.substr(0, colon);
    const std::string value = colon == text.npos ? "" : text.substr(colon + 1);
    if (text == "none") return {};
    if (kind == "powersgd")
      return {.kind = allreduce::Compression::Kind::powersgd,
              .rank = static_cast<int>(whole_between(value, 1, most_rank))};
    if (kind == "topk")
      return {.kind = allreduce::Compression::Kind::topk,
              .ratio = number_between(value, least_ratio, 1)};
    throw BadValue("must be none, powersgd:RANK or topk:RATIO");
  };
  const auto write = [](const allreduce::Compression& how) -> std::string {
    if (how.kind == allreduce::Compression::Kind::powersgd)
      return fmt::format("powersgd:{}", how.rank);
    return how ? fmt::format("topk:{}", how.ratio) : "none";
  };
  return {read, write};
}

Codec<Tune> tune_value() {
  constexpr std::size_t kib = 256;  // floats
  const auto read_part = [](const std::string& text, allreduce::SumPlan& plan) {
    const std::size_t equals = text.find('=');
    const std::string key = text.substr(0, equals);
    const std::string value = equals == text.npos ? "" : text.substr(equals + 1);
    if (key == "blocks") {
      const auto floats = static_cast<std::size_t>(whole_between(value, 1, most_block_kib)) * kib;
      plan.ring = {.largest_segment = floats, .smallest_segment = floats};
    } else if (key == "sums") {
      plan.at_once = static_cast<int>(whole_between(value, 1, allreduce::most_sums_at_once));
    } else if (text == "start=early" || text == "start=late") {
      plan.late = value == "late";
    } else {
      throw BadValue("must be auto, all, off, or some of blocks=KIB,sums=N,start=early|late");
    }
  };
  const auto read = [read_part](const std::string& text) -> Tune {
    if (text == "auto") return {};
    if (text == "all") return {.mode = Tune::Mode::all};
    if (text == "off") return {.mode = Tune::Mode::off};
    Tune tune{.mode = Tune::Mode::given};
    for (std::size_t from = 0; from <= text.size();) {
      const std::size_t comma = std::min(text.find(',', from), text.size());
      read_part(text.substr(from, comma - from), tune.plan);
      from = comma + 1;
    }
    return tune;
  };
  const auto write = [](const Tune& tune) -> std::string {
    if (tune.mode == Tune::Mode::automatic) return "auto";
    if (tune.mode == Tune::Mode::all) return "all";
    if (tune.mode == Tune::Mode::off) return "off";
    const allreduce::SumPlan& plan = tune.plan;
    const std::string blocks = plan.ring == allreduce::RingTuning()
                                   ? ""
                                   : fmt::format("blocks={},", plan.ring.largest_segment / kib);
    return fmt::format("{}sums={},start={}", blocks, plan.at_once, plan.late ? "late" : "early");
  };
  return {read, write};
}

Codec<Shares> shares_value() {
  const auto read = [](const std::string& text) -> Shares {
    if (text == "equal") return {};
    if (text == "auto") return {.mode = Shares::Mode::automatic};
    Shares shares{.mode = Shares::Mode::given};
    if (text.find_first_not_of("0123456789:") != text.npos)
      throw BadValue("must be equal, auto, or whole numbers as in 3:5, one a rank or one a host");
    for (std::size_t from = 0; from <= text.size();) {
      const std::size_t colon = std::min(text.find(':', from), text.size());
      const std::string weight = text.substr(from, colon - from);
      shares.weights.push_back(static_cast<double>(whole_between(weight, 1, most_weight)));
      from = colon + 1;
    }
    return shares;
  };
  const auto write = [](const Shares& shares) -> std::string {
    if (shares.mode == Shares::Mode::equal) return "equal";
    if (shares.mode == Shares::Mode::automatic) return "auto";
    return fmt::format("{}", fmt::join(shares.weights, ":"));
  };
  return {read, write};
}

Codec<std::vector<NameFactor>> name_factors() {
  const auto read_one = [](const std::string& text) -> NameFactor {
    const std::size_t equals = text.rfind('=');
    if (equals == text.npos || equals == 0)
      throw BadValue("must be PATTERN=FACTOR, such as fc.*=10, or several with commas between");
    try {
      return {text.substr(0, equals), number_between(text.substr(equals + 1), 0, most_factor)};
    } catch (const BadValue& bad) {
      throw BadValue(fmt::format("FACTOR {}", bad.what()));
    }
  };
  const auto read = [read_one](const std::string& text) {
    std::vector<NameFactor> factors;
    for (const std::string& part : split(text, ',')) factors.push_back(read_one(part));
    return factors;
  };
  const auto write = [](const std::vector<NameFactor>& factors) {
    std::string text;
    for (const NameFactor& each : factors)
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", each.pattern, each.factor);
    return text;
  };
  return {read, write};
}

Element element_of(Precision precision) {
  if (precision == Precision::fp32) return Element::fp32;
  return precision == Precision::bf16 ? Element::bf16 : Element::fp16;
}

Element cpu_element_of(Precision precision) {
  return precision == Precision::bf16 ? Element::bf16 : Element::fp32;
}

Codec<ValSplit> val_split_value() {
  return {.read =
              [](const std::string& text) {
                const std::vector<std::string> parts = split(text, ':');
                if (parts.size() > 2) throw BadValue("must be SHARE or SHARE:SEED");
                ValSplit split{number_between(parts[0], 0, 0.9)};
                if (parts.size() == 2) split.seed = unsigned_number(parts[1]);
                return split;
              },
          .write =
              [](const ValSplit& split) {
                return fmt::format("{}{}", split.share,
                                   split.seed ? fmt::format(":{}", *split.seed) : "");
              }};
}

Codec<MetricGoal> metric_goal() {
  return {.read =
              [](const std::string& text) {
                const std::vector<std::string> parts = split(text, '=');
                if (parts.size() != 2)
                  throw BadValue("must be METRIC=VALUE, such as top1=0.94 or loss=0.3");
                const Metric metric = enumerator<Metric>().read(parts[0]);
                const double most = metric == Metric::loss ? 1e9 : 1;
                return MetricGoal{metric, number_between(parts[1], 0, most)};
              },
          .write =
              [](const MetricGoal& goal) {
                return fmt::format("{}={}", enumerator<Metric>().write(goal.metric), goal.value);
              }};
}

}  // namespace ringtrain::config
