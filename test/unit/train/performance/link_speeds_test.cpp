#include "train/performance/link_speeds.hpp"

#include "support/catch.hpp"

using namespace ringtrain::train;
using Catch::Contains;

TEST_CASE("slow-downs: links are compared with how they were at the start") {
  LinkSpeeds links{.hosts = {"a", "b", "c"},
                   .start = {118e6, 117e6, 118e6},
                   .now = {116e6, 119e6, 110e6},
                   .step_bytes = 4.4e6,
                   .step_s = 0.1};
  CHECK(compare_links(links) ==
        "no link between hosts explains it: the slowest, from c to a, carries 110 MB/s, 118 at the "
        "start, and so a step's sums in 40.0 of 100.0 ms; what to do: look at the links between "
        "the hosts (ethtool, ethtool -S); --timeline shows who waits for whom");
  links.now[2] = 29.84e6;
  CHECK(compare_links(links) ==
        "from c to a 29.8 MB/s, 118 at the start; 2 of 3 hold up no step; what to do: see what "
        "else c sends and a receives, and look at their network cards, cables and switch ports "
        "(ethtool, ethtool -S)");
}

TEST_CASE("slow-downs: which links are named") {
  LinkSpeeds links{.hosts = {"a", "b"}, .start = {1e8, 1e8}, .step_bytes = 1e6, .step_s = 0.1};
  const auto text = [&](double a_to_b, double b_to_a) {
    links.now = {a_to_b, b_to_a};
    return compare_links(links);
  };
  CHECK_THAT(text(86e6, 100e6), Catch::StartsWith("no link "));
  CHECK_THAT(text(84e6, 100e6), Catch::StartsWith("from a to b 84 MB/s, 100 at the start; 1 of 2"));
  CHECK_THAT(text(2e6, 1e6), Catch::StartsWith("from b to a 1 MB/s, 100 at the start; from a to b "
                                               "2 MB/s, 100 at the start; what to do: "));
  links.step_bytes = 1e5;  // in 2 of 100 ms
  CHECK_THAT(text(50e6, 100e6), Catch::StartsWith("no link "));
  links = {std::vector<std::string>(9, "a"), std::vector<double>(9, 1e9),
           std::vector<double>(9, 1e6), 1e6, 0.1};
  CHECK_THAT(compare_links(links), Contains("; 6 more; what to do: "));
}
