#!/usr/bin/env bash
# bundle.sh TRAIN: bundles TRAIN, moves the folder, and runs it where there is nothing but the folder and a static shell: alone,
# on two ranks, and on two hosts that a remote shell reaches. It comes to the bits that TRAIN comes to here.
. "$(dirname "$0")/../support/lib.sh"
train=$(realpath "$1")
scripts=$support/../../scripts
shell=$(command -v bash-static) || skip "needs a static shell (bash-static)"
[ -f /usr/lib/x86_64-linux-gnu/libhdf5_serial.so.103 ] || skip "bundles are made of Debian 12's packages"
enter_folder

mkdir -p root/{bin,dev,etc,proc,sys,tmp,opt/elsewhere}
cp "$shell" root/bin/sh
printf '127.0.0.1 localhost %s\n127.0.0.2 one\n127.0.0.3 two\n' "$(hostname)" >root/etc/hosts
# What stands for ssh: HOST COMMAND...
printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' >root/bin/remote
printf '#!/bin/sh\nread name </proc/$PPID/comm\necho "started by $name"\n' >root/bin/parent
chmod 755 root/bin/remote root/bin/parent

# inside COMMAND: there, with its mounts gone afterwards, in `log`.
inside() {
  timeout 60 unshare --mount --uts --ipc bash -c 'mount -t proc none root/proc && mount --rbind /dev root/dev && mount --rbind /sys root/sys &&
    exec env -i PATH=/bin CUDA_VISIBLE_DEVICES= OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 LD_LIBRARY_PATH=/nowhere "$0" root /bin/sh -c "cd /tmp; $1"' \
    "$(command -v chroot)" "B=/opt/elsewhere/bundle; $1" >log 2>&1 </dev/null
}
inside true || skip "no other root folder can be entered here: $(tail -n 1 log)"
"$scripts/bundle.sh" made --no-cuda --program "$train" >log 2>&1 || give_up "no bundle is made"
mv made root/opt/elsewhere/bundle

here() { "${@:2}" --checkpoint-dir "$1" >"$1.log" 2>&1 && bits "$1"; } # FOLDER COMMAND...: the state that it comes to here
hash_there() { sed -n 's/^state-hash //p' log; }
options="--model mlp --data shapes --batch 8 --steps 4 --eval-every 0"
last=step-0000000004.h5

inside '$B/train --version'
check "its version" has "^ringtrain [0-9]"
inside '$B/train --model list'
check "its models" has "^ *resnet50 "
inside 'sh $B/bin/train --nonsense; echo code $?'
check "arguments and exit codes go through" has "^code 64$"
inside '$B/mpirun -np 1 /bin/parent'
check "a rank knows mpirun by its name" has "^started by mpirun$"

# Two threads: it starts itself again.
inside "\$B/train $options --threads 2 --checkpoint-dir one && \$B/train --inspect one/$last"
check "one rank" is "$(hash_there)" "$(here one "$train" $options --threads 2)"
inside "\$B/mpirun --oversubscribe -np 2 \$B/train $options --checkpoint-dir two && \$B/train --inspect two/$last"
two=$(here two timeout 60 mpirun --oversubscribe -np 2 "$train" $options)
check "two ranks" is "$(hash_there)" "$two"
inside "\$B/mpirun --mca plm_rsh_agent /bin/remote --host one:1,two:1 -np 2 \$B/train $options --checkpoint-dir hosts && \$B/train --inspect hosts/$last"
check "two hosts" is "$(hash_there)" "$two"

check "its mpirun notices lost hosts" grep -q "^oob_tcp_keepalive_time" root/opt/elsewhere/bundle/etc/openmpi-mca-params.conf

# Where the host has other libraries, none of them is loaded. /bin/sh is the host's.
bundle=$dir/root/opt/elsewhere/bundle
LD_DEBUG=files LD_DEBUG_OUTPUT=$dir/loads timeout 60 "$bundle/mpirun" --oversubscribe -np 2 "$bundle/train" $options >/dev/null 2>&1
cat loads.* | sed -n 's/.*calling init: //p' | sort -u >log
check "what it loads is in the folder" has "^$bundle/.*/libmpi.so.40"
check "nothing else is loaded" test -z "$(grep -vE "^($bundle/|/lib.*/(libc\.so|ld-linux))" log)"
exit $bad
