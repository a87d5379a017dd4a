#include "train/state/training_state.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "ringtrain/base/error.hpp"
#include "ringtrain/base/hash.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::train;

TEST_CASE("TrainingState: every number of every buffer has exactly one name") {
  const model::Graph graph = model::make_model("resnet20", 10).graph;
  HostMemory memory;
  const Buffer parameters = memory.allocate(graph.parameter_count());
  const Buffer statistics = memory.allocate(graph.statistic_count());
  const Buffer averaged = memory.allocate(graph.statistic_count());
  const Buffer gradients = memory.allocate(graph.parameter_count());
  const optim::Optimizer optimizer({.ema = 0.9}, parameters, gradients, memory);

  const TrainingState state(graph, memory, parameters, statistics, optimizer.slots(), averaged);

  std::set<std::string> names;
  std::vector<std::vector<int>> covered;
  for (const std::size_t size : state.layout().buffers) covered.emplace_back(size);
  for (const io::TensorPlace& tensor : state.layout().tensors) {
    CHECK(names.insert(tensor.info.name).second);
    for (std::size_t i = 0; i < io::element_count(tensor.info); ++i)
      ++covered[tensor.buffer][tensor.offset + i];
  }
  CHECK(covered.size() == 5);  // parameters, statistics, momentum, moving average of both
  for (const auto& buffer : covered)
    CHECK(std::ranges::all_of(buffer, [](int times) { return times == 1; }));
  CHECK(names.contains("weights/layer1.0.conv1.weight"));
  CHECK(names.contains("optimizer/momentum/fc.bias"));
  CHECK(names.contains("ema/fc.weight"));
  CHECK(names.contains("statistics/bn1.running_var"));
  CHECK(names.contains("ema/bn1.running_var"));
}

TEST_CASE("TrainingState: hashes are those of each tensor's bytes, and follow one bit") {
  const model::Graph graph = model::make_model("mlp", 10).graph;
  HostMemory memory;
  const Buffer parameters = memory.allocate(graph.parameter_count());
  std::iota(parameters.view().host().begin(), parameters.view().host().end(), 1.0f);
  const TrainingState state(graph, memory, parameters, View(), {});

  const auto before = state.hashes();
  std::vector<std::uint64_t> whole;
  for (const io::TensorPlace& tensor : state.layout().tensors)
    whole.push_back(hash_bytes(std::as_bytes(
        parameters.view().slice(tensor.offset, io::element_count(tensor.info)).host())));
  parameters.view().host()[graph.parameter_ranges()[0].end() - 1] += 1.0f;  // fc1, in many pieces

  CHECK(before == whole);
  CHECK(state.hashes()[0] != before[0]);
  CHECK(state.hashes()[1] == before[1]);
}

namespace {

// As of a GPU: reads and writes nothing that it did not allocate.
class OwnMemoryOnly final : public Memory {
 public:
  Buffer allocate(std::size_t count) override {
    Buffer buffer = host_.allocate(count);
    own_.push_back(buffer.view());
    return buffer;
  }
  void read(View from, std::span<float> to) const override {
    require_own(from);
    host_.read(from, to);
  }
  void write(std::span<const float> from, View to) const override {
    require_own(to);
    host_.write(from, to);
  }

 private:
  void require_own(View view) const {
    const bool own = view.size() == 0 || std::ranges::any_of(own_, [&](View whole) {
                       return view.data() >= whole.data() &&
                              view.data() + view.size() <= whole.data() + whole.size();
                     });
    if (!own) throw Error("memory of a GPU", "an address of the host");
  }

  HostMemory host_;
  std::vector<View> own_;
};

}  // namespace

TEST_CASE("TrainingState: what compression keeps is the host's, wherever the rest lies") {
  const model::Graph graph = model::make_model("mlp", 10).graph;
  OwnMemoryOnly gpu;
  HostMemory host;
  const Buffer parameters = gpu.allocate(graph.parameter_count());
  const Buffer kept = host.allocate(5), complete = host.allocate(1);
  const Shards shards{1, {{{0, 3}}, {{3, 5}}}};
  TrainingState state(graph, gpu, parameters, View(), {});
  int refreshed = 0;
  state.add_kept(kept, complete, shards, [&] {
    ++refreshed;
    std::ranges::fill(kept.view().host(), 7.0f);
  });
  CHECK_FALSE(state.is_kept(0));
  CHECK((state.is_kept(2) && state.has_shard(2)));
  CHECK((state.is_kept(3) && !state.has_shard(3)));

  auto values = state.copy();
  CHECK(refreshed == 1);
  CHECK(values[2] == std::vector<float>(5, 7));
  values[2].assign(5, 2);
  values[3].assign(1, 1);
  state.copy_from(values);
  CHECK(std::ranges::count(kept.view().host(), 2.0f) == 5);
  CHECK(complete.view().host().front() == 1);
  const auto hashes = state.hashes();
  CHECK(hashes[hashes.size() - 2] == 0);  // of other ranks, too
  CHECK(hashes.back() == hash_bytes(std::as_bytes(complete.view().host())));
}

TEST_CASE("TrainingState: copies out and back without loss") {
  const model::Graph graph = model::make_model("mlp", 10).graph;
  HostMemory memory;
  const Buffer parameters = memory.allocate(graph.parameter_count());
  TrainingState state(graph, memory, parameters, View(), {});
  const Buffer scale = memory.allocate(2);
  state.add("optimizer/loss_scale", scale);
  std::iota(parameters.view().host().begin(), parameters.view().host().end(), 1.0f);

  scale.view().data()[1] = 4;
  const auto kept = state.copy();
  std::ranges::fill(parameters.view().host(), 0.0f);
  std::ranges::fill(scale.view().host(), 3.0f);
  state.copy_from(kept);

  CHECK(parameters.view().data()[5] == 6.0f);
  CHECK(scale.view().data()[0] == 0);
  CHECK(scale.view().data()[1] == 4);
  CHECK(state.copy() == kept);
  CHECK(state.layout().tensors.back().info.name == "optimizer/loss_scale");
}

TEST_CASE("TrainingState: what compression keeps is a tensor for each rank that keeps some") {
  const model::Graph graph = model::make_model("mlp", 10).graph;
  HostMemory memory;
  const Buffer parameters = memory.allocate(graph.parameter_count()), kept = memory.allocate(3),
               complete = memory.allocate(1);
  const Shards shards{2, {{{0, 5}}, {}, {{5, 3}}}};  // of three ranks; this is the last one
  TrainingState state(graph, memory, parameters, View(), {});
  int refreshed = 0;
  state.add_kept(kept, complete, shards, [&] {
    std::ranges::fill(kept.view().host(), 7.0f);
    ++refreshed;
  });

  const auto& tensors = state.layout().tensors;
  REQUIRE(tensors.size() >= 3);
  const io::TensorPlace& first = tensors[tensors.size() - 3];
  const io::TensorPlace& second = tensors[tensors.size() - 2];
  CHECK(first.info == io::TensorInfo{"compression/kept_by_rank_0", {5}});
  CHECK(first.offset == 0);
  CHECK(second.info == io::TensorInfo{"compression/kept_by_rank_2", {3}});
  CHECK(second.offset == 5);
  CHECK(tensors.back().info == io::TensorInfo{"compression/complete", {1}});
  CHECK(state.has_shard(first.buffer));
  CHECK_FALSE(state.has_shard(*state.complete()));
  CHECK(state.layout().buffers[first.buffer] == 8);
  CHECK(state.copy()[first.buffer] == std::vector<float>(3, 7.0f));
  CHECK(refreshed == 1);
}
