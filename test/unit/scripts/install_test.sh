#!/usr/bin/env bash
# install_test.sh TRAIN BUILD SOURCE MPIRUN: TRAIN says its versions, and what `cmake --install BUILD` installs runs from there, with a
# manual page and completions that have every option.
. "$(dirname "$0")/../../support/lib.sh"
train=$(realpath "$1") build=$(realpath "$2") source=$(realpath "$3") mpirun=$(realpath -s "$4")
enter_folder

# Versions.
"$train" --version >log 2>&1
check "the first line names program and version" has '^ringtrain [0-9]+\.[0-9]+\.[0-9]+ \(commit [0-9a-f]{12}(-dirty)?\)|^ringtrain .*commit unknown'
check "Open MPI is the one that mpirun is of" is "$(awk '/^Open MPI/ { print $4 }' log)" "$("$mpirun" --version | awk 'NR == 1 { print $NF }')"
check "HDF5 has its version" has '^HDF5 +[0-9]+\.[0-9]+\.[0-9]+ +[0-9]'
"$train" --version --json >log 2>&1
check "JSON says the same" python3 -c '
import json, subprocess, sys
said = json.load(open("log"))
text = subprocess.run([sys.argv[1], "--version"], capture_output=True, text=True, check=True).stdout
assert text.startswith("ringtrain {version} (commit {commit})".format(**said)), said
for name, versions in said["libraries"].items():
    assert [name, versions["built_with"], versions["runs_with"]] in [[line[:12].strip(), *line[12:].split()] for line in text.splitlines()], name
' "$train"
"$train" --json >log 2>&1
check "--json alone is refused" has '^train: --json: .*--version'

# The commit is written when it changes, and only then.
commit() { cmake "$@" -DSOURCE="$dir/repository" -DHEADER="$dir/header" -P "$source/cmake/WriteCommit.cmake" && cat header >log; }
in_repository() { git -C repository -c user.name=n -c user.email=e "$@" >/dev/null; }
mkdir repository && commit
check "there is none outside of git" has '"unknown"'
git init -q . && mkdir -p repository && commit  # a copy within another checkout
check "another checkout's is not taken" has '"unknown"'
rm -rf .git && git init -q repository && in_repository commit --allow-empty -m one && commit
check "it is git's" has "\"$(git -C repository rev-parse --short=12 HEAD)\""
touch -d '2001-01-01' header && commit
check "an equal one is not written" is "$(date -r header +%Y)" 2001
echo a >repository/a && in_repository add a && commit
check "changes are told" has 'dirty"'
head=$(git -C repository rev-parse --short=12 HEAD)
commit -DGIT=
check "without git it is read from the checkout" has "\"$head\""
git -C repository pack-refs --all
commit -DGIT=
check "also where references are packed" has "\"$head\""
git -C repository checkout -q --detach
commit -DGIT=
check "also without a branch" has "\"$head\""

# What is installed, moved elsewhere.
cmake --install "$build" --prefix "$dir/made" >log 2>&1 || give_up "cmake --install failed"
mv made there
rm -f "$build/install_manifest.txt"
for name in train ringtrain; do
  env -i "PATH=$PATH" "there/bin/$name" --version >log 2>&1
  check "$name runs" has '^ringtrain [0-9]'
done
"$train" --help | grep -oE '^  --[a-z0-9-]+' | tr -d ' ' >options
check "the help has options" test "$(wc -l <options)" -gt 60
while read -r option; do
  sed 's/\\-/-/g' there/share/man/man1/train.1 >log
  check "$option is in the manual page" has "^.fB$option.fR"
  cat there/share/bash-completion/completions/train >log
  check "$option is completed by bash" has "[ ']$option[ ']"
  cat there/share/zsh/site-functions/_train >log
  check "$option is completed by zsh" has "'$option\["
  cat there/share/fish/vendor_completions.d/train.fish >log
  check "$option is completed by fish" has "-c ringtrain -l ${option#--} "
done <options
groff -man -Tutf8 -ww there/share/man/man1/train.1 2>log >page
check "the manual page can be shown" test $? -eq 0 -a -s page
check "the manual page is without faults" test ! -s log
cat >complete.sh <<'EOF'
source there/share/bash-completion/completions/train
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
compopt() { :; }
_ringtrain
echo "${COMPREPLY[*]}"
EOF
bash complete.sh train --model resnet1 >log 2>&1
check "bash completes values" has '^resnet18 resnet101 resnet152 resnet18_cifar$'
bash complete.sh train --dev >log 2>&1
check "bash completes names" has '^--device$'
bash complete.sh ringtrain --device = cu >log 2>&1
check "bash completes behind =" has '^cuda$'
mkdir -p pictures/train
bash complete.sh train --data images : pict >log 2>&1
check "bash completes the folders of data" has '^pictures$'

env PATH="$dir/there/bin:$PATH" ringtrain-supervise "$mpirun" -np 2 --oversubscribe train --restarts 1 --model mlp --steps 4 \
  --eval-every 0 --data shapes --batch 8 --checkpoint-dir saves >log 2>&1
check "the supervisor and two ranks run from there" has 'done after 0 restarts'
there/bin/train --emit-sbatch --restarts 1 --checkpoint-dir saves >job
env -i PATH="$PATH" SLURM_SUBMIT_DIR="$dir" SLURM_NTASKS=1 SLURM_JOB_NODELIST=here SLURM_JOB_ID=1 bash -x job >log 2>&1
check "a job's script finds the supervisor" has 'supervise=.*/there/bin/\.\./share/ringtrain/scripts/supervise'
exit $bad
