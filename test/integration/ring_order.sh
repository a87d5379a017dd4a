#!/usr/bin/env bash
# ring_order.sh MPIRUN TRAIN EMULATE: jobs of N ranks of one host come to the bits of one process that adds their gradients in
# the documented order.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") emulate=$(realpath "$3")
enter_folder

same() { # RANKS STEPS OPTION...
  local ranks=$1 steps=$2
  shift 2
  local options=(--steps "$steps" --threads 1 --eval-every 0 "$@")
  rm -rf job
  launch "$ranks" "$train" "${options[@]}" --checkpoint-dir job --quiet || give_up "$ranks ranks, $*: failed"
  check "$ranks ranks, $*" env OMP_NUM_THREADS=1 "$emulate" "1x$ranks" "$(file_of job "$steps")" "${options[@]}"
}
for ranks in 2 3 5 8; do same $ranks 8 --model mlp --data shapes --global-batch 37; done
for ranks in 2 3 4; do same $ranks 3 --model cifar10_cnn --data synthetic --classes 10 --global-batch 16 --bucket-mb 0.3; done
same 3 4 --model resnet20 --data synthetic --classes 10 --global-batch 13 --bucket-mb 0.1 --optimizer adamw
same 3 4 --model mlp --data shapes --batch 4 --bucket-mb 0.01
exit $bad
