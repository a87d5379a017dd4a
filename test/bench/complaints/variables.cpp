#include "bench/complaints/variables.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "allreduce/ring/sum_kernels.hpp"
#include "optim/optimizer_kernels.hpp"
#include "ringtrain/base/error.hpp"
#include "train/engine/schedule.hpp"

namespace ringtrain {
namespace {

double decay_of(const std::vector<compute::DecaySegment>& segments, Range range) {
  return std::ranges::upper_bound(segments, range.first, {}, &compute::DecaySegment::end)->decay;
}

}  // namespace

Variables::Variables(const train::RunPlan& plan, int workers, Updates updates)
    : plan_(plan),
      workers_(workers),
      updates_(updates),
      samples_(updates == Updates::synchronous ? plan.global_batch : plan.share.count),
      weights_(memory_.allocate(plan.model.graph.parameter_count())),
      momentum_(memory_.allocate(weights_.view().size())),
      variables_(plan.model.graph.parameters.size()) {
  const optim::OptimizerKind kind = plan.optimizer.kind;
  if (kind != optim::OptimizerKind::sgd && kind != optim::OptimizerKind::momentum)
    throw Error(Exit::usage, "--optimizer", "this server knows sgd and momentum");
  std::ranges::copy(train::initial_values(plan).parameters, weights_.view().data());
  for (int w = 0; w < workers; ++w) inboxes_.push_back(memory_.allocate(weights_.view().size()));
  const auto segments = optim::decay_segments(plan.optimizer, weights_.view().size());
  const auto ranges = plan.model.graph.parameter_ranges();
  for (std::size_t v = 0; v < count(); ++v) {
    variables_[v].range = {ranges[v].first, ranges[v].count};
    variables_[v].decay = static_cast<float>(decay_of(segments, variables_[v].range));
    variables_[v].answered = std::vector<std::atomic<int>>(workers);
  }
}

std::span<const float> Variables::weights(std::size_t variable) const {
  return weights_.view().slice(variables_[variable].range).host();
}

std::span<float> Variables::inbox(int worker, std::size_t variable) const {
  return inboxes_[worker].view().slice(variables_[variable].range).host();
}

void Variables::push(int worker, std::size_t variable) {
  Variable& v = variables_[variable];
  const std::lock_guard lock(v.mutex);
  const auto answer = [&](int to) {
    ++v.answered[to];
    v.answered[to].notify_all();
  };
  if (updates_ == Updates::asynchronous) {
    apply(v, inbox(worker, variable));
    return answer(worker);
  }
  if (++v.arrived < workers_) return;
  v.arrived = 0;
  for (int w = 1; w < workers_; ++w) allreduce::add(inbox(0, variable), inbox(w, variable));
  apply(v, inbox(0, variable));
  for (int w = 0; w < workers_; ++w) answer(w);
}

void Variables::wait_for(int worker, std::size_t variable, int gradients) const {
  const std::atomic<int>& answered = variables_[variable].answered[worker];
  for (int now = answered; now < gradients; now = answered) answered.wait(now);
}

void Variables::apply(Variable& variable, std::span<const float> gradient) {
  const std::int64_t before = variable.updates++ * samples_;
  const double rate = plan_.learning_rate.at(double(before) / double(plan_.training->size()));
  const optim::kernels::Part part{.w = weights_.view().data() + variable.range.first,
                                  .g = gradient.data(),
                                  .slot0 = momentum_.view().data() + variable.range.first,
                                  .slot1 = nullptr,
                                  .size = gradient.size()};
  optim::kernels::Factors factors{};
  factors.scale = 1;
  factors.decay = variable.decay;
  factors.lr = static_cast<float>(rate);
  factors.momentum = static_cast<float>(plan_.optimizer.momentum);
  if (plan_.optimizer.kind == optim::OptimizerKind::sgd)
    optim::kernels::sgd(part, factors);
  else
    optim::kernels::momentum(part, factors);
}

void Variables::save(const std::string& path) const {
  const std::string unfinished = path + ".part";
  const auto bytes = std::as_bytes(weights_.view().host());
  std::ofstream file(unfinished, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0)
    throw Error(Exit::storage, "save " + path, "the file system refuses");
}

}  // namespace ringtrain
