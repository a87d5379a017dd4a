#!/usr/bin/env bash
# inception_sized.sh BUILD [ROUNDS]: steps whose gradients are as large as Inception v3's, on 2 and 4 workers at 1 Gbit/s, around a ring
# and over a server, asynchronous and synchronous, that answers as TensorFlow's does or each variable by itself. $WORKERS, $RATE, $STEPS: others.
. "$(dirname "$(readlink -f "$0")")/runs.sh"
base=(--model-file "$here/wide.model" --data shapes --batch 2 --log-every 1)

for ((round = 1; round <= ${2:-3}; round++)); do
  for workers in ${WORKERS:-2 4}; do
    on_hosts "$workers" "${RATE:-1gbit}"
    ring "ring.$workers.$round" "${base[@]}" --steps "${STEPS:-8}"
    ring "bf16.$workers.$round" "${base[@]}" --gradient-dtype bf16 --steps "${STEPS:-8}"
    on_hosts $((workers + 1)) "${RATE:-1gbit}"
    for updates in sync async; do
      for answers in step variable; do
        parameter_server "$updates.$answers.$workers.$round" "updates=$updates answers=$answers" "${base[@]}" --steps "${STEPS:-8}"
      done
    done
  done
done
show
