#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "train/side_asio.hpp"

namespace ringtrain {

/// Listens on a free port of all interfaces, for IPv4 and IPv6, where there is IPv6. Throws
/// std::system_error.
asio::ip::tcp::acceptor listen(asio::io_context& context);

/// Connects `socket` to the first of `addresses`, as text, that answers within three seconds:
/// whether one did. All that is passed outlives it.
asio::awaitable<bool> connect_to_any(asio::ip::tcp::socket& socket,
                                     std::span<const std::string> addresses, std::uint16_t port);

/// Whether the other end's host has acknowledged something within the last seconds; true where that
/// cannot be known. A stopped process's host does.
bool is_acknowledged(asio::ip::tcp::socket& socket);

}  // namespace ringtrain
