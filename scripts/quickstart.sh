#!/usr/bin/env bash
# From a bare clone to a trained network: installs what is missing, builds, and trains on two ranks on
# the built-in `shapes` images. Further arguments go to `train`.
set -euo pipefail
cd "$(dirname "$0")/.."

start=$SECONDS
scripts/setup.sh --build
installed=$SECONDS
cmake --preset release >/dev/null
cmake --build --preset release --target train
built=$SECONDS
echo "quickstart: packages $((installed - start)) s, build $((built - installed)) s"

[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
command=(mpirun -np 2 --oversubscribe build/release/train --model cifar10_cnn --data shapes --epochs 3
  --batch 32 --optimizer momentum --lr 0.02 --ema 0.99 --log-every 100 "$@")
echo "quickstart: ${command[*]}"
"${command[@]}"
echo "quickstart: training took $((SECONDS - built)) s"
