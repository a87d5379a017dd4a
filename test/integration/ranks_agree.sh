#!/usr/bin/env bash
# ranks_agree.sh MPIRUN TRAIN COMPARE MODEL: N ranks come to the weights of one rank with the same global batch. Networks
# with BatchNorm are compared with one rank that normalises the N sub-batches separately (--accumulate N), and, with
# --sync-batchnorm, with one rank that has all images at once.
# The images are random noise: in drawn ones, flat areas make ties that rounding decides.
# Rounding flips a ReLU or a pool's choice now and then, and each flip counts with the learning rate: so steps at the
# recipe's rate are few, and many steps have a low one.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") compare=$(realpath "$3") model=$4 rate=0.1 images=24
enter_folder

# run NAME RANKS STEPS [OPTION...]
run() {
  local name=$1 ranks=$2 steps=$3
  shift 3
  launch "$ranks" "$train" --model "$model" --data synthetic --classes 10 --global-batch "$images" \
    --steps "$steps" --threads 1 --lr "$rate" --eval-every 0 --checkpoint-dir "$name" --quiet "$@" || give_up "$name failed"
}

# same RANKS STEPS TOLERANCE [OPTION of the single rank...]
same() {
  local ranks=$1 steps=$2 tolerance=$3
  shift 3
  rm -rf ./*
  run "together$ranks" "$ranks" "$steps"
  run "alone$ranks" 1 "$steps" "$@"
  printf '%s ranks, %s steps: ' "$ranks" "$steps"
  check "as one rank" "$compare" "$(file_of "alone$ranks" "$steps")" "$(file_of "together$ranks" "$steps")" "$tolerance"
}

# normalise_together RANKS STEPS TOLERANCE: as one rank, in weights and running statistics.
normalise_together() {
  local part
  rm -rf ./*
  run together "$1" "$2" --sync-batchnorm
  run alone 1 "$2"
  for part in weights/ statistics/; do
    printf '%s ranks, %s steps of %s images, BatchNorm over all, %s: ' "$1" "$2" "$images" $part
    check "as one rank" "$compare" "$(file_of alone "$2")" "$(file_of together "$2")" "$3" $part
  done
}

case $model in
  resnet*)
    normalise_together 1 2 0
    normalise_together 2 2 3e-6
    images=25  # the ranks' shares differ
    for ranks in 3 4; do normalise_together $ranks 2 3e-6; done
    rate=0.001
    normalise_together 3 8 1e-5
    rate=0.1 images=24
    same 2 8 0 --accumulate 2  # a sum of two has one order, so even the bits agree
    # Rounding differs from three ranks on.
    same 3 2 1e-5 --accumulate 3
    same 4 2 1e-5 --accumulate 4
    ;;
  *)
    for ranks in 2 3 4; do same $ranks 1 1e-6; done
    rate=0.001
    for ranks in 2 3 4; do same $ranks 20 1e-5; done
    ;;
esac
exit $bad
