// emulate_ranks HOSTSxRANKS FILE.h5 OPTION...: trains as `train OPTION...` does on so many hosts
// with so many ranks each, dealt out in turn (mpirun --map-by node), in this one process and with
// no communicator: the ranks' gradients are added by the loop below. Whether all of the state then
// has the bits of FILE.h5, which the job has saved. One compute thread: set OMP_NUM_THREADS=1.
#include <fmt/core.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

#include "ringtrain/compute/backend.hpp"
#include "ringtrain/host/threads.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"
#include "train/engine/schedule.hpp"
#include "train/state/training_state.hpp"

using namespace ringtrain;

namespace {

using Vectors = std::vector<std::vector<float>>;

// One rank's program, on parameters that all share.
struct Rank {
  Rank(const train::RunPlan& own, compute::Backend& backend, Memory& memory, View parameters,
       View statistics)
      : plan(own),
        batch_statistics(memory.allocate(statistics.size())),
        sums(memory, parameters.size(), statistics.size()),
        program(backend.compile(train::make_schedule(plan, backend, model::Mode::training),
                                {parameters, sums.gradients(), statistics, batch_statistics},
                                plan.options.seed)),
        loader(*plan.training, plan.loader(io::Split::training)) {}

  std::vector<float> gradients() {
    const double weight = plan.trainer().sample_weight();
    sums.clear_head();
    const compute::StepResult result = program->run(*loader.next(), weight, [](std::size_t) {});
    sums.add(result, batch_statistics, weight, plan.share.count * weight);
    const auto all = sums.all().host();
    return {all.begin(), all.end()};
  }

  const train::RunPlan& plan;
  Buffer batch_statistics;
  train::ReductionBuffer sums;
  std::unique_ptr<compute::Program> program;
  io::Loader loader;
};

// Where part `k` of `n` parts of `count` floats begins: at a cache line.
std::size_t cut(std::size_t count, std::size_t k, std::size_t n) {
  const std::size_t lines = (count + 15) / 16;
  return std::min(count, lines * k / n * 16);
}

// Element i of the bucket [first, end), as hosts x ranks add it: the ranks of each host one after
// the other, from the rank on that the element's part of the bucket belongs to; then the hosts so.
float added(const Vectors& ranks, std::size_t hosts, std::size_t first, std::size_t end,
            std::size_t i) {
  const std::size_t here = ranks.size() / hosts, count = end - first, place = i - first;
  std::size_t lane = 0, start = 0;
  while (place >= cut(count, lane + 1, here)) ++lane;
  const std::size_t lane_first = cut(count, lane, here);
  const std::size_t lane_count = cut(count, lane + 1, here) - lane_first;
  while (place - lane_first >= cut(lane_count, start + 1, hosts)) ++start;

  float sum = 0;
  for (std::size_t h = 0; h < hosts; ++h) {
    const std::size_t host = (start + h) % hosts;
    const auto value = [&](std::size_t place) { return ranks[place * hosts + host][i]; };
    float of_host = value(lane);
    for (std::size_t r = 1; r < here; ++r) of_host += value((lane + r) % here);
    sum = h == 0 ? of_host : sum + of_host;
  }
  return sum;
}

// A job on one process.
class Emulation {
 public:
  Emulation(const config::Options& options, int hosts, int ranks_a_host,
            std::vector<std::uint64_t> buckets)
      : hosts_(static_cast<std::size_t>(hosts)), buckets_(std::move(buckets)) {
    const int ranks = hosts * ranks_a_host;
    for (int r = 0; r < ranks; ++r) plans_.push_back(train::make_run_plan(options, 1, r, ranks));
    const model::Graph& graph = plan().model.graph;
    parameters_ = memory_.allocate(graph.parameter_count());
    statistics_ = memory_.allocate(graph.statistic_count());
    const train::InitialValues first = train::initial_values(plan());
    memory_.write(first.parameters, parameters_);
    memory_.write(first.statistics, statistics_);
    for (const train::RunPlan& plan : plans_)
      ranks_.emplace_back(plan, *backend_, memory_, parameters_, statistics_);
    optimizer_.emplace(plan().optimizer, parameters_, ranks_[0].sums.gradients(), memory_);
    state_.emplace(graph, memory_, parameters_, statistics_, optimizer_->slots());
  }

  void step(std::int64_t number) {
    Vectors gradients;
    for (Rank& rank : ranks_) gradients.push_back(rank.gradients());
    const auto sum = ranks_[0].sums.all().host();
    for (std::size_t b = 0; b + 1 < buckets_.size(); ++b)
      for (std::size_t i = buckets_[b]; i < buckets_[b + 1]; ++i)
        sum[i] = added(gradients, hosts_, buckets_[b], buckets_[b + 1], i);
    const double samples = double(number) * plan().global_batch;
    optimizer_->begin(
        {number, plan().learning_rate.at(samples / double(plan().training->size())), 1.0});
    optimizer_->update({0, parameters_.view().size()});
    float* running = statistics_.view().data();
    const float* batch = ranks_[0].sums.statistics().data();
    for (const model::Statistic& norm : plan().model.graph.statistics)
      for (std::size_t i = 0; i < 2 * norm.channels; ++i, ++running, ++batch)
        *running += norm.momentum * (*batch - *running);
  }

  const train::RunPlan& plan() const { return plans_[0]; }
  const train::TrainingState& state() const { return *state_; }

 private:
  std::size_t hosts_;
  std::vector<std::uint64_t> buckets_;
  std::deque<train::RunPlan> plans_;
  HostMemory memory_;
  const std::unique_ptr<compute::Backend> backend_ = compute::make_onednn_backend();
  Buffer parameters_, statistics_;
  std::deque<Rank> ranks_;
  std::optional<optim::Optimizer> optimizer_;
  std::optional<train::TrainingState> state_;
};

int differing_tensors(const io::CheckpointFile& file, const train::TrainingState& state) {
  const Vectors all = state.copy();
  int differing = 0;
  for (const io::TensorPlace& place : state.layout().tensors) {
    std::vector<float> values(io::element_count(place.info));
    file.read(file.find(place.info).value(), values);
    if (std::memcmp(values.data(), &all[place.buffer][place.offset], 4 * values.size()) != 0 &&
        ++differing <= 3)
      fmt::print("other bits: {}\n", io::describe(place.info));
  }
  return differing;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) return 64;
  host::flush_denormals();  // as in train
  const std::string layout = argv[1];
  const int hosts = std::stoi(layout), here = std::stoi(layout.substr(layout.find('x') + 1));
  const auto file = io::CheckpointFile::open(argv[2]);
  argv[2] = argv[0];
  const config::Command command = config::parse(argc - 2, argv + 2);
  Emulation job(command.options, hosts, here, file.metadata().buckets);
  for (std::uint64_t step = 0; step < file.metadata().step; ++step) job.step(std::int64_t(step));
  const int differing = differing_tensors(file, job.state());
  fmt::print("{}, {} buckets, {} steps: {} of {} tensors have other bits\n", layout,
             file.metadata().buckets.size() - 1, file.metadata().step, differing,
             job.state().layout().tensors.size());
  return differing == 0 && file.metadata().step > 0 &&
                 file.metadata().world_size == std::uint64_t(hosts) * here
             ? 0
             : 1;
} catch (const std::exception& failure) {
  fmt::print("{}\n", failure.what());
  return 1;
}
