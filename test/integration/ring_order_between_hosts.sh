#!/usr/bin/env bash
# ring_order_between_hosts.sh HOSTSxRANKS TRAIN EMULATE: as ring_order.sh, on hosts joined by TCP.
set -u
layout=$1 train=$(realpath "$2") emulate=$(realpath "$3")
. "$(dirname "$(readlink -f "$0")")/../support/hosts/borrow.sh"
"$hosts" up "${layout%x*}" || exit 1

options=(--model cifar10_cnn --data shapes --global-batch 13 --steps 6 --threads 1 --eval-every 0 --bucket-mb 0.3)
timeout 100 "$hosts" mpirun "${layout#*x}" "$train" "${options[@]}" --checkpoint-dir "$HOSTS_RUN/job" --quiet || exit 1
OMP_NUM_THREADS=1 "$emulate" "$layout" "$HOSTS_RUN/job/step-0000000006.h5" "${options[@]}" || exit 1

# Where ranks that shared hosts no longer do, the order of sums is another, which is told.
[ "$layout" = 2x2 ] || exit 0
timeout 100 "$hosts" exec 0 mpirun -np 4 --oversubscribe "$train" "${options[@]}" --max-time 0.001s --checkpoint-dir "$HOSTS_RUN/job" >"$HOSTS_RUN/log" 2>&1
grep -qF 'saved with {"hosts":[0, 1, 0, 1],"threads":1}, going on with {"threads":1}: equal up to rounding' "$HOSTS_RUN/log" ||
  { echo "wrong: other hosts are not told:" && cat "$HOSTS_RUN/log" && exit 1; }
