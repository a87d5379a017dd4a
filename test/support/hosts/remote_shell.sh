#!/usr/bin/env bash
# Open MPI's plm_rsh_agent (4) or plm_ssh_agent (5) between the hosts of hosts.sh: remote_shell.sh HOST COMMAND...
host=$1
shift
exec "$(dirname "$(readlink -f "$0")")/hosts.sh" remote "$host" /bin/sh -c "$*"
