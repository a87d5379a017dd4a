#!/usr/bin/env bash
# ssh_hosts.sh MPIRUN TRAIN: docs/guide/multi-node.md on two hosts (network namespaces) that run ssh servers: mpirun as typed there starts ranks on both, and ends
# when one loses power, of which its ssh hears nothing.
. "$(dirname "$0")/../support/lib.sh"
mpirun=$1 train=$(realpath "$2")
enter_folder
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
need dropbear dropbearkey ssh-keygen
make_hosts 2
home=$(getent passwd 0 | cut -d: -f6)
[ -d "$home/.ssh" ] || { mkdir -m 700 "$home/.ssh" && at_end 'rmdir "$home/.ssh"'; }

names=$(awk '$1 ~ /^10/ { print $2 }' hosts)
mkdir -m 700 keys
ssh-keygen -q -t ed25519 -N '' -f keys/id_ed25519
cp keys/id_ed25519.pub keys/authorized_keys
dropbearkey -t ed25519 -f host_key >/dev/null 2>&1
for i in 0 1; do
  "$hosts" exec $i mount --bind "$dir/keys" "$home/.ssh"
  "$hosts" exec $i dropbear -r host_key -P "$dir/dropbear.$i" </dev/null >/dev/null 2>&1
done
for name in $names; do
  wait_for 20 "$hosts" exec 0 ssh -o StrictHostKeyChecking=accept-new -o BatchMode=yes "$name" true >log 2>&1
  check "ssh to $name without a password" "$hosts" exec 0 ssh -o BatchMode=yes "$name" true
done
sed 's/$/ slots=2/' <<<"$names" >hostfile

typed() { "$hosts" exec 0 "$mpirun" -np 4 --hostfile hostfile "$train" --model mlp --data shapes --batch 16 --threads 1 --eval-every 0 "$@"; }
typed --steps 50 --checkpoint-dir a --metrics short >log 2>&1
exits "two hosts" 0
check "two hosts: four ranks on both" has "2 ranks on this host"
check "two hosts: sums between them" has "from host to host"
check "two hosts: a checkpoint" test -f a/step-0000000050.h5

typed --steps 1000000 --metrics long >log 2>&1 &
job=$!
await 60 has_records long
sleep 2
"$hosts" power 1
lost=$SECONDS
wait_for 60 ended $job
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
