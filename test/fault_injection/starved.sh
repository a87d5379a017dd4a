#!/usr/bin/env bash
# starved.sh MPIRUN TRAIN LOAD: three ranks beside LOAD processes that compute, for half a minute; then one of the ranks only gets the
# CPU that nobody else wants, and so none for longer than a silence may last. It is not scheduled, which is nobody's death: the job
# goes on. The same rank is lost as ever once it is stopped.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2") load=$3 silence=3
enter_folder
export TMPDIR=$dir FOLDER=$dir  # TMPDIR: where reports go
busy=()
at_end 'kill "${busy[@]}" 2>/dev/null; kill "$job" 2>/dev/null; wait'
chrt -i 0 true 2>/dev/null || skip "no process can be made to stand back here (chrt -i)"

steps() { records metrics; }
more_steps() { (($(steps) > $1)); }
goes_on() { # WHAT: steps come, within a minute
  local before
  before=$(steps)
  wait_for 60 more_steps "$before" || wrong "$1: the job does not go on"
}
slices() { awk '{print $3}' "/proc/$1/task/$2/schedstat"; } # that a thread has had
# For SECONDS: the longest time in which rank 1's watchdog got no CPU
longest_wait() { # SECONDS
  local until last=0 now since longest=0
  until=$((SECONDS + $1)) since=$(date +%s%N)
  while ((SECONDS < until)) && alive "$rank"; do
    now=$(slices "$rank" "$watchdog")
    if [ "$now" != "$last" ]; then
      last=$now since=$(date +%s%N)
    elif (($(date +%s%N) - since > longest)); then
      longest=$(($(date +%s%N) - since))
    fi
    sleep 0.2
  done
  bc <<<"scale=1; $longest / 1000000000"
}

"$mpirun" -np 3 --oversubscribe --bind-to none "$support/rank.sh" "$train" --model mlp --data shapes --batch 32 --threads 1 --log-every 20 \
  --eval-every 0 --metrics "metrics" --steps 5000000 --watchdog-silence ${silence}s >"log" 2>&1 &
job=$!
await 60 has_records metrics
rank=$(cat "1")
watchdog=$(grep -lx watchdog "/proc/$rank"/task/*/comm | grep -oE '[0-9]+/comm' | cut -d/ -f1)
for ((i = 0; i < load; i++)); do
  sh -c 'while :; do :; done' &
  busy+=($!)
done
echo "beside $load processes: rank 1's watchdog waited for a CPU for $(longest_wait 30) s at most"
goes_on "beside $load processes"

chrt -a -i -p 0 "$rank" >"why" 2>&1 || skip "a rank cannot be made to stand back here: $(cat why)"
waited=$(longest_wait 45)
chrt -a -o -p 0 "$rank"
echo "standing back: it waited for $waited s at most"
kill "${busy[@]}"
wait "${busy[@]}" 2>/dev/null
busy=()
alive "$job" || wrong "the job is over"
grep -qE 'the job cannot go on|has not been heard' "log" && wrong "a rank that got no CPU was lost"
((bad)) && exit 1
(($(bc <<<"$waited > $silence + 2"))) || skip "this machine leaves it a CPU all the same"
goes_on "afterwards"

sleep 3
begin=$(date +%s%N)
kill -STOP "$rank"
wait "$job"
code=$?
took=$(bc <<<"scale=1; ($(date +%s%N) - $begin) / 1000000000")
echo "stopped: ended after $took s with $code"
((code == 71)) || wrong "stopped: ended with $code, not 71"
grep -qE "rank 1 on .* has not been heard for [0-9]+ s: its process is stopped" "log" || wrong "stopped: is not told"
(($(bc <<<"$took < $silence + 5"))) || wrong "stopped: took $took s"
exit $bad
