#include "ringtrain/base/hash.hpp"

#include <cstddef>
#include <span>
#include <vector>

#include "support/catch.hpp"

using namespace ringtrain;

TEST_CASE("Hash: gives the published XXH64 of the empty text and of 'abc'") {
  CHECK(hex(hash_text("")) == "ef46db3751d8e999");
  CHECK(hex(hash_text("abc")) == "44bc2cf5ad770999");
}

TEST_CASE("Hasher: the value does not depend on how the bytes are cut") {
  std::vector<std::byte> bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37);
  const std::size_t piece = GENERATE(1, 7, 31, 32, 33, 999, 1000);

  Hasher hasher;
  for (std::span rest(bytes); !rest.empty(); rest = rest.subspan(std::min(piece, rest.size())))
    hasher.update(rest.first(std::min(piece, rest.size())));

  CHECK(hasher.value() == hash_bytes(bytes));
}
