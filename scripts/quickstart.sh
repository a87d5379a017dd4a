#!/usr/bin/env bash
# From a bare clone to a trained network: installs what is missing, builds, and trains on two ranks, or on one for each GPU, on the
# built-in `shapes` images.
#   scripts/quickstart.sh [--cuda 13|system|no] [OPTION...]
#     --cuda    which CUDA, when not what suits the GPU that is here (scripts/setup_cuda.sh); no: train on CPUs
#     OPTION    of `train`
set -euo pipefail
cd "$(dirname "$0")/.."

export RINGTRAIN_SETUP_CUDA=${RINGTRAIN_SETUP_CUDA:-auto}
if [ "${1:-}" = --cuda ]; then
  [ $# -gt 1 ] || { sed -n '4,6s/^# *//p' scripts/quickstart.sh >&2; exit 64; }
  RINGTRAIN_SETUP_CUDA=$2
  shift 2
fi
with_cuda=AUTO
if [ "$RINGTRAIN_SETUP_CUDA" = no ]; then
  with_cuda=OFF
  set -- --device cpu "$@"
fi

start=$SECONDS
scripts/setup.sh --build
installed=$SECONDS
mkdir -p build
cmake --preset release -DRINGTRAIN_TESTS=OFF -DRINGTRAIN_CUDA=$with_cuda -DRINGTRAIN_RELEASE=OFF -DRINGTRAIN_WARNINGS_AS_ERRORS=OFF >build/configure.log 2>&1 || { cat build/configure.log >&2; exit 1; }
grep '^-- CUDA' build/configure.log || true
cmake --build --preset release --target train
built=$SECONDS
echo "quickstart: packages $((installed - start)) s, build $((built - installed)) s"

[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks=2
gpus=$(scripts/setup_cuda.sh --list-gpus | wc -l)
case " $* ,${CUDA_VISIBLE_DEVICES-all}" in
  *" --device cpu "* | *" --device=cpu "* | *, | *,-1) ;;
  *,all) [ "$gpus" -eq 0 ] || ranks=$gpus ;;
  *) [ "$gpus" -eq 0 ] || ranks=$(tr , '\n' <<<"$CUDA_VISIBLE_DEVICES" | wc -l) ;;
esac
command=(mpirun -np $ranks --oversubscribe build/release/train --model cifar10_cnn --data shapes --epochs 3
  --batch 32 --optimizer momentum --lr 0.02 --ema 0.99 --log-every 100 "$@")
echo "quickstart: ${command[*]}"
"${command[@]}"
echo "quickstart: training took $((SECONDS - built)) s"
