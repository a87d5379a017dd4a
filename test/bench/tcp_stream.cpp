#include "bench/tcp_stream.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

namespace ringtrain {
namespace {

FileDescriptor listen_anywhere(std::uint16_t& port) {
  FileDescriptor door(check_errno(::socket(AF_INET, SOCK_STREAM, 0), "socket"));
  check_errno(::listen(door.get(), 1), "listen");  // binds to a free port
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  check_errno(::getsockname(door.get(), reinterpret_cast<sockaddr*>(&address), &length),
              "getsockname");
  port = ntohs(address.sin_port);
  return door;
}

FileDescriptor connect_to(const std::string& host, const std::string& port) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &wanted, &found))
    throw Error("getaddrinfo " + host, ::gai_strerror(error));
  FileDescriptor end(check_errno(::socket(AF_INET, SOCK_STREAM, 0), "socket"));
  check_errno(::connect(end.get(), found->ai_addr, found->ai_addrlen), "connect");
  ::freeaddrinfo(found);
  return end;
}

}  // namespace

TcpStream::TcpStream(const allreduce::MpiSession& session) : sends_(session.rank() == 0) {
  const int last = session.size() - 1;
  std::uint16_t port = 0;
  FileDescriptor door;
  if (session.rank() == last) door = listen_anywhere(port);
  const std::string text = session.broadcast(std::to_string(port), last);
  const std::string host = session.broadcast(session.host(), last);
  if (session.rank() == 0) end_ = connect_to(host, text);
  if (session.rank() == last)
    end_ = FileDescriptor(check_errno(::accept(door.get(), nullptr, nullptr), "accept"));
}

void TcpStream::carry(std::size_t bytes) {
  if (end_.get() < 0) return;
  std::vector<char> block(std::size_t{1} << 18);
  char receipt = 0;
  for (std::size_t left = bytes; left > 0;) {
    const std::size_t some = std::min(left, block.size());
    left -= static_cast<std::size_t>(
        check_errno(static_cast<int>(sends_ ? ::send(end_.get(), block.data(), some, 0)
                                            : ::recv(end_.get(), block.data(), some, 0)),
                    "carry"));
  }
  const auto done =
      sends_ ? ::recv(end_.get(), &receipt, 1, 0) : ::send(end_.get(), &receipt, 1, 0);
  check_errno(static_cast<int>(done), "receipt");
}

void TcpStream::exchange(std::size_t bytes) {
  if (end_.get() < 0) return;
  std::vector<char> out(std::size_t{1} << 18), in(out.size());
  const auto moved = [](ssize_t count) {
    if (count == 0) throw Error("exchange", "the other end has closed the connection");
    if (count > 0) return static_cast<std::size_t>(count);
    if (errno != EAGAIN) check_errno(-1, "exchange");
    return std::size_t{0};
  };
  for (std::size_t to_send = bytes, to_get = bytes; to_send + to_get > 0;) {
    const short events =
        static_cast<short>((to_send > 0 ? POLLOUT : 0) | (to_get > 0 ? POLLIN : 0));
    pollfd end{end_.get(), events, 0};
    check_errno(::poll(&end, 1, -1), "poll");
    if (end.revents & POLLOUT)
      to_send -= moved(::send(end_.get(), out.data(), std::min(to_send, out.size()), MSG_DONTWAIT));
    if (end.revents & POLLIN)
      to_get -= moved(::recv(end_.get(), in.data(), std::min(to_get, in.size()), MSG_DONTWAIT));
  }
}

}  // namespace ringtrain
