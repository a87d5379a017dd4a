#include <unistd.h>

#include <thread>

#include "monitor/channel/asio.hpp"
#include "monitor/watchdog/heartbeat_client.hpp"
#include "monitor/watchdog/heartbeat_server.hpp"
#include "ringtrain/base/clock.hpp"
#include "ringtrain/monitor/watchdog/liveness.hpp"
#include "support/catch.hpp"
#include "unit/monitor/job_token.hpp"
#include "unit/monitor/own_sockets.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;
using namespace std::chrono_literals;

namespace {

HeartbeatClient client(const HeartbeatServer& server, int rank, JobToken with = job_token) {
  return {with, rank, server.endpoints()};
}

const std::vector<std::string> loopback{"127.0.0.1"};

// Both ends in turn, until `done` or for two seconds.
template <class Done>
bool run_until(HeartbeatServer& server, std::span<HeartbeatClient> clients, Done done) {
  for (int i = 0; i < 200 && !done(); ++i) {
    server.run_for(5ms);
    for (HeartbeatClient& one : clients) one.run_for(5ms);
  }
  return done();
}

bool run_until(HeartbeatServer& server, HeartbeatClient& one, auto done) {
  return run_until(server, std::span(&one, 1), done);
}

}  // namespace

TEST_CASE("side channel: rank 0 learns where each rank is") {
  HeartbeatServer server(job_token, 3, loopback);
  std::vector<HeartbeatClient> ranks;
  for (const int r : {1, 2}) ranks.push_back(client(server, r));
  const auto phase = [&](int r) { return server.ranks()[r].status.phase; };

  for (std::size_t i = 0; i < 2; ++i)
    ranks[i].send({.step = 10 + i,
                   .in_phase_s = 2.5,
                   .limit_s = 30,
                   .phase = static_cast<std::uint32_t>(i == 0 ? metrics::Phase::data_wait
                                                              : metrics::Phase::update)},
                  i == 0 ? "/mnt/a" : "");
  REQUIRE(run_until(server, ranks, [&] {
    return phase(1) == metrics::Phase::data_wait && phase(2) == metrics::Phase::update;
  }));
  CHECK(server.ranks()[2].status.step == 11);
  CHECK(server.ranks()[2].status.in_phase_s == 2.5);
  CHECK(server.ranks()[1].status.item == "/mnt/a");
  CHECK(server.ranks()[2].status.item.empty());
  CHECK(server.ranks()[2].connected);
  CHECK_FALSE(server.ranks()[0].connected);
  CHECK(ranks[0].connected());
  CHECK(ranks[0].silent_s() < 1);
}

TEST_CASE(
    "side channel: both ends know each other before the first beat, and silence counts from then") {
  HeartbeatServer server(job_token, 2, loopback);
  server.run_for(100ms);
  HeartbeatClient rank = client(server, 1);

  REQUIRE(run_until(server, rank, [&] { return rank.connected() && server.ranks()[1].connected; }));

  CHECK(server.ranks()[1].silent_s < 0.1);
}

TEST_CASE("side channel: both ends hear how late the other's ticks were") {
  HeartbeatServer server(job_token, 2, loopback);
  HeartbeatClient rank = client(server, 1);
  server.set_late(2.5);
  rank.send({.late_s = 1.25});
  CHECK(run_until(server, rank,
                  [&] { return server.ranks()[1].late_s == 1.25 && rank.rank_0_late_s() == 2.5; }));
  CHECK(server.process(1).id == ::getpid());
  CHECK(server.process(1).of == own_process().of);
}

TEST_CASE("side channel: the host of a rank that says nothing still answers", "[waits]") {
  HeartbeatServer server(job_token, 2, loopback);
  HeartbeatClient rank = client(server, 1);
  REQUIRE(run_until(server, rank, [&] { return server.ranks()[1].connected; }));
  for (int i = 0; i < 60; ++i) server.run_for(100ms);
  CHECK(server.ranks()[1].silent_s > 5);
  CHECK(server.ranks()[1].acknowledged);
  rank.run_for(50ms);  // which has heard the questions, and takes them for answers
  CHECK(rank.silent_s() < 1);
}

TEST_CASE("side channel: who does not know the token is nobody", "[waits]") {
  HeartbeatServer server(job_token, 2, loopback);
  JobToken wrong = job_token;
  wrong.back() = std::byte{1};
  HeartbeatClient stranger = client(server, 1, wrong), beyond = client(server, 2);
  stranger.send({.step = 99});
  beyond.send({.step = 99});
  CHECK_FALSE(run_until(server, stranger, [&] { return server.ranks()[1].connected; }));
  CHECK_FALSE(
      run_until(server, beyond, [&] { return beyond.lost() && server.ranks()[1].connected; }));
  CHECK(server.ranks()[1].status.step == 0);
}

TEST_CASE("side channel: a connection that ends without goodbye is told from a goodbye") {
  HeartbeatServer server(job_token, 3, loopback);
  std::vector<HeartbeatClient> ranks;
  for (const int r : {1, 2}) ranks.push_back(client(server, r));
  for (HeartbeatClient& one : ranks) one.send({.step = 1});
  REQUIRE(run_until(server, ranks,
                    [&] { return server.ranks()[1].connected && server.ranks()[2].connected; }));
  ranks[1].send({.step = 2, .leaving = 1});
  REQUIRE(run_until(server, ranks, [&] { return server.ranks()[2].left; }));
  ranks.clear();
  REQUIRE(run_until(server, ranks, [&] { return server.ranks()[1].lost; }));
  CHECK_FALSE(server.ranks()[2].lost);
}

TEST_CASE("side channel: a connection that is cut is made again, and the rank known as before") {
  const bool reset = GENERATE(false, true);
  const End end = GENERATE(End::of_rank_0, End::of_rank);
  HeartbeatServer server(job_token, 2, loopback);
  const std::uint16_t port = server.endpoints().front().port;
  HeartbeatClient rank = client(server, 1);
  rank.send({.step = 7}, "/mnt/a");
  REQUIRE(run_until(server, rank, [&] { return server.ranks()[1].status.step == 7; }));
  CHECK(server.take_returned().empty());

  const int socket = own_socket(port, end);
  reset ? reset_connection(socket) : cut_connection(socket);
  bool kept = true;
  std::set<std::size_t> returned;
  REQUIRE(run_until(server, rank, [&] {
    kept = kept && server.ranks()[1].connected && server.ranks()[1].status.step == 7 &&
           server.process(1).id == ::getpid();
    returned.merge(server.take_returned());
    return !returned.empty();
  }));

  CHECK(returned == std::set<std::size_t>{1});
  CHECK(kept);
  CHECK_FALSE(server.ranks()[1].lost);
  CHECK(server.ranks()[1].lost_s == 0);
  rank.send({.step = 8});
  REQUIRE(run_until(server, rank, [&] { return server.ranks()[1].status.step == 8; }));
  CHECK_FALSE(rank.lost());
  CHECK(rank.silent_s() < 2);
  CHECK(server.strangers().all() == 0);
}

TEST_CASE("side channel: a connection that drops all without a word is made again in time",
          "[waits]") {
  HeartbeatServer server(job_token, 3, loopback);
  const std::uint16_t port = server.endpoints().front().port;
  std::vector<HeartbeatClient> ranks;
  for (const int r : {1, 2}) {  // one hears nothing, and nothing is heard of the other
    ranks.push_back(client(server, r));
    REQUIRE(run_until(server, ranks, [&] { return ranks.back().connected(); }));
    drop_incoming(own_socket(port, r == 1 ? End::of_rank : End::of_rank_0));
  }
  double longest_s = 0;
  std::set<std::size_t> returned;

  for (int i = 0; i < 1000 && returned.size() < 2; ++i) {
    if (i % 20 == 0)
      for (std::size_t r : {0, 1}) ranks[r].send({.step = 9});
    run_until(server, ranks, [n = 0]() mutable { return ++n > 1; });
    for (const std::size_t r : {1, 2}) longest_s = std::max(longest_s, server.ranks()[r].silent_s);
    returned.merge(server.take_returned());
  }

  CHECK(returned == std::set<std::size_t>{1, 2});
  CHECK(run_until(server, ranks, [&] { return server.ranks()[2].status.step == 9; }));
  CHECK(longest_s < 8);
}

TEST_CASE("side channel: a goodbye that is lost with its connection is said again") {
  HeartbeatServer server(job_token, 2, loopback);
  const std::uint16_t port = server.endpoints().front().port;
  std::optional<HeartbeatClient> leaving(client(server, 1));
  HeartbeatClient& rank = *leaving;
  REQUIRE(run_until(server, rank, [&] { return rank.connected(); }));

  drop_incoming(own_socket(port, End::of_rank_0));
  rank.send({.step = 3, .leaving = 1});
  rank.run_for(20ms);
  CHECK_FALSE(rank.rank_0_left());
  reset_connection(own_socket(port, End::of_rank));

  REQUIRE(run_until(server, rank, [&] { return rank.rank_0_left(); }));
  CHECK(server.ranks()[1].left);
  CHECK(server.connected());
  leaving.reset();
  CHECK(run_until(server, {}, [&] { return !server.connected(); }));
}

TEST_CASE("side channel: nobody else takes the place of a rank whose connection is lost") {
  HeartbeatServer server(job_token, 2, loopback);
  {
    HeartbeatClient rank = client(server, 1);
    rank.send({.step = 7});
    REQUIRE(run_until(server, rank, [&] { return server.ranks()[1].status.step == 7; }));
  }
  REQUIRE(run_until(server, {}, [&] { return server.ranks()[1].lost; }));
  JobToken wrong = job_token;
  wrong.back() = std::byte{1};

  HeartbeatClient stranger = client(server, 1, wrong);
  stranger.send({.step = 99});
  REQUIRE(run_until(server, stranger, [&] { return server.strangers().all() > 0; }));
  CHECK(server.ranks()[1].lost);
  CHECK(server.ranks()[1].lost_s > 0);
  CHECK(server.ranks()[1].status.step == 7);
  HeartbeatClient again = client(server, 1);
  CHECK(run_until(server, again, [&] { return !server.ranks()[1].lost; }));
}

TEST_CASE("side channel: silence is counted on both ends until something is heard") {
  HeartbeatServer server(job_token, 2, loopback);
  HeartbeatClient rank = client(server, 1);
  rank.send({});
  REQUIRE(run_until(server, rank, [&] { return server.ranks()[1].connected && rank.connected(); }));
  for (int i = 0; i < 5; ++i) server.run_for(20ms);
  CHECK(server.ranks()[1].silent_s >= 0.1);
  rank.run_for(20ms);
  const double before = rank.silent_s();
  rank.run_for(50ms);
  CHECK(rank.silent_s() >= before + 0.05);
  rank.send({});
  CHECK(run_until(server, rank,
                  [&] { return server.ranks()[1].silent_s < 0.05 && rank.silent_s() < 0.05; }));
}

TEST_CASE("side channel: rank 0 ends all, leaves, or is lost") {
  std::optional<HeartbeatServer> server(std::in_place, job_token, 2, loopback);
  HeartbeatClient rank = client(*server, 1);
  rank.send({});
  REQUIRE(run_until(*server, rank, [&] { return rank.connected(); }));
  SECTION("ends all") {
    server->end_job(72, "rank 1 is stuck");
    REQUIRE(run_until(*server, rank, [&] { return rank.ending().has_value(); }));
    CHECK(rank.ending()->exit_code == 72);
    CHECK(rank.ending()->why == "rank 1 is stuck");
  }
  SECTION("leaves") {
    server->say_goodbye();
    REQUIRE(run_until(*server, rank, [&] { return rank.rank_0_left(); }));
    server.reset();
    rank.run_for(50ms);
    CHECK_FALSE(rank.lost());
    CHECK_FALSE(rank.ending());
  }
  SECTION("is lost") {
    server.reset();
    for (int i = 0; i < 100 && !rank.lost(); ++i) rank.run_for(10ms);
    CHECK(rank.lost());
    Stopwatch watch;
    rank.run_for(50ms);
    CHECK(watch.elapsed() >= 0.05);
  }
}

TEST_CASE("side channel: noise on the port disturbs nobody") {
  HeartbeatServer server(job_token, 2, loopback);
  HeartbeatClient rank = client(server, 1);
  asio::io_context context;
  std::vector<asio::ip::tcp::socket> strangers;
  for (int i = 0; i < 30; ++i) {
    auto& socket = strangers.emplace_back(context);
    socket.connect({asio::ip::make_address("127.0.0.1"), server.endpoints().front().port});
    asio::write(socket, asio::buffer(std::string(static_cast<std::size_t>(i) * 7, 'x')));
  }
  rank.send({.step = 5});
  CHECK(run_until(server, rank, [&] { return server.ranks()[1].status.step == 5; }));
}

TEST_CASE("side channel: who listens but is not rank 0 is neither rank 0 nor its end") {
  asio::io_context context;
  asio::ip::tcp::acceptor other(context, {asio::ip::address_v4::loopback(), 0});
  HeartbeatClient rank(job_token, 1, {{"127.0.0.1", other.local_endpoint().port()}});
  std::thread accepting([&] { other.accept().close(); });
  rank.send({});
  for (int i = 0; i < 10; ++i) rank.run_for(20ms);
  accepting.join();
  CHECK_FALSE(rank.connected());
  CHECK_FALSE(rank.lost());
}
