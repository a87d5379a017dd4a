#!/usr/bin/env bash
# same_as_train.sh MPIRUN TRAIN PARAMETER_SERVER SAME_WEIGHTS: the parameter server of these benchmarks is an honest one: its workers,
# together, make the same weights as `train`, to the bit; asynchronously they learn.
. "$(dirname "$0")/../../support/lib.sh"
mpirun=$1 train=$(realpath "$2") server=$(realpath "$3") same=$(realpath "$4")
enter_folder

# serve SERVER_KEYS WORKERS OPTION...: trains with so many workers on this host; fails if one of them or the server does
serve() {
  local keys=$1 workers=$2 port w pids failed=0
  shift 2
  rm -f served metrics*
  # shellcheck disable=SC2086
  timeout 60 "$server" serve $keys port=0 "workers=$workers" save_to="$dir/weights" -- "$@" >served 2>&1 &
  pids=($!)
  wait_for 10 grep -qs port served
  port=$(sed -n 's/^port //p' served)
  for ((w = 0; w < workers; w++)); do
    # shellcheck disable=SC2086
    timeout 60 "$server" work $keys "port=$port" "workers=$workers" "worker=$w" -- "$@" --metrics "metrics$w" &
    pids+=($!)
  done >log 2>&1
  for w in "${pids[@]}"; do wait "$w" || failed=1; done
  cat served >>log
  return $failed
}
ring() { # RANKS OPTION...
  local ranks=$1
  shift
  rm -rf ring
  launch "$ranks" "$train" "$@" --checkpoint-dir ring
}
equal() { "$same" ring/step-*.h5 weights >>log 2>&1; }
loss_in() { sed -n "$2"'s/.*"loss":\([0-9.]*\),.*/\1/p' "$1"; }
falls() { awk -v a="$(loss_in metrics0 1)" -v b="$(loss_in metrics0 '$')" 'BEGIN { exit !(b > 0 && b < 0.7 * a) }'; }

options=(--data shapes --threads 1 --batch 16 --eval-every 0 --log-every 5 --steps)
for one in "1 step sgd mlp" "2 variable momentum mlp" "2 step sgd cifar10_cnn"; do
  read -r workers answers optimizer model <<<"$one"
  rm -f weights
  serve "updates=sync answers=$answers" "$workers" --model "$model" --optimizer "$optimizer" "${options[@]}" 20
  exits "$workers workers, answers by $answers, $optimizer, $model" 0
  ring "$workers" --model "$model" --optimizer "$optimizer" "${options[@]}" 20
  check "$workers workers, answers by $answers, $optimizer, $model: train's bits" equal
done
serve "updates=async answers=step" 2 --model mlp --optimizer sgd --lr 0.02 "${options[@]}" 200
exits "asynchronous workers" 0
check "asynchronous workers learn" falls
exit $bad
