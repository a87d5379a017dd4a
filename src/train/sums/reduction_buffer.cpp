#include "train/sums/reduction_buffer.hpp"

#include <algorithm>
#include <cmath>

#include "ringtrain/base/statistics.hpp"

namespace ringtrain::train {
namespace {

/// Where the head of the sums holds what.
namespace at {
enum : std::size_t { loss, top1, stop, signalled, signals, save, measure_links, unreadable };
}

}  // namespace

ReductionBuffer::ReductionBuffer(Memory& memory, std::size_t parameters, std::size_t statistics,
                                 std::size_t padding)
    : parameters_(parameters),
      statistics_(statistics),
      head_(results + (statistics + 15) / 16 * 16),  // gradients start at a cache line
      buffer_(memory.allocate(head_ + parameters + padding)) {}

void ReductionBuffer::clear_head() {
  std::ranges::fill(buffer_.view().slice(0, head_).host(), 0.0f);
}

Range ReductionBuffer::gradients_in(View part) const {
  const auto first = static_cast<std::size_t>(part.data() - buffer_.view().data());
  const std::size_t begin = std::max(first, head_), end = std::max(first + part.size(), head_);
  return {begin - head_, end - begin};
}

void ReductionBuffer::add(const compute::StepResult& result, View statistics, double sample_weight,
                          double share) {
  const std::span<float> head = buffer_.view().host();
  head[at::loss] += static_cast<float>(result.loss * sample_weight);
  head[at::top1] += static_cast<float>(result.top1 * sample_weight);
  const std::span<float> sums = this->statistics().host();
  const auto weight = static_cast<float>(share);
  for (std::size_t i = 0; i < statistics_; ++i) sums[i] += weight * statistics.data()[i];
}

void ReductionBuffer::ask(const host::StepRequest& request) {
  const std::span<float> head = buffer_.view().host();
  head[at::stop] = request.stop;
  head[at::signalled] = request.signal != 0;
  head[at::signals] = static_cast<float>(request.signal);
  head[at::save] = request.save;
  head[at::measure_links] = request.measure_links;
  head[at::unreadable] = request.unreadable;
}

StepOutcome ReductionBuffer::outcome() const {
  const std::span<float> head = buffer_.view().host();
  const host::StepRequest request =
      host::agreed_request(head[at::stop], head[at::signalled], head[at::signals]);
  return {.loss = without_nan_sign(head[at::loss]),
          .top1 = head[at::top1],
          .stop = request.stop,
          .signal = request.signal,
          .save = head[at::save] > 0,
          .measure_links = head[at::measure_links] > 0,
          .unreadable = head[at::unreadable] > 0,
          .not_finite = !std::isfinite(head[at::loss])};
}

std::vector<compute::StatisticsMomentum> momenta_of(const model::Graph& graph) {
  std::vector<compute::StatisticsMomentum> momenta;
  std::size_t end = 0;
  for (const model::Statistic& statistic : graph.statistics) {
    if (statistic.frozen) continue;
    end += 2 * statistic.channels;
    if (!momenta.empty() && momenta.back().momentum == statistic.momentum)
      momenta.back().end = end;
    else
      momenta.push_back({end, statistic.momentum});
  }
  return momenta;
}

TrainingBuffers::TrainingBuffers(const model::Graph& graph, bool averages, Memory& memory,
                                 Memory& summed, std::size_t padding)
    : padded_parameters(memory.allocate(graph.parameter_count() + padding)),
      parameters(padded_parameters.view().slice(0, graph.parameter_count())),
      statistics(memory.allocate(graph.statistic_count())),
      averaged_statistics(memory.allocate(averages ? graph.statistic_count() : 0)),
      batch_statistics(memory.allocate(graph.moving_count())),
      sums(summed, graph.learning_count(), graph.moving_count(), padding) {}

void TrainingBuffers::set(std::span<const float> first_parameters,
                          std::span<const float> first_statistics, const Memory& memory) {
  memory.write(first_parameters, parameters);
  memory.write(first_statistics, statistics);
  if (averaged_statistics.view().size() > 0) memory.write(first_statistics, averaged_statistics);
}

}  // namespace ringtrain::train
