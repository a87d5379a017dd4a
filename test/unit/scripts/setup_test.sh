#!/usr/bin/env bash
# setup.sh --dry-run names the right packages on every system it knows, and refuses all others.
#   setup_test.sh SETUP
set -uo pipefail
setup=$1
unset RINGTRAIN_SETUP RINGTRAIN_SYSTEM
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
expects_code() {  # WANTED WHAT
  [ "$code" -eq "$1" ] || fail "$2: exit code $code, not $1: $output"
}
run() {  # SYSTEM OPTION...
  output=$(RINGTRAIN_SYSTEM=$1 "$setup" "${@:2}" 2>&1)
  code=$?
}
# The packages in the output, one a line.
packages() { grep -oE '[a-z0-9+.-]+' <<<"${output##*:}"; }
names() { packages | grep -xF -- "$1" >/dev/null || fail "$where does not name $1: $output"; }
omits() { ! packages | grep -xF -- "$1" >/dev/null || fail "$where names $1"; }

[ -r /etc/os-release ] && here=$(. /etc/os-release && echo "${ID:-?} ${VERSION_ID:-?}")
check() {  # SYSTEM JPEG CLANG
  [ "$1" != "${here:-}" ] || return 0  # there the list is only of what is missing
  for option in --build '' --full --all; do
    where="$1 $option"
    run "$1" ${option:+"$option"} --dry-run
    expects_code 0 "$where"
    for package in g++ cmake libopenmpi-dev libhdf5-dev libdnnl-dev libcli11-dev libtomlplusplus-dev libfmt-dev libssl-dev libjs-dygraphs "$2"; do names "$package"; done
    for package in catch2 hdf5-tools python3-venv; do
      if [ "$option" = --build ]; then omits "$package"; else names "$package"; fi
    done
    for package in "clang-$3" "libclang-rt-$3-dev" slurm-wlm-basic-plugins debootstrap python3-torch; do
      if [ "$option" = --full ] || [ "$option" = --all ]; then names "$package"; else omits "$package"; fi
    done
    if [ "$option" = --all ]; then names "clang-tidy-$3"; else omits "clang-tidy-$3"; fi
  done
}
check "debian 12" libjpeg62-turbo-dev 16
check "debian 13" libjpeg62-turbo-dev 19
check "ubuntu 24.04" libjpeg-turbo8-dev 18

run "ubuntu 24.04" --dry-run
[[ $output == *"nobody has tried"* ]] || fail "Ubuntu is not said to be untested: $output"
for unknown in "ubuntu 22.04" "debian 11" "fedora 41"; do
  run "$unknown" --build --dry-run
  expects_code 69 "$unknown"
  [[ $output == *"found \"$unknown\""*libdnnl-dev* ]] || fail "$unknown: $output"
done
RINGTRAIN_SETUP=skip run "fedora 41" --build
expects_code 0 "a system whose user has installed everything"
run "ubuntu 24.04" --build
expects_code 64 "another system than this one, without --dry-run"
run "" --no-such-option
expects_code 64 "an unknown option"
[[ $output == *scripts/setup.sh*--dry-run* ]] || fail "no usage: $output"

# On this system: it changes nothing, and apt knows every package (where apt has any lists).
run "" --all --dry-run
case ${here:-} in
  "debian 12" | "debian 13" | "ubuntu 24.04")
    expects_code 0 "this system"
    if apt-cache show libdnnl-dev >/dev/null 2>&1; then
      for package in $(sed -n 's/^setup: would install with apt-get: //p' <<<"$output"); do
        apt-cache show "$package" >/dev/null 2>&1 || fail "apt does not know $package"
      done
    fi
    ;;
  *) expects_code 69 "this system" ;;
esac

[ $failures -eq 0 ] || exit 1
echo "setup: all systems as expected"
