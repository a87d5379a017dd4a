#include "monitor/channel/socket.hpp"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace ringtrain::monitor {

using asio::use_awaitable;
using asio::ip::tcp;

namespace {

constexpr std::chrono::seconds time_an_endpoint{2};

}  // namespace

TimeLimit::TimeLimit(tcp::socket& socket, std::chrono::milliseconds time)
    : state_(std::make_shared<State>(State{&socket})), timer_(socket.get_executor(), time) {
  timer_.async_wait([state = state_](const asio::error_code& cancelled) {
    if (cancelled || state->socket == nullptr) return;
    asio::error_code ignored;
    state->over = true;
    state->socket->close(ignored);
  });
}

// The timer may have expired while what it is to end has come to its own end.
TimeLimit::~TimeLimit() { state_->socket = nullptr; }

asio::awaitable<bool> Rank0Connector::connect(tcp::socket& socket) {
  std::string trouble = endpoints_.empty() ? "rank 0 has told no address" : "";
  const std::vector<Endpoint> tried = endpoints_;  // another call may be under way and change them
  for (const Endpoint& endpoint : tried) {
    const std::string why_not = co_await try_endpoint(socket, endpoint);
    if (why_not.empty()) {
      endpoints_ = {endpoint};
      trouble_.clear();
      co_return true;
    }
    trouble += fmt::format("{}{} {}", trouble.empty() ? "" : "; ", to_text(endpoint), why_not);
  }
  trouble_ = std::move(trouble);
  co_return false;
}

// Why it does not lead to rank 0; empty: it does.
asio::awaitable<std::string> Rank0Connector::try_endpoint(tcp::socket& socket,
                                                          const Endpoint& endpoint) {
  asio::error_code failure;
  const auto address = asio::ip::make_address(endpoint.address, failure);
  if (failure) co_return "is no address";
  socket = tcp::socket(socket.get_executor());
  const TimeLimit limit(socket, time_an_endpoint);
  const tcp::endpoint there(address, endpoint.port);
  co_await socket.async_connect(there, asio::redirect_error(use_awaitable, failure));
  if (failure)
    co_return limit.over() ? "does not answer within 2 s" : "fails: " + failure.message();
  socket.set_option(tcp::no_delay(true), failure);
  const Found found = co_await authenticate_rank_0(socket, token_, service_, rank_);
  if (found.stranger) warn(endpoint);
  if (limit.over()) co_return "takes the connection, but says nothing for 2 s";
  if (found.failure) co_return "ends the connection: " + found.failure.message();
  co_return found.why_not;
}

asio::awaitable<Found> authenticate_rank_0(tcp::socket& socket, JobToken token, Service service,
                                           std::uint32_t rank) {
  const Call call = make_call(service, rank);
  Challenge challenge;
  Found found;
  auto done = asio::redirect_error(use_awaitable, found.failure);
  co_await asio::async_write(socket, asio::buffer(&call, sizeof call), done);
  if (found.failure) co_return found;
  co_await asio::async_read(socket, asio::buffer(&challenge, 8), done);
  if (found.failure) co_return found;
  if (challenge.magic != Challenge::magic_number) {
    found.stranger = true;
    found.why_not = "is not rank 0 of a training: something else answers";
    co_return found;
  }
  if (challenge.version != call.version) {
    found.why_not =
        fmt::format("is of another build: it has version {:#x} of the messages, this rank {:#x}",
                    challenge.version, call.version);
    co_return found;
  }
  co_await asio::async_read(
      socket, asio::buffer(reinterpret_cast<std::byte*>(&challenge) + 8, sizeof challenge - 8),
      done);
  if (found.failure) co_return found;
  if (!proves_rank_0(token, call, challenge)) {
    found.stranger = true;
    found.why_not = "is not rank 0 of this job: who answers does not know its token";
    co_return found;
  }
  const Proof proof = prove_rank(token, call, challenge);
  co_await asio::async_write(socket, asio::buffer(proof), done);
  co_return found;
}

void Rank0Connector::warn(const Endpoint& endpoint) {
  const std::string where = to_text(endpoint);
  if (warned_.insert(where).second)
    warning_ = fmt::format(
        "who answers at {} is not rank 0 of this job: it does not know the job's token. It is told "
        "nothing, and rank 0's other addresses are tried",
        where);
}

void end_when_unacknowledged(tcp::socket& socket, std::chrono::seconds time) {
  const auto set = [&](int level, int option, std::int64_t value) {
    const int as_int = static_cast<int>(value);
    ::setsockopt(socket.native_handle(), level, option, &as_int, sizeof as_int);
  };
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * time.count());
  set(IPPROTO_TCP, TCP_KEEPIDLE, std::max<std::int64_t>(1, time.count() / 2));
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
}

bool was_ended(const asio::error_code& failure) {
  return failure != asio::error::timed_out && failure != asio::error::host_unreachable &&
         failure != asio::error::network_unreachable;
}

bool is_acknowledged(tcp::socket& socket) {
  constexpr unsigned lately_ms = 4000;  // something is sent once a second
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;
  return info.tcpi_last_ack_recv < lately_ms;
}

}  // namespace ringtrain::monitor
