#pragma once
#include <filesystem>
#include <string>

#include "ringtrain/base/error.hpp"
#include "ringtrain/io/checkpoint/checkpoint_reader.hpp"
#include "support/catch.hpp"

namespace ringtrain::io {

/// What opening and checking every byte of `path` says; empty when all is well.
inline std::string complaint(const std::filesystem::path& path) {
  try {
    CheckpointFile::open(path).verify();
    return "";
  } catch (const Error& failure) {
    REQUIRE(failure.code() == Exit::no_valid_checkpoint);
    return failure.what();
  }
}

}  // namespace ringtrain::io
