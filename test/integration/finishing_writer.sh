#!/usr/bin/env bash
# finishing_writer.sh MPIRUN TRAIN SLOWFS: a run that starts while the writer of a killed run still saves its last step waits for
# that, says so, and goes on from it, with the bits of an undisturbed run.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") slowfs=$3
enter_folder
mount_slowfs "$slowfs" || skip "$(tail -n 1 why)"
limit=200

start() { # FOLDER [OPTION]...
  begin 2 "$train" --model resnet32 --data shapes --batch 8 --threads 1 --eval-every 0 --log-every 1 --checkpoint-every 1h --checkpoint-dir "$@"
}

start disk/a --steps 100000 --metrics metrics
await 90 has 'step 3, loss'
echo "rate 400000" >faults  # the last save, 3.7 MB, takes 9 s and more
kill -TERM $mpi
ends
last=$(sed -n 's/^{"kind":"step","step":\([0-9]*\),.*/\1/p' metrics | tail -n 1)
pgrep -x ringtrain-write >/dev/null || check "the writer lives on when mpirun has returned" false
start disk/a --steps $((last + 5))
ends
rm faults
check "the run that waits: exit code $code" test $code -eq 0
check "it says whom it waits for" has "disk/a is held for the last save of run [^ ]+ on host .*: waiting for that"
resumed=$(sed -n 's/^resumed from step-0*\([0-9]*\).h5.*/\1/p' log)
check "it goes on from the last step, $last, or the one that was under way" test "${resumed:-0}" -ge "$last"
start whole --steps $((last + 5))
ends
check "the bits of an undisturbed run" is "$(bits disk/a $((last + 5)))" "$(bits whole $((last + 5)))"
exit $bad
