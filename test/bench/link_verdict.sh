#!/usr/bin/env bash
# link_verdict.sh TRAIN [ROUNDS [STEPS]]: what the links' verdict expects of a step beside what came, between hosts made for it whose
# links carry 1 Gbit/s and 100 Mbit/s: medians of rounds over all of them. "Then" are the steps that the verdict has measured, where only
# its model can err; the speed of a busy machine changes up to those that follow, "later". Which: $MODELS, $HOSTS, $BATCHES, $RATES.
. "$(dirname "$0")/../support/lib.sh"
train=$(readlink -f "$1") rounds=${2:-5} steps=${3:-60}
enter_folder
need_hosts

value() { sed -n "s/.*\"kind\":\"$1\".*\"$2\":\([0-9.e+-]*\).*/\1/p" metrics; }

verdict() {  # RATE HOSTS MODEL BATCH: "key sums efficiency expected then later", in seconds
  local expected at
  rm -f metrics
  timeout 300 "$hosts" mpirun 1 "$train" --model "$3" --data shapes --batch "$4" --threads 1 --steps "$steps" --eval-every 0 \
    --log-every 1 --metrics "$dir/metrics" --check-every 1000000 >log 2>&1
  expected=$(value links expected_seconds_per_batch)
  [[ $expected ]] || { echo "no verdict: $*" >&2; return; }
  at=$(sed '/"kind":"links"/q' metrics | grep -c '"kind":"step"')  # steps before it; the first two and last two do not count
  echo "$1|$2|$3|$4 $(value links sums_seconds) $(value links efficiency) $expected" \
    "$(value step seconds_per_batch | sed -n "3,$((at - 2))p" | median) $(value step seconds_per_batch | sed "1,${at}d" | median)"
}

median() { sort -g | awk '{ v[NR] = $1 } END { printf "%.4g", v[int((NR + 1) / 2)] }'; }
spread() { sort -g | awk '{ v[NR] = $1 } END { printf "%.2f (%.2f to %.2f)", v[int((NR + 1) / 2)], v[1], v[NR] }'; }

for ((round = 0; round < rounds; round++)); do
  for rate in ${RATES:-1gbit 100mbit}; do
    for count in ${HOSTS:-2 4}; do
      "$hosts" up "$count" "$rate"
      for model in ${MODELS:-cifar10_cnn resnet20}; do
        for batch in ${BATCHES:-16 64}; do verdict "$rate" "$count" "$model" "$batch"; done
      done
      "$hosts" down
    done
  done
done | tee rows >&2

echo "| links | hosts | model | batch | sums, ms | efficiency | expected, ms | expected / then | expected / later |"
echo "|---|---|---|---|---|---|---|---|---|"
cut -d' ' -f1 rows | sort -u | while read -r key; do
  of() { awk -v key="$key" "\$1 == key { print $1 }" rows; }
  echo "| ${key//|/ | } | $(of '1e3 * $2' | median) | $(of '$3' | median) | $(of '1e3 * $4' | median) | $(of '$4 / $5' | spread) | $(of '$4 / $6' | spread) |"
done
