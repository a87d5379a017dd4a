#!/usr/bin/env bash
# Installs what is missing to build, run and test ringtrain on Debian 12, Debian 13 or Ubuntu 24.04.
#   scripts/setup.sh             build, run and the tests of scripts/test.sh
#   scripts/setup.sh --build     only what building and running needs
#   scripts/setup.sh --full      also what scripts/test.sh --full needs
#   scripts/setup.sh --all       also what scripts/test.sh --all needs
#   scripts/setup.sh --cuda 13|system|no   which CUDA, when not what suits the GPU that is here (scripts/setup_cuda.sh)
#   scripts/setup.sh --dry-run   say what would be installed, change nothing (with any of the above);
#                                RINGTRAIN_SYSTEM="ubuntu 24.04" then names a system other than this one
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '2,/^set/{/^#/s/^# *//p}' scripts/setup.sh >&2; exit 64; }

here=unknown
[ -r /etc/os-release ] && here=$(. /etc/os-release && echo "${ID:-?} ${VERSION_ID:-?}")
system=${RINGTRAIN_SYSTEM:-$here}

# What systems name differently, as Debian 12 names it; then what they name alike.
jpeg=libjpeg62-turbo-dev clang=16 chromium=chromium
case $system in
  "debian 13") clang=19 ;;
  "ubuntu 24.04") jpeg=libjpeg-turbo8-dev clang=18 chromium=chromium-browser ;;
esac
build=(g++ cmake ninja-build pkg-config ccache openmpi-bin libopenmpi-dev openssh-client
  libasio-dev libhdf5-dev libdnnl-dev libcli11-dev libtomlplusplus-dev libfmt-dev nlohmann-json3-dev "$jpeg"
  libturbojpeg0-dev libpng-dev zlib1g-dev libprotobuf-dev protobuf-compiler libssl-dev libxxhash-dev libjs-dygraphs)
tests=(catch2 bc curl fuse3 groff-base hdf5-tools iproute2 libfuse3-dev procps python3 python3-venv python3-yaml strace git)
full=(bash-static debootstrap dropbear-bin slurm-wlm slurm-wlm-basic-plugins munge python3-torch "clang-$clang" "libclang-rt-$clang-dev")
all=("clang-tidy-$clang" clang-format buildah "$chromium")
# Of PyPI, for tests only: readers of our files that are not ours.
venv=build/venv venv_packages="tensorboard h5py xxhash" full_venv_packages="kubernetes-validate"
onnx_packages="onnx onnxruntime"  # in $venv/onnx, as they want another NumPy than the system's PyTorch

wanted=("${build[@]}" "${tests[@]}")
dry_run=no cuda=()
while [ $# -gt 0 ]; do
  case $1 in
    --build) wanted=("${build[@]}") venv='' ;;
    --full) wanted+=("${full[@]}") venv_packages+=" $full_venv_packages" ;;
    --all) wanted+=("${full[@]}" "${all[@]}") venv_packages+=" $full_venv_packages" ;;
    --dry-run) dry_run=yes cuda+=(--dry-run) ;;
    --cuda) [ $# -gt 1 ] || usage; cuda+=(--cuda "$2"); shift ;;
    *) usage ;;
  esac
  shift
done

case $system in
  "debian 12" | "debian 13") ;;
  "ubuntu 24.04") echo "setup: nobody has tried this script on Ubuntu 24.04; its package names are known, no more" ;;
  *)
    cat >&2 <<EOF
setup: this script was tested on Debian 12 and 13 (x86-64) only and found "$system"; it changes nothing here.
Install what corresponds to these Debian packages, then run it again with RINGTRAIN_SETUP=skip:
  ${wanted[*]}
EOF
    [ "${RINGTRAIN_SETUP:-}" != skip ] || exec scripts/setup_cuda.sh "${cuda[@]}"
    exit 69
    ;;
esac
if [ "$system" != "$here" ]; then
  [ $dry_run = yes ] || { echo "setup: RINGTRAIN_SYSTEM goes with --dry-run; this system is $here" >&2; exit 64; }
  echo "setup: on $system would install with apt-get what is missing of: ${wanted[*]}"
  exit 0
fi

scripts/setup_cuda.sh "${cuda[@]}"
if [ $dry_run = yes ]; then scripts/setup_openmpi.sh --dry-run; else scripts/setup_openmpi.sh; fi
missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ -z "$venv" ] || [[ "$(cat "$venv/installed" 2>/dev/null) " != "$onnx_packages $venv_packages "* ]] || venv=''  # or has more
if [ ${#missing[@]} -eq 0 ] && [ -z "$venv" ]; then
  echo "setup: all ${#wanted[@]} packages are installed"
  exit 0
fi
if [ $dry_run = yes ]; then
  [ ${#missing[@]} -eq 0 ] || echo "setup: would install with apt-get: ${missing[*]}"
  [ -z "$venv" ] || echo "setup: would install with pip into $venv: $venv_packages $onnx_packages"
  exit 0
fi

if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: installing ${#missing[@]} packages: ${missing[*]}"
  scripts/install_packages.sh "${missing[@]}"
fi
if [ -n "$venv" ]; then
  echo "setup: installing with pip into $venv: $venv_packages $onnx_packages"
  rm -rf "$venv"
  /usr/bin/python3 -m venv --system-site-packages "$venv"  # the system's Python has PyTorch
  # shellcheck disable=SC2086
  "$venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: $venv_packages
  /usr/bin/python3 -m venv "$venv/onnx"
  # shellcheck disable=SC2086
  "$venv/onnx/bin/pip" install -q --disable-pip-version-check --only-binary :all: $onnx_packages
  echo "$onnx_packages $venv_packages" >"$venv/installed"
fi
echo "setup: done"
