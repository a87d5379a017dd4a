#!/usr/bin/env python3
"""cut_connections.py PID OTHER: cuts the connections between rank 0, process PID, and another rank of this host, OTHER, in the ways that a
network has: shut, reset, or dropping what comes without a word. After each cut of the watchdog's connection there is another one
within ten seconds. Then, for two seconds, what slices bring vanishes without a word. Says what it did; ends with 1 where a rank does
not come again, with 77 where this machine lets no process touch another one's sockets."""
import ctypes
import os
import socket
import struct
import sys
import time

from strangers import fail, listening

PIDFD_GETFD = 438
ESTABLISHED, LISTENS = "01", "0A"
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
AF_UNSPEC = struct.pack("H14x", socket.AF_UNSPEC)
libc = ctypes.CDLL(None, use_errno=True)


def sockets_of(pid):
    """Its descriptors, by the socket's number."""
    found = {}
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            name = os.readlink(f"/proc/{pid}/fd/{entry}")
        except OSError:
            continue
        if name.startswith("socket:["):
            found[name[8:-1]] = int(entry)
    return found


def connections(pid, other, port):
    """The descriptors (PID's, OTHER's) of each connection of OTHER's to that port of PID's. They may be on two hosts of this machine."""
    ours, theirs = sockets_of(pid), sockets_of(other)
    there = {(row[2], row[1]): row for row in rows(other, ESTABLISHED)}
    for here in rows(pid, ESTABLISHED):
        if here[1].endswith(f":{port:04X}") and here[9] in ours and (end := there.get((here[1], here[2]))) and end[9] in theirs:
            yield ours[here[9]], theirs[end[9]]


def rows(pid, state):
    """Of its network's table."""
    with open(f"/proc/{pid}/net/tcp") as lines:
        return [words for words in map(str.split, list(lines)[1:]) if words[3] == state]


def listener(pid, port):
    [descriptor] = [sockets_of(pid)[row[9]] for row in rows(pid, LISTENS) if row[1].endswith(f":{port:04X}") and row[9] in sockets_of(pid)]
    return descriptor


def borrow(pid, descriptor):
    """Another process's socket."""
    process = os.pidfd_open(pid)
    try:
        ours = libc.syscall(PIDFD_GETFD, process, descriptor, 0)
        if ours < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return socket.socket(fileno=ours)
    finally:
        os.close(process)


def shut(end):
    end.shutdown(socket.SHUT_RDWR)


def reset(end):
    libc.connect(end.fileno(), AF_UNSPEC, len(AF_UNSPEC))


def drop(end, beyond=0):
    """Each packet from now on that has more bytes, also on connections that come to a socket that listens."""
    code = struct.pack("HBBIHBBIHBBIHBBI", 0x80, 0, 0, 0, 0x25, 0, 1, beyond, 0x06, 0, 0, 0, 0x06, 0, 0, 0xFFFFFFFF)
    held = ctypes.create_string_buffer(code)
    end.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 4, ctypes.addressof(held)))


WAYS = (shut, reset, drop)


def await_connection(pid, other, port, but=None):
    """None where there is none in ten seconds but the one whose end at OTHER is the socket `but`."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        for pair in connections(pid, other, port):
            if socket_name(other, pair[1]) != but:
                return pair
        time.sleep(0.02)
    return None


def socket_name(pid, descriptor):
    try:
        return os.readlink(f"/proc/{pid}/fd/{descriptor}")
    except OSError:
        return None


def cut(pid, other, port, way, at_rank_0):
    """The seconds until there is another connection; None: there is none."""
    pair = await_connection(pid, other, port)
    if pair is None:
        return None
    before, start = socket_name(other, pair[1]), time.monotonic()
    with borrow(*((pid, pair[0]) if at_rank_0 else (other, pair[1]))) as end:
        way(end)
    return time.monotonic() - start if await_connection(pid, other, port, before) else None


def lose_slices(pid, port, seconds):
    """What comes on connections that are made meanwhile, but for the proofs, which are short."""
    with borrow(pid, listener(pid, port)) as door:
        drop(door, 500)
        time.sleep(seconds)
        door.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)


def stays(pid, other, port):
    """Whether OTHER is connected there each time that one looks; slices come and go."""
    return all(any(connections(pid, other, port)) and time.sleep(0.02) is None for _ in range(20))


def main():
    pid, other = map(int, sys.argv[1:])
    ports = [port for address, port in listening(pid) if address == "0100007F"]
    door = next((port for port in ports if stays(pid, other, port)), None) or fail("the ranks are not connected")
    pair = await_connection(pid, other, door)
    try:
        borrow(pid, pair[0]).close()
    except PermissionError as why:
        print(f"skipped: no process may touch another one's sockets here: {why}")
        sys.exit(77)
    for way, at_rank_0 in ((shut, True), (reset, False), (drop, False)):  # a unit test has the other ends
        name = f"{way.__name__} at rank {0 if at_rank_0 else 1}"
        took = cut(pid, other, door, way, at_rank_0)
        if took is None:
            fail(f"{name}: not made again")
        print(f"{name}: made again after {took:.1f} s", flush=True)
    for port in set(ports) - {door}:
        lose_slices(pid, port, 2)
    print("slices lost for 2 s")


if __name__ == "__main__":
    main()
