#!/bin/sh
# What the image starts, so that `docker stop` and `kubectl delete` leave the last save its time. `mpirun ... train ...` goes by way of
# scripts/supervise, and ends with 143. sshd, which a worker of a Kubernetes job is, hands SIGTERM on to the ranks and ends after them
# and the process that writes checkpoints: the kernel kills them with it. Any other command is started as it is.
case $1 in
  mpirun | */mpirun | mpiexec | */mpiexec | orterun | */orterun | prterun | */prterun)
    for word in "$@"; do
      case $word in
        train | */train | ringtrain | */ringtrain) exec /opt/ringtrain/share/ringtrain/scripts/supervise "$@" ;;
      esac
    done
    ;;
  sshd | */sshd)
    pids() { # NAME...
      for comm in /proc/[0-9]*/comm; do
        read -r name 2>/dev/null <"$comm" || continue
        for wanted in "$@"; do [ "$name" != "$wanted" ] || basename "${comm%/comm}"; done
      done
    }
    told='' signalled=' '
    trap 'told=yes' TERM INT
    "$@" &
    daemon=$!
    while [ ! "$told" ] && kill -0 $daemon 2>/dev/null; do sleep 1 & wait $!; done
    if [ ! "$told" ]; then
      wait $daemon
      exit $?
    fi
    while [ "$(pids train ringtrain ringtrain-write ringtrain-fork orted prted)" ]; do # the kernel keeps 15 characters of ringtrain-writer
      for pid in $(pids train ringtrain); do
        case $signalled in *" $pid "*) continue ;; esac
        kill -TERM "$pid" 2>/dev/null
        signalled="$signalled$pid "
      done
      sleep 0.2
    done
    kill $daemon 2>/dev/null
    exit 143
    ;;
esac
exec "$@"
