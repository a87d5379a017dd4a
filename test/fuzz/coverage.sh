#!/usr/bin/env bash
# coverage.sh BUILD NAME: which lines of the reader the inputs of NAME (found and seeds) never reach, by gcov, for each
# source that the fuzzer compiles. BUILD is a build folder of the preset asan.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
home=$(cd "$1" && pwd)/test/fuzz name=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/replay.cpp" <<'CPP'
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t*, std::size_t size, std::size_t) { return size; }
int main(int count, char** folders) {
  for (int i = 1; i < count; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(folders[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    }
}
CPP
cd "$work"
g++ -std=c++20 -O0 --coverage -w -I"$source" -I"$source/include" -I"$source/src" -I"$source/test" "$home/${name}_whole.cpp" replay.cpp \
  -o replay -lfmt -lxxhash -lpng -ljpeg -lcrypto
./replay "$home/$name.found" "$home/$name.seeds" >/dev/null
gcov -r -s "$source" ./*"${name}_whole"*.gcda >summary 2>/dev/null
for file in *.gcov; do
  origin=$(sed -n '1s/.*Source://p' "$file")
  case $origin in src/*) ;; *) continue ;; esac
  never=$(grep -c '^ *#####:' "$file" || true)
  all=$(grep -cE '^ *([0-9]+\*?|#####):' "$file" || true)
  echo "$origin: $((all - never)) of $all lines reached"
  grep '^ *#####:' "$file" | sed 's/^ *#####: */    /' || true
done
