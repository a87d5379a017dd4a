#!/usr/bin/env bash
# Open MPI's plm_rsh_agent (4) or plm_ssh_agent (5) between the hosts of hosts.sh: remote_shell.sh HOST COMMAND...
host=$1
shift
hosts=$(dirname "$(readlink -f "$0")")/hosts.sh
[ -n "${HOSTS_DETACHED:-}" ] || exec "$hosts" remote "$host" /bin/sh -c "$*"
# As ssh to a real host: where that loses power, it hears nothing and goes on waiting.
"$hosts" remote "$host" /bin/sh -c "$*"
code=$?
[ ! -e "$HOSTS_RUN/$host.lost" ] || exec sleep infinity
exit $code
