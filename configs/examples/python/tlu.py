"""Sends the triggers of a trigger logic unit (TLU) to evb, and holds the TLU back while evb is busy.

An AIDA-2020 TLU is read over IPbus, by the package uhal: python3 tlu.py CONNECTIONS.xml DEVICE DFM:PORT BUSY:PORT, where DFM:PORT is
the DFM's address with the port of trigger.source, and BUSY:PORT the address in trigger.busy-to. A EUDET TLU needs pins of your own.
"""
import struct
import sys
import time

import evb

TICK_NS = 25  # 40 MHz


class Aida:
    """An AIDA-2020 TLU. `device` is its uhal.HwInterface."""

    def __init__(self, device):
        self.device, self.start_ns = device, None

    def veto(self, on):
        self.device.getNode("triggerLogic.TriggerVetoW").write(int(on))
        self.device.dispatch()

    def read(self):
        """Yields number, type and time of each trigger that has come. A trigger has 6 words."""
        level = self.device.getNode("eventBuffer.EventFifoFillLevel").read()
        self.device.dispatch()
        words = self.device.getNode("eventBuffer.EventFifoData").readBlock(int(level) // 6 * 6)
        self.device.dispatch()
        for at in range(0, len(words), 6):
            yield self.decode(struct.pack("<6I", *words[at:at + 6]))

    def decode(self, event):
        """The type is that of the TLU (4 bits), with the inputs that fired above it. The TLU's clock begins at its first trigger here."""
        first, low, _, number, _, _ = struct.unpack("<6I", event)
        ticks = (first & 0xffff) << 32 | low
        if self.start_ns is None:
            self.start_ns = time.time_ns() - ticks * TICK_NS
        return number, first >> 28 | (first >> 16 & 0x3f) << 4, self.start_ns + ticks * TICK_NS


class Eudet:
    """The handshake of a EUDET TLU. `pins` has trigger() and the setters busy(level) and clock(level)."""

    def __init__(self, pins):
        self.pins, self.last, self.holds = pins, -1, False

    def veto(self, on):
        self.holds = on
        self.pins.busy(on)

    def read(self):
        """Busy answers a trigger. Then each clock shows a bit of its number at the trigger line, the lowest first: 15 bits, and a 0."""
        if not self.pins.trigger():
            return
        self.pins.busy(True)
        while self.pins.trigger():
            pass
        number = 0
        for bit in range(16):
            self.pins.clock(True)
            number |= self.pins.trigger() << bit
            self.pins.clock(False)
        self.pins.busy(self.holds)
        self.last += (number - self.last) % 32768
        yield self.last, 0, None


def forward(tlu, box):
    """Call it again and again: once for each look at the TLU."""
    tlu.veto(not box.wait(0))
    if isinstance(tlu, Eudet) and tlu.last < 0 and box.last is not None:
        tlu.last = box.last  # this program was started again in a run
    for number, kind, time_ns in tlu.read():
        box.forward(number, kind, time_ns)


if __name__ == "__main__":
    import uhal

    connections, name, dfm, busy = sys.argv[1:]
    unit = Aida(uhal.ConnectionManager("file://" + connections).getDevice(name))
    with evb.TriggerBox(dfm, busy=busy) as sender:
        while True:
            forward(unit, sender)
