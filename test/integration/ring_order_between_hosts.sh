#!/usr/bin/env bash
# ring_order_between_hosts.sh HOSTSxRANKS TRAIN EMULATE: as ring_order.sh, on hosts joined by TCP.
. "$(dirname "$0")/../support/lib.sh"
layout=$1 train=$(realpath "$2") emulate=$(realpath "$3")
enter_folder
make_hosts "${layout%x*}"

options=(--model cifar10_cnn --data shapes --global-batch 13 --steps 6 --threads 1 --eval-every 0 --bucket-mb 0.3)
launch_on_hosts "${layout#*x}" "$train" "${options[@]}" --checkpoint-dir "$dir/job" --quiet || give_up "the job failed"
check "the bits" env OMP_NUM_THREADS=1 "$emulate" "$layout" job/step-0000000006.h5 "${options[@]}"

# Where ranks that shared hosts no longer do, the order of sums is another, which is told.
[ "$layout" = 2x2 ] || exit $bad
timeout 100 "$hosts" exec 0 mpirun -np 4 --oversubscribe "$train" "${options[@]}" --max-time 0.001s --checkpoint-dir "$dir/job" >log 2>&1
check "other hosts are told" grep -qF 'saved with {"hosts":[0, 1, 0, 1],"threads":1}, going on with {"threads":1}: equal up to rounding' log
exit $bad
