#!/usr/bin/env bash
# between_hosts.sh HOSTSxRANKS JOB: runs JOB HOSTS over TCP between hosts made for it, with so many ranks on each.
set -u
. "$(dirname "$(readlink -f "$0")")/../support/hosts/borrow.sh"

"$hosts" up "${1%x*}" || exit 1
timeout 300 "$hosts" mpirun "${1#*x}" "$2" "${1%x*}" || { echo "wrong: the job ended with $?"; exit 1; }
