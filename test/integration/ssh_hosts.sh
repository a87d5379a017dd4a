#!/usr/bin/env bash
# ssh_hosts.sh MPIRUN TRAIN: docs/guide/multi-node.md on two hosts (network namespaces) that run ssh servers: mpirun as typed there starts ranks on both, and ends
# when one loses power, of which its ssh hears nothing.
set -u
mpirun=$1 train=$(realpath "$2")
. "$(dirname "$0")/checks.sh"
hosts=$(dirname "$(readlink -f "$0")")/../support/hosts/hosts.sh
dir=$(mktemp -d) made=
export HOSTS_RUN=$dir/run$$ OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
trap '"$hosts" down; rm -rf "$dir"; [ ! "$made" ] || rmdir "$made"' EXIT
why_not=$("$hosts" check) || { echo "skipped: $why_not"; exit 77; }
for tool in dropbear dropbearkey ssh-keygen; do
  command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
home=$(getent passwd 0 | cut -d: -f6)
[ -d "$home/.ssh" ] || { mkdir -m 700 "$home/.ssh" && made=$home/.ssh; }
cd "$dir" || exit 1

"$hosts" up 2
names=$(awk '$1 ~ /^10/ { print $2 }' "$HOSTS_RUN/hosts")
mkdir -m 700 keys
ssh-keygen -q -t ed25519 -N '' -f keys/id_ed25519
cp keys/id_ed25519.pub keys/authorized_keys
dropbearkey -t ed25519 -f host_key >/dev/null 2>&1
for i in 0 1; do
  "$hosts" exec $i mount --bind "$dir/keys" "$home/.ssh"
  "$hosts" exec $i dropbear -r host_key -P "$dir/dropbear.$i" </dev/null >/dev/null 2>&1
done
for name in $names; do
  for ((i = 0; i < 50; i++)); do
    "$hosts" exec 0 ssh -o StrictHostKeyChecking=accept-new -o BatchMode=yes "$name" true >log 2>&1 && break
    sleep 0.2
  done
  check "ssh to $name without a password" "$hosts" exec 0 ssh -o BatchMode=yes "$name" true
done
sed 's/$/ slots=2/' <<<"$names" >hosts

typed() { "$hosts" exec 0 "$mpirun" -np 4 --hostfile hosts "$train" --model mlp --data shapes --batch 16 --threads 1 --eval-every 0 "$@"; }
typed --steps 50 --checkpoint-dir a --metrics short >log 2>&1
check "two hosts: exit code" is $? 0
check "two hosts: four ranks on both" has "2 ranks on this host"
check "two hosts: sums between them" has "from host to host"
check "two hosts: a checkpoint" test -f a/step-0000000050.h5

typed --steps 1000000 --metrics long >log 2>&1 &
job=$!
for ((i = 0; i < 600; i++)); do grep -qs '"kind":"step"' long && break || sleep 0.1; done
check "it trains" grep -qs '"kind":"step"' long
sleep 2
"$hosts" power 1
lost=$SECONDS
for ((i = 0; i < 600; i++)); do kill -0 $job 2>/dev/null && sleep 0.1; done
took=$((SECONDS - lost))
check "a host without power: the job ends within a minute (15 s where nothing else runs)" test $took -lt 60
[ $took -lt 60 ] || kill -KILL $job
wait $job
code=$?
other=$(tail -n 1 <<<"$names")
echo "a host without power: mpirun ended with $code after $took s"
check "a host without power: exit code" test $code -ne 0
check "a host without power: it is named" grep -qE "(on $other has not been heard|Remote daemon: .* on node $other)" log
exit $bad
