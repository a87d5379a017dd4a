#!/usr/bin/env bash
# Runs a command in a clone of the project on a machine that nobody prepared: a minimal, fully updated Debian in a folder,
# with this machine's package sources and nothing else of it.
#   run.sh [--suite bookworm|trixie] [--keep DIR] [--project DIR] -- COMMAND...
#     run.sh -- scripts/quickstart.sh                    what a newcomer on Debian 12 does first
#     run.sh --suite trixie -- scripts/test.sh
#     --project DIR   the checkout to clone (default: the git checkout you are in); what is not committed is not there
#     --keep DIR      the root to make or to use again (default: a new one, removed at the end)
# Wants root and debootstrap (apt-get install debootstrap). A pristine root of each suite is kept as a tar in ~/.cache/freshroot.
# The command's exit code is this script's.
set -euo pipefail

suite=bookworm root='' project=''
while [ $# -gt 0 ]; do
  case $1 in
    --suite) suite=$2; shift 2 ;;
    --keep) root=$2; shift 2 ;;
    --project) project=$2; shift 2 ;;
    --) shift; break ;;
    *) sed -n '3,9s/^# *//p' "$0" >&2; exit 64 ;;
  esac
done
[ $# -gt 0 ] || { sed -n '3,9s/^# *//p' "$0" >&2; exit 64; }
[ "$(id -u)" -eq 0 ] || { echo "freshroot: wants root" >&2; exit 77; }
command -v debootstrap >/dev/null || { echo "freshroot: apt-get install debootstrap" >&2; exit 77; }
project=$(git -C "${project:-.}" rev-parse --show-toplevel)

# This machine's mirrors, where it is a Debian that names them.
mirrors=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/debian.sources 2>/dev/null || true)
mirror=$(grep -v security <<<"$mirrors" | sed -n 1p || true)
security=$(grep security <<<"$mirrors" | sed -n 1p || true)
mirror=${mirror:-http://deb.debian.org/debian}
security=${security:-http://deb.debian.org/debian-security}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/freshroot
pristine=$cache/$suite.tar
if [ ! -s "$pristine" ]; then
  mkdir -p "$cache"
  made=$(mktemp -d "$cache/$suite.XXXXXX")
  debootstrap --variant=minbase --include=ca-certificates,git "$suite" "$made" "$mirror" >"$cache/$suite.log" 2>&1 ||
    { tail -n 5 "$cache/$suite.log" >&2; exit 69; }
  tar -C "$made" --one-file-system -cf "$pristine.part" . && mv "$pristine.part" "$pristine"
  rm -rf --one-file-system "$made"
fi

keep=yes
[ -n "$root" ] || { root=$(mktemp -d /var/tmp/freshroot.XXXXXX); keep=no; }
mkdir -p "$root"
trap '[ $keep = yes ] || rm -rf --one-file-system "$root"' EXIT
if [ ! -e "$root/etc/debian_version" ]; then
  tar -C "$root" -xf "$pristine"
  chmod 755 "$root"  # apt downloads as a user of its own
  rm -f "$root/etc/apt/sources.list"
  printf 'Types: deb\nURIs: %s\nSuites: %s %s-updates\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n' \
    "$mirror" "$suite" "$suite" >"$root/etc/apt/sources.list.d/debian.sources"
  [ -z "$security" ] ||
    printf 'Types: deb\nURIs: %s\nSuites: %s-security\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n' \
      "$security" "$suite" >>"$root/etc/apt/sources.list.d/debian.sources"
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  for file in /etc/apt/apt.conf.d/99*; do
    [ ! -f "$file" ] || install -D -m 644 "$file" "$root$file"
  done
  install -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/this-machine.crt"  # an upgrade writes the root's own anew
fi
rm -rf "$root/root/project"
git clone -q "$project" "$root/root/project"

# A mount namespace of its own: what is mounted ends with the command. The folder becomes its root (pivot_root and not chroot alone),
# as on a real machine: tests make namespaces in there.
export FRESHROOT=$root
unshare --mount --pid --fork --kill-child --propagation private bash -c '
  set -eu
  mount --bind "$FRESHROOT" "$FRESHROOT"
  cd "$FRESHROOT"
  mount -t proc proc proc
  mount --rbind /sys sys
  mount --rbind /dev dev
  mkdir -p .outside
  pivot_root . .outside
  cd /
  umount --lazy .outside && rmdir .outside
  exec /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    TERM="${TERM:-dumb}" LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive PIP_CERT=/etc/ssl/this-machine.crt \
    bash -c "cd /root/project && apt-get update -qq && apt-get -y -qq dist-upgrade >/dev/null && exec \"\$@\"" freshroot "$@"
' freshroot "$@"
