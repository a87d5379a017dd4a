#!/usr/bin/env bash
# A Slurm of our own, for tests: slurmctld and one slurmd on each of several network namespaces (../hosts). Needs root.
#
#   slurm.sh check [RATE]       exit 0 if one could be started here and ran a job, else say why not
#   slurm.sh up N [RATE]        make hosts 0..N with links of that rate: the controller and N nodes of two cpus, all idle
#   slurm.sh exec COMMAND...    run COMMAND (sbatch, squeue ...) on the controller
#   slurm.sh power I            node I (1..N) loses power
#   slurm.sh boot I             it has come back
#   slurm.sh down               end it all
#
# HOSTS_RUN is a directory that names one cluster and holds its state.
set -euo pipefail
hosts=$(dirname "$(readlink -f "$0")")/../hosts/hosts.sh
run=${HOSTS_RUN:?set it to a directory}
export SLURM_CONF=$run/slurm.conf
prefix=rt$(basename "$run" | tr -dc 'a-zA-Z0-9' | tail -c 6)-  # as hosts.sh makes it

configure() { # NODES
  cat >"$SLURM_CONF" <<CONF
ClusterName=ringtrain
SlurmctldHost=${prefix}0(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$run/munge/socket
CredType=cred/munge
SlurmctldPidFile=$run/slurmctld.pid
SlurmctldLogFile=$run/slurmctld.log
SlurmdLogFile=$run/%n.log
SlurmdPidFile=$run/%n.slurmd
SlurmdSpoolDir=$run/spool-%n
TmpFS=$run/tmp-%n
StateSaveLocation=$run/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0,requeue_delay=1
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=10
MessageTimeout=10
TCPTimeout=2
NodeName=${prefix}[1-$1] CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
}

start_munge() {
  install -d -m 711 "$run/munge" && chmod 755 "$run"
  (umask 077 && head -c 1024 /dev/urandom >"$run/munge/key")
  munged --force --key-file="$run/munge/key" --socket="$run/munge/socket" --pid-file="$run/munge/pid" \
    --log-file="$run/munge/log" --seed-file="$run/munge/seed" --num-threads=2
}

up() { # NODES [RATE]
  local nodes=$1
  "$hosts" up $((nodes + 1)) "${2:-}"
  mkdir -p "$run/state"
  configure "$nodes"
  start_munge
  "$hosts" exec 0 slurmctld -c
  for ((i = 1; i <= nodes; i++)); do
    mkdir "$run/tmp-$prefix$i"
    "$hosts" exec "$i" slurmd
  done
  for _ in {1..200}; do
    [ "$("$hosts" exec 0 sinfo -h -t idle -o %D 2>/dev/null)" != "$nodes" ] || return 0
    sleep 0.1
  done
  echo "slurm.sh: the nodes do not become idle" >&2
  exit 1
}

down() {
  [ ! -s "$run/munge/pid" ] || kill "$(cat "$run/munge/pid")" 2>/dev/null || true
  "$hosts" down
}

# Its daemons may not run everywhere: a node is made, a job runs on it, and all is taken down.
check() {
  local tool trial said works=
  "$hosts" check "$@" || return 1
  for tool in slurmctld slurmd munged sbatch; do
    command -v $tool >/dev/null || { echo "$tool is not installed (scripts/setup.sh)"; return 1; }
  done
  trial=$(mktemp -d)
  said=$({ HOSTS_RUN=$trial timeout 60 "$0" up 1 "$@" && HOSTS_RUN=$trial timeout 30 "$0" exec srun -n 1 echo a job has run; } 2>&1) && works=yes
  HOSTS_RUN=$trial "$0" down >/dev/null 2>&1 || works=
  rm -rf "$trial"
  [[ $works && $said == *"a job has run"* ]] || { echo "Slurm does not work here: $(tail -n 1 <<<"$said")"; return 1; }
}

case $1 in
  check) check "${@:2}" ;;
  up) up "$2" "${3:-}" ;;
  exec) shift; exec "$hosts" exec 0 "$@" ;;
  power) "$hosts" power "$2" ;;
  boot) "$hosts" heal "$2" && "$hosts" exec "$2" slurmd ;;
  down) down ;;
  *) sed -n '2,/^set/{/^#/p}' "$0"; exit 64 ;;
esac
