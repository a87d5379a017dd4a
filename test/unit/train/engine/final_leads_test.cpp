#include <algorithm>
#include <functional>

#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"
#include "ringtrain/allreduce/make_communicator.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"
#include "train/engine/schedule.hpp"

using namespace ringtrain;
using namespace ringtrain::train;

namespace {

struct Network {
  model::Model model = model::make_model("mlp", 10);
  compute::Schedule schedule =
      model::make_schedule(model.graph, 2, model::Mode::training, 0,
                           [](const compute::Schedule&, const compute::Step&) { return true; });
  HostMemory memory;
  ReductionBuffer sums{memory, model.graph.parameter_count(), model.graph.statistic_count()};

  std::vector<double> leads(std::size_t bucket_bytes) {
    const auto solo = allreduce::make_solo_communicator();
    const allreduce::GradientReducer reducer(*solo, sums.all(), bucket_bytes);
    return final_leads(schedule, sums, reducer.bounds(final_places(schedule, sums)));
  }
};

}  // namespace

TEST_CASE("final leads: the last layer's gradients are final first, and the front at the end") {
  Network network;

  const std::vector<double> leads = network.leads(1);

  REQUIRE(leads.size() > 2);
  CHECK(leads.front() < 1);
  CHECK(leads.front() > 0.5);
  CHECK(std::ranges::is_sorted(leads, std::greater{}));
  CHECK(leads.back() == 0);
}

TEST_CASE("final leads: one bucket of all gradients has none") {
  CHECK(Network().leads(1 << 30) == std::vector<double>{0});
}
