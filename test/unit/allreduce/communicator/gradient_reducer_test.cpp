#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"

#include <thread>
#include <vector>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

namespace {

struct RecordingCommunicator final : Communicator {
  RecordingCommunicator() : Communicator({.rank = 0, .size = 2}) {}
  Memory& memory() override { return host; }
  void broadcast(View, int) override {}
  void start_allreduce(View view, const SumOptions& options) override {
    started.push_back({static_cast<std::size_t>(view.data() - base), view.size()});
    how.push_back(options);
  }
  void start_reduce_scatter(View view) override {
    scattered.push_back({static_cast<std::size_t>(view.data() - base), view.size()});
  }
  void finish() override { ++finished; }
  void abort() noexcept override { ++aborted; }

  HostMemory host;
  float* base = nullptr;
  std::vector<Range> started, scattered;
  std::vector<SumOptions> how;
  int finished = 0, aborted = 0;
};

}  // namespace

TEST_CASE("GradientReducer: sums each gradient once, in buckets of at least the asked size") {
  std::vector<float> flat(10);
  RecordingCommunicator communicator;
  communicator.base = flat.data();
  GradientReducer reducer(communicator, View(flat.data(), flat.size()), 4 * sizeof(float));

  for (int step = 0; step < 2; ++step) {
    communicator.started.clear();
    reducer.final_from(8);
    reducer.final_from(5);
    reducer.final_from(3);
    reducer.final_from(3);
    reducer.finish();

    CHECK(communicator.started == std::vector<Range>{{5, 5}, {0, 5}});
  }
  CHECK(communicator.finished == 2);
}

TEST_CASE("GradientReducer: buckets begin at whole units behind the head") {
  std::vector<float> flat(3 + 17);
  RecordingCommunicator communicator;
  communicator.base = flat.data();
  GradientReducer reducer(communicator, View(flat.data(), flat.size()), 4 * sizeof(float), 3, {},
                          {.unit = 4});
  const std::vector<std::size_t> firsts{18, 14, 9, 8, 4};

  for (const std::size_t first : firsts) reducer.final_from(first);
  reducer.finish();

  CHECK(communicator.started == std::vector<Range>{{15, 5}, {11, 4}, {7, 4}, {0, 7}});
  CHECK(reducer.bounds(firsts) == std::vector<std::uint64_t>{0, 7, 11, 15, 20});
  CHECK(reducer.starts(firsts) == std::vector<std::uint64_t>{14, 9, 4});
  CHECK(communicator.scattered.empty());
}

TEST_CASE(
    "GradientReducer: sums are scattered but for the bucket in front and those between steps") {
  std::vector<float> flat(3 + 16);
  RecordingCommunicator communicator;
  communicator.base = flat.data();
  const View all(flat.data(), flat.size());
  GradientReducer reducer(communicator, all, 4 * sizeof(float), 3, {},
                          {.unit = 4, .scattered = true});

  reducer.final_from(14);
  reducer.final_from(6);
  reducer.finish();

  CHECK(communicator.scattered == std::vector<Range>{{15, 4}, {7, 8}});
  CHECK(communicator.started == std::vector<Range>{{0, 7}});
  reducer.sum({7, 8});
  CHECK(communicator.started.back() == Range{7, 8});
  CHECK(communicator.scattered.size() == 2);
  reducer.final_from(14);
  CHECK(communicator.scattered.size() == 3);
  reducer.finish();
  CHECK_THROWS_AS(GradientReducer(communicator, all.slice(0, 18), 4, 3, {}, {4, true}), Error);
}

TEST_CASE("GradientReducer: late sums are of the same buckets, and start in finish()") {
  std::vector<float> flat(10);
  RecordingCommunicator communicator;
  communicator.base = flat.data();
  GradientReducer reducer(communicator, View(flat.data(), flat.size()), 4 * sizeof(float));

  for (const bool late : {true, false, true}) {
    communicator.started.clear();
    reducer.start_late(late);
    reducer.final_from(5);
    CHECK(communicator.started.size() == (late ? 0 : 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    reducer.finish();

    CHECK(communicator.started == std::vector<Range>{{5, 5}, {0, 5}});
    REQUIRE(reducer.leads_s().size() == 2);
    CHECK(reducer.leads_s()[0] >= 0.002);
    CHECK(reducer.first_lead_s() == (late ? 0 : reducer.leads_s()[0]));
  }
}

TEST_CASE("GradientReducer: tells how long before finish() each sum was started") {
  std::vector<float> flat(10);
  RecordingCommunicator communicator;
  communicator.base = flat.data();
  GradientReducer reducer(communicator, View(flat.data(), flat.size()), 4 * sizeof(float));
  CHECK(reducer.leads_s().empty());
  CHECK(reducer.first_lead_s() == 0);

  for (int step = 0; step < 2; ++step) {
    reducer.final_from(5);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    reducer.finish();

    const std::vector<double> leads = reducer.leads_s();
    REQUIRE(leads.size() == 2);
    CHECK(leads[0] >= 0.002);
    CHECK(leads[1] == 0);
    CHECK(reducer.first_lead_s() == leads[0]);
  }
}

TEST_CASE("GradientReducer: finish sums everything when nothing was final before") {
  std::vector<float> flat(3);
  RecordingCommunicator communicator;
  communicator.base = flat.data();
  GradientReducer reducer(communicator, View(flat.data(), flat.size()));

  reducer.finish();

  CHECK(communicator.started == std::vector<Range>{{0, 3}});
}

TEST_CASE("GradientReducer: an empty buffer starts no sum") {
  RecordingCommunicator communicator;
  GradientReducer reducer(communicator, View());

  reducer.final_from(0);
  reducer.finish();

  CHECK(communicator.started.empty());
  CHECK(communicator.finished == 1);
}

TEST_CASE("GradientReducer: gives up sums that were started and not finished") {
  const bool finished = GENERATE(true, false);
  CAPTURE(finished);
  std::vector<float> flat(10);
  RecordingCommunicator communicator;
  communicator.base = flat.data();
  {
    GradientReducer reducer(communicator, View(flat.data(), flat.size()), 4 * sizeof(float));
    reducer.final_from(5);
    if (finished) reducer.finish();
  }

  CHECK(communicator.aborted == (finished ? 0 : 1));
}

TEST_CASE("GradientReducer: what was final cannot become unfinished") {
  std::vector<float> flat(10);
  RecordingCommunicator communicator;
  communicator.base = flat.data();
  GradientReducer reducer(communicator, View(flat.data(), flat.size()), 4 * sizeof(float));
  reducer.final_from(5);

  CHECK_THROWS_WITH(reducer.final_from(6), Catch::Contains("stays final"));
}

TEST_CASE("GradientReducer: gradients are summed as asked, the head in front of them exactly") {
  const SumOptions asked =
      GENERATE(SumOptions{.wire = Element::bf16}, SumOptions{.compressed = true});
  std::vector<float> flat(10);
  RecordingCommunicator communicator;
  communicator.base = flat.data();
  GradientReducer reducer(communicator, View(flat.data(), flat.size()), 4 * sizeof(float), 3,
                          asked);

  reducer.final_from(5);
  reducer.finish();

  CHECK(communicator.started == std::vector<Range>{{5, 5}, {3, 2}, {0, 3}});
  for (std::size_t s = 0; s < 3; ++s) {
    CHECK(communicator.how[s].wire == (s < 2 ? asked.wire : Element::fp32));
    CHECK(communicator.how[s].compressed == (s < 2 && asked.compressed));
  }
  CHECK(communicator.how[0].first == 2);
  CHECK(communicator.how[1].first == 0);
}

TEST_CASE("GradientReducer: each gradient is rounded once, the tail first, the head behind it") {
  const std::size_t head = 4;
  const auto [gradients, buckets] =
      GENERATE(table<std::size_t, std::size_t>({{0, 0}, {1, 1}, {7, 2}, {8, 3}}));
  CAPTURE(gradients);
  std::vector<float> flat(head + gradients);
  RecordingCommunicator communicator;
  communicator.base = flat.data();
  GradientReducer reducer(communicator, View(flat.data(), flat.size()), 3 * sizeof(float), head,
                          {.wire = Element::bf16});

  for (std::size_t first = flat.size(); first > head + 1; --first) reducer.final_from(first);
  reducer.finish();

  REQUIRE(communicator.started.size() == buckets + 1);
  std::size_t end = flat.size();
  for (std::size_t s = 0; s < buckets; ++s) {
    CHECK(communicator.how[s].wire == Element::bf16);
    CHECK(communicator.started[s].end() == end);
    end = communicator.started[s].first;
  }
  CHECK(end == head);
  CHECK(communicator.started.back() == Range{0, head});
  CHECK(communicator.how.back().wire == Element::fp32);
}

TEST_CASE("GradientReducer: where gradients travel as they are, the head goes with them") {
  std::vector<float> flat(10);
  RecordingCommunicator communicator;
  communicator.base = flat.data();
  const ReduceHook hook = [](View) {};
  GradientReducer reducer(communicator, View(flat.data(), flat.size()), 4 * sizeof(float), 3,
                          {.hook = &hook});

  reducer.final_from(5);
  reducer.finish();

  CHECK(communicator.started == std::vector<Range>{{5, 5}, {0, 5}});
  for (const SumOptions& options : communicator.how) CHECK(options.hook == &hook);
}

TEST_CASE("GradientReducer: a bucket that is summed by itself calls no hook") {
  std::vector<float> flat(10);
  RecordingCommunicator communicator;
  communicator.base = flat.data();
  const ReduceHook update = [](View) {};
  GradientReducer reducer(communicator, View(flat.data(), flat.size()), 4, 0, {.hook = &update});

  reducer.sum({2, 5});
  reducer.final_from(0);
  reducer.finish();

  REQUIRE(communicator.how.size() == 2);
  CHECK(communicator.how[0].hook == nullptr);
  CHECK(communicator.how[1].hook == &update);
}

TEST_CASE("GradientReducer: sums one bucket by itself as a step does") {
  std::vector<float> flat(10);
  RecordingCommunicator communicator;
  communicator.base = flat.data();
  GradientReducer reducer(communicator, View(flat.data(), flat.size()), 4, 3,
                          {.wire = Element::fp16});

  reducer.sum({2, 5});

  CHECK(communicator.started == std::vector<Range>{{3, 4}, {2, 1}});
  CHECK(communicator.finished == 1);
}
