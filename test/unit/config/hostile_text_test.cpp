// What texts and messages of at most 1 KB from outside say costs their readers no more memory than
// such a text may: docs/evidence/faults.md has the table.
#include <fmt/core.h>
#include <sys/socket.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "monitor/channel/asio.hpp"
#include "monitor/channel/handshake.hpp"
#include "monitor/watchdog/heartbeat_server.hpp"
#include "ringtrain/base/file.hpp"
#include "ringtrain/config/options.hpp"
#include "ringtrain/monitor/channel/messages.hpp"
#include "support/catch.hpp"
#include "support/memory_limit.hpp"
#include "support/temporary_folder.hpp"
#include "train/performance/batch_shares.hpp"
#include "train/performance/gradient_format.hpp"
#include "train/performance/past_runs.hpp"
#include "train/state/shard_transfer.hpp"
#include "unit/monitor/job_token.hpp"
#include "unit/train/temporary_file.hpp"

using namespace ringtrain;
using namespace ringtrain::config;
using namespace std::chrono_literals;
using Catch::Contains;
using Catch::Matchers::StartsWith;

namespace {

std::string repeated(std::string_view text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

/// JSON texts that try to be more than they are.
std::vector<std::string> hostile_json() {
  return {repeated("[", 1000),
          repeated("{\"a\":", 180),
          repeated("[", 500) + repeated("]", 500),
          "{\"shares\":[" + repeated("99999999,", 100) + "1]}",
          R"({"format":1e999,"shares":{"a":1},"gradient-dtype":7})",
          "{\"shares\":[1" + repeated("0", 900) + "]}"};
}

}  // namespace

TEST_CASE("hostile text: kept speeds are passed over") {
  const TemporaryFolder folder;
  const train::PastRuns speeds(folder.path(), "run", R"({"batch":64})");
  for (const std::string& text : hostile_json()) {
    REQUIRE(text.size() <= 1024);
    std::ofstream(speeds.file()) << text;
    CHECK(in_limited_memory([&] { return std::string(speeds.find() ? "found" : "none"); }) ==
          "none");
  }
}

TEST_CASE("hostile text: shares and gradient formats of a checkpoint") {
  for (const std::string& text : hostile_json()) {
    CAPTURE(text.substr(0, 40));
    CHECK(in_limited_memory([&] { return fmt::format("{}", train::shares_in(text).size()); }) ==
          "0");
    CHECK(in_limited_memory([&] {
            return std::string(train::format_in(text) ? "a format" : "none");
          }) != "out of memory");
  }
}

TEST_CASE("hostile text: a configuration file") {
  const std::string text = GENERATE(
      "lr = " + repeated("[", 1000), repeated("a.", 50) + "lr = 1",
      "[" + repeated("a.", 400) + "b]\nlr = 1", "tags = [" + repeated("\"\",", 300) + "\"\"]",
      "lr = \"" + repeated("9", 1000) + "\"", "batch = " + repeated("9", 1000));
  CAPTURE(text.substr(0, 40));
  REQUIRE(text.size() <= 1024);
  const TemporaryFile file(text);
  const std::string path = file.path();
  const char* arguments[] = {"train", "--config", path.c_str()};

  CHECK_THAT(in_limited_memory([&] {
               parse(3, arguments);
               return std::string("accepted");
             }),
             StartsWith("refused: "));
}

namespace {

/// A connection to a port of this host, and `bytes` on it.
FileDescriptor connected(std::uint16_t port, std::string_view bytes) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  check_errno(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address),
              "connect");
  write_all(socket.get(), bytes);
  return socket;
}

template <class T>
std::string_view as_bytes(const T& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

// Rank 1's connection, which knows the token; `serve` lets rank 0 answer.
template <class Serve>
FileDescriptor proven(std::uint16_t port, monitor::Service service, Serve serve) {
  const monitor::Call call = monitor::make_call(service, 1);
  FileDescriptor socket = connected(port, as_bytes(call));
  monitor::Challenge challenge;
  while (::recv(socket.get(), &challenge, sizeof challenge, MSG_DONTWAIT | MSG_PEEK) <
         static_cast<ssize_t>(sizeof challenge))
    serve();
  ::recv(socket.get(), &challenge, sizeof challenge, 0);
  write_all(socket.get(), as_bytes(monitor::prove_rank(monitor::job_token, call, challenge)));
  return socket;
}

}  // namespace

TEST_CASE("hostile text: a message of the watchdog's says no longer text than is allowed") {
  const std::uint32_t text_bytes = GENERATE(std::uint32_t(monitor::most_text) + 1, 1u << 30, ~0u);

  CHECK(in_limited_memory([&] {
          monitor::HeartbeatServer server(monitor::job_token, 2, {"127.0.0.1"});
          monitor::Heartbeat beat;
          beat.text_bytes = text_bytes;
          const FileDescriptor rank =
              proven(server.endpoints().front().port, monitor::Service::watchdog,
                     [&] { server.run_for(5ms); });
          write_all(rank.get(), as_bytes(beat));
          char answer[64];
          for (int i = 0; i < 400; ++i) {
            server.run_for(5ms);
            const ssize_t got = ::recv(rank.get(), answer, sizeof answer, MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno == ECONNRESET)) return std::string("cut off");
          }
          return std::string("heard");
        }) == "cut off");
}

TEST_CASE("hostile text: a slice of another length than is expected is not taken") {
  train::ShardReceiver server(monitor::job_token, 2, {"127.0.0.1"});
  std::vector<float> target(10);
  server.expect(1, {{}, {target}});
  const std::uint64_t count = GENERATE(0, 9, 11, std::uint64_t(1) << 60, ~std::uint64_t(0));
  const train::ShardHello hello{.save = 1, .count = count};

  const FileDescriptor rank = proven(server.endpoints().front().port, monitor::Service::slices,
                                     [] { std::this_thread::sleep_for(1ms); });
  write_all(rank.get(), as_bytes(hello));
  train::ShardAnswer answer{};

  REQUIRE(::recv(rank.get(), &answer, sizeof answer, MSG_WAITALL) == sizeof answer);
  CHECK(answer == train::ShardAnswer::unwanted);
  CHECK_FALSE(server.complete());
}
