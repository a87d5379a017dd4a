#include "monitor/channel/rank_listener.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "monitor/watchdog/heartbeat_client.hpp"
#include "monitor/watchdog/heartbeat_server.hpp"
#include "ringtrain/base/unique_handle.hpp"
#include "ringtrain/host/network_interfaces.hpp"
#include "support/catch.hpp"
#include "train/state/shard_transfer.hpp"
#include "unit/monitor/job_token.hpp"

using namespace ringtrain;
using namespace ringtrain::monitor;
using namespace std::chrono_literals;
using asio::ip::tcp;

namespace {

const std::vector<std::string> on_loopback{"127.0.0.1"};

tcp::endpoint place_of(const Endpoint& endpoint) {
  return {asio::ip::make_address(endpoint.address), endpoint.port};
}
Endpoint endpoint_of(const tcp::acceptor& acceptor) {
  return {"127.0.0.1", acceptor.local_endpoint().port()};
}

// Until `done` or for ten times what it needs.
template <class Done>
bool serve_until(HeartbeatServer& server, Done done) {
  for (int i = 0; i < 2000 && !done(); ++i) server.run_for(5ms);
  return done();
}
template <class Done>
bool serve_until(HeartbeatServer& server, HeartbeatClient& rank, Done done) {
  for (int i = 0; i < 1000 && !done(); ++i) {
    server.run_for(5ms);
    rank.run_for(5ms);
  }
  return done();
}
template <class Done>
bool talk_until(HeartbeatClient& rank, Done done) {
  for (int i = 0; i < 2000 && !done(); ++i) rank.run_for(5ms);
  return done();
}

std::size_t open_files() {
  const UniqueHandle<DIR*, ::closedir> folder(::opendir("/proc/self/fd"));
  std::size_t count = 0;
  while (::readdir(folder.get()) != nullptr) ++count;
  return count - 3;  // ".", ".." and that of the folder
}

// While it lives no file can be opened.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(next);
    const rlimit tight{static_cast<rlim_t>(next), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &tight);
  }
  ~NoMoreFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;

 private:
  rlimit before_{};
};

struct Strange {
  asio::io_context context;
  std::vector<tcp::socket> sockets;

  tcp::socket& connect(const Endpoint& endpoint) {
    tcp::socket& socket = sockets.emplace_back(context);
    socket.connect(place_of(endpoint));
    return socket;
  }
};

Call call_of(std::uint32_t rank, Service service = Service::watchdog) {
  return make_call(service, rank);
}
void say(tcp::socket& socket, const auto& what) {
  asio::write(socket, asio::buffer(&what, sizeof what));
}
// What a rank says to a server that another thread serves.
Challenge hear_challenge(tcp::socket& socket) {
  Challenge challenge;
  asio::read(socket, asio::buffer(&challenge, sizeof challenge));
  return challenge;
}

// Rank 0 of another job, or what takes its place: `answer` serves one connection.
class Fake {
 public:
  explicit Fake(std::function<void(tcp::socket&)> answer)
      : acceptor_(context_, {asio::ip::address_v4::loopback(), 0}), thread_([this, answer] {
          for (;;) {
            asio::error_code failure;
            tcp::socket socket = acceptor_.accept(failure);
            if (stop_ || failure) return;
            try {
              answer(socket);
            } catch (const std::system_error&) {  // the other end has gone
            }
          }
        }) {}
  ~Fake() {
    stop_ = true;
    asio::error_code ignored;
    tcp::socket(context_).connect(place_of(endpoint()), ignored);
    thread_.join();
  }
  Endpoint endpoint() const { return endpoint_of(acceptor_); }

 private:
  asio::io_context context_;
  tcp::acceptor acceptor_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

JobToken other_token() {
  JobToken other = job_token;
  other.back() = std::byte{1};
  return other;
}

}  // namespace

TEST_CASE("proofs: of one connection, rank, service and end, and of nothing else") {
  const Call call = make_call(Service::watchdog, 3);
  const Challenge challenge = make_challenge(job_token, call);
  const Proof proof = prove_rank(job_token, call, challenge);

  CHECK(proves_rank_0(job_token, call, challenge));
  CHECK(proves_rank(job_token, call, challenge, proof));
  CHECK(proof != challenge.proof);
  CHECK_FALSE(proves_rank(job_token, call, challenge, challenge.proof));  // sent back
  CHECK_FALSE(proves_rank_0(other_token(), call, challenge));
  CHECK_FALSE(proves_rank(other_token(), call, challenge, proof));
  CHECK_FALSE(proves_rank(job_token, call, make_challenge(job_token, call), proof));
  Call other = call;
  SECTION("rank") { other.rank = 2; }
  SECTION("service") { other.service = static_cast<std::uint32_t>(Service::slices); }
  SECTION("version") { ++other.version; }
  SECTION("nonce") { other.nonce = make_call(Service::watchdog, 3).nonce; }
  CHECK_FALSE(proves_rank_0(job_token, other, challenge));
  CHECK_FALSE(proves_rank(job_token, other, challenge, proof));
}

TEST_CASE("proofs: nonces come once") {
  CHECK(make_call(Service::watchdog, 1).nonce != make_call(Service::watchdog, 1).nonce);
  const Call call = make_call(Service::watchdog, 1);
  CHECK(make_challenge(job_token, call).nonce != make_challenge(job_token, call).nonce);
}

TEST_CASE("rank listener: listens where it is told, and on all interfaces where it can nowhere") {
  asio::io_context context;
  const auto endpoints = [&](const std::vector<std::string>& addresses) {
    return RankListener(context, {job_token, Service::watchdog, 2}, addresses, {}, {}).endpoints();
  };

  const std::vector<Endpoint> two =
      endpoints({"127.0.0.1", "127.0.0.2", "198.51.100.77", "no address"});
  REQUIRE(two.size() == 2);
  CHECK(two[0].address == "127.0.0.1");
  CHECK(two[1].address == "127.0.0.2");
  const std::vector<Endpoint> everywhere = endpoints({});
  CHECK(everywhere.front().address == "127.0.0.1");
  CHECK(everywhere.front().port > 0);
  CHECK(endpoints({"198.51.100.77"}).front().address == "127.0.0.1");
}

TEST_CASE("rank listener: what is bound to one address is not reached by another") {
  HeartbeatServer server(job_token, 2, on_loopback);
  asio::io_context context;
  tcp::socket socket(context);
  asio::error_code failure;
  socket.connect({asio::ip::make_address("127.0.0.2"), server.endpoints().front().port}, failure);
  CHECK(failure == asio::error::connection_refused);
}

TEST_CASE(
    "rank listener: a thousand idle strangers take 64 descriptors, and ranks come in beside them") {
  HeartbeatServer server(job_token, 2, on_loopback);
  const Endpoint endpoint = server.endpoints().front();
  Strange strange;
  strange.connect(endpoint);
  const std::size_t before = open_files();

  for (int i = 0; i < 1000; ++i) {
    strange.connect(endpoint);
    if (i % 20 == 0) server.run_for(5ms);
  }
  REQUIRE(serve_until(server, [&] { return server.strangers().crowded >= 1000 - 65; }));

  CHECK(open_files() - before - 1000 <= RankListener::most_strangers + 1);
  HeartbeatClient rank(job_token, 1, server.endpoints());
  CHECK(serve_until(server, rank, [&] { return rank.connected(); }));
  CHECK(server.ranks()[1].connected);
}

TEST_CASE("rank listener: scans, garbage and halves of a proof are counted, and nobody gets in",
          "[waits]") {
  HeartbeatServer server(job_token, 3, on_loopback);
  const Endpoint endpoint = server.endpoints().front();
  Strange strange;
  const auto reset = [](tcp::socket& socket) {
    socket.set_option(asio::socket_base::linger(true, 0));
    socket.close();
  };

  reset(strange.connect(endpoint));
  asio::write(strange.connect(endpoint), asio::buffer(std::string(1000, 'x')));
  say(strange.connect(endpoint), call_of(3));                   // no such rank
  say(strange.connect(endpoint), call_of(1, Service::slices));  // another service's
  say(strange.connect(endpoint), call_of(1));                   // says no more
  asio::write(strange.connect(endpoint), asio::buffer(std::string(1, 'R')));
  tcp::socket& guesser = strange.connect(endpoint);
  say(guesser, call_of(1));
  say(guesser, Proof{});

  REQUIRE(serve_until(server, [&] { return server.strangers().all() == 7; }));
  CHECK(server.strangers().gone == 1);
  CHECK(server.strangers().foreign == 3);
  CHECK(server.strangers().unproven == 1);
  CHECK(server.strangers().late == 2);  // after five seconds
  CHECK_FALSE(server.ranks()[1].connected);
  CHECK_FALSE(server.ranks()[2].connected);
}

TEST_CASE("rank listener: one that sends a byte now and then has five seconds as well", "[waits]") {
  HeartbeatServer server(job_token, 2, on_loopback);
  Strange strange;
  tcp::socket& slow = strange.connect(server.endpoints().front());

  const auto start = std::chrono::steady_clock::now();
  for (asio::error_code failure; !failure && server.strangers().all() == 0;) {
    asio::write(slow, asio::buffer("R", 1), failure);
    server.run_for(200ms);
  }

  CHECK(server.strangers().late == 1);
  CHECK(std::chrono::steady_clock::now() - start > 4s);
}

#if !defined(__SANITIZE_ADDRESS__)  // which opens a pipe to look at an object
TEST_CASE(
    "rank listener: where no file can be opened ranks still come in, and strangers do not end it") {
  std::vector<std::string> told;
  HeartbeatServer server(job_token, 2, on_loopback,
                         [&](std::string text) { told.push_back(text); });
  const Endpoint endpoint = server.endpoints().front();
  Strange strange;
  for (int i = 0; i < 5; ++i) strange.connect(endpoint);
  HeartbeatClient rank(job_token, 1, server.endpoints());
  rank.run_for(5ms);  // has its socket
  std::this_thread::sleep_for(50ms);

  {
    const NoMoreFiles now;
    server.run_for(300ms);
    REQUIRE(serve_until(server, rank, [&] { return rank.connected(); }));
  }
  CHECK(server.ranks()[1].connected);
  CHECK(server.strangers().crowded >= 4);
  REQUIRE(serve_until(server, [&] { return !told.empty(); }));
  CHECK(told.front().find("made room for newer ones") != std::string::npos);
  CHECK(told.front().find("from 127.0.0.1; the job goes on") != std::string::npos);
}

TEST_CASE("rank listener: a listener without descriptors does not spin") {
  asio::io_context context;
  RankListener listener(context, {job_token, Service::watchdog, 2}, on_loopback, {}, {});
  Strange strange;
  strange.connect(listener.endpoints().front());
  strange.connect(listener.endpoints().front());
  const NoMoreFiles now;
  context.run_for(50ms);  // the reserve is used
  for (int i = 0; i < 3; ++i) static_cast<void>(::open("/dev/null", O_RDONLY | O_CLOEXEC));

  std::size_t handlers = 0;
  for (const auto end = std::chrono::steady_clock::now() + 500ms;
       std::chrono::steady_clock::now() < end;)
    handlers += context.run_one_for(20ms);
  CHECK(handlers < 200);
}
#endif

TEST_CASE("rank listener: a proof that was recorded is worth nothing on another connection") {
  HeartbeatServer server(job_token, 2, on_loopback);
  const Endpoint endpoint = server.endpoints().front();
  std::atomic<bool> done{false};
  Call call = call_of(1);
  Proof proof;
  std::thread recorder([&] {
    Strange strange;
    tcp::socket& first = strange.connect(endpoint);
    say(first, call);
    proof = prove_rank(job_token, call, hear_challenge(first));
    say(first, proof);
    HeartbeatReply answer;
    asio::read(first, asio::buffer(&answer, sizeof answer));  // it is in
    first.close();
    tcp::socket& second = strange.connect(endpoint);
    say(second, call);
    hear_challenge(second);
    say(second, proof);
    asio::error_code failure;
    asio::read(second, asio::buffer(&answer, sizeof answer), failure);
    CHECK(failure);
    done = true;
  });
  const bool all = serve_until(server, [&] { return done.load(); });
  recorder.join();
  REQUIRE(all);
  CHECK(server.strangers().unproven == 1);
}

TEST_CASE(
    "rank listener: who has no token's proof is told from rank 0, and the next address is tried") {
  const auto lies = GENERATE(0, 1, 2, 3);
  std::atomic<int> proofs{0};
  Challenge recorded = make_challenge(job_token, call_of(1));
  Fake fake([&](tcp::socket& socket) {
    Call call;
    asio::read(socket, asio::buffer(&call, sizeof call));
    Challenge challenge = make_challenge(other_token(), call);
    if (lies == 1) challenge = recorded;  // of another connection
    if (lies == 2) {                      // what the rank itself would prove
      challenge = {};
      challenge.proof = prove_rank(job_token, call, challenge);
    }
    if (lies == 3) challenge.magic = 0x2d485353;  // "SSH-"
    say(socket, challenge);
    Proof proof;
    asio::read(socket, asio::buffer(proof));
    ++proofs;
  });
  HeartbeatServer server(job_token, 2, on_loopback);
  HeartbeatClient rank(job_token, 1, {fake.endpoint(), server.endpoints().front()});

  REQUIRE(serve_until(server, rank, [&] { return rank.connected(); }));

  CHECK(server.ranks()[1].connected);
  CHECK(proofs == 0);  // it is told nothing
  CHECK(rank.take_warning().find(to_text(fake.endpoint()) + " is not rank 0 of this job") !=
        std::string::npos);
  CHECK(rank.take_warning().empty());
}

TEST_CASE(
    "rank listener: dead, silent and closed addresses are passed by, and told with their reasons",
    "[waits]") {
  asio::io_context context;
  tcp::acceptor full(context, {asio::ip::address_v4::loopback(), 0}, true), silent = [&] {
    return tcp::acceptor(context, {asio::ip::address_v4::loopback(), 0});
  }();
  full.listen(0);  // and once that is full, packets are dropped, as by a firewall
  Strange filling;
  for (int i = 0; i < 2; ++i) {
    tcp::socket& socket = filling.sockets.emplace_back(filling.context);
    socket.open(tcp::v4());
    socket.non_blocking(true);
    const tcp::endpoint there = full.local_endpoint();
    ::connect(socket.native_handle(), there.data(), static_cast<socklen_t>(there.size()));
  }
  tcp::acceptor closed(context, {asio::ip::address_v4::loopback(), 0});
  const Endpoint nobody = endpoint_of(closed);
  closed.close();
  std::vector<Endpoint> endpoints{endpoint_of(full), endpoint_of(silent), nobody};

  SECTION("rank 0 is behind the last one") {
    HeartbeatServer server(job_token, 2, on_loopback);
    endpoints.push_back(server.endpoints().front());
    HeartbeatClient rank(job_token, 1, endpoints);
    CHECK(serve_until(server, rank, [&] { return rank.connected(); }));
    CHECK(rank.trouble().empty());
  }
  SECTION("rank 0 is behind none") {
    HeartbeatClient rank(job_token, 1, endpoints);
    REQUIRE(talk_until(rank, [&] { return !rank.trouble().empty(); }));
    CHECK_FALSE(rank.connected());
    CHECK(rank.trouble() == to_text(endpoints[0]) + " does not answer within 2 s; " +
                                to_text(endpoints[1]) +
                                " takes the connection, but says nothing for 2 s; " +
                                to_text(nobody) + " fails: Connection refused");
  }
}

TEST_CASE("rank listener: another build is told as such, on both ends") {
  Fake newer([](tcp::socket& socket) {
    Call call;
    asio::read(socket, asio::buffer(&call, sizeof call));
    Challenge challenge;
    ++challenge.version;
    say(socket, challenge);
  });
  HeartbeatClient rank(job_token, 1, {newer.endpoint()});
  REQUIRE(talk_until(rank, [&] { return !rank.trouble().empty(); }));
  CHECK(rank.trouble().find("is of another build: it has version") != std::string::npos);

  HeartbeatServer server(job_token, 2, on_loopback);
  Strange strange;
  Call call = call_of(1);
  ++call.version;
  tcp::socket& older = strange.connect(server.endpoints().front());
  say(older, call);
  REQUIRE(serve_until(server, [&] { return server.strangers().all() == 1; }));
  const Challenge answer = hear_challenge(older);
  CHECK(answer.version == protocol_version);
  CHECK(answer.proof == Proof{});
}

TEST_CASE("rank listener: a rank that comes again takes the place of its old connection") {
  HeartbeatServer server(job_token, 2, on_loopback);
  HeartbeatClient old(job_token, 1, server.endpoints());
  REQUIRE(serve_until(server, old, [&] { return old.connected(); }));

  HeartbeatClient again(job_token, 1, server.endpoints());
  again.send({.step = 7});
  REQUIRE(serve_until(server, again, [&] { return server.ranks()[1].status.step == 7; }));
  CHECK(talk_until(old, [&] { return old.lost(); }));
  CHECK_FALSE(server.ranks()[1].lost);
}

TEST_CASE("rank listener: slices come while strangers hold connections to their port") {
  train::ShardReceiver server(job_token, 2, on_loopback);
  Strange strange;
  for (int i = 0; i < 200; ++i) strange.connect(server.endpoints().front());
  std::vector<float> target(1000);
  const std::vector<float> sent(1000, 3.0f);
  std::string warning;
  Fake fake([](tcp::socket& socket) { asio::write(socket, asio::buffer(std::string(80, 'x'))); });
  train::ShardSender rank(job_token, 1, {fake.endpoint(), server.endpoints().front()},
                          [&](const std::string& text) { warning = text; });

  server.expect(1, {{}, {target}});
  rank.send(1, sent);
  for (int i = 0; i < 1000 && !server.complete(); ++i) std::this_thread::sleep_for(5ms);

  REQUIRE(server.complete());
  CHECK(target == sent);
  CHECK(warning.find("is not rank 0 of this job") != std::string::npos);
}

TEST_CASE("meeting: which of rank 0's addresses a rank tries, and where rank 0 listens") {
  const Rendezvous rendezvous{
      job_token, host::network_name(), {{"10.0.0.1", 4711}, {"::1", 1}, {"fd00::1", 2}}};
  const Rendezvous read = rendezvous_from_text(to_text(rendezvous));
  CHECK(read.token == rendezvous.token);
  REQUIRE(read.endpoints.size() == 3);
  const auto texts = [](const std::vector<Endpoint>& endpoints) {
    std::vector<std::string> all;
    for (const Endpoint& endpoint : endpoints) all.push_back(to_text(endpoint));
    return all;
  };
  CHECK(texts(endpoints_from_here(read)) ==
        std::vector<std::string>{"::1 port 1", "10.0.0.1 port 4711", "fd00::1 port 2"});
  Rendezvous elsewhere = read;
  elsewhere.network = "another";
  CHECK(texts(endpoints_from_here(elsewhere)) ==
        std::vector<std::string>{"10.0.0.1 port 4711", "fd00::1 port 2"});

  const std::vector<std::string> own{"10.0.0.1"}, none, both{"127.0.0.1", "10.0.0.1"};
  CHECK(listening_addresses(true, false, own) == std::vector<std::string>{"127.0.0.1"});
  CHECK(listening_addresses(true, true, own) == both);
  CHECK(listening_addresses(false, true, own) == own);
  CHECK(listening_addresses(true, true, none).empty());
}
