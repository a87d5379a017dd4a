#!/usr/bin/env bash
# slurm_chain.sh TRAIN: a chain of five runs of one job on a Slurm of two nodes. Run 1 loses a node, run 2 its checkpoint writer for
# good, run 3 finds the lock of a host that is gone and loses a rank, run 4 meets a full disk and is not requeued; requeued by hand, run 5
# finishes, with the bits of an undisturbed job.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1")
holder=
enter_folder
mkdir disk && mount -t tmpfs -o size=256m disk disk || skip "no small file system can be mounted here"
at_end '[ -z "$holder" ] || kill -KILL $holder; umount -l "$dir/disk" 2>/dev/null'
saves=$dir/disk/saves
need_slurm 100mbit

# Slurm lets a requeued job wait for two minutes; not here.
runs() { # N: the job's N-th run has begun
  # At once would be too soon: a script that starts while its node puts the one before away fails without a word.
  [[ $(fact "$chain" JobState) != PENDING ]] || { sleep 3 && "$slurm" exec scontrol update jobid="$chain" StartTime=now TimeLimit=20 2>/dev/null; }
  grep -qs "run $1: " "chain-$chain.log"
}
newer_than() { [[ $(newest "$saves" 2>/dev/null) > $1 ]]; }
writers() { # of this test's jobs alone
  local process
  for process in $(pgrep -x ringtrain-write); do
    if grep -qs "$HOSTS_RUN" "/proc/$process/environ"; then echo "$process"; fi
  done
}
ranks() { # and what they have forked
  pgrep -f "^$train .*--checkpoint-dir $saves"
}

# An undisturbed run's bits, on two ranks of one host.
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -np 2 --oversubscribe "$train" --model mlp --data shapes --batch 16 --threads 1 \
  --eval-every 0 --steps 400 --checkpoint-every 1000 --checkpoint-dir calm >calm.log 2>&1 || { log=calm.log give_up "the undisturbed run failed"; }

"$slurm" up 3 100mbit || exit 1  # a node more than the job needs
started=$SECONDS
chain=$(submit chain launcher=mpirun --steps 400 --final-save-timeout 5s --checkpoint-dir "$saves")

await_slurm "run 1" 60 runs 1
await_slurm "a checkpoint of run 1" 60 newer_than ""
lose_node "$chain" '$'
await_slurm "run 2" 120 runs 2

at=$(newest "$saves")
await_slurm "a checkpoint of run 2" 60 newer_than "$at"
# Its writer, and each that takes its place.
for ((i = 0; i < 200; i++)); do
  writers | xargs -r kill -KILL 2>/dev/null
  grep -q '^fault: kind=writer' "chain-$chain.log" && break
  sleep 0.1
done
await_slurm "the end of run 2" 60 grep -q '^fault: kind=writer' "chain-$chain.log"
# The lock of a host that was lost, as a file server keeps it.
sed -i 's/^host: .*/host: gone-7/; s/^boot: .*/boot: b/' "$saves/lock"
python3 -c 'import fcntl, sys, time
lock = open(sys.argv[1], "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
time.sleep(1000)' "$saves/lock" &
holder=$!
await_slurm "run 3" 120 runs 3

at=$(newest "$saves")
await_slurm "a checkpoint of run 3, which took the lock over" 120 newer_than "$at"
kill -KILL "$(ranks | head -n 1)"
await_slurm "run 4" 120 runs 4

at=$(newest "$saves")
await_slurm "a checkpoint of run 4" 60 newer_than "$at"
head -c 300m /dev/zero >"$dir/disk/full" 2>/dev/null
over() { [[ $(fact "$chain" JobState) == FAILED ]]; }
await_slurm "the end of run 4" 300 over
sleep 3
check "a full disk: not requeued" is "$(fact "$chain" JobState)" FAILED
cp "chain-$chain.log" log
check "a full disk: told" has "^fault: kind=storage code=75 "
rm "$dir/disk/full"
"$slurm" exec scontrol requeue "$chain"
await_slurm "run 5" 120 runs 5
complete() { [[ $(fact "$chain" JobState) == COMPLETED ]]; }
await_slurm "the end of run 5" 300 complete

cp "chain-$chain.log" log
check "a lost node: told" has "a rank or node was lost .*; requeued, to go on from what .* has: step-"
check "a dead writer: told" has "^fault: kind=writer code=75 "
check "a dead writer: requeued" has "the checkpoint writer .*; requeued, to go on from what .* has: step-"
check "a stale lock: taken over" has "takes over"
check "five runs" is "$(grep -c '^train.sbatch: .* run [0-9]*: ' log)" 5
check "the same bits" is "$(bits "$saves")" "$(bits calm)"
grep -E '^train.sbatch|^fault:|takes over' log
echo "in $((SECONDS - started)) s"
exit "$bad"
