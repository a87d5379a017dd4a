#!/usr/bin/env bash
# Lets mpirun notice within 9 s that a host is gone, also where no rank runs beside it (docs/internals/watchdog.md): puts the lines of
# containers/openmpi-mca-params.conf into ~/.openmpi/mca-params.conf (Open MPI 4) and ~/.prte/mca-params.conf (Open MPI 5, which
# reads these times nowhere else), unless Open MPI is told of such times already.
#   setup_openmpi.sh [--dry-run]
set -euo pipefail
lines=$(dirname "$(readlink -f "$0")")/containers/openmpi-mca-params.conf
[ -n "${HOME:-}" ] || exit 0

# add_to OWN SYSTEM: the lines go into the user's file OWN; SYSTEM is the system's
add_to() {
  local own=$1
  if grep -qs '^ *\(prte_\)\?oob_tcp_keepalive' "$@"; then return; fi
  if [ "$dry_run" = yes ]; then
    echo "setup: would let mpirun notice a lost host within 9 s ($own)"
  elif mkdir -p "$(dirname "$own")" && { echo "# From ringtrain's scripts/setup_openmpi.sh" && cat "$lines"; } >>"$own"; then
    echo "setup: mpirun notices a lost host within 9 s ($own)"
  else
    echo "setup: $own cannot be written: an mpirun on a host without ranks notices a lost host after minutes" >&2
  fi
}
dry_run=no
[ "${1:-}" != --dry-run ] || dry_run=yes
add_to "$HOME/.openmpi/mca-params.conf" /etc/openmpi/openmpi-mca-params.conf
add_to "$HOME/.prte/mca-params.conf" /etc/prte/prte-mca-params.conf
