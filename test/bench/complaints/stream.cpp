#include "bench/complaints/stream.hpp"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <thread>

#include "ringtrain/base/clock.hpp"
#include "ringtrain/base/error.hpp"

namespace ringtrain {
namespace {

// At least one byte.
std::size_t moved(ssize_t bytes, const char* call) {
  if (bytes == 0) throw Error(call, "the other end has closed the connection");
  return static_cast<std::size_t>(check_errno(static_cast<int>(bytes), call));
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses find(const std::string& host, std::uint16_t port) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found))
    throw Error("getaddrinfo " + host, ::gai_strerror(error));
  return {found, ::freeaddrinfo};
}

FileDescriptor new_socket() {
  return FileDescriptor(check_errno(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
}

constexpr std::size_t most_at_once = std::size_t{1} << 30;  // a call's result fits into an int

}  // namespace

Stream::Stream(FileDescriptor end) : end_(std::move(end)) {
  const int on = 1;
  check_errno(::setsockopt(end_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
}

void Stream::send(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const std::size_t some = std::min(bytes.size(), most_at_once);
    bytes = bytes.subspan(moved(::send(end_.get(), bytes.data(), some, MSG_NOSIGNAL), "send"));
  }
}

void Stream::receive(std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const std::size_t some = std::min(bytes.size(), most_at_once);
    bytes = bytes.subspan(moved(::recv(end_.get(), bytes.data(), some, MSG_WAITALL), "recv"));
  }
}

Door::Door(std::uint16_t port) : door_(new_socket()) {
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  check_errno(::setsockopt(door_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "SO_REUSEADDR");
  check_errno(::bind(door_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address),
              fmt::format("bind to port {}", port));
  check_errno(::listen(door_.get(), SOMAXCONN), "listen");
}

std::uint16_t Door::port() const {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  check_errno(::getsockname(door_.get(), reinterpret_cast<sockaddr*>(&address), &length),
              "getsockname");
  return ntohs(address.sin_port);
}

Stream Door::accept() const {
  return Stream(FileDescriptor(
      check_errno(::accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept")));
}

Stream connect_to(const std::string& host, std::uint16_t port) {
  const Addresses found = find(host, port);
  for (const Deadline deadline(10);;) {
    FileDescriptor end = new_socket();
    const int result = ::connect(end.get(), found->ai_addr, found->ai_addrlen);
    if (result == 0) return Stream(std::move(end));
    if (deadline.over()) check_errno(result, fmt::format("connect to {} port {}", host, port));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace ringtrain
