#include "ringtrain/host/stream_copy.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "ringtrain/base/error.hpp"
#include "support/catch.hpp"

using namespace ringtrain;
using namespace ringtrain::host;

TEST_CASE("stream_copy: copies all of any size to any address and nothing beside it") {
  const auto size = GENERATE(0, 1, 15, 16, 17, 100, 65'535, 65'536, 196'613);
  const auto shift = GENERATE(0, 1, 15);
  CAPTURE(size, shift);
  std::vector<float> from(static_cast<std::size_t>(size + shift));
  std::iota(from.begin(), from.end(), 1.0f);
  std::vector<float> to(static_cast<std::size_t>(size) + 32, -1.0f);

  stream_copy(
      std::span(from).last(static_cast<std::size_t>(size)),
      std::span(to).subspan(static_cast<std::size_t>(shift), static_cast<std::size_t>(size)));

  const auto begin = to.begin() + shift;
  CHECK(std::equal(from.begin() + shift, from.end(), begin));
  CHECK(std::all_of(to.begin(), begin, [](float x) { return x == -1; }));
  CHECK(std::all_of(begin + size, to.end(), [](float x) { return x == -1; }));
}

TEST_CASE("stream_copy: other sizes are refused") {
  std::vector<float> from(3), to(2);

  CHECK_THROWS_AS(stream_copy(from, to), Error);
}
