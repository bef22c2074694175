"""Settings of a point that depend on x, for Measurement.vary. `point` has the other settings."""
import math

# Bytes of a datagram before the payload (docs/protocol.md): IP, UDP and message headers, and the first entry of the
# directory. A further entry takes one byte, and a datagram is filled in blocks.
HEADERS_BYTES = 28 + 20 + 10
ENTRY_BYTES = 1
BLOCK_BYTES = 32


def payload_limit(link_bps, mtu_bytes, fragment_bytes):
    """Maximum payload rate of a port for fragments of one size, in bytes per second."""
    room = (mtu_bytes - HEADERS_BYTES) * fragment_bytes / (fragment_bytes + ENTRY_BYTES)
    payload = BLOCK_BYTES * math.floor(room / BLOCK_BYTES)
    return link_bps / 8 * payload / (mtu_bytes + 14)


def limit_of(point, fragment_bytes):
    return payload_limit(point.link_bps, point.mtu_bytes, fragment_bytes)


def nothing(point, x):
    return ""


def setting(key, factor=1, unit=""):
    """The setting is x times a factor, in whole units."""
    return lambda point, x: f"{key}={x * factor:.0f}{unit}"


message_bytes = setting("message")
payload_bytes = setting("payload")
row = setting("row")
mtu_bytes = setting("mtu")
rate_mbps = setting("rate", 1e6)
trigger_hz = setting("trigger.rate", unit="Hz")
# Of a stream.
spacing_us = setting("spacing_ns", 1e3)
rate_gbps = setting("rate_mbps", 1e3)
stream_mbps = setting("rate_mbps")


def link_mbps(point, x):
    """Data at twice the link's rate fills the link."""
    return f"link={x * 1e6:.0f} rate={2 * x * 1e6:.0f}"


def fragment_bytes(point, x):
    """The trigger rate follows from `load`, in percent of the ports' capacity. `paced` is the share of the port, in
    percent, at which all sources together pace."""
    sources = point.number("ros.count", 1)
    capacity = limit_of(point, x) * point.number("sfi.count", 1)
    offered = point.number("load", 100) / 100 * capacity
    text = f"ros.fragment-size={x:.0f} trigger.rate={offered / (x * sources) * 1000:.0f}mHz"
    paced = point.number("paced") / 100
    return text + (f" ros.pacing={paced * point.link_bps / sources:.0f}bit" if paced > 0 else "")


def fragment_bytes_at_25_khz(point, x):
    return f"ros.fragment-size={x:.0f} trigger.rate=25kHz"


def sources(point, x):
    """x is the number of sources; `load` as above."""
    size_bytes = point.number("ros.fragment-size", 1024)
    offered = point.number("load", 100) / 100 * limit_of(point, size_bytes)
    return f"ros.count={x:.0f} trigger.rate={offered / (size_bytes * x) * 1000:.0f}mHz"


def accepted_percent(point, x):
    """x below 100: a stand-in farm accepts this share, after 5 ms. Then the window is larger than what is undecided
    within that time, and small beside all triggers. 100: without level 2."""
    return f"level2.listen=tcp:26803 level2.window=2000 level2.stand-in={x / 100:g}:5ms" if x < 100 else ""


def system(point, *, ros=None, sfi=1, size_bytes=None, load=None):
    """A system at `load` percent of what the ports, or the sources' links if these are fewer, carry."""
    ros = point.number("ros.count", 24) if ros is None else ros
    size_bytes = point.number("ros.fragment-size", 1024) if size_bytes is None else size_bytes
    load = point.number("load", 90) if load is None else load
    rate = load / 100 * limit_of(point, size_bytes) * min(ros, sfi) / (ros * size_bytes) * 1000
    return f"ros.count={ros:.0f} sfi.count={sfi:.0f} ros.fragment-size={size_bytes:.0f} trigger.rate={rate:.0f}mHz"
