#!/usr/bin/env bash
# setup_cuda_test.sh SETUP_CUDA: what the script would do on machines that are folders, and what it says where it cannot.
set -u
setup=$(realpath "$1") bad=0
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
unset CUDA_HOME CUDA_PATH RINGTRAIN_SETUP_CUDA

machine() { # NAME [DRIVER [TOOLKIT]]: with a GPU; DRIVER may be empty
  local device=$dir/$1/sys/bus/pci/devices/0000:3b:00.0 cuda=$dir/$1/usr/local/cuda
  mkdir -p "$device"
  echo 0x10de >"$device/vendor"
  echo 0x030200 >"$device/class"
  ln -s ../../drivers/nouveau "$device/driver"
  if [ -n "${2:-}" ]; then
    mkdir -p "$dir/$1/proc/driver/nvidia/gpus/0000:3b:00.0"
    echo "NVRM version: NVIDIA UNIX x86_64 Kernel Module  $2  Sun May 12 19:39:15 UTC 2024" >"$dir/$1/proc/driver/nvidia/version"
    printf 'Model: \t\t NVIDIA A100-SXM4-40GB\n' >"$dir/$1/proc/driver/nvidia/gpus/0000:3b:00.0/information"
  fi
  [ -n "${3:-}" ] || return 0
  mkdir -p "$cuda/bin" "$cuda/include"
  printf '#!/bin/sh\necho "Cuda compilation tools, release %s, V%s.1"\n' "$3" "$3" >"$cuda/bin/nvcc"
  chmod 755 "$cuda/bin/nvcc"
  touch "$cuda"/include/{cuda_runtime,cudnn_graph,nccl}.h
}
expect() { # MACHINE CODE TEXT ARGUMENTS...
  local name=$1 code=$2 text=$3 said got
  shift 3
  said=$(PATH=/usr/bin:/bin RINGTRAIN_SYSTEM_ROOT=$dir/$name "$setup" --dry-run "$@" 2>&1)
  got=$?
  if [ $got -ne "$code" ] || ! grep -qE -- "$text" <<<"$said"; then
    echo "wrong: $name $*: exit code $got, not $code, or no '$text' in:"
    echo "$said"
    bad=1
  fi
}

mkdir "$dir/none"
machine nouveau
machine r470 470.256.02
machine r535 535.183.01
machine r535_12 535.183.01 12.9
machine r535_old 535.183.01 12.4
machine r535_13 535.183.01 13.0
machine r580 580.95.05
machine r580_12 580.95.05 12.8

pypi="CUDA 13 (is in .cuda|from PyPI into .cuda)"
expect none 0 "no NVIDIA GPU in this machine, so the build is for CPUs"
expect none 0 "$pypi" --cuda 13
expect none 69 "no complete toolkit was found" --cuda system
expect none 0 "not wanted" --cuda no
expect none 64 "--cuda auto.13.system.no" --cuda 12
expect nouveau 69 "NVIDIA GPU at PCI 0000:3b:00.0, held by nouveau is here, but no NVIDIA driver.*--cuda no"
expect r470 69 "NVIDIA A100-SXM4-40GB, driver 470.256.02 is here. Wanted: driver 580 or newer.*--cuda no"
expect r535 69 "driver 535.183.01 is here. Wanted: driver 580 or newer.*toolkit of CUDA 12.8 or 12.9.*--cuda no"
expect r535_12 0 "the toolkit CUDA 12.9 that is installed"
expect r535_old 69 "Wanted:"
expect r535_13 69 "Wanted:"
expect r535 0 "not wanted" --cuda no
expect r580 0 "$pypi"
expect r580_12 0 "the toolkit CUDA 12.8 that is installed"
expect r580_12 0 "the toolkit CUDA 12.8 that is installed" --cuda system
expect nouveau 0 "^NVIDIA GPU at PCI 0000:3b:00.0$" --list-gpus
expect r580 0 "^NVIDIA A100-SXM4-40GB$" --list-gpus
# A second GPU, given to a virtual machine, is none, and not what the first is held by.
mkdir -p "$dir/nouveau/sys/bus/pci/devices/0000:5e:00.0"
cp "$dir"/nouveau/sys/bus/pci/devices/0000:3b:00.0/{vendor,class} "$dir/nouveau/sys/bus/pci/devices/0000:5e:00.0"
ln -s ../../drivers/vfio-pci "$dir/nouveau/sys/bus/pci/devices/0000:5e:00.0/driver"
expect nouveau 69 " 1 x NVIDIA GPU at PCI 0000:3b:00.0, held by nouveau is here"

# A cuDNN that no GPU has run with us may compute wrongly: scripts and Python package pin what docs/evidence/gpu.md measured.
source=$(dirname "$(dirname "$setup")")
read -r cudnn nccl < <(sed -nE 's/.* cuDNN ([0-9.]+), NCCL ([0-9.]+), .*/\1 \2/p' "$source/docs/evidence/gpu.md" | head -n 1)
for pin in "nvidia-cudnn-cu13==${cudnn:-none}" "nvidia-nccl-cu13==${nccl:-none}"; do
  one=$(grep -oE "^$pin[0-9.]*" "$source/scripts/cuda13-requirements.txt")
  if [ -z "$one" ] || ! grep -qF "\"$one\"" "$source/pyproject.toml"; then
    echo "wrong: $pin... is not what cuda13-requirements.txt and pyproject.toml pin"
    bad=1
  fi
done
exit $bad
