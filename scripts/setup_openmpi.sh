#!/usr/bin/env bash
# Lets mpirun notice within 9 s that a host is gone, also where no rank runs beside it (docs/reliability.md): puts the lines of
# scripts/containers/openmpi-mca-params.conf into ~/.openmpi/mca-params.conf, unless Open MPI is told of such times already.
#   scripts/setup_openmpi.sh [--dry-run]
set -euo pipefail
lines=$(dirname "$0")/containers/openmpi-mca-params.conf
[ -n "${HOME:-}" ] || exit 0
own=$HOME/.openmpi/mca-params.conf
for file in "$own" /etc/openmpi/openmpi-mca-params.conf; do
  ! grep -qs '^ *oob_tcp_keepalive' "$file" || exit 0
done
if [ "${1:-}" = --dry-run ]; then
  echo "setup: would let mpirun notice a lost host within 9 s ($own)"
  exit 0
fi
if ! { mkdir -p "$(dirname "$own")" && { echo "# From ringtrain's scripts/setup_openmpi.sh"; cat "$lines"; } >>"$own"; }; then
  echo "setup: $own cannot be written: an mpirun on a host without ranks notices a lost host after minutes" >&2
  exit 0
fi
echo "setup: mpirun notices a lost host within 9 s ($own)"
