# Sourced: $hosts makes hosts for this script, in $HOSTS_RUN, which go with it. Where there can be none, it is skipped.
hosts=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/hosts.sh
HOSTS_RUN=$(mktemp -d)
export HOSTS_RUN
trap '"$hosts" down; rm -rf "$HOSTS_RUN"' EXIT
why_not=$("$hosts" check) || { echo "skipped: $why_not"; exit 77; }
