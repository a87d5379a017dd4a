#!/usr/bin/env bash
# allreduce_mpi.sh MPIRUN TRAIN COMPARE_CHECKPOINTS: with --allreduce mpi, training comes to what the ring comes to: two terms have
# one order and so the same bits, three are equal up to rounding. Its records tell of sums as the ring's do.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") compare=$(realpath "$3")
enter_folder

job() { # HOW RANKS STEPS: into folder HOW-RANKS
  limit=200 launch "$2" "$train" --model cifar10_cnn --data shapes --global-batch 12 --steps "$3" --threads 1 \
    --eval-every 0 --log-every 1 --check-every 1 --allreduce "$1" --checkpoint-dir "$1-$2" --metrics "$1-$2.jsonl"
  exits "$1, $2 ranks" 0
}
losses() { sed -n 's/.*"kind":"step".*"loss":\([^,]*\),.*/\1/p' "$1.jsonl"; }

for how in ring mpi; do
  job $how 2 6
  check "$how: a record each step" is "$(losses $how-2 | wc -l)" 6
  check "$how: the records say how sums were made" grep -q "\"kind\":\"start\".*\"allreduce\":\"$how\"" $how-2.jsonl
  check "$how: the records tell what the sums reached" grep -q '"kind":"end".*"sums":{"bus_bandwidth":[1-9]' $how-2.jsonl
  check "$how: both ranks communicated" is "$(sed -n '/"kind":"end"/p' $how-2.jsonl | grep -o '"comm_exposed":[0-9.e-]*' | grep -vc ':0\.0$')" 2
done
check "2 ranks: the losses of the ring" is "$(losses mpi-2)" "$(losses ring-2)"
check "2 ranks: the bits of the ring" is "$(bits mpi-2)" "$(bits ring-2)"

for how in ring mpi; do job $how 3 2; done
check "3 ranks: the ring's weights" "$compare" {ring,mpi}-3/step-0000000002.h5 1e-6
check "3 ranks: which were summed in another order" differ "$(bits mpi-3)" "$(bits ring-3)"
exit $bad
