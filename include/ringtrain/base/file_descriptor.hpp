#pragma once
#include <unistd.h>

#include "ringtrain/base/unique_handle.hpp"

namespace ringtrain {

/// Sole owner of an open file, socket or memfd; -1 owns nothing.
using FileDescriptor = UniqueHandle<int, ::close, -1>;

}  // namespace ringtrain
