#!/usr/bin/env bash
# between_hosts.sh HOSTSxRANKS JOB: runs JOB HOSTS over TCP between hosts made for it, with so many ranks on each.
set -u
hosts=$(dirname "$(readlink -f "$0")")/../support/hosts/hosts.sh
HOSTS_RUN=$(mktemp -d)
export HOSTS_RUN
trap '"$hosts" down; rm -rf "$HOSTS_RUN"' EXIT
why_not=$("$hosts" check) || { echo "skipped: $why_not"; exit 0; }

"$hosts" up "${1%x*}" && timeout 100 "$hosts" mpirun "${1#*x}" "$2" "${1%x*}"
