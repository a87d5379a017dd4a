#!/usr/bin/env bash
# lost_hosts.sh TRAIN [HOSTS [RANKS_A_HOST]]: a host that loses power or its link ends the job, named, within 15 s; a link that
# heals after 3 s ends nothing. Once as a user types it, and once with what scripts/setup_openmpi.sh leaves, by which mpirun
# notices, too. Each job has hosts of its own, and two run at once: they mostly wait.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1") count=${2:-4} a_host=${3:-1} scripts=$support/../../scripts
enter_folder
need_hosts
export HOSTS_DETACHED=1
at_end 'for HOSTS_RUN in "$dir"/*/; do "$hosts" down; done'
last=$((count - 1))
supervise=
# That of Open MPI 5 returns 0 when it has noticed a lost host by itself; what docs/guide/resume.md recommends then does not.
[[ $(mpirun --version) != *" 5."* ]] || supervise=$scripts/supervise

no_good() { # WHAT
  log=$HOSTS_RUN/log wrong "$1"
  cat "$HOSTS_RUN"/train-report-* 2>/dev/null
  touch "$dir/bad"
}
start() { # a job on hosts of its own, until it trains
  HOSTS_RUN=$(mktemp -d "$dir/XXXXXX")
  TMPDIR=$HOSTS_RUN  # where reports go
  export TMPDIR
  "$hosts" up "$count"
  "$hosts" mpirun "$a_host" "$train" --model mlp --data shapes --steps 1000000 --batch 16 --threads 1 --log-every 10 \
    --eval-every 0 --metrics "$HOSTS_RUN/metrics" >"$HOSTS_RUN/log" 2>&1 &
  job=$!
  wait_for 60 has_records "$HOSTS_RUN/metrics" || { no_good "does not train"; exit 1; }
  sleep 2
  # Once: to list what runs on 16 hosts takes seconds.
  mapfile -t rank_ids < <(ranks | awk '{print $1}')
  mapfile -t launcher_ids < <(launchers | awk '{print $1}')
  fault=$(date +%s.%N)
}
all_pids() { for ((i = 0; i < count; i++)); do "$hosts" pids "$i"; done; }
of_job() { all_pids | xargs -r ps -o pid=,stat=,comm= -p | grep -E " [^Z ]+ +($1)\$"; }
launchers() { of_job 'mpirun|orted|prterun|prted'; }
ranks() { of_job train; }
some_alive() { # PID...: some of them; the init of a container may leave the dead there for a second
  local pid
  for pid; do ! grep -qs '^State:[^Z]*$' "/proc/$pid/status" || return 0; done
  return 1
}
# all_end NAME SECONDS: within that time of the fault no rank is left on any host, nor mpirun or a daemon of it
all_end() {
  local took mpirun_took code
  while some_alive "${rank_ids[@]}" && (($(bc <<<"$(since "$fault") < $2"))); do sleep 0.1; done
  took=$(since "$fault")
  [[ $(ranks) ]] && no_good "$1: still there after $2 s: $(ranks)"
  while some_alive "${launcher_ids[@]}" && (($(bc <<<"$(since "$fault") < $2"))); do sleep 0.1; done
  mpirun_took=$(since "$fault")
  [[ $(launchers) ]] && no_good "$1: still there after $2 s: $(launchers)"
  [[ $(launchers) ]] && "$hosts" down
  wait "$job"
  code=$?
  "$hosts" down
  echo "$1: the last rank ended after $took s, mpirun after $mpirun_took s, with $code"
  ((code != 0)) || no_good "$1: mpirun returned 0"
}
says() { # NAME TEXT: mpirun, or a rank in its report
  grep -qhE "$2" "$HOSTS_RUN"/log "$HOSTS_RUN"/train-report-* 2>/dev/null || no_good "$1: nobody says: $2"
}

power_of_a_worker() {
  start
  "$hosts" power "$last"
  all_end "power loss of a worker's host, $how" 15
  says "power loss, $how" "$lost"
}
power_of_rank_0() {
  start
  "$hosts" power 0
  all_end "power loss of rank 0's host, $how" 15
  says "power loss of rank 0's host, $how" 'rank 0 has not been heard'
}
cut_link() {
  start
  "$hosts" cut "$last"
  all_end "cut link, $how" 15
  says "cut link, $how" "$lost"
  says "cut link, the rank cut off" 'rank 0 has not been heard'
}
lines() { records "$HOSTS_RUN/metrics"; }
link_that_heals() {
  local before
  start
  "$hosts" cut "$last"
  sleep 3
  "$hosts" heal "$last"
  before=$(lines)
  sleep 15
  alive "$job" || no_good "link that heals, $how: the job is over"
  (($(lines) > before)) || no_good "link that heals, $how: the job does not go on"
  echo "link cut for 3 s, $how: $(($(lines) - before)) more lines of steps within 15 s"
  "$hosts" down
  wait "$job"
}

export HOME=$dir/home how="as typed" MPIRUN_FLAGS= MPIRUN_BY=
mkdir "$HOME"
for prepared in no yes; do
  if [ $prepared = yes ]; then
    "$scripts/setup_openmpi.sh" >/dev/null
    how="with keepalive"
    MPIRUN_BY=$supervise
    by_mpirun="|Remote daemon: .* on node .*-$last"
  fi
  lost="rank [0-9]+ on .*-$last has not been heard${by_mpirun:-}"
  power_of_a_worker & power_of_rank_0 & wait
  # A link that heals could end a job only where mpirun notices hosts by itself.
  [[ $prepared = no && $# = 1 ]] || { cut_link & link_that_heals & wait; }
done
# Where only mpirun can notice.
MPIRUN_FLAGS="--nolocal --oversubscribe" how="from a host without ranks"
power_of_a_worker
[ ! -e "$dir/bad" ]
