#!/usr/bin/env bash
# install_packages.sh PACKAGE...: installs Debian's or Ubuntu's packages, by sudo where this is not root. Other scripts call it.
set -euo pipefail
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup: needs root (or sudo) to install: $*" >&2; exit 77; }
  as_root=(sudo DEBIAN_FRONTEND=noninteractive)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "$@" >/dev/null
