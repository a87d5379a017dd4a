#pragma once
#include <unistd.h>

#include <string_view>

#include "ringtrain/base/unique_handle.hpp"

namespace ringtrain {

/// Sole owner of an open file, socket or memfd; -1 owns nothing.
using FileDescriptor = UniqueHandle<int, ::close, -1>;

/// Writes `text` past all buffers and locks; waits while a pipe is full. What cannot be written is
/// lost: output must not change how the process ends.
void write_all(int descriptor, std::string_view text) noexcept;

/// Likewise, but never waits for a reader: what a full pipe or a stopped terminal does not take is
/// lost. For threads that others rely on.
void write_if_read(int descriptor, std::string_view text) noexcept;

}  // namespace ringtrain
