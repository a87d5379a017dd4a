#!/usr/bin/env bash
# disk_faults.sh MPIRUN TRAIN full | frozen [FREEZES] | remounted SLOWFS: full, frozen or lost disks under whole runs: training goes on,
# the user is told once, the job ends in time with the right code, and the next one can have the directory. FREEZES: that many at
# random moments more, and what takes half a minute each. SLOWFS: of the build.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") part=$3 freezes=${4:-0} RANDOM=1
[ "$part" != remounted ] || slowfs=$(realpath "$4")
enter_folder
limit=200
options=(--model mlp --data shapes --batch 32 --eval-every 0 --log-every 20)
start() { begin 2 "$train" "${options[@]}" "$@"; }
within() { [ $took -le "$1" ] || { echo "took $took s"; false; }; }

full_disks() {
  mkdir small && at_end 'umount -l small 2>/dev/null'
  mount -t tmpfs -o size=24m none small 2>/dev/null || skip "no small file system can be mounted here"

  # A full disk, in the middle: told once, healed, told again.
  start --steps 1000000 --checkpoint-every 50 --checkpoint-dir small/a --keep 1
  await 90 has "checkpoint [0-9]+, "
  # What a save in between gives back is taken, too.
  fill() { head -c 24m /dev/zero >>small/ballast 2>/dev/null; has save_failed; }
  await 90 fill
  sleep 2
  rm small/ballast
  await 90 has save_works
  kill -TERM "$(rank 0)"
  ends
  check "full disk: exit code $code" test $code -eq 143
  check "full disk: errno, path, free bytes, last good" \
    has "save_failed: checkpoint of step [0-9]+ in .*/small/a not saved: .*No space left on device.* bytes are free.*; the last good checkpoint is of step [0-9]+, [0-9.]+ s ago"
  check "full disk: told once" is "$(count save_failed)" 1
  check "full disk: its end told" is "$(sed -n '/save_failed/,$p' log | grep -c 'save_works.*saving works again: the checkpoint of step')" 1
  check "full disk: counted" has "checkpoints +[0-9]+ saved, [1-9][0-9]* failed, [0-9]+ skipped"
  check "full disk: nothing left behind" is "$(ls -A small/a | sed 's/[0-9]\+/N/' | tr '\n' ' ')" "lock step-N.h5 "

  # Full at the end.
  start --steps 300 --checkpoint-every 50 --checkpoint-dir small/b --keep 1
  await 90 has "checkpoint [0-9]+, "
  # What a save in between gives back is taken, too, until the job has ended.
  while alive $mpi; do head -c 24m /dev/zero >>small/ballast 2>/dev/null; sleep 0.01; done &
  filler=$!
  ends
  kill $filler 2>/dev/null
  wait $filler 2>/dev/null
  check "full at the end: exit code $code" test $code -eq 75
  check "full at the end: the closing table" has "trained 300 steps"
  check "full at the end: for programs" has "^fault: kind=storage code=75 rank=0 .* step=300 resume=/.*/small/b/step-[0-9]{10}.h5$"
  check "full at the end: why, and what is left" has "final checkpoint: .*No space left on device.*the last good checkpoint is of step"
  umount small
}

frozen_disks() {
  mount_freezable 200

  start --steps 400 --checkpoint-every 50 --checkpoint-dir disk/a --final-save-timeout 2s
  await 90 has "checkpoint [0-9]+, "
  freeze
  await 90 has "step 400,"
  helper=$(writer)
  ends
  check "frozen: exit code $code" test $code -eq 75
  check "frozen: in time" within 60
  check "frozen: training went on" has "step 400,"
  check "frozen: said which and where" has "final checkpoint: .*not durable in time; the file system of .*/disk/a may be stuck.*the last good checkpoint is of step"
  check "frozen: skipped saves are told once" is "$(count save_skipped)" 1
  check "frozen: its writer hangs" test -d "/proc/${helper:-none}"
  thaw
  wait_for 5 test ! -d "/proc/$helper"
  check "thawed: the writer ends by itself" test ! -d "/proc/$helper"
  start --steps 400 --checkpoint-every 50 --checkpoint-dir disk/a
  ends
  check "thawed: the next job, exit code $code" test $code -eq 0
  check "thawed: it goes on from the last good one" has "^resumed from step-"
  check "thawed: nothing partial" lacks "not used"
  check "thawed: nothing left behind" is "$(ls -A disk/a | grep -c tmp)" 0

  # A signal while the disk is frozen.
  start --steps 100000 --checkpoint-every 50 --checkpoint-dir disk/b --final-save-timeout 2s
  await 90 has "checkpoint [0-9]+, "
  freeze
  kill -TERM "$(ranks | tail -n 1)"
  ends
  check "SIGTERM, frozen: exit code $code" test $code -eq 75
  check "SIGTERM, frozen: in time" within 60
  check "SIGTERM, frozen: named" has "signal 15 .*the run ends after step"
  thaw

  # At random moments, most of them within a save; what the writer is stuck in is counted.
  declare -A stuck
  for ((trial = 0; trial < freezes; trial++)); do
    start --steps 300 --checkpoint-every 1 --checkpoint-dir "disk/t$trial" --final-save-timeout 1s --keep 1
    await 90 has "checkpoint [0-9]+, "
    sleep "0.$((RANDOM % 100 + 100))"
    freeze
    wait_for 10 has "step 300,"
    helper=$(writer) call=$(cut -d ' ' -f 1 "/proc/$(writer)/syscall")
    stuck[$call]=$((${stuck[$call]:-0} + 1))
    ends
    check "frozen at random: exit code $code" test $code -eq 75
    check "frozen at random: in time" within 60
    thaw
    wait_for 5 test ! -d "/proc/$helper"
    start --steps 300 --checkpoint-every 100 --checkpoint-dir "disk/t$trial"
    ends
    check "thawed: the next job, exit code $code" test $code -eq 0
    check "thawed: nothing partial" lacks "not used"
    rm -rf "disk/t$trial"
  done
  if [ "$freezes" -gt 0 ]; then
    echo "$freezes freezes at random; system calls the writer was stuck in (number: times):" \
      "$(for call in "${!stuck[@]}"; do echo -n "$call: ${stuck[$call]}  "; done)"

    start --steps 1000000 --checkpoint-every 1s --checkpoint-dir disk/c --final-save-timeout 1s
    await 90 has "checkpoint [0-9]+, "
    freeze
    frozen=$SECONDS
    await 60 has save_slow
    check "slow: told after $((SECONDS - frozen)) s" test $((SECONDS - frozen)) -le 200
    check "slow: where and the last good" has "save_slow: .*not durable after [2-9][0-9] s.*/disk/c stuck.*the last good checkpoint is of step [0-9]+, [2-9][0-9] s ago"
    thaw
    await 90 has save_works
    check "slow: its end told" is "$(count save_works)" 1
    freeze
    kill -TERM "$(ranks | tail -n 1)"
    ends
    start --steps 10 --checkpoint-dir disk/d
    ends
    check "frozen at the start: exit code $code" test $code -eq 75
    check "frozen at the start: in time" within 150
    check "frozen at the start: told" has "no answer within 30 s: its file system is not responding"
    thaw
  fi
}

# The server of the file system dies, and another one takes its place: the writer's handle of the directory is dead for good. The
# second time, another run has had the directory meanwhile.
remounted_disks() {
  mount_slowfs "$1" || skip "$(tail -n 1 why)"
  start --steps 1000000 --checkpoint-every 50 --checkpoint-dir disk/a --keep 1
  await 90 has "checkpoint [0-9]+, "
  lose_server
  mkdir disk/a  # another one, of the same path
  await 90 has "save_failed: .*/disk/a.* and what has its path now has no file 'lock'"
  check "unmounted: nothing is saved into the directory that then has the path" test -z "$(ls -A disk/a)"
  rmdir disk/a
  serve_again "$1"
  await 90 has save_works
  check "remounted: it is told" has "/disk/a was opened anew: its handle was stale"

  lose_server
  printf 'ringtrain lease 1 released \nbeat: 00000000000000000000\nrun: another\nhost: far\nprocess: 7\njob: \nboot: \ntoken: 0123456789abcdef\n' >backing/a/new
  mv backing/a/new backing/a/lock
  names=$(ls backing/a)
  serve_again "$1"
  ends
  check "taken meanwhile: exit code $code" test $code -eq 73
  check "taken meanwhile: why" has "run another on host far, process 7 has taken it over while its file system was away"
  check "taken meanwhile: nothing more is saved in it" is "$(ls backing/a)" "$names"
}
lose_server() { # until the job has noticed it
  before=$(count save_failed)
  kill -KILL "$slowfs_server"
  wait "$slowfs_server" 2>/dev/null
  await 90 more_failures
  fusermount3 -uz disk
}
more_failures() { (($(count save_failed) > before)); }
serve_again() {
  "$1" backing disk faults 2>why &
  slowfs_server=$!
  wait_for 5 mountpoint -q disk
}

case $part in
  full) full_disks ;;
  frozen) frozen_disks ;;
  remounted) remounted_disks "$slowfs" ;;
  *) echo "full, frozen or remounted?" && exit 1 ;;
esac
exit $bad
