#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests; CI calls exactly this.
#   scripts/test.sh         `release` with all its tests, then the unit tests under `asan`
#   scripts/test.sh --all   also the presets cpu, tsan and tidy
set -euo pipefail
cd "$(dirname "$0")/.."

presets=(release asan)
setup=()
for option in "$@"; do
  case $option in
    --all) presets+=(cpu tsan tidy); setup=(--all) ;;
    *) sed -n '2,4s/^# *//p' "$0" >&2; exit 64 ;;
  esac
done
scripts/setup.sh "${setup[@]}"
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

failed=()
logs=()
for preset in "${presets[@]}"; do
  echo "test: $preset"
  start=$SECONDS
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset"
  echo "test: $preset built in $((SECONDS - start)) s"
  log=build/$preset/tests.log
  logs+=("$log")
  ctest --preset "$preset" -j "$(nproc)" 2>&1 | tee "$log" | grep --line-buffered -vE '^ *Start ' || failed+=("$preset")
  echo "test: $preset took $((SECONDS - start)) s in all"
done

echo "test: skipped, with the reason:"
grep -hE '\*\*\*Skipped|^skipped: ' "${logs[@]}" | sort -u || echo "  nothing"
count() { cat "${logs[@]}" | grep -cE "$1" || true; }
passed=$(count '\bPassed\b')
broken=$(count '\*\*\*(Failed|Timeout|Exception|Not Run)')
echo "${passed} passed, ${broken} failed"
[ ${#failed[@]} -eq 0 ] || { echo "test: failed under: ${failed[*]}" >&2; exit 1; }
