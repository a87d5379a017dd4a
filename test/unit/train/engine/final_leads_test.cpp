#include <algorithm>
#include <functional>

#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"
#include "ringtrain/allreduce/make_communicator.hpp"
#include "ringtrain/model/passes.hpp"
#include "ringtrain/model/zoo.hpp"
#include "support/catch.hpp"
#include "train/engine/schedule.hpp"

using namespace ringtrain;

namespace {

struct Network {
  Model model = make_model("mlp", 10);
  Schedule schedule = make_schedule(model.graph, 2, Mode::training, 0,
                                    [](const Schedule&, const Step&) { return true; });
  HostMemory memory;
  ReductionBuffer sums{memory, model.graph.parameter_count(), model.graph.statistic_count()};

  std::vector<double> leads(std::size_t bucket_bytes) {
    const auto solo = make_solo_communicator();
    const GradientReducer reducer(*solo, sums.all(), bucket_bytes);
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
