#!/usr/bin/env bash
# leases.sh lost|suspended|granted MPIRUN TRAIN GRANTED_LOCKS: who has a checkpoint directory where locks cannot say it. `lost`: a lost
# host's lock stays, and the next run takes the directory over. `suspended`: an owner on another host that was stopped for too long
# finds another one, and ends. `granted`: locks are granted to everybody, and of two runs that start at once one trains.
. "$(dirname "$0")/../support/lib.sh"
part=$1 mpirun=$2 train=$(realpath "$3") granted_locks=$(realpath "$4")
enter_folder
at_end end_all
export OMPI_MCA_btl_vader_backing_directory=$dir  # for what killed jobs leave
pids=()
end_all() { for pid in "${pids[@]}"; do kill -CONT "$pid"; kill -9 "$pid"; wait "$pid"; done 2>/dev/null; }

train=("$train" --model mlp --data shapes --batch 32 --threads 1 --eval-every 0 --log-every 20 --checkpoint-every 20 --checkpoint-dir d)
locks_granted=(env LD_PRELOAD="$granted_locks" "${train[@]}")
step_of() { local name=${1#*step-}; echo $((10#${name%.h5})); }
content() { (cd d && sha256sum step-*.h5 && ls -A | grep -v '^lock$'); }
all_intact() {
  local file
  for file in d/step-*.h5; do "${train[0]}" --inspect "$file" >/dev/null 2>&1 || { echo "$file is damaged"; return 1; }; done
}

a_lost_host() {
  launch_alone "${train[@]}" --steps 20
  exits "before" 0
  printf 'ringtrain lease 1 held     \nbeat: 00000000000000000042\nrun: lost-1\nhost: gone-7\nprocess: 4711\njob: 99\nboot: b\ntoken: 0123456789abcdef\n' >d/lock
  python3 -c 'import fcntl, time
lock = open("d/lock", "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
open("is_locked", "w")
time.sleep(200)' &
  pids+=($!)
  await 60 test -e is_locked
  local start=$SECONDS
  limit=200 launch 2 "${train[@]}" --steps 40
  exits "the next run" 0
  echo "a lost host's directory: taken and trained in after $((SECONDS - start)) s"
  check "after the silence, not before" test $((SECONDS - start)) -ge 30
  check "and no later than 10 s after it" test $((SECONDS - start)) -le 45
  check "waiting is told" has "d is held by run lost-1 on host gone-7, process 4711, Slurm job 99: waiting for a heartbeat, or for 30 s without one$"
  check "the takeover is told" has "takes over .*/d from run lost-1 on host gone-7, process 4711, Slurm job 99: silent for 30 s$"
  check "it goes on" has "^resumed from step-0000000020.h5"
  check "to the end" test -e d/step-0000000040.h5
}

a_suspended_owner() {
  local far=(unshare --uts --pid --fork --mount-proc --kill-child sh -c 'hostname far.example; exec "$0" "$@"')
  "${far[@]}" true 2>why || skip "no other host can be made here: $(tail -n 1 why)"
  "${far[@]}" "$mpirun" -np 2 --oversubscribe "${locks_granted[@]}" --steps 1000000 --watchdog off >first 2>&1 </dev/null &
  local mpi=$! ranks all rank start
  pids+=($mpi)
  log=first await 60 has "checkpoint [0-9]+, "
  mapfile -t ranks < <(pgrep -P "$(pgrep -P $mpi)" -x train)
  all=("${ranks[@]}")
  for rank in "${ranks[@]}"; do mapfile -t -O ${#all[@]} all < <(pgrep -P "$rank"); done  # the writer, and who starts another one
  check "two ranks and a writer are there" test ${#ranks[@]} -eq 2 -a ${#all[@]} -ge 3
  pids+=("${all[@]}")
  kill -STOP "${all[@]}"
  sleep 0.2

  start=$SECONDS
  limit=200 launch 2 "${locks_granted[@]}" --steps $(($(step_of "$(newest d)") + 60))
  exits "the next run" 0
  echo "a suspended owner's directory: taken and trained in after $((SECONDS - start)) s"
  check "that locks do not hold is told" is "$(grep -c "d has no file locks that hold (a second lock on a file is granted; its file system: " log)" 1
  check "the takeover is told" has "takes over .*/d from run [^ ]+ on host far.example, process [0-9]+: silent for 30 s$"
  check "it goes on" has "^resumed from step-"

  content >before
  kill -CONT "${all[@]}"
  wait $mpi
  local code=$?
  content >after
  cp first log
  check "the owner that comes back: exit code $code" test $code -eq 73
  check "the owner that comes back: told once" \
    is "$(grep -cE "^train: .*d: run [^ ]+ on host [^ ]+, process [0-9]+ has taken it over while this run was silent: nothing more is saved in it" log)" 1
  # But for what it was writing when it was suspended.
  sed -i "/\.tmp$/d" before
  check "it publishes, changes and deletes nothing" diff before after
  check "all is intact" all_intact
}

one_has_ended() { ! alive "$1" || ! alive "$2"; }
locks_for_everybody() {
  for round in 1 2 3; do
    rm -rf d
    for run in one two; do
      timeout 100 "${locks_granted[@]}" --steps 1000000 --checkpoint-every 3 >$run 2>&1 </dev/null &
      pids+=($!)
    done
    local one=${pids[-2]} two=${pids[-1]} loser winner
    await 60 one_has_ended "$one" "$two"
    if alive "$one"; then loser=two winner=one; else loser=one winner=two; fi
    wait "${!loser}"
    local code=$?
    cp $loser log
    check "round $round: one of two that start at once ends with $code" test $code -eq 73
    check "round $round: it names the other" has "d: in use by run [^ ]+ on host $(hostname), process [0-9]+; give each job its own"
    pkill -TERM -P "${!winner}" -x train
    wait "${!winner}"
    code=$?
    cp $winner log
    check "round $round: the other trains on, until it is signalled: $code" test $code -eq 143
    check "round $round: every file is whole" all_intact
    check "round $round: nothing else is left" is "$(ls -A d | grep -vc '^step-.*h5$')" 1
  done
}

case $part in
  lost) a_lost_host ;;
  suspended) a_suspended_owner ;;
  granted) locks_for_everybody ;;
  *) echo "lost, suspended or granted?" && exit 1 ;;
esac
exit $bad
