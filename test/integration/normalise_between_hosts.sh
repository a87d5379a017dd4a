#!/usr/bin/env bash
# normalise_between_hosts.sh HOSTSxRANKS TRAIN COMPARE: --sync-batchnorm over hosts joined by TCP, where small sums pass the
# gradients' on another thread: the weights of one rank with all images, and the same bits every time.
set -u
layout=$1 train=$(realpath "$2") compare=$(realpath "$3") bad=0
. "$(dirname "$(readlink -f "$0")")/../support/hosts/borrow.sh"
"$hosts" up "${layout%x*}" || exit 1

options=(--model resnet20 --data synthetic --classes 10 --global-batch 25 --steps 8 --threads 1 --lr 0.001 --eval-every 0
  --sync-batchnorm --bucket-mb 0.05 --quiet)
timeout 100 "$train" "${options[@]}" --checkpoint-dir "$HOSTS_RUN/alone" || exit 1
for i in 1 2; do
  timeout 100 "$hosts" mpirun "${layout#*x}" "$train" "${options[@]}" --checkpoint-dir "$HOSTS_RUN/together$i" || exit 1
done
file=step-0000000008.h5
for part in weights/ statistics/; do
  "$compare" "$HOSTS_RUN/alone/$file" "$HOSTS_RUN/together1/$file" 1e-5 $part || bad=1
done
state() { "$train" --inspect "$HOSTS_RUN/$1/$file" | tail -n 1; }
[ "$(state together1)" = "$(state together2)" ] || { echo "wrong: the second run has other bits"; bad=1; }
exit $bad
