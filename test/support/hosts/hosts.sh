#!/usr/bin/env bash
# Several "hosts" on one machine, for tests that must cross a network: network namespaces with a hostname and an
# /etc/hosts of their own, joined by a bridge, with a rate limit on both ends of every link. Needs root.
#
#   hosts.sh check [RATE [MS]]  exit 0 if two such hosts could be made here and reached one another, else say why not
#   hosts.sh up N [RATE [MS]]   make hosts 0..N-1, e.g. with 1gbit links (default: no limit), and MS milliseconds from each to each
#                               (through slow_switch.cpp, built as $SLOW_SWITCH)
#   hosts.sh exec I COMMAND...  run COMMAND on host I
#   hosts.sh mpirun RANKS_A_HOST COMMAND...   start an MPI job over TCP on all hosts; more mpirun flags in $MPIRUN_FLAGS,
#                               what starts mpirun in $MPIRUN_BY; with $HOSTS_DETACHED its daemons leave the session, as
#                               on real hosts, so that mpirun learns nothing from their processes here
#   hosts.sh cut|heal I         take down or restore the link of host I
#   hosts.sh power I            host I loses power: its processes die, and nobody hears of it
#   hosts.sh pids I             the processes on host I
#   hosts.sh down               end every process there and remove the hosts
#
# HOSTS_RUN is a directory that names one set of hosts and holds its state.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
run=${HOSTS_RUN:?set it to a directory}
prefix=rt$(basename "$run" | tr -dc 'a-zA-Z0-9' | tail -c 6)-
net=10.77.0

limit() {  # NAMESPACE DEVICE RATE
  ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$3" burst 24kb latency 20ms
}

up() {
  local n=$1 rate=${2:-} delay=${3:-} switch=${prefix}sw i host ports=()
  mkdir -p "$run"
  ip netns add "$switch"
  ip -n "$switch" link add bridge type bridge stp_state 0
  ip -n "$switch" link set bridge up
  echo 127.0.0.1 localhost >"$run/hosts"
  for ((i = 0; i < n; i++)); do
    host=$prefix$i
    echo "$net.$((i + 1)) $host" >>"$run/hosts"
    ip netns add "$host"
    ip link add eth0 netns "$host" type veth peer name "port$i" netns "$switch"
    # Small super-packets, or the token bucket would see bursts that no real link carries.
    ip -n "$host" link set eth0 gso_max_size 16384 gso_max_segs 64
    ip -n "$switch" link set "port$i" gso_max_size 16384 gso_max_segs 64
    ip -n "$switch" link set "port$i" up
    [[ $delay ]] || ip -n "$switch" link set "port$i" master bridge
    ports+=("port$i")
    ip -n "$host" link set lo up
    ip -n "$host" addr add "$net.$((i + 1))/24" dev eth0
    ip -n "$host" link set eth0 up
    # The congestion control of most clusters, whatever this machine's.
    ip -n "$host" route replace "$net.0/24" dev eth0 src "$net.$((i + 1))" congctl cubic
    if [[ $rate ]]; then
      limit "$host" eth0 "$rate"
      limit "$switch" "port$i" "$rate"
    fi
  done
  if [[ $delay ]]; then
    ip netns exec "$switch" "$SLOW_SWITCH" "$delay" "${ports[@]}" </dev/null >/dev/null 2>&1 &
  fi
  for ((i = 0; i < n; i++)); do
    host=$prefix$i
    nsenter --net="/run/netns/$host" unshare --uts --ipc --mount sh -c "hostname $host
      mount --bind '$run/hosts' /etc/hosts; echo \$\$ >'$run/$host.tmp'; mv '$run/$host.tmp' '$run/$host.pid'
      exec sleep infinity" </dev/null >/dev/null 2>&1 &
  done
  for ((i = 0; i < n; i++)); do until [[ -s $run/$prefix$i.pid ]]; do sleep 0.01; done; done
}

on_host() {  # HOST COMMAND...
  local host=$1
  shift
  exec nsenter -t "$(cat "$run/$host.pid")" -n -u -i -m --wdns="$PWD" "$@"
}

down() {
  local name
  for name in $(ip netns list 2>/dev/null | awk '{print $1}' | grep -E "^$prefix(sw|[0-9]+)$"); do
    ip netns pids "$name" | xargs -r kill -9 2>/dev/null || true  # one may have ended meanwhile
    ip netns del "$name"
  done
  rm -f "$run"/*.{pid,lost} "$run/hosts" "$run/hostfile"
  rm -rf "${TMPDIR:-/tmp}"/{ompi,prte,prted,prterun}."$prefix"*  # of Open MPI 4 and 5
}

pids() {  # HOST: all but that which keeps it
  ip netns pids "$1" | grep -vx "$(cat "$run/$1.pid")" || true
}

power() {  # HOST NUMBER
  touch "$run/$1.lost"
  ip -n "${prefix}sw" link set "port$2" down
  pids "$1" | xargs -r kill -9 2>/dev/null || true  # one may have ended meanwhile
}

mpi_job() {
  local a_host=$1 pid_file ranks=0 session=--leave-session-attached shell=rsh
  shift
  ! command -v prterun >/dev/null || shell=ssh  # Open MPI 5's name of it
  # The kernel divides the cores among sessions (sched_autogroup_enabled). With a session for each host, and more ranks than
  # cores, one of them took a core for ten seconds and more (Linux 6.18): the daemons stay in the session of mpirun.
  [[ ${HOSTS_DETACHED:-} ]] && session=
  : >"$run/hostfile"
  for pid_file in "$run"/*.pid; do
    echo "$(basename "$pid_file" .pid) slots=$a_host" >>"$run/hostfile"
    ranks=$((ranks + a_host))
  done
  export HOSTS_RUN OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  # shellcheck disable=SC2086
  on_host "${prefix}0" ${MPIRUN_BY:-} mpirun -np "$ranks" --hostfile "$run/hostfile" --map-by node --bind-to none \
    --mca plm ^slurm --mca "plm_${shell}_agent" "$here/remote_shell.sh" --mca "plm_${shell}_no_tree_spawn" 1 \
    --mca btl_tcp_if_include "$net.0/24" --mca oob_tcp_if_include "$net.0/24" $session ${MPIRUN_FLAGS:-} "$@"
}

# Root may not do everything everywhere: two hosts are made, one calls the other, and they are taken down.
check() {
  local tool trial said works=
  ((EUID == 0)) || { echo "making hosts of network namespaces needs root"; return 1; }
  for tool in ip tc nsenter unshare mpirun; do
    command -v $tool >/dev/null || { echo "$tool is not installed"; return 1; }
  done
  trial=$(mktemp -d)
  # nobody listens on port 9 of the other host, which says so
  said=$({ HOSTS_RUN=$trial timeout 20 "$0" up 2 "$@" && HOSTS_RUN=$trial timeout 20 "$0" exec 0 bash -c "</dev/tcp/$net.2/9"; } 2>&1) || true
  [[ $said != *"Connection refused"* ]] || works=yes
  HOSTS_RUN=$trial "$0" down >/dev/null 2>&1 || works=
  rm -rf "$trial"
  [[ $works ]] || { echo "no hosts can be made of network namespaces here: $(tail -n 1 <<<"$said")"; return 1; }
}

case $1 in
  check) check "${@:2}" ;;
  up) up "$2" "${3:-}" "${4:-}" ;;
  exec) host=$prefix$2; shift 2; on_host "$host" "$@" ;;
  remote) shift; on_host "$@" ;;
  mpirun) shift; mpi_job "$@" ;;
  cut) ip -n "${prefix}sw" link set "port$2" down ;;
  heal) ip -n "${prefix}sw" link set "port$2" up ;;
  pids) pids "$prefix$2" ;;
  power) power "$prefix$2" "$2" ;;
  down) down ;;
  *) sed -n '2,/^set/{/^#/p}' "$0"; exit 64 ;;
esac
