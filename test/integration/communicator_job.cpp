// communicator_job [HOSTS], under mpirun: every communicator sums exactly, with the same bits on
// all ranks and in every run.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ringtrain/allreduce/communicator/compression.hpp"
#include "ringtrain/allreduce/communicator/gradient_reducer.hpp"
#include "ringtrain/allreduce/make_communicator.hpp"
#include "ringtrain/allreduce/ring/ring.hpp"
#include "ringtrain/base/hash.hpp"
#include "support/job.hpp"
#include "support/sum_values.hpp"

using namespace ringtrain;
using test::require;

namespace {

struct Case {
  const char* name;
  const char* kind;
  allreduce::CommunicatorOptions options;
  bool ring_order;  // whether the sum must be ring_order_sum() of all ranks
};

std::string hash_of(const std::vector<float>& values) {
  return hex(hash_bytes(std::as_bytes(std::span(values))));
}

std::vector<float> values_of(View view) { return {view.data(), view.data() + view.size()}; }

// A buffer from the communicator's memory, or (`ours` false) from the heap.
std::vector<float> summed(allreduce::Communicator& communicator, const std::vector<float>& values,
                          bool ours) {
  std::vector<float> heap = values;
  const Buffer buffer = communicator.memory().allocate(ours ? values.size() : 0);
  const View view = ours ? buffer.view() : View(heap.data(), heap.size());
  std::ranges::copy(values, view.data());
  communicator.start_allreduce(view);
  communicator.finish();
  return values_of(view);
}

void check_sums(const Case& test, allreduce::Communicator& communicator,
                const allreduce::MpiSession& session) {
  const auto n = static_cast<std::size_t>(session.size());
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, n - 1, n, n + 1, std::size_t{1000}, std::size_t{300'007}})
    for (const bool ours : {true, false}) {
      const std::string here = fmt::format("{}, {} elements, {}", test.name, count,
                                           ours ? "its own memory" : "the heap");
      require(summed(communicator, exact_values(count, session.rank()), ours) ==
                  exact_sums(count, session.size()),
              "exact sum: " + here);
      const auto rough = summed(communicator, rough_values(count, session.rank()), ours);
      require(session.all_equal(hash_of(rough)), "equal bits on all ranks: " + here);
      if (!test.ring_order) continue;
      std::vector<std::vector<float>> all;
      for (int rank = 0; rank < session.size(); ++rank) all.push_back(rough_values(count, rank));
      require(same_bits(rough, allreduce::ring_order_sum(all)), "the documented order: " + here);
    }
}

// As in training: buckets of odd sizes, many rounds, sums started while others are in flight.
void check_rounds(const Case& test, allreduce::Communicator& communicator,
                  const allreduce::MpiSession& session) {
  constexpr std::size_t count = 30'001;
  const Buffer gradients = communicator.memory().allocate(count);
  allreduce::GradientReducer reducer(communicator, gradients, 20'000);
  for (int round = 0; round < 50; ++round) {
    std::ranges::copy(exact_values(count, session.rank()), gradients.view().data());
    for (const std::size_t first : {25'000u, 19'999u, 8'000u, 7'000u, 13u})
      reducer.final_from(first);
    reducer.finish();
    require(values_of(gradients) == exact_sums(count, session.size()),
            fmt::format("exact sum: {}, round {}", test.name, round));
  }
}

// Ever larger views from the heap, each started while the one before is in flight.
void check_growing(const Case& test, allreduce::Communicator& communicator,
                   const allreduce::MpiSession& session) {
  std::vector<std::vector<float>> views;
  for (const std::size_t count : {1'000u, 200'000u, 400'000u, 600'000u})
    views.push_back(exact_values(count, session.rank()));
  for (auto& view : views) communicator.start_allreduce({view.data(), view.size()});
  communicator.finish();
  for (const auto& view : views)
    require(view == exact_sums(view.size(), session.size()),
            fmt::format("exact sum: {}, {} elements in flight", test.name, view.size()));
}

// Only what travels between hosts is rounded.
void check_rounded(const Case& test, allreduce::Communicator& communicator,
                   const allreduce::MpiSession& session) {
  for (const Element wire : {Element::fp16, Element::bf16}) {
    const std::string here = fmt::format("{} as {}", test.name, name_of(wire));
    auto values = rough_values(100'003, session.rank()), exact = values;
    communicator.start_allreduce({values.data(), values.size()}, {.wire = wire});
    communicator.start_allreduce({exact.data(), exact.size()});
    communicator.finish();
    require(session.all_equal(hash_of(values)), "equal bits on all ranks: " + here);
    float most = 0, largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      most = std::max(most, std::abs(values[i] - exact[i]));
      largest = std::max(largest, std::abs(exact[i]));
    }
    const bool travels = test.kind != std::string("mpi") && session.size() > 1 &&
                         (test.options.ranks_a_host == 1 || session.hosts() > 1);
    if (travels) require(most > 0, "rounding: " + here);
    require(most <= largest * (wire == Element::fp16 ? 0.002f : 0.016f), "a near sum: " + here);
  }
}

// Everything travels, so sums are exact; of two matrices at a time, the last ones first.
void check_compressed(const allreduce::MpiSession& session) {
  allreduce::CommunicatorOptions options;
  options.compressed.how = {.kind = allreduce::Compression::Kind::topk, .ratio = 1};
  for (std::size_t k = 0; k < 4; ++k) options.compressed.matrices.push_back({k * 6000, 60, 100});
  for (options.ranks_a_host = 0; options.ranks_a_host < 3; ++options.ranks_a_host) {
    const auto communicator = allreduce::make_communicator("ring", session, options);
    auto values = exact_values(24'000, session.rank());
    communicator->start_allreduce({&values[12'000], 12'000}, {.compressed = true, .first = 12'000});
    communicator->start_allreduce({values.data(), 12'000}, {.compressed = true});
    communicator->finish();
    if (allreduce::CompressionState* const state = communicator->compression_state())
      state->accept();
    require(values == exact_sums(24'000, session.size()),
            fmt::format("exact sum: compressed, {} ranks a host", options.ranks_a_host));
  }
}

bool refuses(allreduce::Communicator& communicator, View sums, const allreduce::ReduceHook& hook) {
  try {
    communicator.start_allreduce(sums, {.hook = &hook});
  } catch (const Error&) {
    return true;
  }
  return false;
}

// Each rank changes its part of the sums; MPI refuses to.
void check_hook(const Case& test, allreduce::Communicator& communicator,
                const allreduce::MpiSession& session) {
  if (session.size() == 1) return;
  constexpr std::size_t count = 100'003;
  const Buffer sums = communicator.memory().allocate(count);
  const auto change = [](View part, int rank) {
    for (float& x : part.host()) x = 2 * x + static_cast<float>(rank);
  };
  const allreduce::ReduceHook hook = [&](View part) { change(part, session.rank()); };
  std::ranges::copy(exact_values(count, session.rank()), sums.view().data());
  if (test.kind == std::string("mpi"))
    return require(refuses(communicator, sums, hook), "a refusal");
  communicator.start_allreduce(sums, {.hook = &hook});
  communicator.finish();
  auto expected = exact_sums(count, session.size());
  for (int rank = 0; rank < session.size(); ++rank)
    change(View(expected.data(), count)
               .slice(communicator.own_parts(std::span(&count, 1), rank).front()),
           rank);
  require(values_of(sums) == expected, fmt::format("sums through a hook: {}", test.name));
}

void check_broadcast(const Case& test, allreduce::Communicator& communicator,
                     const allreduce::MpiSession& session) {
  for (int root = 0; root < session.size(); ++root) {
    auto values = exact_values(1001, session.rank());
    communicator.broadcast({values.data(), values.size()}, root);
    require(values == exact_values(1001, root), fmt::format("broadcast: {}", test.name));
  }
}

}  // namespace

int main(int argc, char** argv) {
  test::run_job([&](const allreduce::MpiSession& session) {
    if (argc > 1) require(session.hosts() == std::stoi(argv[1]), "the number of hosts");
    const bool plain = session.hosts() == 1 || session.hosts() == session.size();
    const allreduce::RingTuning tiny{.largest_segment = 100, .smallest_segment = 16, .window = 3};
    for (const Case& test :
         {Case{"auto", "auto", {}, plain}, Case{"ring", "ring", {}, plain},
          Case{"ring, three sums at once", "ring", {.at_once = 3}, plain},
          Case{"ring of single ranks, three sums at once",
               "ring",
               {.at_once = 3, .ranks_a_host = 1},
               true},
          Case{"ring of pairs, three sums at once",
               "ring",
               {.ring = tiny, .at_once = 3, .ranks_a_host = 2},
               false},
          Case{"ring, no overlap", "ring", {.overlap = false}, plain},
          Case{"ring of single ranks", "ring", {.ranks_a_host = 1}, true},
          Case{"ring of pairs", "ring", {.ring = tiny, .ranks_a_host = 2}, false},
          Case{"mpi", "mpi", {}, false}}) {
      const auto communicator = allreduce::make_communicator(test.kind, session, test.options);
      require(communicator->rank() == session.rank() && communicator->size() == session.size(),
              fmt::format("rank and size: {}", test.name));
      check_growing(test, *communicator, session);
      check_sums(test, *communicator, session);
      check_rounds(test, *communicator, session);
      check_rounded(test, *communicator, session);
      check_hook(test, *communicator, session);
      check_broadcast(test, *communicator, session);
    }
    check_compressed(session);
  });
}
