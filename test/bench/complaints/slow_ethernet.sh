#!/usr/bin/env bash
# slow_ethernet.sh BUILD [ROUNDS]: the second complaint: cifar10_cnn with 16 images a step on a worker and a server at 1 Gbit/s, against
# one machine, and against a ring of two by default, with --tuning all, and with what its verdict on the links recommends. "apart" are
# two machines that know nothing of each other: what the two cores of this one can do. $BATCH, $ACCUMULATE: instead of what the first round's verdict says.
. "$(dirname "$(readlink -f "$0")")/runs.sh"
base=(--model cifar10_cnn --data shapes --log-every 1)
recommended() { sed -n "s/.*efficiency: .*--$1 \([0-9][0-9]*\).*/\1/p" "$results/ring.1.log"; }

for ((round = 1; round <= ${2:-5}; round++)); do
  alone "alone.$round" 0 "${base[@]}" --batch 16 --steps 300
  on_hosts 2 1gbit
  parameter_server "server.$round" "updates=async" "${base[@]}" --batch 16 --steps 80
  ring "ring.$round" "${base[@]}" --batch 16 --steps 160
  batch=${BATCH:-$(recommended batch)} accumulate=${ACCUMULATE:-$(recommended accumulate)}
  echo "--batch ${batch:-16} --accumulate ${accumulate:-1}" >"$results/tried.log"
  if [[ $batch ]]; then # else the links suffice
    ring "tuned.$round" "${base[@]}" --batch 16 --tuning all --steps 160
    ring "compress.$round" "${base[@]}" --batch 16 --compress powersgd:4 --steps 160
    ring "accumulate.$round" "${base[@]}" --batch 16 --accumulate "$accumulate" --steps 50
    ring "accumulate_bf16.$round" "${base[@]}" --batch 16 --accumulate "$accumulate" --gradient-dtype bf16 --steps 50
    ring "batch.$round" "${base[@]}" --batch "$batch" --steps 50
    ring "batch_bf16.$round" "${base[@]}" --batch "$batch" --gradient-dtype bf16 --steps 50
    alone "alone_batch.$round" 0 "${base[@]}" --batch "$batch" --steps 60
  fi
  alone "apart_other.$round" 1 "${base[@]}" --batch "${batch:-16}" --steps 100 &
  other=$!
  alone "apart.$round" 0 "${base[@]}" --batch "${batch:-16}" --steps 100
  wait $other
done
show
