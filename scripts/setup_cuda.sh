#!/usr/bin/env bash
# Makes CUDA ready to build with, where there is an NVIDIA GPU or one is planned for. scripts/setup.sh calls it.
#   scripts/setup_cuda.sh [--cuda auto|13|system|no] [--dry-run]
#     auto     what the driver that is here can run; nothing where there is no NVIDIA GPU
#     13       CUDA 13 from PyPI into the folder .cuda of this checkout (2.1 GB), also without a GPU
#     system   the toolkit that is installed: CUDA 12.8 or newer with cuDNN 9 and NCCL 2
#     no       nothing: the build is for CPUs
#     --dry-run  say what would be done, change nothing
#     --list-gpus  name this machine's NVIDIA GPUs, a line each, and end
# RINGTRAIN_SETUP_CUDA is another default than auto. In tests, RINGTRAIN_SYSTEM_ROOT is looked into instead of /.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."

cuda=${RINGTRAIN_SETUP_CUDA:-auto} dry_run=no list=no
usage() { sed -n '3,10s/^# *//p' scripts/setup_cuda.sh >&2; exit 64; }
while [ $# -gt 0 ]; do
  case $1 in
    --cuda) [ $# -gt 1 ] || usage; cuda=$2; shift ;;
    --dry-run) dry_run=yes ;;
    --list-gpus) list=yes ;;
    *) usage ;;
  esac
  shift
done
case $cuda in auto | 13 | system | no) ;; *) usage ;; esac

say() { echo "setup: CUDA: $*"; }
refuse() { echo "setup: CUDA: $*" >&2; exit 69; }

root=${RINGTRAIN_SYSTEM_ROOT:-}
requirements=scripts/cuda13-requirements.txt
gpus=() driver='' held_by=''

# As src/compute/installed_gpus.cpp does.
find_gpus() {
  local file device held
  driver=$(grep -m1 -oE '[0-9]{3,}\.[0-9.]+' "$root/proc/driver/nvidia/version" 2>/dev/null | head -n 1 || true)
  for file in "$root"/proc/driver/nvidia/gpus/*/information; do
    [ ! -r "$file" ] || gpus+=("$(sed -n 's/^Model:[[:space:]]*//p' "$file")")
  done
  [ ${#gpus[@]} -eq 0 ] || return 0
  for device in "$root"/sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor" 2>/dev/null)" = 0x10de ] && [[ $(cat "$device/class") == 0x03* ]] || continue
    held=$(basename "$(readlink "$device/driver" || true)")
    [ "$held" != vfio-pci ] || continue  # a virtual machine's
    [ ${#gpus[@]} -gt 0 ] || held_by=$held
    gpus+=("NVIDIA GPU at PCI $(basename "$device")")
  done
}

# The newest CUDA, as 13, that this driver runs.
cuda_of_driver() {
  local release=${driver%%.*}
  if [ "$release" -ge 580 ]; then echo 13
  elif [ "$release" -ge 525 ]; then echo 12
  else echo 0
  fi
}

# The version of the toolkit that CMake would find (cmake/FindRingtrainCuda.cmake), where that is complete; nothing else.
toolkit_version() {
  local nvcc place version header
  nvcc=$(PATH=${CUDA_HOME:+$CUDA_HOME/bin:}${CUDA_PATH:+$CUDA_PATH/bin:}$root/usr/local/cuda/bin:$PATH command -v nvcc) || return 0
  version=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p')
  [ "$(printf '%s\n' 12.8 "$version" | sort -V | head -n 1)" = 12.8 ] || return 0
  for header in cuda_runtime.h cudnn_graph.h nccl.h; do
    for place in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "$root/usr/local/cuda" "$(dirname "$(dirname "$(realpath "$nvcc")")")" "$root/usr"; do
      [ ! -e "$place/include/$header" ] && [ ! -e "$place/include/x86_64-linux-gnu/$header" ] || continue 2
    done
    return 0
  done
  echo "$version"
}

# CMake takes .cuda before any toolkit, unless this marks it as not in use.
set_aside() {
  [ -e .cuda/requirements.txt ] && [ $dry_run = no ] || return 0
  mv .cuda/requirements.txt .cuda/set-aside.txt
  say ".cuda is set aside; --cuda 13 takes it again"
}

install_from_pypi() {
  if [ -e .cuda/set-aside.txt ] && [ $dry_run = no ]; then mv .cuda/set-aside.txt .cuda/requirements.txt; fi
  if [ -e .cuda/requirements.txt ] && cmp -s $requirements .cuda/requirements.txt; then
    say "CUDA 13 is in .cuda"
    return
  fi
  if [ $dry_run = yes ]; then
    say "would install CUDA 13 from PyPI into .cuda ($requirements, 2.1 GB)"
    return
  fi
  local free
  free=$(($(df --output=avail -k . | tail -n 1) / 1000000))
  [ "$free" -ge 6 ] || refuse "CUDA 13 needs 6 GB of disk while it is installed, and $free GB are free here; make room, or use --cuda no"
  python3 -c 'import ensurepip' 2>/dev/null || scripts/install_packages.sh python3-venv
  say "installing CUDA 13 from PyPI into .cuda (1.3 GB to load, 2.1 GB on disk)"
  rm -rf .cuda
  python3 -m venv .cuda
  mkdir .cuda/tmp  # /tmp may be memory, and too small
  TMPDIR=$PWD/.cuda/tmp .cuda/bin/python -m pip install -q --disable-pip-version-check --no-cache-dir --no-deps --require-hashes --only-binary=:all: \
    -r $requirements || refuse "PyPI's packages could not be installed (pip's words are above); behind a proxy or mirror set HTTPS_PROXY or PIP_INDEX_URL, or use --cuda no"
  ln -sfn lib "$(echo .cuda/lib/python3*/site-packages/nvidia/cu13)/lib64"  # where nvcc 13.0 links from
  rm -rf .cuda/tmp
  cp $requirements .cuda/requirements.txt  # last: an installation that was cut short is made again
  say "CUDA 13 is in .cuda"
}

use_toolkit() {
  local version
  version=$(toolkit_version)
  [ -n "$version" ] || refuse "--cuda system: no complete toolkit was found (CUDA 12.8 or newer with cuDNN 9 and NCCL 2 in \$CUDA_HOME, /usr/local/cuda or /usr); install it, or use --cuda 13 or --cuda no"
  say "the toolkit CUDA $version that is installed here"
  set_aside
}

choose() {
  local here version runs wanted
  [ ${#gpus[@]} -gt 0 ] || { say "no NVIDIA GPU in this machine, so $([ -e .cuda/requirements.txt ] && echo "CUDA stays what is in .cuda (rm -r .cuda builds for CPUs)" || echo "the build is for CPUs (--cuda 13 prepares one for GPUs elsewhere)")"; return; }
  here="${#gpus[@]} x ${gpus[0]}"
  if [ -z "$driver" ]; then
    [ -z "$held_by" ] || here+=", held by $held_by"
    refuse "$here is here, but no NVIDIA driver is loaded. Install driver 580 or newer (on Ubuntu: sudo ubuntu-drivers install; elsewhere: https://www.nvidia.com/drivers), restart, and run this again; or train on CPUs: --cuda no"
  fi
  here+=", driver $driver"
  runs=$(cuda_of_driver) version=$(toolkit_version)
  if [ -n "$version" ] && [ "${version%%.*}" -le "$runs" ]; then
    say "$here: the toolkit CUDA $version that is installed here"
    set_aside
  elif [ "$runs" -ge 13 ]; then
    say "$here"
    install_from_pypi
  else
    wanted="driver 580 or newer, for which this script installs CUDA 13"
    [ "$runs" -lt 12 ] || wanted+="; or a toolkit of CUDA 12.8 or 12.9 with cuDNN 9 and NCCL 2 in /usr/local/cuda, which PyPI does not have whole"
    refuse "$here is here. Wanted: $wanted. Or train on CPUs: --cuda no"
  fi
}

find_gpus
if [ $list = yes ]; then
  [ ${#gpus[@]} -eq 0 ] || printf '%s\n' "${gpus[@]}"
  exit 0
fi
case $cuda in
  no) say "not wanted (--cuda no): configure with -DRINGTRAIN_CUDA=OFF and train with --device cpu" ;;
  13) install_from_pypi ;;
  system) use_toolkit ;;
  auto) choose ;;
esac
