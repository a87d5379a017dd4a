#!/usr/bin/env bash
# The Python package on a machine that nobody prepared: in a fresh Debian with python3-venv and no compiler, as an ordinary user and
# as root, it is installed by pip and trains on two ranks; the module reads what that wrote.
#   test/fresh/wheel.sh [--suite bookworm|trixie] [--cuda] [--keep DIR] WHEEL
#     --cuda       with its extra cuda13 (2 GB): cuDNN plans from there, and a GPU without a driver is told
#     --keep DIR   the root to make or to use again (test/fresh/run.sh)
# Skipped (77) without root or debootstrap.
set -u
here=$(dirname "$(realpath "$0")")
usage() { sed -n '4,7s/^# *//p' "$0" >&2; exit 64; }
suite=trixie root='' wheel='' extra=''
while [ $# -gt 0 ]; do
  case $1 in
    --suite) suite=${2:-}; shift ;;
    --cuda) extra='[cuda13]' ;;
    --keep) root=${2:-}; shift ;;
    -*) usage ;;
    *) wheel=$(realpath -- "$1") ;;
  esac
  shift
done
[ -f "$wheel" ] || usage
[ "$(id -u)" -eq 0 ] || { echo "skipped: a fresh root wants root"; exit 77; }
command -v debootstrap >/dev/null || { echo "skipped: a fresh root wants debootstrap"; exit 77; }
made=no
[ -n "$root" ] || { root=$(mktemp -d /var/tmp/freshwheel.XXXXXX); made=yes; }
work=$(mktemp -d)
trap 'rm -rf "$work"; [ $made = no ] || rm -rf --one-file-system "$root"' EXIT
inside() { "$here/run.sh" --suite "$suite" --keep "$root" --project "$here" -- "$@"; }

inside bash -c 'apt-get install -y -qq --no-install-recommends python3-venv >/dev/null' >"$work/log" 2>&1 ||
  { tail -n 20 "$work/log"; echo "wrong: python3-venv was not installed"; exit 1; }
install -m 644 "$wheel" "$root/opt/"

# What a newcomer types, and what the module says afterwards. $1: the wheel.
cat >"$root/opt/newcomer.sh" <<'EOF'
set -eu
for tool in gcc cc mpirun; do
  ! command -v $tool >/dev/null || { echo "wrong: the fresh machine has $tool"; exit 1; }
done
cd
rm -rf environment run.jsonl saves
python3 -m venv environment
. environment/bin/activate
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
[ "$(nproc)" -ge 2 ] || export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
SECONDS=0
pip install --quiet "$1" && mpirun -np 2 train --model cifar10_cnn --data shapes --epochs 1
echo "wheel: $(id -un) on Debian $(cat /etc/debian_version): pip and training took $SECONDS s"

train --version
if [ -n "${2:-}" ]; then
  SECONDS=0
  pip install --quiet "ringtrain$2"  # as train says where cuDNN is missing
  echo "wheel: the extra $2 took $SECONDS s"
  train --version --json | python3 -c 'import json, sys; assert json.load(sys.stdin)["libraries"]["cuDNN"]["runs_with"].startswith("9.19.")'
  train --plan --plan-device h100 --model resnet18 >plan.log
  tail -n 1 plan.log
  mkdir -p bus/sys/bus/pci/devices/0000:3b:00.0
  echo 0x10de >bus/sys/bus/pci/devices/0000:3b:00.0/vendor
  echo 0x030200 >bus/sys/bus/pci/devices/0000:3b:00.0/class
  code=0
  RINGTRAIN_SYSTEM_ROOT=$PWD/bus train --model mlp --data shapes --steps 1 >gpu.log 2>&1 || code=$?
  [ $code = 64 ] && grep 'no NVIDIA driver is loaded' gpu.log || { cat gpu.log; echo "wrong: exit code $code of a GPU without a driver"; exit 1; }
fi
train --version --json | python3 -c 'import json, sys; assert json.load(sys.stdin)["libraries"]["Open MPI"]["runs_with"].startswith("5.")'
mpirun -np 2 ringtrain --model mlp --data shapes --batch 8 --steps 8 --log-every 4 --eval-every 0 --metrics run.jsonl --checkpoint-dir saves
ringtrain-supervise mpirun -np 2 train --restarts 1 --model mlp --data shapes --batch 8 --steps 12 --eval-every 0 --checkpoint-dir saves
ringtrain-setup-openmpi
grep -q '^oob_tcp_keepalive_time' ~/.prte/mca-params.conf || { echo 'wrong: ringtrain-setup-openmpi wrote nothing'; exit 1; }
train --emit-sbatch nodes=1 --model mlp --data shapes --batch 8 --steps 4 --eval-every 0 >job
grep -q "^RINGTRAIN_TRAIN=.*$PWD/environment/bin/train" job || { echo "wrong: a job's script does not start this command"; exit 1; }
SLURM_SUBMIT_DIR=$PWD SLURM_NTASKS=1 SLURM_JOB_NODELIST=here SLURM_JOB_ID=1 OMPI_MCA_plm=^slurm PRTE_MCA_plm=^slurm PRTE_MCA_ras=^slurm bash job >job.log 2>&1 &&
  grep -q '^trained 4 steps' job.log || { cat job.log; echo "wrong: a job's script does not train"; exit 1; }
[ -s environment/share/man/man1/train.1 ]
grep -q -- --pack-short-side environment/share/bash-completion/completions/train
code=0; train --nonsense || code=$?
[ $code = 64 ] || { echo "wrong: exit code $code of a wrong option"; exit 1; }
pip install --quiet numpy xxhash h5py
python3 - <<'PYTHON'
import ringtrain
metrics = ringtrain.read_metrics("run.jsonl")
assert [record["step"] for record in metrics["step"]] == [4, 8], metrics["step"]
saved = ringtrain.read_checkpoint("saves/step-0000000012.h5")
assert (saved.model, saved.step) == ("mlp", 12) and saved.tensors["weights/fc1.weight"].shape[1] == 32 * 32 * 3
ringtrain.write_checkpoint("start.h5", saved.model, {name: array for name, array in saved.tensors.items() if name.startswith("weights/")})
PYTHON
train --model mlp --data shapes --eval-only --init-from start.h5
echo "wheel: all is well for $(id -un)"
EOF

bad=0
name=$(basename "$wheel")
inside bash -c 'id newcomer >/dev/null 2>&1 || useradd --create-home newcomer
  exec su newcomer -c "export HOME=/home/newcomer PIP_CERT=$PIP_CERT; exec bash /opt/newcomer.sh /opt/$0"' "$name" >"$work/user" 2>&1 || bad=1
inside bash /opt/newcomer.sh "/opt/$name" "$extra" >"$work/root" 2>&1 || bad=1
for who in user root; do
  grep -q '^wheel: all is well' "$work/$who" && { grep '^wheel: ' "$work/$who"; continue; }
  echo "wrong: as $who, it ended with:"
  tail -n 40 "$work/$who"
  bad=1
done
exit $bad
