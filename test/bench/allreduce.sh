#!/usr/bin/env bash
# allreduce.sh BENCH [HOSTSxRANKS[@RATE] MODE [KEY=NUMBER...]]: runs allreduce_bench on this host, and between hosts
# made for it whose links carry RATE. Without a layout: everything worth knowing, some minutes.
. "$(dirname "$0")/../support/lib.sh"
bench=$(readlink -f "$1")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
shift

run() {  # LAYOUT MODE KEYS...
  local layout=${1%@*} rate=${1#*@} why_not
  [[ $rate == "$1" ]] && rate=
  shift
  echo "== $layout ${rate:-no limit}: $*"
  if [[ $layout == 1x* ]]; then
    mpirun -np "${layout#*x}" --oversubscribe --bind-to none "$bench" "$@"
    return
  fi
  why_not=$("$hosts" check) || { echo "skipped: $why_not"; return; }
  "$hosts" up "${layout%x*}" "$rate"
  timeout 500 "$hosts" mpirun "${layout#*x}" "$bench" "$@"
  "$hosts" down
}

enter_folder
export HOSTS_RUN=$dir
at_end '"$hosts" down'
if (($#)); then
  run "$@"
  exit
fi
run 1x2 sizes
run 1x4 sizes
for layout in 2x1 3x1 4x1 2x2; do run $layout@1gbit sizes from_kib=1024 rounds=7; done
run 2x1 sizes
for layout in 2x1 4x1; do run $layout@1gbit overlap idle=1; run $layout@1gbit overlap; done
for layout in 2x1@100mbit 2x1@1gbit 4x1@1gbit; do run $layout wire from_kib=1024 to_kib=16384 rounds=7; done
run 1x2 overlap
