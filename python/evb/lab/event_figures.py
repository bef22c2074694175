"""Computes the figures of event building from a run's report and its settings."""
import math

from . import quantity
from .measurement import Testbed

# Bytes of a datagram before the payload (docs/protocol.md): IP, UDP and message headers, and the first entry of the
# directory. A further entry takes one byte, and a datagram is filled in blocks.
HEADERS_BYTES = 28 + 20 + 10
ENTRY_BYTES = 1
BLOCK_BYTES = 32
PLAIN = ("qos_backend", "qos_rate_bps", "seconds", "triggers", "events_complete", "events_partial", "events_lost",
         "event_rate_hz", "throughput_bytes_per_second", "busy_seconds")


def payload_limit(link_bps, mtu_bytes, fragment_bytes):
    """The bytes of payload per second that a link carries."""
    room = (mtu_bytes - HEADERS_BYTES) * fragment_bytes / (fragment_bytes + ENTRY_BYTES)
    return link_bps / 8 * BLOCK_BYTES * math.floor(room / BLOCK_BYTES) / (mtu_bytes + 14)


class Offer:
    """What a point offers to its network, from its settings and the defaults of a scenario."""

    def __init__(self, point, defaults):
        def value(key):
            section, _, name = key.partition(".")
            return quantity.parse(point.text(key) or defaults[section][name])

        self.seconds = value("scenario.duration") or 0
        self.trigger_hz = value("trigger.rate") or 0  # 0: as fast as possible
        self.ros, self.sfi = value("ros.count"), value("sfi.count")
        self.fragment_bytes = value("ros.fragment-size")
        on_machines = isinstance(point.bed, Testbed)
        self.link_bps = point.bed.link_rate_bps if on_machines else value("network.link-rate") or 0
        self.mtu_bytes = point.bed.mtu_bytes if on_machines else value("network.mtu") or 1500

    @property
    def bytes_per_second(self):
        return self.trigger_hz * self.ros * self.fragment_bytes

    @property
    def limit(self):
        """Each SFI has one port, but fewer ROSs than SFIs limit the rate to the ROSs' links."""
        return min(self.ros, self.sfi) * payload_limit(self.link_bps, self.mtu_bytes, self.fragment_bytes)


def share(part, whole):
    return part / whole if part is not None and whole else None


def building_seconds(report, offer):
    """The longest of: the configured duration; the time from the first trigger to the last complete event, which may
    come long after the last trigger; and the triggers' number over their rate, since n triggers span n - 1 periods."""
    seconds = max(offer.seconds, report.get("building_seconds") or 0)
    return max(seconds, report["triggers"] / offer.trigger_hz) if offer.trigger_hz else seconds


def building(report, offer):
    """What was built of what was offered, and of what the ports carry."""
    seconds, offered, limit = building_seconds(report, offer), offer.bytes_per_second, offer.limit
    whole = share(report["payload_bytes"], seconds)
    return {
        "whole_events_per_second": share(report["events_complete"], seconds),
        "whole_bytes_per_second": whole,
        "complete_share": share(report["events_complete"], report["triggers"]),
        "port_share": share(whole, limit),
        "offered_share": share(offered, limit) if offered else None,
        "built_share": share(whole, (min(offered, limit) if offered else limit) if limit else None),
    }


def of_report(report, offer):
    """All figures of a run. `report`: of evb run, evb sim, or of the nodes of other machines (machines.py)."""
    drops, fragments, latency = report["drops"], report["fragments"], report["latency_us"]
    cpu_seconds, cpu_percent = report["cpu_seconds"], report["cpu_percent"]
    rate_hz, complete = report["event_rate_hz"], report["events_complete"]
    figures = {name: report.get(name) for name in PLAIN}
    figures |= {
        "switch_packets": drops["switch_packets"],
        "port": report.get("port"),
        "testbed_lost_packets": report.get("testbed_lost_packets"),
        "source_packets": drops["source_qdisc_packets"],
        "socket_packets": drops["socket_packets"],
        "re_asked": fragments["re_asked"],
        "late": fragments["late"],
        "fragments_lost": fragments["lost"],
        "latency_p50_us": latency["p50"],
        "latency_p99_us": latency["p99"],
        "ros_cpu": cpu_percent["ros"],
        "dfm_cpu": cpu_percent["dfm"],
        "sfi_cpu": cpu_percent["sfi"],
        "sfi_cpu_share": share(cpu_seconds["sfi"], report["seconds"]),
        "ros_cpu_share": share(cpu_seconds["ros"], report["seconds"]),
        **{f"{role}_seconds_per_event": share(cpu_seconds[role], complete) for role in ("ros", "dfm", "sfi")},
        # With level 2, most triggers are not built.
        "trigger_rate_hz": rate_hz * report["triggers"] / complete if rate_hz else None,
    }
    return figures | building(report, offer)
