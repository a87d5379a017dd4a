#!/usr/bin/env bash
# Fails when a folder includes a folder above it, a vendor header leaves its home, or headers define two types of one name.
# The tables are those of docs/architecture.md.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A may_use=(
  [base]="base"
  [compute]="base compute"
  [allreduce]="base compute allreduce"
  [model]="base compute model"
  [io]="base io"
  [train]="base compute allreduce model io train"
)
declare -A vendor_home=(
  [mpi.h]="src/allreduce/" [nccl.h]="src/allreduce/nccl_library.cpp" [hdf5.h]="src/io/" [turbojpeg.h]="src/io/"
  [jpeglib.h]="src/io/" [png.h]="src/io/" ["cudnn[a-z_]*.h"]="src/compute/cuda/"
  ["cuda[a-z0-9_]*.h"]="src/compute/cuda/" ["cublas[A-Za-z_]*.h"]="src/compute/cuda/"
  [dnnl.hpp]="src/compute/onednn/" ["oneapi/dnnl/dnnl.hpp"]="src/compute/onednn/"
  [CLI/CLI.hpp]="src/train/options.cpp" [xxhash.h]="src/base/hash.cpp" ["openssl/[a-z0-9]*.h"]="src/base/hmac.cpp" [asio.hpp]="src/train/side_"
)
bad=0
for folder in "${!may_use[@]}"; do
  while IFS=: read -r file line used; do
    [[ " ${may_use[$folder]} " == *" $used "* ]] || { echo "$file:$line: $folder may not include $used"; bad=1; }
  done < <(grep -rnE '^#include "(ringtrain/)?[a-z]+/' "src/$folder" "include/ringtrain/$folder" 2>/dev/null |
           sed -nE 's|^([^:]+):([0-9]+):#include "(ringtrain/)?([a-z]+)/.*|\1:\2:\4|p')
done
for header in "${!vendor_home[@]}"; do
  while IFS=: read -r file line _; do
    [[ $file == "${vendor_home[$header]}"* ]] || { echo "$file:$line: <$header> belongs in ${vendor_home[$header]}"; bad=1; }
  done < <(grep -rnE "#include [<\"]$header[>\"]" src include || true)
done
# Two types of one name in one namespace: the linker keeps one of their functions for both.
while read -r name; do
  echo "$name is the name of two types: $(grep -rlE "^(struct|class|enum class) ${name##*::}\b[^;]*\{" --include='*.hpp' src include | tr '\n' ' ')"
  bad=1
done < <(find src include -name '*.hpp' -exec awk '
  /^namespace [a-z_:]+ \{/ { space = $2 }
  /^(struct|class|enum class) [A-Za-z_]+[^;]*\{/ { name = $1 == "enum" ? $3 : $2; sub(/:$/, "", name); print space "::" name }' {} + | sort | uniq -d)
exit $bad
