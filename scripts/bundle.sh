#!/usr/bin/env bash
# Makes a folder that runs train on machines without packages: the program, its libraries, mpirun, glibc and its loader.
#   scripts/bundle.sh OUT [--no-cuda] [--program FILE]     OUT must not exist; docs/guide/bundle.md
#     --no-cuda         a program without CUDA (preset cpu), 60 MB instead of 1.5 GB
#     --program FILE    bundle this train instead of building one
set -euo pipefail
usage() { sed -n '3,5s/^# *//p' "$0" >&2; exit 64; }

out='' cuda=yes program=''
while [ $# -gt 0 ]; do
  case $1 in
    --no-cuda) cuda=no ;;
    --program) [ $# -gt 1 ] || usage; program=$(realpath -- "$2"); shift ;;
    -*) usage ;;
    *) [ -z "$out" ] || usage; out=$1 ;;
  esac
  shift
done
[ -n "$out" ] || usage
[ ! -e "$out" ] || { echo "bundle: $out is there already; name a folder that is not" >&2; exit 64; }
[ -z "$program" ] || [ -x "$program" ] || { echo "bundle: $program is no program" >&2; exit 64; }
[ -f /usr/lib/x86_64-linux-gnu/libhdf5_serial.so.103 ] || { echo "bundle: wants Debian 12 and scripts/setup.sh" >&2; exit 69; }
mkdir -p "$out"
bundle=$(realpath "$out")
trap '[ $? -eq 0 ] || rm -rf "$bundle"' EXIT  # no half of one
cd "$(dirname "$(realpath "$0")")/.."
. scripts/bundle_parts.sh

glibc='^(ld-linux-x86-64|lib(c|m|mvec|pthread|rt|dl|resolv|util|anl|nss_dns|nss_files))\.so'
nvidia='^lib(cuda|cudart|cudnn|cublas|nccl|nvrtc|nvJitLink)'  # not to be stripped

build() {
  local preset=release folder=build/bundle
  [ $cuda = yes ] || preset=cpu folder=build/bundle-cpu
  # Where it will run is not known: with kernels for all GPUs.
  cmake --preset $preset -B $folder -DRINGTRAIN_RELEASE=ON -DRINGTRAIN_TESTS=OFF -DRINGTRAIN_CUDA=$([ $cuda = yes ] && echo ON || echo OFF) >/dev/null
  cmake --build $folder --target train
  program=$folder/train
}

# From where the program would load them.
copy_cuda() {
  local folders
  [ $cuda = yes ] || return 0
  IFS=: read -ra folders <<<"$(objdump -p "$program" | awk '$1 == "RUNPATH" || $1 == "RPATH" { print $2 }')"
  scripts/copy_cuda.sh "$libraries" "${folders[@]}" || { echo "bundle: --no-cuda makes a bundle for CPUs" >&2; exit 69; }
}

copy_glibc() {
  local file
  mkdir -p "$bundle/lib/glibc"
  for file in /lib/x86_64-linux-gnu/l{d-linux,ib}*.so.*; do
    [[ ! $(basename "$file") =~ $glibc ]] || cp -L "$file" "$bundle/lib/glibc/"
  done
}

write_entry() { # PROGRAM FILE UP
  { printf '#!/bin/sh\nprogram=%s up=%s\n' "$1" "$3"; cat scripts/bundle_entry.sh; } >"$bundle/$2"
  chmod 755 "$bundle/$2"
}

# The kernel names a process as the file that it starts, which is the loader: so that has the name of each program.
write_entries() {
  local name
  mv "$bundle/bin" "$bundle/lib/programs"
  mkdir "$bundle/bin" "$bundle/lib/host_glibc"
  for name in train mpirun orted; do
    ln -s ld-linux-x86-64.so.2 "$bundle/lib/glibc/$name"
    ln -s /lib64/ld-linux-x86-64.so.2 "$bundle/lib/host_glibc/$name"
    write_entry $name bin/$name ..
  done
  write_entry train train .
  write_entry mpirun mpirun .
}

[ -n "$program" ] || build
copy_open_mpi
install -s "$program" "$bundle/bin/train"
copy_libraries "$glibc|$nvidia"
copy_cuda
copy_glibc
write_entries
echo "bundle: $(mib "$bundle") MiB in $bundle; start $out/train or $out/mpirun -np N $out/train"
