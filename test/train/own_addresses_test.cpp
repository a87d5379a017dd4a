#include "train/own_addresses.hpp"

#include "support/catch.hpp"

using namespace ringtrain;

TEST_CASE("own addresses: only those of the interfaces or subnets that are asked for") {
  const auto all = own_addresses();
  if (all.empty()) skip_test("this host has no network but loopback");
  const std::string& first = all.front();
  const bool v4 = first.find(':') == std::string::npos;
  const std::string alone = first + (v4 ? "/32" : "/128");
  CHECK(own_addresses(alone) == std::vector{first});
  CHECK(own_addresses("none9," + alone) == std::vector{first});
  CHECK(own_addresses(v4 ? "0.0.0.0/0" : "::/0").size() <= all.size());
  CHECK(own_addresses(v4 ? "0.0.0.0/0" : "::/0").front() == first);
  CHECK(own_addresses("198.51.100.77/32,none9").empty());  // kept for documentation
  CHECK(own_addresses(first + "/x").empty());
  CHECK(own_addresses(first + "/129").empty());
}
