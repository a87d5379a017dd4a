#!/usr/bin/env bash
# ranks_against_cores.sh TRAIN [MODEL[:BATCH] [STEPS [ROUNDS]]]: what two ranks of one thread reach, against twice one such rank, and against two
# runs of one rank side by side that know nothing of each other: how far two busy cores slow each other. Interleaved.
set -u
IFS=: read -r model batch <<<"${2:-cifar10_cnn}:64"
train=$(readlink -f "$1") batch=${batch%%:*} steps=${3:-150} rounds=${4:-5}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
options=(--model "$model" --data synthetic --batch "$batch" --steps "$steps" --eval-every 0 --log-every 1000000)
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT

rate() { awk '/throughput/ {print $2}'; }
alone() { taskset -c "$1" "$train" --threads 1 "${options[@]}" 2>&1 | rate; }

for ((round = 0; round < rounds; round++)); do
  one=$(alone $((round % 2)))
  alone 0 >"$dir/a" & alone 1 >"$dir/b" & wait
  job=$(mpirun -np 2 "$train" "${options[@]}" 2>&1 | rate)
  echo "$one $(cat "$dir/a") $(cat "$dir/b") $job"
done | tee "$dir/rates" | awk '{printf "one rank %7.1f | two apart %7.1f | two ranks %7.1f examples/s\n", $1, $2 + $3, $4}'

median() { sort -n | awk '{v[NR] = $1} END {printf "%.3f (%.3f to %.3f)", v[int((NR + 1) / 2)], v[1], v[NR]}'; }
echo "$model: two apart / twice one  $(awk '{print ($2 + $3) / (2 * $1)}' "$dir/rates" | median)"
echo "$model: two ranks / twice one  $(awk '{print $4 / (2 * $1)}' "$dir/rates" | median)"
echo "$model: two ranks / two apart  $(awk '{print $4 / ($2 + $3)}' "$dir/rates" | median)"
