#!/usr/bin/env bash
# endings.sh MPIRUN SESSION_JOB: however a job ends, its reason is printed once and mpirun returns its exit code.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 job=$(realpath "$2")
enter_folder
limit=30

# expect RANKS HOW CODE TEXT [TIMES]
expect() {
  launch "$1" "$job" "$2"
  exits "$2, $1 ranks" "$3"
  check "$2, $1 ranks: '$4', ${5:-1} times" test "$(log_text | grep -cF "$4")" -eq "${5:-1}"
}
expect 1 "one rank fails" 74 "train: read batch 7: file is short"
expect 3 "one rank fails" 74 "train: rank 2/3 on $(hostname): read batch 7: file is short"
expect 3 "one rank fails" 74 "fault: kind=data code=74 rank=2 host=$(hostname) step=0 resume=none"
expect 4 "all ranks fail" 75 "fault: kind=storage code=75 "
expect 3 "all agree" 64 "fault: kind=usage code=64 rank=0 "
expect 2 "fails amid a sum" 76 "fault: kind=nan code=76 rank=0 "
expect 4 "all ranks fail" 75 "open /nowhere: no such directory"
expect 2 "nobody reads the reason" 74 "file is short" 0
expect 2 "sums differ in size" 70 "ranks sum buffers of different sizes"
expect 3 "all agree" 64 "train: --model resnet51: unknown"
expect 2 "fails amid a sum" 76 "train: rank 0/2 on $(hostname): loss: NaN in step 3"
for _ in 1 2 3; do
  expect 4 "fails amid a sum of pairs" 76 "train: rank 0/4 on $(hostname): loss: NaN in step 3"
done
"$job" "one rank fails" 2>/dev/null
exits "without a launcher" 74
"$job" "one rank fails" 2>/dev/full
exits "a reason that cannot be written" 74
exit $bad
