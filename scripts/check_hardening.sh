#!/usr/bin/env bash
# check_hardening.sh PROGRAM: fails when an executable was built without what makes errors in it hard to use, or can start other
# programs. It may start itself again (src/host/threads.cpp) and, with CUDA, look for the driver's library by a fixed name:
# CUDA's runtime, which is linked in, does that by dlopen and dlmopen.
set -euo pipefail
program=$1 bad=0
export LC_ALL=C
headers=$(readelf -hldW "$program") imports=$(nm -D --undefined-only "$program" | awk '{ sub(/@.*/, "", $2); print $2 }')

wrong() { echo "$program: $1"; bad=1; }
grep -q 'Type: *DYN' <<<"$headers" || wrong "is not position-independent (-pie)"
grep -q 'GNU_RELRO' <<<"$headers" || wrong "has no read-only relocations (-z relro)"
grep -qE 'BIND_NOW|FLAGS_1.*NOW' <<<"$headers" || wrong "binds symbols late (-z now)"
grep -qE 'GNU_STACK.* RWE' <<<"$headers" && wrong "has an executable stack (-z noexecstack)"
grep -qE 'LOAD.* RWE' <<<"$headers" && wrong "has memory that is writable and executable"
grep -qx '__stack_chk_fail' <<<"$imports" || wrong "has no stack protector (-fstack-protector-strong)"
grep -qE '^__.*_chk$' <<<"$(grep -v stack_chk <<<"$imports")" || wrong "has no checked calls (-D_FORTIFY_SOURCE)"
for call in $(grep -xE '(exec|fexec|posix_spawn).*|system|popen|wordexp|dlmopen' <<<"$imports"); do
  [ "$call" = execv ] || { [ "$call" = dlmopen ] && grep -q libcuda.so.1 "$program"; } || wrong "can start other programs ($call)"
done
exit $bad
