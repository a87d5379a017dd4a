#!/usr/bin/env bash
# copy_cuda.sh TO FOLDER...: copies cuDNN, NCCL and what cuDNN loads in turn into the folder TO, from the first FOLDER that has each.
# The driver's libraries (libcuda, libnvidia-*) are the host's. The bundle and container images are made with it.
set -euo pipefail
to=$1
shift
mkdir -p "$to"
for folder in "$@"; do
  for file in "$folder"/lib{cudnn,cudnn_*,nccl,cublas,cublasLt,nvrtc,nvrtc-builtins,nvJitLink}.so.*; do
    [ -f "$file" ] || continue
    name=$(objdump -p "$file" | awk '$1 == "SONAME" { print $2 }')
    [ -e "$to/$name" ] || cp -L "$file" "$to/$name"
  done
done
for file in libcudnn.so.9 libnccl.so.2; do
  [ -e "$to/$file" ] || { echo "copy_cuda: no $file in: $*" >&2; exit 69; }
done
