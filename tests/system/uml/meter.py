"""Sends UDP from one network namespace to several IPv4 addresses in another, as fast as possible. Prints as JSON the rate
that arrives at each, in bit/s of whole frames: the median over windows of 0.1 s.

The rate is that of the shaping only while packets wait for it. A window counts for a destination if its queue held some all the
time, and this process, and so its guest, never paused for longer than the bursts compensate. What arrived does not matter.
Measures until SECONDS of windows count for each, or for 45 s.

    meter.py FROM-NAMESPACE TO-NAMESPACE SECONDS PAUSE-MS ADDRESS...
"""
import ctypes
import json
import os
import select
import socket
import statistics
import sys
import time

CLONE_NEWNET = 0x40000000
FRAME = 1514
HEADERS = 14 + 20 + 8
WARM_UP = 5
WINDOW_S = 0.1
LIMIT_S = 45
# Half of a send buffer lasts for 50 ms at 20 Mbit/s.
UNFILLED_S = 0.02
libc = ctypes.CDLL(None, use_errno=True)


def enter(name):
    fd = os.open(f"/run/netns/{name}", os.O_RDONLY)
    if libc.setns(fd, CLONE_NEWNET) < 0:
        raise OSError(ctypes.get_errno(), name)
    os.close(fd)


def make(n, size):
    sockets = []
    for _ in range(n):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, size, 1 << 18)
        s.setblocking(False)
        sockets.append(s)
    return sockets


def window(senders, receivers):
    """Returns the frames of each receiver, the longest time in which its queue was not seen to be filled, the duration, and the
    longest pause of this process. Never sleeps, because an idle guest may miss its timer and sleep for a second."""
    frames, unfilled, pause = dict.fromkeys(receivers, 0), dict.fromkeys(senders, 0), 0
    start = before = time.monotonic()
    filled = dict.fromkeys(senders, start)
    while before < start + WINDOW_S:
        # A sender is writable if less than half of its buffer waits, so one that is not has some 100 packets in the queue.
        readable, writable, _ = select.select(receivers, senders, [], 0)
        for s in senders:
            if s not in writable:
                filled[s] = before
        for s in writable:
            try:
                s.send(bytes(FRAME - HEADERS))
            except BlockingIOError:
                filled[s] = before
        for s in readable:
            s.recv(FRAME)
            frames[s] += 1
        now = time.monotonic()
        before, pause = now, max(pause, now - before)
        for s in senders:
            unfilled[s] = max(unfilled[s], now - filled[s])
    return list(zip(frames.values(), unfilled.values())), before - start, pause


def main():
    source, sink, seconds, pause_ms, *addresses = sys.argv[1:]
    limit_s = float(pause_ms) / 1000
    enter(sink)
    receivers = make(len(addresses), socket.SO_RCVBUF)
    for s, address in zip(receivers, addresses):
        s.bind((address, 9000))
    enter(source)
    senders = make(len(addresses), socket.SO_SNDBUF)
    for s, address in zip(senders, addresses):
        s.connect((address, 9000))
    for _ in range(WARM_UP):
        window(senders, receivers)
    counted, made, longest, end = [[] for _ in addresses], 0, 0, time.monotonic() + LIMIT_S
    while min(map(len, counted)) * WINDOW_S < float(seconds) and time.monotonic() < end:
        results, took, pause = window(senders, receivers)
        made, longest = made + 1, max(longest, pause)
        for rates, (frames, unfilled) in zip(counted, results):
            if pause <= limit_s and unfilled <= UNFILLED_S:
                rates.append(frames * FRAME * 8 / took)
    print(json.dumps({"windows": made, "counted": min(map(len, counted)), "pause_s": longest,
                      "bps": [statistics.median(rates) if rates else None for rates in counted]}))


if __name__ == "__main__":
    main()
