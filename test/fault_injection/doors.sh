#!/usr/bin/env bash
# doors.sh MPIRUN TRAIN [cut]: strangers at the ports on which rank 0 listens for other ranks cost a job nothing (strangers.py has what they
# do): it comes to the same bits, its ranks' slices come to rank 0, and the strangers are told of, once a
# minute. SIGTERM ends the job. With `cut` instead: ranks make connections that are cut again (cut_connections.py), and nobody is lost.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") here=$(dirname "$(readlink -f "$0")")
enter_folder
export FOLDER=$dir TMPDIR=$dir  # TMPDIR: where reports go

newer_than() { [[ $(newest disturbed) > $1 ]]; }
job() { # NAME OPTION...
  rm -f 0 1
  limit=300 launch 2 "$support/rank.sh" "$train" --model mlp --data shapes --batch 16 --threads 1 --eval-every 0 \
    --lr-schedule constant --shard-optimizer --checkpoint-every 1s --checkpoint-dir "$@"
}

if [ "${3:-}" = cut ]; then
  job cut --steps 10000000 &
  await 60 has_checkpoint cut
  python3 "$here/cut_connections.py" "$(cat 0)" "$(cat 1)" >cuts 2>&1
  code=$?
  cat cuts
  [ $code -eq 77 ] && { kill -TERM "$(cat 0)"; wait $!; skip "$(tail -n 1 cuts)"; }
  check "connections that are cut are made again: $code" test $code -eq 0
  last=$(newest cut)
  newer_than() { [[ $(newest cut) > $1 ]]; }
  check "after cuts: it saves on" wait_for 20 newer_than "$last"
  kill -TERM "$(cat 0)"
  wait $!
  exits "after cuts" 143
  check "connections that are cut are no lost ranks" lacks "cannot go on|not watched|fault:"
  check "a rank that comes again is told, once a minute at most" test "$(count 'watchdog: rank 1 on .* lost its connection to rank 0 and has made it again')" -eq 1
  exit $bad
fi

# For as long as strangers need for all they do: 10 s where nothing holds them up.
start=$(now_ms)
(ulimit -n 160; job disturbed --steps 10000000) &
await 60 has_checkpoint disturbed
python3 "$here/strangers.py" "$(cat 0)" "$(cat 1)" >strangers 2>&1
exits "strangers" 0
cat strangers
last=$(newest disturbed)
check "with strangers: it saves on" wait_for 20 newer_than "$last"
kill -TERM "$(cat 0)"
wait $!
exits "with strangers" 143
took=$(($(now_ms) - start))
mv log disturbed.log

last=$(newest disturbed) steps=$((10#$(basename "$last" .h5 | tr -dc 0-9)))
start=$(now_ms)
job calm --steps $steps
exits "undisturbed" 0
echo "$steps steps: $took ms with strangers, $(($(now_ms) - start)) ms undisturbed"

log=disturbed.log
check "with strangers: the same bits" is "$(bits disturbed $steps)" "$(bits calm $steps)"
check "with strangers: all slices came" lacks "have not all come"
for service in "the watchdog" "slices of checkpoints"; do
  check "strangers at the port for $service are told of" has "port for $service that were not of this job's ranks"
  check "once a minute at most" test "$(count "port for $service")" -le $((took / 60000 + 1))
done
check "strangers are no ranks that are lost" lacks "cannot go on|not watched"
exit $bad
