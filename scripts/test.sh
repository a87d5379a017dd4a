#!/usr/bin/env bash
# Installs what is missing, builds, and runs tests.
#   scripts/test.sh          the unit tests, and a job and a fault of each kind: 7 to 12 minutes from a bare
#                            clone (439 s on a fresh Debian 12 without CUDA, some 690 s with its kernels)
#   scripts/test.sh --full   the rest, and the unit tests once more under AddressSanitizer; warnings are errors
#   scripts/test.sh --all    both, and what is longer: AddressSanitizer on CUDA's host code, ThreadSanitizer, clang-tidy, each
#                            file compiled alone, all mutants, long fuzzing, a fresh Debian 12 and 13
#   --cuda 13|system|no      which CUDA, when not what suits the GPU that is here (scripts/setup_cuda.sh)
#   --only-skips REGEX       fail where a test is skipped for another reason than these
# The last lines count what passed, failed and was skipped, and why.
set -euo pipefail
cd "$(dirname "$0")/.."

what=quick
summary=()
while [ $# -gt 0 ]; do
  case $1 in
    --full) what=full ;;
    --all) what=all ;;
    --cuda) export RINGTRAIN_SETUP_CUDA="${2:?--cuda wants 13, system or no}"; shift ;;
    --only-skips) summary=(--only-skips "${2:?--only-skips wants an expression}"); shift ;;
    *) sed -n '2,9s/^# *//p' scripts/test.sh >&2; exit 64 ;;
  esac
  shift
done
warnings=${RINGTRAIN_WARNINGS_AS_ERRORS:-OFF}
with_cuda=AUTO
[ "${RINGTRAIN_SETUP_CUDA:-auto}" != no ] || with_cuda=OFF
setup=()
[ $what = quick ] || { warnings=ON; setup=(--full); }
[ $what != all ] || setup=(--all)

start=$SECONDS
scripts/setup.sh "${setup[@]}"
echo "test: packages took $((SECONDS - start)) s"
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
python=$PWD/build/venv/bin/python
[ -x "$python" ] || python=python3

results=()
bad=0
run() { # PRESET TARGET CTEST_ARGUMENTS...
  local preset=$1 target=$2 began=$SECONDS built log junit
  shift 2
  log=build/$preset/tests-$what-${#results[@]}.log junit=$PWD/build/$preset/tests-$what-${#results[@]}.xml
  echo "test: $preset"
  mkdir -p "build/$preset"
  local cuda=()
  [ "$preset" != release ] || cuda=(-DRINGTRAIN_CUDA="$with_cuda" -DRINGTRAIN_RELEASE=OFF)
  cmake --preset "$preset" -DRINGTRAIN_TESTS=ON -DRINGTRAIN_WARNINGS_AS_ERRORS="$warnings" -DRINGTRAIN_PYTHON="$python" "${cuda[@]}" \
    >"build/$preset/configure.log" 2>&1 || { cat "build/$preset/configure.log" >&2; exit 1; }
  grep '^-- CUDA' "build/$preset/configure.log" || true
  if ! cmake --build --preset "$preset" --target "$target"; then
    echo "test: $preset was not built" >&2
    bad=1
    return
  fi
  built=$SECONDS
  rm -f "$junit"
  ctest --preset "$preset" -j $((4 * $(nproc))) --output-junit "$junit" --test-output-size-passed 100000 "$@" 2>&1 |
    tee "$log" | grep --line-buffered -vE '^ *Start |Passed' || true
  echo "test: $preset: built in $((built - began)) s, tests took $((SECONDS - built)) s"
  if [ -s "$junit" ]; then results+=("$junit"); else echo "test: $preset has no results" >&2; bad=1; fi
}

if [ $what != full ]; then
  run release quick_tests -L '^(unit|quick)$'
fi
if [ $what != quick ]; then
  run release all -LE '^(unit|quick|long)$'
  run asan unit_tests -L '^(unit|fuzz)$'
fi
part() { # COMMAND...: that has no results of CTest's
  echo "test: $*"
  local began=$SECONDS
  "$@" || { echo "test: failed: $*" >&2; bad=1; }
  echo "test: ${1##*/} took $((SECONDS - began)) s"
}
if [ $what = all ]; then
  if grep -q '^-- CUDA: [0-9]' build/release/configure.log; then
    run asan-gpu simulated_gpu_tests -R '^(cuda_on_host: |jobs: simulated_nccl_job)'
  else
    echo "test: asan-gpu: left out, because this build has no CUDA"
  fi
  for preset in cpu tsan tidy; do run $preset unit_tests -L '^unit$'; done
  run release all -L '^long$'
  part test/fault_injection/mutants.sh all build/release
  for fuzz in image tfrecord records checkpoint model config cifar10 messages; do
    part build/asan/test/fuzz/fuzz_$fuzz -max_total_time=300 -timeout=10 -rss_limit_mb=1024 build/asan/test/fuzz/$fuzz.{found,seeds}
  done
  part test/parity/lite_photographs.sh build/release
  for suite in bookworm trixie; do part test/fresh/run.sh --suite $suite -- scripts/test.sh; done
  cuda=()
  grep -q '^RingtrainCuda_NVCC.*/nvcc$' build/release/CMakeCache.txt || cuda=(--no-cuda)
  rm -rf build/wheel-tested
  part scripts/wheel.sh "${cuda[@]}" build/wheel-tested
  part test/fresh/run.sh -- scripts/wheel.sh --no-cuda
  part test/fresh/image.sh
  for suite in bookworm trixie; do part test/fresh/wheel.sh --suite $suite build/wheel-tested/ringtrain-*.whl; done
fi
echo "test: $((SECONDS - start)) s in all"
test/support/test_summary.py "${summary[@]}" "${results[@]}" || bad=1
exit $bad
