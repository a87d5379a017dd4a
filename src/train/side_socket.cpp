#include "train/side_socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>

namespace ringtrain {

using asio::ip::tcp;

tcp::acceptor listen(asio::io_context& context) {
  tcp::acceptor acceptor(context);
  asio::error_code none;
  acceptor.open(tcp::v6(), none);
  if (!none) acceptor.set_option(asio::ip::v6_only(false), none);
  if (!none) acceptor.bind({tcp::v6(), 0}, none);
  if (none) acceptor = tcp::acceptor(context, {tcp::v4(), 0});
  acceptor.listen();
  return acceptor;
}

asio::awaitable<bool> connect_to_any(tcp::socket& socket, std::span<const std::string> addresses,
                                     std::uint16_t port) {
  const auto executor = socket.get_executor();
  for (const std::string& address : addresses) {
    asio::error_code failure;
    const auto parsed = asio::ip::make_address(address, failure);
    if (failure) continue;
    socket = tcp::socket(executor);
    asio::steady_timer patience(executor, std::chrono::seconds(3));
    patience.async_wait([&socket](const asio::error_code& cancelled) {
      if (!cancelled) socket.close();
    });
    co_await socket.async_connect({parsed, port},
                                  asio::redirect_error(asio::use_awaitable, failure));
    patience.cancel();
    if (failure) continue;
    socket.set_option(tcp::no_delay(true), failure);
    co_return true;
  }
  co_return false;
}

bool is_acknowledged(tcp::socket& socket) {
  constexpr unsigned lately_ms = 4000;  // something is sent once a second
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;
  return info.tcpi_last_ack_recv < lately_ms;
}

}  // namespace ringtrain
