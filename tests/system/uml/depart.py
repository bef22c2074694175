"""TIMES: sends FRAMES UDP frames at once to each of several IPv4 addresses in another network namespace, runs COMMAND, and waits until all
frames have arrived, for at most 60 s. Prints as JSON, for each time and address, how many arrived, and after how many seconds since the
first was sent the last one did. The sockets must be able to store all frames.

    depart.py FROM-NAMESPACE TO-NAMESPACE TIMES FRAMES COMMAND ADDRESS...
"""
import json
import select
import socket
import subprocess
import sys
import time

from meter import FRAME, HEADERS, enter, make

LIMIT_S = 60


def receive(receivers, arrived, last):
    """Never sleeps, as meter.py."""
    for s in select.select(receivers, [], [], 0)[0]:
        s.recv(FRAME)
        arrived[s] += 1
        last[s] = time.monotonic()


def once(senders, receivers, frames, command):
    arrived, last = dict.fromkeys(receivers, 0), {}
    start = time.monotonic()
    for _ in range(frames):
        for s in senders:
            s.send(bytes(FRAME - HEADERS))
    if command:
        subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)
    while sum(arrived.values()) < frames * len(receivers) and time.monotonic() < start + LIMIT_S:
        receive(receivers, arrived, last)
    return {"arrived": list(arrived.values()), "seconds": [last.get(s, start) - start for s in receivers]}


def main():
    source, sink, times, frames, command, *addresses = sys.argv[1:]
    enter(sink)
    receivers = make(len(addresses), socket.SO_RCVBUF)
    for s, address in zip(receivers, addresses):
        s.bind((address, 9000))
    enter(source)
    senders = make(len(addresses), socket.SO_SNDBUF)
    for s, address in zip(senders, addresses):
        s.connect((address, 9000))
    print(json.dumps([once(senders, receivers, int(frames), command) for _ in range(int(times))]))


main()
