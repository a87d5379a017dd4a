#!/usr/bin/env bash
# same_bits.sh MPIRUN TRAIN: the same command saves the same bytes, and what is not to change the numbers changes no bit.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder

# job NAME RANKS OPTION...: options that come later win.
job() {
  local name=$1 ranks=$2
  shift 2
  rm -rf "$name"
  launch "$ranks" "$train" --data shapes --batch 8 --steps 12 --threads 1 --eval-every 0 \
    --checkpoint-dir "$name" "$@"
  exits "$name, $ranks ranks, $*" 0
}
run_of() { "$train" --inspect "$(newest "$1")" | grep ^run; }
same() { # OPTION...: as the run before it, `first`
  job other $ranks "${options[@]}" "$@"
  check "$*: the same bits" is "$(bits other)" "$(bits first)"
}
differs() { # OPTION...: or the others compare nothing
  job other $ranks "${options[@]}" "$@"
  check "$*: other bits" differ "$(bits other)" "$(bits first)"
}

ranks=3
for model in cifar10_cnn resnet20; do
  options=(--model $model --ema 0.9 --label-smoothing 0.1)
  job first $ranks "${options[@]}"
  job again $ranks "${options[@]}"
  check "$model: the same command saves the same bytes" same_bytes {first,again}/step-0000000012.h5
  check "$model: the runs tell themselves apart" differ "$(run_of first)" "$(run_of again)"
  same --data-threads 3 --checkpoint-every 1 --keep 2 --log-every 1 --metrics metrics.jsonl --check-every 1 --max-time 1h --deterministic
done
differs --seed 2
differs --bucket-mb 0.05 # where the ranks' parts begin, and so the order of three terms

ranks=2 options=(--model mlp --batch 500) # an epoch ends with step 10
job first $ranks "${options[@]}"
same --eval-every 1
check "an evaluation was amid it" has "step 10, evaluation"
same --bucket-mb 0.05 # two terms have one order
exit $bad
