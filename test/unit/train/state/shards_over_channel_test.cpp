#include <future>
#include <numeric>
#include <thread>

#include "monitor/channel/asio.hpp"
#include "monitor/channel/handshake.hpp"
#include "ringtrain/base/clock.hpp"
#include "support/catch.hpp"
#include "train/state/shard_transfer.hpp"
#include "unit/monitor/job_token.hpp"
#include "unit/monitor/own_sockets.hpp"

using namespace ringtrain;
using namespace ringtrain::train;
using namespace std::chrono_literals;

namespace {

ShardSender sender(const ShardReceiver& server, int rank,
                   monitor::JobToken with = monitor::job_token) {
  return {with, rank, server.endpoints()};
}

// More than what sockets hold: a sender waits for its reader.
std::vector<float> numbers(float first, std::size_t count = 3'000'000) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

bool complete_soon(const ShardReceiver& server) {
  for (int i = 0; i < 1000 && !server.complete(); ++i) std::this_thread::sleep_for(5ms);
  return server.complete();
}

// In two ranges, the second one first.
SlicePlaces halves(std::vector<float>& target) {
  const std::span<float> all = target;
  return {all.subspan(all.size() / 2), all.first(all.size() / 2)};
}

}  // namespace

TEST_CASE("slices: each rank's goes where it belongs, also one that was early") {
  ShardReceiver server(monitor::job_token, 8, {"127.0.0.1"});
  std::vector<float> one(3'000'000), two(10);
  const std::vector<float> sent = numbers(7), small = numbers(1, 10);
  ShardSender first = sender(server, 1), second = sender(server, 2);

  first.send(1, sent);
  std::this_thread::sleep_for(30ms);
  server.expect(1, {{}, halves(one), halves(two)});
  CHECK_FALSE(server.complete());
  CHECK(server.missing() == std::vector<int>{1, 2});
  second.send(1, small);

  REQUIRE(complete_soon(server));
  CHECK(server.missing().empty());
  CHECK(one[1'500'000] == 7);
  CHECK(one[1'499'999] == sent.back());
  CHECK(two == std::vector<float>{6, 7, 8, 9, 10, 1, 2, 3, 4, 5});
}

TEST_CASE("slices: save after save comes over") {
  ShardReceiver server(monitor::job_token, 8, {"127.0.0.1"});
  ShardSender rank = sender(server, 1);

  for (std::uint64_t save = 1; save <= 5; ++save) {
    const std::vector<float> sent = numbers(static_cast<float>(save), 1000);
    std::vector<float> target(1000);
    server.expect(save, {{}, {target}});
    rank.send(save, sent);
    REQUIRE(complete_soon(server));
    CHECK(target == sent);
    rank.drop();
  }
}

TEST_CASE("slices: what is still being copied is sent once it is there") {
  ShardReceiver server(monitor::job_token, 8, {"127.0.0.1"});
  std::vector<float> sent(1000), target(1000);
  std::atomic<bool> copied = false;
  std::promise<std::string> warning;
  ShardSender rank(monitor::job_token, 1, server.endpoints(),
                   [&](const std::string& text) { warning.set_value(text); });
  server.expect(1, {{}, {target}});

  rank.send(1, sent, [&] { return copied.load(); });
  std::this_thread::sleep_for(20ms);
  CHECK_FALSE(server.complete());
  std::ranges::copy(numbers(3, 1000), sent.begin());
  copied = true;

  REQUIRE(complete_soon(server));
  CHECK(target == sent);
  rank.drop();
  server.expect(2, {{}, {target}});
  rank.send(2, sent, []() -> bool { throw Error("copy", "the GPU is gone"); });
  CHECK_THAT(warning.get_future().get(),
             Catch::Contains("slice of a checkpoint is not sent: copy: the GPU is gone"));
  CHECK(server.missing() == std::vector<int>{1});
  server.expect(3, {{}, {target}});
  rank.send(3, sent);  // the next comes
  REQUIRE(complete_soon(server));
}

TEST_CASE("slices: what is given up is not touched any more, and the next save comes") {
  ShardReceiver server(monitor::job_token, 8, {"127.0.0.1"});
  ShardSender rank = sender(server, 1);
  std::vector<float> old(3'000'000), target(3'000'000);
  std::vector<float> sent = numbers(1);
  server.expect(1, {{}, {old}});
  rank.send(1, sent);
  if (GENERATE(true, false)) std::this_thread::sleep_for(2ms);

  rank.drop();
  std::ranges::fill(sent, -1.0f);
  server.forget();
  CHECK(server.complete());
  const std::vector<float> left = old;
  const std::vector<float> next = numbers(2);
  rank.send(2, next);
  server.expect(2, {{}, {target}});

  REQUIRE(complete_soon(server));
  CHECK(target == next);
  CHECK(old == left);
  CHECK(std::ranges::find(old, -1.0f) == old.end());
}

TEST_CASE("slices: who does not know the token, or brings something else, changes nothing") {
  ShardReceiver server(monitor::job_token, 8, {"127.0.0.1"});
  std::vector<float> target(100, 5.0f);
  const std::vector<float> sent = numbers(1, 100), longer = numbers(1, 101);
  server.expect(2, {{}, {target}});

  monitor::JobToken wrong = monitor::job_token;
  wrong[15] = std::byte{1};
  ShardSender stranger = sender(server, 1, wrong), other = sender(server, 7),
              wide = sender(server, 1), late = sender(server, 1);
  stranger.send(2, sent);
  other.send(2, sent);
  wide.send(2, longer);
  late.send(1, sent);
  std::this_thread::sleep_for(100ms);

  CHECK_FALSE(server.complete());
  CHECK(target == std::vector<float>(100, 5.0f));
}

TEST_CASE("slices: a connection on which a slice vanishes without a word is made anew", "[waits]") {
  ShardReceiver server(monitor::job_token, 8, {"127.0.0.1"});
  const int door = monitor::own_socket(server.endpoints().front().port, monitor::End::that_listens);
  ShardSender rank = sender(server, 1);
  const std::vector<float> sent = numbers(1);
  std::vector<float> target(sent.size());
  monitor::drop_incoming(door, 500);  // on what comes in there: the proofs are shorter
  server.expect(1, {{}, {target}});
  rank.send(1, sent);
  std::this_thread::sleep_for(500ms);
  monitor::drop_nothing(door);
  CHECK_FALSE(server.complete());

  for (int i = 0; i < 10 && !server.complete(); ++i) complete_soon(server);
  REQUIRE(server.complete());
  CHECK(target == sent);
}

TEST_CASE("slices: a connection that breaks off is made anew") {
  ShardReceiver server(monitor::job_token, 8, {"127.0.0.1"});
  std::vector<float> target(1000);
  const std::vector<float> sent = numbers(1, 1000);
  server.expect(1, {{}, {target}});
  {
    asio::io_context context;
    asio::ip::tcp::socket socket(context);
    socket.connect({asio::ip::address_v4::loopback(), server.endpoints().front().port});
    const monitor::Call call = monitor::make_call(monitor::Service::slices, 1);
    asio::write(socket, asio::buffer(&call, sizeof call));
    monitor::Challenge challenge;
    asio::read(socket, asio::buffer(&challenge, sizeof challenge));
    asio::write(socket, asio::buffer(monitor::prove_rank(monitor::job_token, call, challenge)));
    const ShardHello hello{.save = 1, .count = 1000};
    asio::write(socket, asio::buffer(&hello, sizeof hello));
    asio::write(socket, asio::buffer(sent.data(), 100));
  }
  std::this_thread::sleep_for(20ms);
  CHECK_FALSE(server.complete());

  ShardSender rank = sender(server, 1);
  rank.send(1, sent);

  REQUIRE(complete_soon(server));
  CHECK(target == sent);
}
