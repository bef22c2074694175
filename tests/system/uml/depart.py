"""Sends FRAMES UDP frames at once to each of several IPv4 addresses in another network namespace, runs COMMAND, and waits until all
frames have arrived, for at most 60 s. Prints as JSON, for each address, how many arrived, and after how many seconds since the first was sent the
last one did. The sockets must be able to store all frames.

    depart.py FROM-NAMESPACE TO-NAMESPACE FRAMES COMMAND ADDRESS...
"""
import json
import select
import socket
import subprocess
import sys
import time

from meter import FRAME, HEADERS, enter, make

LIMIT_S = 60


def receive(receivers, arrived, last, wait_s):
    for s in select.select(receivers, [], [], wait_s)[0]:
        s.recv(FRAME)
        arrived[s] += 1
        last[s] = time.monotonic()


def main():
    source, sink, frames, command, *addresses = sys.argv[1:]
    enter(sink)
    receivers = make(len(addresses), socket.SO_RCVBUF)
    for s, address in zip(receivers, addresses):
        s.bind((address, 9000))
    enter(source)
    senders = make(len(addresses), socket.SO_SNDBUF)
    for s, address in zip(senders, addresses):
        s.connect((address, 9000))
    arrived, last = dict.fromkeys(receivers, 0), {}
    start = time.monotonic()
    for _ in range(int(frames)):
        for s in senders:
            s.send(bytes(FRAME - HEADERS))
    if command:
        subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)
    while sum(arrived.values()) < int(frames) * len(addresses) and time.monotonic() < start + LIMIT_S:
        receive(receivers, arrived, last, 0.1)
    print(json.dumps({"arrived": list(arrived.values()), "seconds": [last.get(s, start) - start for s in receivers]}))


main()
