#!/usr/bin/env bash
# compression.sh TRAIN speed [ROUNDS [STEPS]]: what a step takes with --compress, between hosts made for it, on links of 1 Gbit/s and 100 Mbit/s:
# median milliseconds over rounds in which all take turns, and how many times as fast as in fp32.
# compression.sh TRAIN learning [SEEDS]: accuracy at the end of a training on two hosts. $DATA: shapes, or cifar10:DIR.
# Which: $MODEL, $BATCH, $EPOCHS, $HOSTS, $RATES, $WAYS; more options of train: $OPTIONS.
. "$(dirname "$0")/../support/lib.sh"
train=$(readlink -f "$1") what=$2
ways=${WAYS:-none powersgd:2 powersgd:4 topk:0.01}
enter_folder
need_hosts

value() { sed -n "s/.*\"kind\":\"$1\".*\"$2\":\([0-9.e+-]*\).*/\1/p" metrics; }
median() { sort -g | awk '{ v[NR] = $1 } END { printf "%.4g", v[int((NR + 1) / 2)] }'; }
spread() { sort -g | awk '{ v[NR] = $1 } END { printf "%.2f (%.2f to %.2f)", v[int((NR + 1) / 2)], v[1], v[NR] }'; }

run() {  # WAY OPTION...
  local way=$1
  shift
  rm -f metrics
  # shellcheck disable=SC2086
  timeout 900 "$hosts" mpirun 1 "$train" --model "${MODEL:-cifar10_cnn}" --data "${DATA:-shapes}" --batch "${BATCH:-16}" --threads 1 \
    --check-every 1000000 --metrics "$dir/metrics" --compress "$way" ${OPTIONS:-} "$@" >log 2>&1 ||
    { echo "failed: $way $*"; tail -n 5 log; } >&2
}

speed() {
  local rounds=${1:-3} steps=${2:-60} rate count way bytes
  for ((round = 0; round < rounds; round++)); do
    for rate in ${RATES:-1gbit 100mbit}; do
      for count in ${HOSTS:-2 4}; do
        "$hosts" up "$count" "$rate"
        for way in $ways; do
          run "$way" --steps "$steps" --eval-every 0 --log-every 1
          bytes=$(value links bytes)  # of runs that were long enough for a verdict
          echo "$rate|$count|$way ${bytes:-0} $(value step seconds_per_batch | sed 1,5d | median)"
        done
        "$hosts" down
      done
    done
  done | tee rows >&2
  echo "| links | hosts | gradients | KB a step | ms a step | times as fast |"
  echo "|---|---|---|---|---|---|"
  awk '!seen[$1]++ { print $1 }' rows | while read -r key; do
    of() { awk -v key="$key" "\$1 == key { print $1 }" rows; }
    paste <(awk -v key="${key%|*}|none" '$1 == key { print $3 }' rows) <(of '$3') >pairs
    echo "| ${key//|/ | } | $(of '$2 / 1e3' | sort -g | tail -n 1) | $(of '1e3 * $3' | median) | $(awk '{ print $1 / $2 }' pairs | spread) |"
  done
}

learning() {
  local seeds=${1:-1} way seed
  "$hosts" up 2
  for ((seed = 1; seed <= seeds; seed++)); do
    for way in $ways; do
      run "$way" --epochs "${EPOCHS:-2}" --seed "$seed" --log-every 50
      echo "$way $(value end top1)"
    done
  done | tee rows >&2
  echo "| gradients | top-1, % |"
  echo "|---|---|"
  for way in $ways; do echo "| $way | $(awk -v way="$way" '$1 == way { print 100 * $2 }' rows | spread) |"; done
}

"$what" "${@:3}"
