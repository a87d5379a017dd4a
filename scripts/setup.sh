#!/usr/bin/env bash
# Installs what is missing to build, run and test ringtrain on Debian 12.
#   scripts/setup.sh             build, run and the tests of scripts/test.sh
#   scripts/setup.sh --build     only what building and running needs
#   scripts/setup.sh --all       also what scripts/test.sh --all needs
#   scripts/setup.sh --dry-run   say what would be installed, change nothing (with any of the above)
set -euo pipefail

build=(g++ cmake ninja-build pkg-config ccache openmpi-bin libopenmpi-dev openssh-client
  libasio-dev libhdf5-dev libdnnl-dev libcli11-dev libfmt-dev nlohmann-json3-dev libjpeg62-turbo-dev
  libturbojpeg0-dev libpng-dev libprotobuf-dev protobuf-compiler libxxhash-dev catch2)
tests=(bc bash-static curl fuse3 hdf5-tools iproute2 libfuse3-dev procps python3 python3-h5py python3-yaml strace git
  slurm-wlm slurm-wlm-basic-plugins munge)
all=(clang-tidy-16 clang-16 libclang-rt-16-dev clang-format)

wanted=("${build[@]}" "${tests[@]}")
dry_run=no
for option in "$@"; do
  case $option in
    --build) wanted=("${build[@]}") ;;
    --all) wanted=("${build[@]}" "${tests[@]}" "${all[@]}") ;;
    --dry-run) dry_run=yes ;;
    *) sed -n '2,6s/^# *//p' "$0" >&2; exit 64 ;;
  esac
done

system=unknown
[ -r /etc/os-release ] && system=$(. /etc/os-release && echo "${ID:-?} ${VERSION_ID:-?}")
if [ "$system" != "debian 12" ]; then
  cat >&2 <<EOF
setup: this script was tested on Debian 12 (x86-64) only and found "$system"; it changes nothing here.
Install what corresponds to these Debian packages, then run it again with RINGTRAIN_SETUP=skip:
  ${wanted[*]}
EOF
  [ "${RINGTRAIN_SETUP:-}" = skip ] && exit 0
  exit 69
fi

missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: all ${#wanted[@]} packages are installed"
  exit 0
fi
if [ $dry_run = yes ]; then
  echo "setup: would install with apt-get: ${missing[*]}"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup: needs root (or sudo) to install: ${missing[*]}" >&2; exit 77; }
  as_root=(sudo DEBIAN_FRONTEND=noninteractive)
fi
echo "setup: installing ${#missing[@]} packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
echo "setup: done"
