#!/usr/bin/env bash
# tuning.sh TRAIN [ROUNDS [STEPS]]: what --tuning auto gains over the default plan, between hosts made for it: medians over rounds in which
# both take turns. "Floor", of auto: what no plan can hide, the bytes that each link must carry over its bandwidth (as measure_ring() finds it) less
# backward's time. Which: $MODEL, $BATCH, $RATES (RATE or RATE/MS, MS milliseconds from each host to each), $HOSTS, $WAYS.
. "$(dirname "$0")/../support/lib.sh"
train=$(readlink -f "$1") rounds=${2:-3} steps=${3:-150}
enter_folder
need_hosts
export SLOW_SWITCH=${SLOW_SWITCH:-$(dirname "$train")/test/bench/slow_switch}

value() { # KIND KEY: the first number called so in each record of the kind
  grep "\"kind\":\"$1\"" metrics | awk -v key="\"$2\":" 'match($0, key "[0-9.e+-]+") { print substr($0, RSTART + length(key), RLENGTH - length(key)) }'
}
links() { value links "$1"; }
phase() { value step "$1" | tail -n $((steps / 3)) | median; }  # of steps that no trial disturbs
median() { sort -g | awk '{ v[NR] = $1 } END { printf "%.5g", v[int((NR + 1) / 2)] }'; }
spread() { sort -g | awk '{ v[NR] = $1 } END { printf "%.2f (%.2f to %.2f)", v[int((NR + 1) / 2)], v[1], v[NR] }'; }

run() { # RATE HOSTS WAY: "RATE|HOSTS WAY step exposed backward bytes bytes_per_second plan"
  rm -f metrics
  timeout 900 "$hosts" mpirun 1 "$train" --model "${MODEL:-cifar10_cnn}" --data shapes --batch "${BATCH:-16}" --threads 1 --steps "$steps" \
    --eval-every 0 --log-every 1 --check-every 1000000 --metrics "$dir/metrics" --tuning "$3" >log 2>&1 ||
    { echo "failed: $*"; tail -n 5 log; } >&2
  echo "$1|$2 $3 $(phase seconds_per_batch) $(phase comm_exposed) $(phase backward) $(links bytes) $(links bytes_per_second)" \
    "$(sed -n 's/.*"block_bytes":\([0-9]*\),.*"sums_at_once":\([0-9]*\),"sums_start":"\([a-z]*\)".*/\1,\2,\3/p' metrics)"
}

for ((round = 0; round < rounds; round++)); do
  for rate in ${RATES:-100mbit 1gbit 10gbit}; do
    for count in ${HOSTS:-2 4}; do
      # shellcheck disable=SC2086
      "$hosts" up "$count" ${rate/\// }
      for way in ${WAYS:-off auto}; do run "$rate" "$count" "$way"; done
      "$hosts" down
    done
  done
done | tee rows >&2

echo "| links | hosts | plan | step, ms | exposed, ms | floor, ms | exposed / floor | step of the default / step | plans taken |"
echo "|---|---|---|---|---|---|---|---|---|"
awk '!seen[$1 " " $2]++ { print $1, $2 }' rows | while read -r key way; do
  of() { awk -v key="$key" -v way="$way" "\$1 == key && \$2 == way { n = substr(key, index(key, \"|\") + 1); floor = \$7 > 0 ? \$6 * 2 * (n - 1) / n / \$7 - \$5 : 0; print $1 }" rows; }
  paste <(awk -v key="$key" '$1 == key && $2 == "off" { print $3 }' rows) <(of '$3') >pairs
  echo "| ${key//|/ | } | $way | $(of '1e3 * $3' | median) | $(of '1e3 * $4' | median) | $(of '1e3 * floor' | median) | $(of '(floor > 0 ? $4 / floor : 0)' | spread) |" \
    "$(awk '{ print $1 / $2 }' pairs | spread) | $(of '$8' | sort | uniq -c | sort -rn | awk '{ printf "%s%dx %s", sep, $1, $2; sep = "; " }') |"
done
