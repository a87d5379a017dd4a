#include "monitor/telemetry/procfs.hpp"

#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;

TEST_CASE("proc text: seconds of the host's CPUs") {
  const CpuTimes times =
      host_times("cpu  1000 200 300 9000 50 7 3 40 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0\nintr 12\n", 100);
  CHECK(times.busy == Approx(15.1));
  CHECK(times.stolen == Approx(0.4));
  CHECK(times.disk_waits == Approx(0.5));
}

TEST_CASE("proc text: tasks and memory") {
  CHECK(runnable_tasks("2.40 2.34 2.47 3/124 5022\n") == 3);
  CHECK(resident_pages("765 414 386 5 0 123 0\n") == 414);
}

TEST_CASE("proc text: interfaces but loopback") {
  const InterfaceTotals totals = interface_totals(
      "Inter-|   Receive                                                |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs "
      "drop "
      "fifo colls carrier compressed\n"
      "    lo: 9999 99 9 9 0 0 0 0 9999 99 9 9 0 0 0 0\n"
      "  eth0: 1000 10 1 2 0 0 0 0 500 5 3 4 0 0 0 0\n"
      "eth1:20 10 0 0 0 0 0 0 3 5 0 0 0 0 0 0\n");
  CHECK(totals.bytes == 1523);
  CHECK(totals.lost == 10);
}

TEST_CASE("proc text: TCP segments sent again, by their name") {
  const char* text =
      "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
      "Tcp: RtoAlgorithm OutSegs RetransSegs InErrs\nTcp: 1 1643521 32 5\nUdp: InDatagrams\nUdp: "
      "7\n";
  CHECK(retransmitted_segments(text) == 32);
}

TEST_CASE("proc text: what a quota held up, in both versions of control groups") {
  CHECK(throttled_s("usage_usec 5\nnr_throttled 2\nthrottled_usec 1500000\n") == 1.5);
  CHECK(throttled_s("nr_periods 0\nnr_throttled 0\nthrottled_time 2500000000\n") == 2.5);
}

TEST_CASE("proc text: what is not there is 0") {
  for (const char* text : {"", "\n", "cpu", "Tcp:\nTcp:\n", "eth0:", "x y z"}) {
    CAPTURE(text);
    CHECK(host_times(text, 100).busy == 0);
    CHECK(runnable_tasks(text) == 0);
    CHECK(resident_pages(text) == 0);
    CHECK(interface_totals(text).bytes == 0);
    CHECK(retransmitted_segments(text) == 0);
    CHECK_FALSE(throttled_s(text) >= 0);
  }
}
