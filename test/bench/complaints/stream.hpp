#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ringtrain/base/file.hpp"

namespace ringtrain {

/// One end of a TCP connection; what is sent leaves at once. One thread may send while another
/// receives. Both wait until all bytes have moved, and throw Error when the other end has gone.
class Stream {
 public:
  explicit Stream(FileDescriptor end);

  void send(std::span<const std::byte> bytes) const;
  void receive(std::span<std::byte> bytes) const;

 private:
  FileDescriptor end_;
};

/// Where connections come in. Port 0 takes any that is free.
class Door {
 public:
  explicit Door(std::uint16_t port);

  std::uint16_t port() const;
  /// Waits for the next one to connect.
  Stream accept() const;

 private:
  FileDescriptor door_;
};

/// Tries again for ten seconds: the other end may not listen yet.
Stream connect_to(const std::string& host, std::uint16_t port);

}  // namespace ringtrain
