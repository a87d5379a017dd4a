#include "ringtrain/host/network_interfaces.hpp"

#include <cstdlib>

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::host;

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

TEST_CASE("own addresses: the job uses those that --interface or Open MPI's settings leave") {
  const auto all = own_addresses();
  if (all.empty()) skip_test("this host has no network but loopback");
  const std::string& first = all.front();
  const std::string alone = first + (first.find(':') == std::string::npos ? "/32" : "/128");
  ::unsetenv("OMPI_MCA_btl_tcp_if_include");
  ::unsetenv("OMPI_MCA_btl_tcp_if_exclude");

  CHECK(job_addresses("") == all);
  CHECK(job_addresses(alone) == std::vector{first});
  ::setenv("OMPI_MCA_btl_tcp_if_include", alone.c_str(), 1);
  CHECK(job_addresses("") == std::vector{first});
  ::setenv("OMPI_MCA_btl_tcp_if_include", "198.51.100.77/32", 1);
  CHECK(job_addresses("") == all);  // this leaves none
  CHECK(job_addresses(alone) == std::vector{first});
  ::unsetenv("OMPI_MCA_btl_tcp_if_include");
  ::setenv("OMPI_MCA_btl_tcp_if_exclude", alone.c_str(), 1);
  CHECK(job_addresses("") == (all.size() == 1 ? all : std::vector(all.begin() + 1, all.end())));
  ::unsetenv("OMPI_MCA_btl_tcp_if_exclude");
}

TEST_CASE("own addresses: a network has one name") {
  CHECK(network_name() == network_name());
  CHECK(network_name().find(' ') == std::string::npos);
  CHECK(network_name().size() > 10);
}

TEST_CASE("interfaces: a list of names and subnets is the names of those that are up") {
  CHECK(interface_names("").empty());
  CHECK(interface_names("lo") == std::vector<std::string>{"lo"});
  CHECK(interface_names("none9,127.0.0.0/8") == std::vector<std::string>{"lo"});
  CHECK(interface_names("lo,127.0.0.1/32").size() == 1);
  CHECK(interface_names("198.51.100.77/32,l,none9").empty());
}
