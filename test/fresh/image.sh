#!/usr/bin/env bash
# Builds scripts/containers/Dockerfile with buildah on a fresh root as its base, without a container engine, and trains in what it made:
# two ranks in a container, and the ssh server of a Kubernetes worker with the keys that its operator would mount.
#   test/fresh/image.sh [--cuda 13] [ROOT]      ROOT: a Debian 12 that test/fresh/run.sh --keep made (default: a new one)
# Skipped (77) without root or buildah.
. "$(dirname "$0")/../support/lib.sh"
source=$(dirname "$(realpath "$0")")/../..
usage() { sed -n '4s/^# *//p' "$source/test/fresh/image.sh" >&2; exit 64; }
cuda=no
[ "${1:-}" != --cuda ] || { [ $# -ge 2 ] || usage; cuda=$2; shift 2; }
[ $# -eq 0 ] || { [ $# -eq 1 ] && [ -e "$1/etc/debian_version" ]; } || usage
[ "$(id -u)" -eq 0 ] || skip "building an image in a chroot wants root"
need buildah
root=$(realpath "${1:-/}")
dir=$(mktemp -d /var/tmp/freshimage.XXXXXX)
at_end 'umount "$dir"/mounted/* 2>/dev/null; rm -rf --one-file-system "$dir"'
cd "$dir" || exit 1
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
buildah() { command buildah --root "$dir/storage" --runroot "$dir/run" "$@"; }
git clone -q "$source" sources
if [ "$root" = / ]; then
  root=$dir/root
  (cd "$source" && test/fresh/run.sh --keep "$root" -- true) >log 2>&1 || give_up "no fresh root"
fi

base=$(buildah from scratch) && tar -C "$root" --one-file-system --exclude=./root/project --exclude=./opt -cf base.tar . &&
  buildah add -q "$base" base.tar / >/dev/null && buildah run "$base" -- apt-get purge -qq git >log 2>&1 && buildah commit -q "$base" fresh >/dev/null && buildah rm "$base" >/dev/null && rm base.tar ||
  give_up "the root could not be imported"
SECONDS=0
buildah bud --network host --build-arg BASE=localhost/fresh --build-arg CUDA=$cuda -f sources/scripts/containers/Dockerfile -t ringtrain sources >log 2>&1 ||
  give_up "the image was not built"
echo "image: built in $SECONDS s"

container=$(buildah from localhost/ringtrain)
inside() { timeout 300 buildah --root "$dir/storage" --runroot "$dir/run" run "$container" -- "$@" >log 2>&1; }
inside train --version
check "it says its version and commit" has "^ringtrain [0-9.]+ \(commit $(git -C sources rev-parse --short=12 HEAD)\)"
[ $cuda = no ] || check "it has CUDA" has '^cuDNN'
inside ringtrain-supervise --help
check "the supervisor starts" has 'Starts a training again'
inside id -un
check "it runs as an ordinary user" has '^mpiuser$'
SECONDS=0
inside ringtrain-entry mpirun -np 2 --oversubscribe train --model cifar10_cnn --data shapes --batch 32 --steps 100 --checkpoint-dir saves
check "two ranks train" has '^trained 100 steps, .* on 2 ranks'
inside bash -c 'ringtrain-entry mpirun -np 2 --oversubscribe train --model resnet20 --data shapes --batch 16 --accumulate 50 --eval-every 0 \
    --checkpoint-dir told & sleep 15; kill -TERM $!; wait $!; echo "code $?"; ls told'
check "a stopped container ends with 143" has '^code 143$'
check "and has saved its last step" has '^step-[0-9]+\.h5$'
echo "image: two ranks trained 100 steps in $SECONDS s"
inside bash -c 'command -v g++ cmake || echo none'
check "it has no compiler" has '^none$'

# As the operator mounts them: one key, as id_rsa and authorized_keys.
inside bash -c 'mkdir -m 700 .ssh && ssh-keygen -q -t ecdsa -N "" -f .ssh/id_rsa && cp .ssh/id_rsa.pub .ssh/authorized_keys &&
  { ringtrain-entry /usr/sbin/sshd -De -f /home/mpiuser/sshd_config & sleep 1; ssh localhost train --version; code=$?; kill %1; exit $code; }'
check "a worker's ssh server starts train" has '^ringtrain [0-9]'
exit $bad
