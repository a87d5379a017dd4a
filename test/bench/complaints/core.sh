#!/usr/bin/env bash
# core.sh COMMAND...: on one core of this machine, by the number that the host's name ends with: each host of a test is a machine of one core.
exec taskset -c "$(($(hostname | sed 's/.*-//') % $(nproc)))" "$@"
