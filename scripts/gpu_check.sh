#!/usr/bin/env bash
# Checks and measures everything that only a machine with a GPU can tell, in 560 s, without network.
#   scripts/gpu_check.sh --dry-run   what it would run; needs no GPU
#   scripts/gpu_check.sh --json results.json
# The programs are those of the runtime that scripts/gpu_bundle.sh made (RINGTRAIN_RUNTIME, else ./runtime or
# ./runtime.tar.gz), else of build/release, which is built when it is not there.
set -euo pipefail
scripts=$(dirname "$(realpath "$0")")
root=$(dirname "$scripts")
if [ -f "$root/runtime.tar.gz" ] && [ ! -d "$root/runtime" ]; then tar -C "$root" -xzf "$root/runtime.tar.gz"; fi
command -v python3 >/dev/null || { echo "gpu_check: needs python3" >&2; exit 69; }
exec python3 "$scripts/gpu_check" "$@"
