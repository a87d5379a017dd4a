#pragma once
#include <dirent.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "ringtrain/base/unique_handle.hpp"

namespace ringtrain::monitor {

/// Which of a connection's sockets: of who listens at a port, of a connection there, and of who has
/// come to it.
enum class End { that_listens, of_rank_0, of_rank };

/// That socket of this process, the newest; -1: there is none. For IPv4.
inline int own_socket(std::uint16_t port, End end) {
  const UniqueHandle<DIR*, ::closedir> folder(::opendir("/proc/self/fd"));
  int found = -1;
  while (const dirent* entry = ::readdir(folder.get())) {
    const int socket = std::atoi(entry->d_name);
    sockaddr_in place{};
    socklen_t size = sizeof place;
    const auto name = end == End::of_rank ? ::getpeername : ::getsockname;
    if (name(socket, reinterpret_cast<sockaddr*>(&place), &size) != 0 ||
        place.sin_family != AF_INET || ntohs(place.sin_port) != port)
      continue;
    int listens = 0;
    size = sizeof listens;
    ::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
    if ((listens != 0) == (end == End::that_listens) && socket > found) found = socket;
  }
  return found;
}

/// As a program that ends does it, or a firewall that is polite.
inline void cut_connection(int socket) { ::shutdown(socket, SHUT_RDWR); }

/// Both ends are told of a reset.
inline void reset_connection(int socket) {
  const sockaddr nowhere{AF_UNSPEC, {}};
  ::connect(socket, &nowhere, sizeof nowhere);
}

/// Packets beyond so many bytes do not arrive any more, also on what is accepted there from now on.
inline void drop_incoming(int socket, std::uint32_t beyond = 0) {
  std::array<sock_filter, 4> code{{BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
                                   BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, beyond, 0, 1),
                                   BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, ~0u)}};
  const sock_fprog program{code.size(), code.data()};
  ::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}
inline void drop_nothing(int socket) {
  const int unused = 0;
  ::setsockopt(socket, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused);
}

}  // namespace ringtrain::monitor
