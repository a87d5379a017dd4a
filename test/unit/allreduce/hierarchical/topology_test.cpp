#include "allreduce/hierarchical/hierarchical_allreduce.hpp"
#include "ringtrain/allreduce/hierarchical/tune_ring.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::allreduce;

TEST_CASE("topology: ranks dealt to hosts in turn know their place on their host") {
  const std::vector<int> host_of{0, 1, 0, 1, 0};

  const Topology rank_3 = topology_of(3, host_of, 0), rank_4 = topology_of(4, host_of, 0);

  CHECK(rank_3.host == 1);
  CHECK(rank_3.hosts == 2);
  CHECK(rank_3.place.rank == 1);
  CHECK(rank_3.place.size == 2);
  CHECK(rank_3.place.lanes == 2);
  CHECK(rank_4.place.rank == 2);
  CHECK(rank_4.place.size == 3);
  CHECK(rank_4.place.lanes == 2);
}

TEST_CASE("topology: a host can be taken as several") {
  const std::vector<int> host_of{0, 0, 0, 0, 0};

  const Topology rank_3 = topology_of(3, host_of, 2), rank_4 = topology_of(4, host_of, 2);

  CHECK(rank_3.host == 1);
  CHECK(rank_3.hosts == 3);
  CHECK(rank_3.place.rank == 1);
  CHECK(rank_3.place.size == 2);
  CHECK(rank_3.place.lanes == 1);
  CHECK(rank_4.host == 2);
  CHECK(rank_4.place.size == 1);
}

TEST_CASE("Host links: a host is in one link of a turn at most, and each link has its turn") {
  const std::size_t links = GENERATE(2, 3, 4, 5, 16, 17);
  for (std::size_t link = 0; link < links; ++link) {
    const std::size_t next = (link + 1) % links;
    CHECK(HostLinks::turn_of(link, links) < HostLinks::turns);
    CHECK(HostLinks::turn_of(link, links) != HostLinks::turn_of(next, links));
  }
}
