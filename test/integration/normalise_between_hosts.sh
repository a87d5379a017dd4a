#!/usr/bin/env bash
# normalise_between_hosts.sh HOSTSxRANKS TRAIN COMPARE: --sync-batchnorm over hosts joined by TCP, where small sums pass the
# gradients' on another thread: the weights of one rank with all images, and the same bits every time.
. "$(dirname "$0")/../support/lib.sh"
layout=$1 train=$(realpath "$2") compare=$(realpath "$3")
enter_folder
make_hosts "${layout%x*}"

options=(--model resnet20 --data synthetic --classes 10 --global-batch 25 --steps 8 --threads 1 --lr 0.001 --eval-every 0
  --sync-batchnorm --bucket-mb 0.05 --quiet)
launch_alone "$train" "${options[@]}" --checkpoint-dir alone || give_up "one rank failed"
for i in 1 2; do
  launch_on_hosts "${layout#*x}" "$train" "${options[@]}" --checkpoint-dir "$dir/together$i" || give_up "run $i on hosts failed"
done
file=step-0000000008.h5
for part in weights/ statistics/; do
  check "as one rank, $part" "$compare" "alone/$file" "together1/$file" 1e-5 $part
done
check "the second run has the same bits" is "$(bits together1)" "$(bits together2)"
exit $bad
