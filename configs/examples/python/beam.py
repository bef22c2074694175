"""Plays a CAEN digitizer, a tracker that sends datagrams, and an AIDA-2020 TLU, for scripts/demo-beam.sh: beam.py EVENTS.

The TLU makes the triggers, and is read out like a board.
"""
import random
import struct
import sys
import time

import evb
import tlu

box = evb.TriggerBox("127.69.87.1:26910", busy="127.69.87.2:26911")
digitizer = evb.Board("tcp:127.69.87.2:26901")
tracker = evb.Board("udp:127.69.87.12:26902")
unit = evb.Board("tcp:127.69.87.2:26903")
begin, decoder = time.monotonic_ns(), tlu.Aida(None)
for board in (digitizer, unit):
    board.wait()
for number in range(int(sys.argv[1])):
    box.wait()
    ticks = (time.monotonic_ns() - begin) // tlu.TICK_NS
    event = struct.pack("<6I", 0x10010000 | ticks >> 32, ticks % 2 ** 32, 0, number, 0, 0)
    box.forward(*decoder.decode(event))
    unit.send_frame(event)
    samples = [random.randrange(2 ** 14) for _ in range(2 * random.randint(8, 32))]
    words = struct.pack(f"<{len(samples)}H", *samples)
    digitizer.send_frame(struct.pack("<4I", 0xA0000000 | 4 + len(words) // 4, 1, number % 2 ** 24, ticks % 2 ** 31) + words)
    tracker.send_frame(struct.pack(">IHH", number, random.randrange(1024), random.randrange(1024)))
    time.sleep(random.expovariate(1000))
