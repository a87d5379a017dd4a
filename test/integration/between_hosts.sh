#!/usr/bin/env bash
# between_hosts.sh HOSTSxRANKS JOB: runs JOB HOSTS over TCP between hosts made for it, with so many ranks on each.
. "$(dirname "$0")/../support/lib.sh"
enter_folder
make_hosts "${1%x*}"
limit=300 launch_on_hosts "${1#*x}" "$2" "${1%x*}"
exits "the job" 0
exit $bad
