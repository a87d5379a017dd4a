#!/usr/bin/env bash
# finishing_writer.sh MPIRUN TRAIN SLOWFS: a run that starts while the writer of a killed run still saves its last step waits for
# that, says so, and goes on from it, with the bits of an undisturbed run.
set -u
mpirun=$1 train=$(realpath "$2") slowfs=$3
. "$(dirname "$0")/checks.sh"
[ -x "$slowfs" ] || { echo "skipped: built without libfuse3, there is no slow disk"; exit 77; }
dir=$(mktemp -d)
trap 'rm -f "$dir/faults"; kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; fusermount3 -uz "$dir/disk" 2>/dev/null; rm -rf "$dir"' EXIT
cd "$dir" || exit 1
mkdir backing disk
"$slowfs" backing disk faults 2>why &
server=$!
for _ in {1..50}; do mountpoint -q disk && break; sleep 0.1; done
mountpoint -q disk || { echo "skipped: FUSE cannot mount here: $(tail -n 1 why)"; exit 77; }

start() { # FOLDER [OPTION]...: on two ranks; its mpirun is $mpi
  : >log
  "$mpirun" --timeout 200 -np 2 --oversubscribe "$train" --model resnet32 --data shapes --batch 8 --threads 1 --eval-every 0 --log-every 1 \
    --checkpoint-every 1h --checkpoint-dir "$@" >log 2>&1 </dev/null &
  mpi=$!
}
state() { "$train" --inspect "$1" | sed -n 's/^state-hash //p'; }

start disk/a --steps 100000 --metrics metrics
for ((i = 0; i < 300; i++)); do grep -qs 'step 3, loss' log && break || sleep 0.1; done
echo "rate 400000" >faults  # the last save, 3.7 MB, takes 9 s and more
kill -TERM $mpi
wait $mpi
last=$(sed -n 's/^{"kind":"step","step":\([0-9]*\),.*/\1/p' metrics | tail -n 1)
pgrep -x ringtrain-write >/dev/null || check "the writer lives on when mpirun has returned" false
start disk/a --steps $((last + 5))
wait $mpi
code=$?
rm faults
check "the run that waits: exit code $code" test $code -eq 0
check "it says whom it waits for" has "disk/a is held for the last save of run [^ ]+ on host .*: waiting for that"
resumed=$(sed -n 's/^resumed from step-0*\([0-9]*\).h5.*/\1/p' log)
check "it goes on from the last step, $last, or the one that was under way" test "${resumed:-0}" -ge "$last"
start whole --steps $((last + 5))
wait $mpi
file=$(printf 'step-%010d.h5' $((last + 5)))
check "the bits of an undisturbed run" is "$(state "disk/a/$file")" "$(state "whole/$file")"
exit $bad
