#include "allreduce/nccl/nccl_communicator.hpp"

#include <future>
#include <optional>
#include <thread>

#include "support/catch.hpp"
#include "support/recording_nccl.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;
using Catch::Contains;
using Texts = std::vector<std::string>;

namespace {

// Rank 1 of 2, on GPU 3 of a host named "node7", with calls that are written down.
struct Job {
  std::shared_ptr<RecordingNccl> nccl = std::make_shared<RecordingNccl>();
  GpuSums sums{.compute_stream = nccl->compute(), .deadline_s = 0.05};
  NcclRank me{.rank = 1, .size = 2, .host = "node7", .device = 3, .deadline_s = 0.05};
  std::vector<float> gradients = std::vector<float>(10);

  std::unique_ptr<NcclCommunicator> start_nccl() {
    nccl->base = gradients.data();
    return std::make_unique<NcclCommunicator>(nccl, me, NcclId{std::byte{RecordingNccl::id_byte}},
                                              sums);
  }
  std::unique_ptr<Communicator> start() { return start_nccl(); }
  View all() { return {gradients.data(), gradients.size()}; }
};

// Writes down what is rounded, in order with the calls; halves are counted from the last ones.
struct RecordingRounding final : Rounding {
  explicit RecordingRounding(Job& job) : nccl(*job.nccl), base(job.gradients.data()) {}

  void round(float factor, View values, NarrowView rounded) override {
    nccl.write_down(fmt::format("round {} * {}+{}", factor, values.data() - base, values.size()));
    nccl.base = reinterpret_cast<const float*>(rounded.data());
  }
  void widen(NarrowView rounded, View values) override {
    CHECK(rounded.size() == values.size());
    nccl.write_down(fmt::format("widen {}+{}", values.data() - base, values.size()));
  }

  RecordingNccl& nccl;
  const float* const base;
};

template <class Act>
Error failure_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  return Error("nothing", "was thrown");
}

}  // namespace

TEST_CASE("nccl: sums follow the compute stream, which waits for them in finish only") {
  Job job;
  const auto communicator = job.start();
  const Texts step{"record 1 on compute", "sums waits for 1",   "sum 6+4 fp32 on sums",
                   "record 1 on compute", "sums waits for 1",   "sum 0+6 fp32 on sums",
                   "record 2 on sums",    "compute waits for 2"};

  for (int i = 0; i < 3; ++i) {
    job.nccl->forget();
    communicator->start_allreduce(job.all().slice(6, 4));
    communicator->start_allreduce(job.all().slice(0, 6));
    communicator->finish();

    CHECK(job.nccl->calls() == step);
  }
  CHECK(job.nccl->queries == 0);
}

TEST_CASE("nccl: finish waits for nothing when nothing was started") {
  Job job;
  const auto communicator = job.start();
  job.nccl->forget();

  communicator->start_allreduce(View());
  communicator->finish();

  CHECK(job.nccl->calls().empty());
}

TEST_CASE("nccl: joins the ranks with the first one's id, and waits for them") {
  Job job;
  job.nccl->taken = NcclResult::in_progress;
  job.nccl->states = {NcclResult::in_progress, NcclResult::in_progress, NcclResult::success};

  const auto communicator = job.start();

  CHECK(job.nccl->count("init 1/2 id 42") == 1);
  CHECK(job.nccl->polls == 3);
}

TEST_CASE("nccl: a sum that NCCL has not taken yet is waited for before the next call") {
  Job job;
  const auto communicator = job.start();
  job.nccl->taken = NcclResult::in_progress;
  job.nccl->states = {NcclResult::in_progress, NcclResult::success};

  communicator->start_allreduce(job.all());

  CHECK(job.nccl->polls == 2);
  CHECK(job.nccl->queries == 0);
}

TEST_CASE("nccl: this rank's part is scattered to and gathered from its place") {
  Job job;  // rank 1 of 2
  const auto communicator = job.start();
  job.nccl->forget();
  const View even = job.all().slice(2, 8);

  communicator->start_reduce_scatter(even);
  communicator->finish();
  const std::vector<View> views{even, job.all().slice(0, 0), job.all().slice(0, 2)};
  communicator->start_allgather(views);
  communicator->finish();

  CHECK(job.nccl->calls() == Texts{"record 1 on compute", "sums waits for 1",
                                   "scatter 2 to 6+4 on sums", "record 2 on sums",
                                   "compute waits for 2", "record 1 on compute", "sums waits for 1",
                                   "group", "gather 6+4 to 2 on sums", "gather 1+1 to 0 on sums",
                                   "end of group", "record 2 on sums", "compute waits for 2"});
  CHECK_THROWS_AS(communicator->start_reduce_scatter(job.all().slice(0, 3)), Error);
  CHECK_THROWS_AS(communicator->start_allgather(std::vector{job.all().slice(0, 3)}), Error);
}

TEST_CASE("nccl: a call that fails in a group ends the group, and then the job") {
  Job job;
  const auto communicator = job.start();
  job.nccl->forget();
  job.nccl->failing = "gather 5+5";

  CHECK_THROWS_AS(communicator->start_allgather(std::vector{job.all(), job.all()}), Error);

  CHECK(job.nccl->count("gather 5+5 to 0 on sums") == 1);
  CHECK(job.nccl->place("end of group") < job.nccl->place("abort"));
}

TEST_CASE("nccl: one job averages 16-bit gradients and sums fp32 numbers beside them") {
  Job job;
  const Element element = GENERATE(Element::fp16, Element::bf16);
  const std::string name = name_of(element);
  RecordingRounding rounding(job);
  job.sums.rounding = &rounding;
  job.sums.rounded = 8;
  const auto communicator = job.start();
  job.nccl->forget();

  communicator->start_allreduce(job.all().slice(7, 3), {.wire = element});
  communicator->start_allreduce(job.all().slice(4, 0), {.wire = element});
  communicator->start_allreduce(job.all().slice(2, 5), {.wire = element});
  job.nccl->base = job.gradients.data();
  communicator->start_allreduce(job.all().slice(0, 2));
  communicator->finish();

  CHECK(job.nccl->calls() == Texts{"round 2 * 7+3", "record 1 on compute", "sums waits for 1",
                                   "average 0+3 " + name + " on sums", "round 2 * 2+5",
                                   "record 1 on compute", "sums waits for 1",
                                   "average 0+5 " + name + " on sums", "record 1 on compute",
                                   "sums waits for 1", "sum 0+2 fp32 on sums", "record 2 on sums",
                                   "compute waits for 2", "widen 2+8"});
}

TEST_CASE("nccl: one rank alone rounds its gradients as many do") {
  Job job;
  job.me.rank = 0;
  job.me.size = 1;
  RecordingRounding rounding(job);
  job.sums.rounding = &rounding;
  job.sums.rounded = 10;
  const auto communicator = job.start();
  job.nccl->forget();

  communicator->start_allreduce(job.all(), {.wire = Element::bf16});
  communicator->finish();

  CHECK(job.nccl->calls() == Texts{"round 1 * 0+10", "widen 0+10"});
}

TEST_CASE("nccl: whether sums can be captured is tried with one") {
  Job job;
  const auto communicator = job.start_nccl();
  job.nccl->forget();

  CHECK(communicator->try_capture() == "");

  const Texts calls = job.nccl->calls();
  const auto captured = std::ranges::find(calls, "capture compute");
  REQUIRE(captured != calls.end());
  const auto is_sum = [](const std::string& call) { return call.starts_with("sum "); };
  CHECK(std::count_if(calls.begin(), captured, is_sum) == 1);  // it connects the ranks
  CHECK(std::count_if(captured, calls.end(), is_sum) == 1);
  CHECK(job.nccl->place("end of capture") > captured - calls.begin());
}

TEST_CASE("nccl: sums that cannot be captured are said so, in words, and the capture is ended") {
  const auto [failing, failure, words] = GENERATE(table<std::string, NcclResult, std::string>(
      {{"sum ", NcclResult::internal_error, "ncclAllReduce: NCCL result 3, its last words"},
       {"sum ", NcclResult::remote_error, "ncclAllReduce: NCCL result 6, its last words"},
       {"end of capture", NcclResult::internal_error, "cudaStreamEndCapture: as the test wants"}}));
  Job job;
  const auto communicator = job.start_nccl();
  job.nccl->failing_in_capture = failing;
  job.nccl->failure = failure;

  CHECK_THAT(communicator->try_capture(), Contains(words));

  CHECK(job.nccl->count("end of capture") == 1);
}

TEST_CASE("nccl: a capture that cannot begin is a refusal, too, and nothing is captured") {
  Job job;
  const auto communicator = job.start_nccl();
  job.nccl->failing = "capture ";

  CHECK_THAT(communicator->try_capture(), Contains("cudaStreamBeginCapture: as the test wants"));

  CHECK(job.nccl->count("end of capture") == 0);
}

TEST_CASE("nccl: where the ranks cannot be connected, no capture is tried") {
  Job job;
  const auto communicator = job.start_nccl();
  job.nccl->failing = "sum ";
  job.nccl->failure = NcclResult::remote_error;

  const Error error = failure_of([&] { communicator->try_capture(); });

  CHECK(error.code() == Exit::rank_lost);
  CHECK(job.nccl->count("capture compute") == 0);
}

TEST_CASE("nccl: refuses what it cannot do") {
  Job job;
  const auto communicator = job.start();
  const ReduceHook hook = [](View) {};

  CHECK_THROWS_WITH(communicator->start_allreduce(job.all(), {.wire = Element::fp16}),
                    Contains("GpuSums::rounding"));
  CHECK_THROWS_WITH(communicator->start_allreduce(job.all(), {.hook = &hook}),
                    Contains("only the ring"));
}

TEST_CASE("nccl: a broadcast follows the compute stream and is there when it returns") {
  Job job;
  const auto communicator = job.start();
  job.nccl->forget();
  job.nccl->polls_until_done = 3;

  communicator->broadcast(job.all(), 0);

  CHECK(job.nccl->calls() == Texts{"record 1 on compute", "sums waits for 1",
                                   "broadcast 0+10 of 0 on sums", "record 2 on sums"});
  CHECK(job.nccl->queries == 4);
}

TEST_CASE("nccl: a broadcast that does not end is given up after the deadline") {
  Job job;
  const auto communicator = job.start();
  job.nccl->polls_until_done = 1000000;

  const Error error = failure_of([&] { communicator->broadcast(job.all(), 0); });

  CHECK(error.code() == Exit::stuck);
  CHECK_THAT(error.what(), Contains("broadcast between GPUs"));
  CHECK(job.nccl->count("abort") == 1);
}

TEST_CASE("nccl: after the deadline a call is aborted, and the error names it and the rank") {
  Job job;
  const auto communicator = job.start();
  job.nccl->taken = job.nccl->states.front() = NcclResult::in_progress;

  const Error error = failure_of([&] { communicator->start_allreduce(job.all()); });

  CHECK(error.code() == Exit::stuck);
  CHECK_THAT(error.what(), Contains("ncclAllReduce") && Contains("0.05 s") &&
                               Contains("rank 1/2, host node7, GPU 3"));
  CHECK(job.nccl->count("abort") == 1);
}

TEST_CASE("nccl: a call that blocks for longer than the deadline is told, while it is under way") {
  const std::string call = GENERATE("init ", "sum ", "finalize", "destroy");
  Job job;
  std::promise<Error> told;
  job.sums.on_stuck = [&](const Error& late) { told.set_value(late); };
  std::optional<Error> late;
  job.nccl->blocked = call;
  job.nccl->until = [&] { late = told.get_future().get(); };  // the call returns after all

  const auto communicator = job.start();
  communicator->start_allreduce(job.all());
  communicator->finish();
  communicator->close();

  CHECK(job.nccl->calls().front() == "stream");
  CHECK(job.nccl->count("init 1/2 id 42 blocking") == 1);
  REQUIRE(late.has_value());
  CHECK(late->code() == Exit::stuck);
  CHECK_THAT(late->what(),
             Contains("not done after 0.05 s on rank 1/2, host node7, GPU 3; another rank"));
}

TEST_CASE("nccl: calls that block and return in time are told nobody") {
  Job job;
  job.sums.on_stuck = [](const Error&) { FAIL("told"); };
  const auto communicator = job.start();

  for (int i = 0; i < 3; ++i) {
    communicator->start_allreduce(job.all());
    communicator->finish();
    std::this_thread::sleep_for(std::chrono::milliseconds(60));  // outside of calls
  }
  communicator->close();
}

TEST_CASE("nccl: ranks that do not come are given up after the deadline") {
  Job job;
  job.nccl->taken = job.nccl->states.front() = NcclResult::in_progress;

  const Error error = failure_of([&] { job.start(); });

  CHECK(error.code() == Exit::stuck);
  CHECK_THAT(error.what(), Contains("ncclCommInitRankConfig"));
  CHECK(job.nccl->count("abort") == 1);
}

TEST_CASE("nccl: a failed call is an error in NCCL's words, and aborts") {
  Job job;
  const auto communicator = job.start();
  job.nccl->failing = "sum ";

  const Error error = failure_of([&] { communicator->start_allreduce(job.all()); });

  CHECK(error.code() == Exit::internal);
  CHECK_THAT(error.what(), Contains("ncclAllReduce: NCCL result 3, its last words") &&
                               Contains("rank 1/2, host node7, GPU 3"));
  CHECK(job.nccl->count("abort") == 1);
}

TEST_CASE("nccl: check finds what failed in the background, and only that") {
  Job job;
  const auto communicator = job.start();
  job.nccl->states = {NcclResult::success, NcclResult::in_progress, NcclResult::remote_error};

  CHECK_NOTHROW(communicator->check());
  CHECK_NOTHROW(communicator->check());
  const Error error = failure_of([&] { communicator->check(); });

  CHECK(error.code() == Exit::rank_lost);
  CHECK_THAT(error.what(), Contains("NCCL result 6") && Contains("GPU 3"));
  CHECK(job.nccl->count("abort") == 1);
  CHECK_NOTHROW(communicator->check());
}

TEST_CASE("nccl: another thread can abort a wait, and the abort happens once") {
  Job job;
  job.me.deadline_s = 60;
  const auto communicator = job.start();
  job.nccl->taken = job.nccl->states.front() = NcclResult::in_progress;
  std::thread watchdog([&] {
    while (job.nccl->count("sum 0+10 fp32 on sums") == 0) std::this_thread::yield();
    communicator->abort();
  });

  const Error error = failure_of([&] { communicator->start_allreduce(job.all()); });
  communicator->abort();
  watchdog.join();

  CHECK_THAT(error.what(), Contains("given up"));
  CHECK(job.nccl->count("abort") == 1);
}

TEST_CASE("nccl: after a failure memory stays, because the GPU may still be writing to it") {
  Job job;
  const auto communicator = job.start();
  Buffer buffer = communicator->memory().allocate(4);
  job.nccl->failing = "sum ";
  CHECK_THROWS(communicator->start_allreduce(buffer));

  buffer = Buffer();

  CHECK(job.nccl->count("free") == 0);
}

TEST_CASE("nccl: after abort() nothing reaches NCCL any more, and memory stays") {
  Job job;
  job.sums.register_memory = true;
  const auto communicator = job.start();
  Buffer buffer = communicator->memory().allocate(4);
  communicator->start_allreduce(buffer);
  communicator->abort();
  job.nccl->forget();

  buffer = Buffer();
  CHECK_THROWS_WITH(communicator->start_allreduce(job.all()), Contains("given up"));

  CHECK(job.nccl->count("free") == 0);
  CHECK(job.nccl->count("deregister") == 0);
  CHECK(job.nccl->count("sum 0+10 fp32 on sums") == 0);
}

TEST_CASE("nccl: memory is zero, registered on request, and deregistered before the end") {
  Job job;
  job.sums.register_memory = true;
  auto communicator = job.start();
  Buffer early = communicator->memory().allocate(4), late = communicator->memory().allocate(8);
  const auto values = late.view().host();
  CHECK(std::ranges::count(values, 0.0f) == 8);
  CHECK(job.nccl->count("register 16 bytes") == 1);
  CHECK(job.nccl->count("register 32 bytes") == 1);

  early = Buffer();
  CHECK(job.nccl->count("deregister") == 1);
  CHECK(job.nccl->place("deregister") < job.nccl->place("free"));
  job.nccl->forget();
  communicator->close();
  late = Buffer();
  communicator.reset();

  CHECK(job.nccl->calls() == Texts{"deregister", "finalize", "destroy", "free", "end of event",
                                   "end of event", "end of stream"});
}

TEST_CASE("nccl: memory is not registered unless asked for") {
  Job job;
  const auto communicator = job.start();
  job.nccl->forget();

  communicator->memory().allocate(4);
  communicator->memory().allocate(0);

  CHECK(job.nccl->calls() == Texts{"alloc", "free"});
}

TEST_CASE("nccl: destruction without close aborts, and never waits for the others") {
  Job job;
  job.me.deadline_s = 3600;
  auto communicator = job.start();
  communicator->start_allreduce(job.all());
  job.nccl->taken = job.nccl->states.front() = NcclResult::in_progress;
  job.nccl->forget();

  communicator.reset();

  CHECK(job.nccl->calls() == Texts{"abort", "end of event", "end of event", "end of stream"});
}

TEST_CASE("nccl: close waits for the other ranks, up to the deadline") {
  Job job;
  const auto communicator = job.start();
  job.nccl->taken = job.nccl->states.front() = NcclResult::in_progress;

  const Error error = failure_of([&] { communicator->close(); });

  CHECK(error.code() == Exit::stuck);
  CHECK_THAT(error.what(), Contains("ncclCommFinalize"));
  CHECK(job.nccl->count("destroy") == 0);
  CHECK(job.nccl->count("abort") == 1);
}

TEST_CASE("nccl: one rank alone needs no NCCL, but has memory") {
  Job job;
  job.me.rank = 0;
  job.me.size = 1;
  job.sums.register_memory = true;
  const auto communicator = job.start();
  Buffer buffer = communicator->memory().allocate(3);
  job.nccl->forget();

  communicator->broadcast(buffer, 0);
  communicator->start_allreduce(buffer);
  communicator->finish();
  communicator->check();
  buffer = Buffer();
  communicator->close();
  communicator->abort();

  CHECK(job.nccl->calls() == Texts{"free"});
}
