#include "ringtrain/metrics/scaling/link_model.hpp"

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::metrics;
using Catch::Contains;

namespace {

// 1 ms a sum and 100 MB/s.
constexpr LinkModel link_of_100{1e-3, 1e-8};

StepParts step_of(std::vector<Bucket> buckets, bool overlaps = true) {
  return {.images_s = 0.08, .update_s = 0.02, .buckets = std::move(buckets), .overlaps = overlaps};
}

// Three sums of 1 MB, 11 ms each.
LinkSituation three_buckets() {
  return {.step = step_of({{1e6, 0.02}, {1e6, 0.015}, {1e6, 0}}),
          .link = link_of_100,
          .ranks = 2,
          .batch = 16,
          .target = 0.9};
}

}  // namespace

TEST_CASE("link: two sizes tell the fixed time from the bandwidth") {
  const LinkModel link = fit_link(std::vector<TimedSum>{{1e6, 0.011}, {4e6, 0.041}, {2e6, 0.021}});

  CHECK(link.latency_s == Approx(1e-3));
  CHECK(link.s_per_byte == Approx(1e-8));
  CHECK(link.seconds(1e7) == Approx(0.101));
}

TEST_CASE("link: sums of one size, or none, have a link, too") {
  CHECK(fit_link({}).seconds(1e6) == 0);
  CHECK(fit_link(std::vector<TimedSum>{{1e6, 0.01}}).seconds(1e6) == Approx(0.01));
  CHECK(fit_link(std::vector<TimedSum>{{1e6, 0.01}, {1e6, 0.02}}).seconds(1e6) ==
        Approx(0.012));  // relative errors
  CHECK(fit_link(std::vector<TimedSum>{{0, 0.01}}).seconds(5) == Approx(0.01));
  CHECK(fit_link(std::vector<TimedSum>{{1e6, 0}}).seconds(1e6) == 0);
}

TEST_CASE("link: neither its fixed time nor its bandwidth is ever negative") {
  const LinkModel growing = fit_link(std::vector<TimedSum>{{1e6, 0.01}, {2e6, 0.04}});
  CHECK(growing.latency_s == 0);
  CHECK(growing.s_per_byte > 0);
  const LinkModel shrinking = fit_link(std::vector<TimedSum>{{1e6, 0.04}, {2e6, 0.01}});
  CHECK(shrinking.latency_s >= 0);
  CHECK(shrinking.s_per_byte >= 0);
}

TEST_CASE("link: bus bandwidth is comparable between numbers of ranks") {
  CHECK(bus_bandwidth(1e6, 0.01, 2) == Approx(1e8));
  CHECK(bus_bandwidth(1e6, 0.01, 4) == Approx(1.5e8));
  CHECK(bus_bandwidth(1e6, 0.01, 1) == 0);
  CHECK(bus_bandwidth(1e6, 0, 2) == 0);
}

TEST_CASE("link: sums follow one another, and each its bucket") {
  // 11 ms from -20, 11 from -9, 11 from 2 (the bucket is final at 0): 13 ms exposed.
  const Forecast f = forecast(three_buckets().step, link_of_100);

  CHECK(f.compute_s == Approx(0.1));
  CHECK(f.sums_s == Approx(0.033));
  CHECK(f.exposed_s == Approx(0.013));
  CHECK(f.step_s() == Approx(0.113));
  CHECK(f.efficiency() == Approx(0.1 / 0.113));
}

TEST_CASE("link: a sum that waits for its bucket leaves the link idle") {
  const Forecast f = forecast(step_of({{1e6, 0.05}, {1e6, 0}}), link_of_100);

  CHECK(f.exposed_s == Approx(0.011));
}

TEST_CASE("link: without overlap all sums are exposed") {
  const Forecast f = forecast(step_of({{1e6, 0.02}, {1e6, 0.015}, {1e6, 0}}, false), link_of_100);

  CHECK(f.exposed_s == Approx(0.033));
}

TEST_CASE("link: sums at once hide each other's fixed time, not what the link carries") {
  const auto sums_s = [](int at_once) {
    const StepParts step = step_of({{1e6, 0}, {1e6, 0}, {1e6, 0}, {1e6, 0}}, false);
    const LinkModel link{0.015, 1e-8, at_once, 1e-8};
    return forecast(step, link).sums_s;
  };
  CHECK(sums_s(1) == Approx(0.100));
  // Two at a time: 10 and 20 carried, over at 25 and 35; from 25 and 35 on again.
  CHECK(sums_s(2) == Approx(0.060));
  CHECK(sums_s(3) == Approx(0.055));
  CHECK(sums_s(16) == Approx(0.055));
}

TEST_CASE("link: one bucket, hidden ones and no sums at all") {
  CHECK(forecast(step_of({{1e6, 0}}), link_of_100).exposed_s == Approx(0.011));
  CHECK(forecast(step_of({{1e6, 0.02}}), link_of_100).exposed_s == 0);
  CHECK(forecast(step_of({}), link_of_100).efficiency() == 1);
  CHECK(forecast({}, {}).efficiency() == 1);
  CHECK(forecast(step_of({}, false), link_of_100).exposed_s == 0);
}

TEST_CASE("link: the smallest batch and accumulation that reach the target") {
  LinkSituation now = three_buckets();
  REQUIRE_FALSE(judge(now).well());

  const ScalingForecast verdict = judge(now);

  REQUIRE(verdict.batch);
  REQUIRE(verdict.accumulate);
  const auto efficiency = [&](const StepParts& step) {
    return forecast(step, now.link).efficiency();
  };
  CHECK(efficiency(now.step.with_images(*verdict.batch / 16.0)) >= 0.9);
  CHECK(efficiency(now.step.with_images((*verdict.batch - 1) / 16.0)) < 0.9);
  // 13 ms beside 117: 97 ms of images are 1.2 batches.
  CHECK(*verdict.accumulate == 2);
  CHECK_THAT(verdict_lines(verdict, false)[1],
             Contains("90 %") && Contains("--accumulate 2") &&
                 Contains("--batch " + std::to_string(*verdict.batch)));
}

TEST_CASE("link: what each batch takes does not grow with its images, but with the batches") {
  const StepParts linear = three_buckets().step;
  const LinkModel link = three_buckets().link;
  const StepParts step = linear.with_growing(0.75 * linear.images_s);
  const double growing_s = step.images_s, batch_s = 0.25 * linear.images_s;

  CHECK(step.batch_s == Approx(batch_s));
  CHECK(forecast(step, link).step_s() == Approx(forecast(linear, link).step_s()));
  const StepParts larger = step.with_images(5);
  CHECK(forecast(larger, link).compute_s == Approx(5 * growing_s + batch_s + step.update_s));
  // Backward is as much longer as the batch is.
  CHECK(larger.buckets.front().lead_s == Approx(4 * step.buckets.front().lead_s));
  CHECK(forecast(step.with_batches(3), link).compute_s ==
        Approx(3 * (growing_s + batch_s) + step.update_s));
  // Timed batches are not the steps: they may take longer, and never less than nothing.
  CHECK(linear.with_growing(2 * linear.images_s).images_s == linear.images_s);
  CHECK(linear.with_growing(-1).images_s == 0);
}

TEST_CASE("link: a larger batch comes with what its step takes and how much faster it is") {
  LinkSituation now = three_buckets();
  now.link.s_per_byte *= 4;
  now.may_narrow = GENERATE(false, true);

  const ScalingForecast verdict = judge(now);

  REQUIRE(verdict.larger);
  CHECK(verdict.larger->batch == *verdict.batch);
  CHECK(verdict.larger->narrow == now.may_narrow);
  const double times = *verdict.batch / 16.0;
  const Forecast larger =
      forecast(now.step.with_images(times).with_bytes(now.may_narrow ? 0.5 : 1), now.link);
  CHECK(verdict.larger->step.step_s() == larger.step_s());
  CHECK(verdict.larger->speed_up ==
        Approx(times * forecast(now.step, now.link).step_s() / larger.step_s()));
  CHECK(verdict.larger->speed_up > 1);
  CHECK(verdict_lines(verdict, false).size() == 2);
  const std::vector<std::string> lines = verdict_lines(verdict, false, "mpirun train --batch 9");
  REQUIRE(lines.size() == 3);
  CHECK_THAT(lines[2], Contains("another training") && Contains("\n  mpirun train --batch 9"));
}

TEST_CASE("link: halves of the bytes are offered where there are any, and suffice") {
  LinkSituation now = three_buckets();
  now.may_narrow = true;

  const ScalingForecast verdict = judge(now);

  // 6 ms from -20, from -14, from 0.
  REQUIRE(verdict.narrow);
  CHECK(*verdict.narrow == Approx(0.1 / 0.106));
  CHECK_THAT(verdict_lines(verdict, false)[1],
             Contains("--gradient-dtype bf16") && !Contains("beside"));
}

TEST_CASE("link: where halves of the bytes do not suffice, they are for beside what does") {
  LinkSituation now = three_buckets();
  now.link.s_per_byte *= 4;
  now.may_narrow = GENERATE(false, true);
  now.compressed = 0.01;  // which goes with fp32 only

  const ScalingForecast verdict = judge(now);

  REQUIRE((verdict.accumulate || verdict.batch));
  const std::string way_out = verdict_lines(verdict, false)[1];
  CHECK((way_out.find("; beside --accumulate or --batch, --gradient-dtype bf16") !=
         std::string::npos) == now.may_narrow);
}

TEST_CASE("link: compressed gradients are offered where there are any, and suffice") {
  LinkSituation now = three_buckets();
  now.compressed = GENERATE(0.1, 1.0);

  const ScalingForecast verdict = judge(now);

  LinkModel two_sums = now.link;
  two_sums.latency_s *= 2;
  CHECK(*verdict.compressed ==
        Approx(forecast(now.step.with_bytes(*now.compressed), two_sums).efficiency()));
  const bool offered =
      verdict_lines(verdict, false)[1].find("--compress powersgd:4") != std::string::npos;
  CHECK(offered == (now.compressed == 0.1));
}

TEST_CASE("link: compressed sums wait for each other, though others need not") {
  LinkSituation now = three_buckets();
  now.link.at_once = 3;
  now.link.latency_s *= 100;
  now.compressed = 0.1;

  const ScalingForecast verdict = judge(now);

  CHECK(*verdict.compressed <
        forecast(now.step.with_bytes(*now.compressed), now.link).efficiency());
}

TEST_CASE("link: a target that nothing reaches is said to be out of reach") {
  LinkSituation now = three_buckets();
  now.step.images_s = 0;  // and so no batch makes computing longer

  const ScalingForecast verdict = judge(now);

  CHECK_FALSE(verdict.batch);
  CHECK_FALSE(verdict.accumulate);
  CHECK_THAT(verdict_lines(verdict, false)[1], Contains("no batch size or accumulation suffices"));
}

TEST_CASE("link: all well is told in one line, with details in a table") {
  LinkSituation now = three_buckets();
  now.target = 0.5;

  const ScalingForecast verdict = judge(now);

  CHECK_FALSE(verdict.batch);
  REQUIRE(verdict_lines(verdict, false).size() == 1);
  CHECK_THAT(verdict_lines(verdict, false)[0],
             Contains("3.0 MB of gradients a step take 33.0 ms (91 MB/s") &&
                 Contains("13.0 ms of them exposed: 113.0 ms a step expected, efficiency 88 %"));
  REQUIRE(verdict_lines(verdict, true).size() == 2);
  CHECK_THAT(verdict_lines(verdict, true)[1], Contains("MB in 3 sums"));
}
