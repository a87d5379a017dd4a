#include "allreduce/compression/compressor.hpp"

#include <atomic>
#include <cmath>

#include "allreduce/compression/compressed_ring.hpp"
#include "support/catch.hpp"
#include "support/sanitized.hpp"
#include "support/sum_values.hpp"
#include "support/thread_ring.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

namespace {

using Values = std::vector<float>;

Compression powersgd(int rank) { return {.kind = Compression::Kind::powersgd, .rank = rank}; }
Compression topk(double ratio) { return {.kind = Compression::Kind::topk, .ratio = ratio}; }

// Two matrices, and a row that is not compressed between them.
const std::vector<GradientMatrix> three = {{0, 12, 30}, {360, 1, 12}, {372, 8, 40}};
constexpr std::size_t all = 692;

// Hosts of one rank each, all of them threads, with a compressor each that lives on.
class Hosts {
 public:
  Hosts(const Compression& how, int count, const std::vector<GradientMatrix>& matrices = three,
        int threads = 1)
      : ring_(count) {
    for (int host = 0; host < count; ++host) {
      links_.push_back(std::make_unique<ThreadRing::Link>(ring_, host));
      rings_.push_back(std::make_unique<Ring>(*links_.back()));
      lanes_.push_back(std::make_unique<CompressedRing>(CompressedGradients{how, matrices, threads},
                                                        0, 1, *rings_.back()));
    }
  }

  // What each host ends with, the last matrix first, as in a backward pass.
  std::vector<Values> sum(std::vector<Values> gradients, std::size_t cut = 0) {
    on_threads(static_cast<int>(gradients.size()), [&](int host) {
      const auto h = static_cast<std::size_t>(host);
      float* const values = gradients[h].data();
      lanes_[h]->allreduce({cut, gradients[h].size() - cut}, values + cut);
      if (cut > 0) lanes_[h]->allreduce({0, cut}, values);
    });
    return gradients;
  }
  void scale(float factor) {
    for (auto& lane : lanes_) lane->state().scale(factor);
  }
  void accept() {
    for (auto& lane : lanes_) lane->state().accept();
  }
  // What every host keeps, in another set of hosts.
  void give_kept_to(Hosts& others) const {
    for (std::size_t host = 0; host < lanes_.size(); ++host) {
      Values kept(lanes_[host]->state().size());
      lanes_[host]->state().read(kept);
      others.lanes_[host]->state().write(kept);
    }
  }

 private:
  ThreadRing ring_;
  std::vector<std::unique_ptr<ThreadRing::Link>> links_;
  std::vector<std::unique_ptr<Ring>> rings_;
  std::vector<std::unique_ptr<CompressedRing>> lanes_;
};

std::vector<Values> gradients(int hosts, int step) {
  std::vector<Values> all_hosts;
  for (int host = 0; host < hosts; ++host) {
    all_hosts.push_back(rough_values(all, host, step));
    for (float& value : all_hosts.back()) value *= 1e-6f;
  }
  return all_hosts;
}

Values exact_sum(const std::vector<Values>& hosts) {
  Values sum(hosts.front().size());
  for (const Values& values : hosts)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  return sum;
}

double length(const Values& values) {
  double sum = 0;
  for (const float value : values) sum += double(value) * double(value);
  return std::sqrt(sum);
}
double distance(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return length(a);
}

// Sums of products of few vectors that the hosts have in common.
std::vector<Values> of_rank_two(int hosts) {
  const Values rows = rough_values(64, 100), columns = rough_values(200, 101);
  std::vector<Values> all_hosts(static_cast<std::size_t>(hosts), Values(all));
  for (int host = 0; host < hosts; ++host)
    for (const GradientMatrix& m : three)
      for (std::size_t i = 0; i < m.rows; ++i)
        for (std::size_t j = 0; j < m.columns; ++j)
          all_hosts[static_cast<std::size_t>(host)][m.first + i * m.columns + j] =
              rows[i] * columns[j] + static_cast<float>(host) * rows[32 + i] * columns[100 + j];
  return all_hosts;
}

}  // namespace

TEST_CASE("compression: every host ends with the same bits, in every run") {
  const Compression how = GENERATE(powersgd(2), topk(0.1));
  const int count = GENERATE(1, 2, 3, 5);
  CAPTURE(count);
  Hosts hosts(how, count), again(how, count);

  for (int step = 0; step < 3; ++step) {
    const auto sums = hosts.sum(gradients(count, step));
    // A ring of three or more adds in an order that depends on what is summed together.
    const auto repeated = again.sum(gradients(count, step), count > 2 ? 0 : 372);
    for (const Values& sum : sums) REQUIRE(same_bits(sum, sums.front()));
    REQUIRE(same_bits(repeated.front(), sums.front()));
    hosts.accept();
    again.accept();
  }
}

TEST_CASE("compression: several threads come to the bits of one") {
  const Compression how = GENERATE(powersgd(2), topk(0.1));
  Hosts hosts(how, 2), threaded(how, 2, three, thread_sanitized ? 1 : 3);
  for (int step = 0; step < 3; ++step) {
    REQUIRE(
        same_bits(threaded.sum(gradients(2, step)).front(), hosts.sum(gradients(2, step)).front()));
    for (Hosts* each : {&hosts, &threaded}) each->accept();
  }
}

TEST_CASE("compression: what fails on a thread fails the sum") {
  const int threads = GENERATE(1, 3);
  std::atomic<int> done = 0;
  CHECK_THROWS_WITH(for_each_piece(8, thread_sanitized ? 1 : threads,
                                   [&](std::size_t i) {
                                     if (i == 5) throw Error("piece 5", "no memory");
                                     ++done;
                                   }),
                    Catch::Contains("piece 5"));
  CHECK(done >= 5);
}

TEST_CASE("compression: rows travel as they are") {
  const Compression how = GENERATE(powersgd(1), topk(0.01));
  Hosts hosts(how, 3);
  const auto values = gradients(3, 0);

  const Values sum = hosts.sum(values).front();

  const Values exact = ring_order_sum(values);
  for (std::size_t i = 360; i < 372; ++i) CHECK(sum[i] == Approx(exact[i]).epsilon(1e-6));
}

TEST_CASE("powersgd: sums of no higher rank than the factors' are exact, step by step") {
  const int rank = GENERATE(2, 3);
  const int count = GENERATE(2, 3);
  CAPTURE(rank, count);
  Hosts hosts(powersgd(rank), count);
  const auto values = of_rank_two(count);
  const Values exact = exact_sum(values);

  for (int step = 0; step < 3; ++step) {
    CHECK(distance(hosts.sum(values).front(), exact) < 1e-5 * length(exact));
    hosts.accept();
  }
}

// What numpy makes of the same, in double, with q as below:
//   i = np.arange(36).reshape(6, 6)
//   hosts, left = [np.sin(0.1 * i * i + h) for h in (0, 1)], [0, 0]
//   for step in (1, 2):
//     m = [g + e for g, e in zip(hosts, left)]
//     p, _ = np.linalg.qr(sum(m) @ q.T)
//     left = [x - p @ (p.T @ x) for x in m]
//     q = p.T @ sum(m)
//     print((p @ q)[0], np.linalg.norm(p @ q))
TEST_CASE("powersgd: two steps come to what numpy makes of them") {
  const GradientMatrix matrix{0, 6, 6};
  const Values q{-0.117418766f, 0.220907569f,  0.575358272f,  0.912017584f,
                 -0.711542726f, -0.734578252f, -0.728679061f, 0.193554044f,
                 -0.247057676f, -0.48753953f,  0.580021024f,  0.156946182f};
  REQUIRE(first_right_factor(matrix, 2) == q);
  std::vector<Values> values(2, Values(36));
  for (std::size_t i = 0; i < 36; ++i)
    for (std::size_t h = 0; h < 2; ++h)
      values[h][i] = static_cast<float>(std::sin(0.1 * double(i * i) + double(h)));
  const Values rows[] = {
      {-0.036815226f, -0.15143032f, 0.554991925f, 0.75778452f, -0.291440922f, -0.054389092f},
      {-0.699881301f, -0.215187104f, 0.99344358f, 1.672083257f, -0.059727245f, 0.245168133f}};
  const double lengths[] = {5.160794334751921, 6.536704307283702};
  Hosts hosts(powersgd(2), 2, {matrix});

  for (std::size_t step = 0; step < 2; ++step) {
    const Values sum = hosts.sum(values).front();
    hosts.accept();

    CHECK(length(sum) == Approx(lengths[step]).epsilon(1e-5));
    CHECK(distance({sum.begin(), sum.begin() + 6}, rows[step]) < 1e-5);
  }
}

TEST_CASE("topk: with a ratio of 1 sums are exact, of two hosts to the bit") {
  const int count = GENERATE(2, 3);
  CAPTURE(count);
  Hosts hosts(topk(1), count);

  for (int step = 0; step < 2; ++step) {
    const auto values = gradients(count, step);
    const Values sum = hosts.sum(values).front();
    hosts.accept();
    if (count == 2) CHECK(same_bits(sum, exact_sum(values)));
    CHECK(distance(sum, exact_sum(values)) < 1e-6 * length(sum));
  }
}

TEST_CASE("compression: what is left out comes later, and nothing is lost") {
  const Compression how = GENERATE(powersgd(1), powersgd(3), topk(0.05));
  CAPTURE(how.rank, how.ratio);
  Hosts hosts(how, 3);
  Values given(all), applied(all);
  const auto step = [&](const std::vector<Values>& values) {
    given = exact_sum({given, exact_sum(values)});
    applied = exact_sum({applied, hosts.sum(values).front()});
    hosts.accept();
  };

  for (int s = 0; s < 5; ++s) step(gradients(3, s));
  const double late = distance(given, applied);
  for (int s = 0; s < 60; ++s) step(std::vector<Values>(3, Values(all)));

  CHECK(late > 0.1 * length(given));
  CHECK(distance(given, applied) < 1e-4 * length(given));
}

TEST_CASE("compression: sums that do not count change nothing, also those that are not finite") {
  const Compression how = GENERATE(powersgd(2), topk(0.1));
  const float bad = GENERATE(NAN, INFINITY);
  Hosts hosts(how, 2), undisturbed(how, 2);
  for (Hosts* each : {&hosts, &undisturbed}) {
    each->sum(gradients(2, 0));
    each->accept();
  }
  auto broken = gradients(2, 7);
  broken[1][5] = bad;

  for (const Values& sum : hosts.sum(broken))
    CHECK(std::ranges::any_of(sum, [](float value) { return !std::isfinite(value); }));

  CHECK(same_bits(hosts.sum(gradients(2, 1)).front(), undisturbed.sum(gradients(2, 1)).front()));
}

TEST_CASE("compression: gradients of another scale come to sums of that scale, to the bit") {
  const Compression how = GENERATE(powersgd(2), topk(0.1));
  constexpr float scale = 0.25;  // a power of two, as loss scales are
  Hosts hosts(how, 2), scaled(how, 2);
  for (Hosts* each : {&hosts, &scaled}) {
    each->sum(gradients(2, 0));
    each->accept();
  }
  scaled.scale(scale);
  auto values = gradients(2, 1);
  Values wanted = hosts.sum(values).front();
  for (Values& of_host : values)
    for (float& value : of_host) value *= scale;
  for (float& value : wanted) value *= scale;
  CHECK(same_bits(scaled.sum(values).front(), wanted));
}

TEST_CASE("compression: hosts with what others keep go on as those, to the bit") {
  const Compression how = GENERATE(powersgd(2), topk(0.1));
  Hosts hosts(how, 2), others(how, 2);
  for (int step = 0; step < 3; ++step) {
    hosts.sum(gradients(2, step));
    hosts.accept();
  }
  hosts.sum(gradients(2, 7));  // does not count, and so is not kept
  others.sum(gradients(2, 8));
  others.accept();

  hosts.give_kept_to(others);

  for (int step = 3; step < 5; ++step) {
    CHECK(same_bits(hosts.sum(gradients(2, step)).front(), others.sum(gradients(2, step)).front()));
    hosts.accept();
    others.accept();
  }
}

TEST_CASE("compression: what new hosts keep is as if there had been no sums") {
  const Compression how = GENERATE(powersgd(2), topk(0.1));
  Hosts hosts(how, 2), fresh(how, 2), other(how, 2);
  hosts.sum(gradients(2, 0));
  hosts.accept();

  fresh.give_kept_to(hosts);

  CHECK(same_bits(hosts.sum(gradients(2, 1)).front(), other.sum(gradients(2, 1)).front()));
}

TEST_CASE("powersgd: gradients of 0 and of any size are no trouble") {
  const float factor = GENERATE(0.0f, 1e-30f, 1e30f);
  CAPTURE(factor);
  Hosts hosts(powersgd(2), 2);
  hosts.sum(std::vector<Values>(2, Values(all)));
  hosts.accept();
  auto values = of_rank_two(2);
  const double most = length(exact_sum(values));
  for (Values& each : values)
    for (float& value : each) value *= factor / static_cast<float>(most);
  const Values exact = exact_sum(values);

  for (int step = 0; step < 3; ++step) {
    CHECK(distance(hosts.sum(values).front(), exact) <= 1e-5 * double(factor));
    hosts.accept();
  }
}

TEST_CASE("compression: lanes share the matrices out") {
  std::vector<int> owners(all);
  ThreadRing alone(1);
  ThreadRing::Link link(alone, 0);
  Ring ring(link);

  for (int lane = 0; lane < 2; ++lane)
    for (const Range& slice : CompressedRing({topk(0.5), three}, lane, 2, ring).slices({0, all}))
      for (std::size_t i = slice.first; i < slice.end(); ++i) ++owners[i];

  CHECK(owners == std::vector<int>(all, 1));
  CHECK(CompressedRing({topk(0.5), three}, 1, 2, ring).slices({360, 332}) ==
        std::vector<Range>{{0, 12}, {12, 320}});
  CHECK_THROWS_WITH(CompressedRing({topk(0.5), three}, 0, 2, ring).slices({10, 400}),
                    Catch::Contains("whole"));
}

TEST_CASE("compression: numbers that travel") {
  CHECK(travelling_numbers(powersgd(2), three, 4) == 2 * 42 + 12 + 2 * 48);
  CHECK(travelling_numbers(topk(0.1), three, 4) == 4 * 36 + 12 + 4 * 32);
  CHECK(travelling_numbers(powersgd(100), three, 4) == all);  // factors would be larger
  CHECK(kept_values(topk(1e-6), three[0]) == 1);
}
