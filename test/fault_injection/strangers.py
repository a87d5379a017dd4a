#!/usr/bin/env python3
"""strangers.py PID OTHER: does to the ports on which rank 0, process PID, listens for other ranks what strangers may do: a thousand idle
connections each, scans, garbage, halves of a proof, wrong proofs, a slow one, and all of it while PID may open no more files. OTHER,
another rank on this host, shows which listening sockets are MPI's. Says what it did; ends with 1 where it could not, or was let in."""
import os, random, resource, socket, struct, sys, time

LISTENS = "0A"
CALL, CHALLENGE = 0x52544331, 0x52544332
WATCHDOG, SLICES = 1, 2


def fail(text):
    print("strangers:", text)
    sys.exit(1)


def listening(pid):
    """(address, port) of each listening socket of the process, the address as the kernel has it."""
    own = set()
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            own.add(os.readlink(f"/proc/{pid}/fd/{entry}"))
        except OSError:
            pass
    found = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as lines:
            for words in map(str.split, list(lines)[1:]):
                if words[3] == LISTENS and f"socket:[{words[9]}]" in own:
                    address, port = words[1].split(":")
                    found.append((address, int(port, 16)))
    return found


def find_doors(pid, other):
    everywhere = lambda of: sum(set(address) == {"0"} for address, _ in listening(of))
    if everywhere(pid) != everywhere(other):
        fail(f"rank 0 listens on all interfaces for ranks of its own host: {listening(pid)}, MPI {listening(other)}")
    doors = [("127.0.0.1", port) for address, port in listening(pid) if address == "0100007F"]
    if len(doors) != 2:
        fail(f"rank 0 does not listen on the loopback for watchdog and slices: {listening(pid)}")
    return doors


def connect(door, patience=5):
    return socket.create_connection(door, patience)


def call(door, rank, version, service):
    stranger = connect(door)
    stranger.sendall(struct.pack("<IIII", CALL, version, service, rank) + os.urandom(32))
    return stranger


def challenge(stranger):
    """Its bytes; none where rank 0 has ended the connection."""
    answer = b""
    try:
        while len(answer) < 72:
            more = stranger.recv(72 - len(answer))
            if not more:
                return b""
            answer += more
    except OSError:
        return b""
    return answer


def version_and_service(door):
    stranger = call(door, 1, 0, WATCHDOG)
    _, version = struct.unpack("<II", challenge(stranger)[:8])
    for service in (WATCHDOG, SLICES):
        if challenge(call(door, 1, version, service)):
            return version, service
    fail(f"nobody answers a call at {door}")


def ended(stranger, patience=10):
    """Whether rank 0 ends the connection in that time and says nothing before."""
    stranger.settimeout(patience)
    try:
        return stranger.recv(100) == b""
    except ConnectionError:
        return True
    except OSError:
        return False


def idle(doors, strangers):
    for _ in range(1000):
        for door in doors:
            strangers.append(connect(door))


def scan(doors):
    for _ in range(300):
        for door in doors:
            stranger = connect(door)
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stranger.close()


def garbage(doors):
    for i in range(200):
        try:
            connect(random.choice(doors)).sendall(os.urandom(5 * i))
        except ConnectionError:
            pass


def halves(doors, known, strangers):
    for _ in range(100):
        for door in doors:
            strangers.append(call(door, 1, *known[door]))


def wrong_proofs(doors, known):
    for i in range(30):
        door = random.choice(doors)
        stranger = call(door, 1, *known[door])
        answer = challenge(stranger)
        if not answer:
            continue  # made room meanwhile
        try:  # a guess, or rank 0's own proof sent back
            stranger.sendall(os.urandom(32) if i % 2 else answer[40:])
        except ConnectionError:
            continue
        if not ended(stranger):
            fail("rank 0 let in who does not know the token")


def slow(doors):
    start = time.monotonic()
    stranger = connect(doors[0])
    while time.monotonic() < start + 20:
        try:
            stranger.sendall(b"R")
            stranger.settimeout(0.5)
            if stranger.recv(1) == b"":
                return
        except socket.timeout:
            pass
        except ConnectionError:
            return
    fail("one who sends two bytes a second is not turned away")


def without_files(pid, doors, strangers):
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    taken = {int(entry) for entry in os.listdir(f"/proc/{pid}/fd")}
    free = next(number for number in range(1 << 20) if number not in taken)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, before[1]))
    end = time.monotonic() + 4
    while time.monotonic() < end:
        for door in doors:
            try:
                strangers.append(connect(door, 0.2))
            except OSError:
                pass  # the kernel's queue is full
        time.sleep(0.02)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def main():
    pid, other = map(int, sys.argv[1:])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard > 0 else 65536, hard))
    doors, strangers = find_doors(pid, other), []
    known = {door: version_and_service(door) for door in doors}
    if {service for _, service in known.values()} != {WATCHDOG, SLICES}:
        fail(f"not one port for each service: {known}")
    start = time.monotonic()
    slow(doors)
    idle(doors, strangers)
    open_files = len(os.listdir(f"/proc/{pid}/fd"))
    scan(doors)
    garbage(doors)
    halves(doors, known, strangers)
    without_files(pid, doors, strangers)
    wrong_proofs(doors, known)
    os.kill(pid, 0)  # it is still there
    print(f"strangers: {len(strangers)} idle connections (rank 0 had {open_files} files open), 600 scanned, 200 of garbage, 30 wrong proofs, "
          f"4 s without files, {time.monotonic() - start:.1f} s in all")


if __name__ == "__main__":
    main()
