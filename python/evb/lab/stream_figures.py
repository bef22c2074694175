"""Computes the figures of a stream from the report of its receiver."""
import statistics

# Bytes of a frame beside the UDP payload: Ethernet, IP and UDP headers.
FRAME_HEADERS_BYTES = 14 + 20 + 8
# A steady interval has the mean rate within this share.
STEADY_SHARE = 0.001
PLACES = ("source", "network", "nic", "socket", "receiver")


def mbps(packets, packet_bytes, seconds):
    return packets * packet_bytes * 8 / seconds / 1e6


def spread(rates):
    """How far the intervals differ."""
    several = len(rates) > 1
    mean = statistics.fmean(rates) if rates else None
    steady = sum(abs(rate - mean) <= STEADY_SHARE * mean for rate in rates)
    return {
        "spread_mbps": max(rates) - min(rates) if several else None,
        "sigma_mbps": statistics.pstdev(rates) if several else None,
        "mean_mbps": mean,
        "least_mbps": min(rates, default=None),
        "most_mbps": max(rates, default=None),
        "steady_intervals": steady if several else None,
        "unsteady_intervals": len(rates) - steady if several else None,
    }


def throughput(report, frame_bytes, interval_seconds):
    """The throughput on the wire in each whole interval."""
    intervals = report.get("intervals") or {}
    packets, length = intervals.get("packets") or [], intervals.get("seconds") or 0
    joined = max(round(interval_seconds / length), 1) if length else 1
    rates = [mbps(sum(packets[i:i + joined]), frame_bytes, length * joined) for i in range(0, len(packets) - joined + 1, joined)]
    return {"interval_seconds": length * joined or None, **spread(rates), "throughput_mbps": rates}


def losses(report):
    sent, lost, at = report.get("packets_sent"), report.get("packets_lost"), report.get("lost_at") or {}
    return {
        "packets_sent": sent,
        "lost_packets": lost,
        "lost_percent": 100 * lost / sent if sent and lost is not None else None,
        **{f"{place}_packets": at.get(place) for place in PLACES},
        "late_packets": report.get("packets_late"),
        "corrupt": report.get("corrupt"),
    }


def times(name, found):
    return {name: found, **{f"{name}_{part}_us": (found or {}).get(part) for part in ("mean", "sigma", "p999")}}


def share(end, used, seconds):
    value = (end or {}).get(used)
    return 100 * value / seconds if seconds and value is not None else None


def of_report(report, *, packet_bytes, interval_seconds):
    """`report`: of the receiver, with the sender's in "peer"."""
    frame_bytes = packet_bytes + FRAME_HEADERS_BYTES
    peer, seconds, received = report.get("peer") or {}, report.get("seconds") or 0, report.get("packets_received")
    known = seconds > 0 and received is not None
    return {
        "seconds": report.get("seconds"),
        "packets_received": received,
        "wake": report.get("wake"),
        "mbps": report["bytes"] * 8 / seconds / 1e6 if known else None,
        "wire_mbps": mbps(received, frame_bytes, seconds) if known else None,
        **throughput(report, frame_bytes, interval_seconds),
        **losses(report),
        **times("inter_packet", report.get("inter_packet_us")),
        **times("processing", report.get("processing_us")),
        **times("sent_inter_packet", peer.get("inter_packet_us")),
        "receive_cpu_percent": share(report, "network_cpu_seconds", seconds),
        "output_cpu_percent": share(report, "file_cpu_seconds", seconds),
        "send_cpu_percent": share(peer, "network_cpu_seconds", seconds),
        "input_cpu_percent": share(peer, "file_cpu_seconds", seconds),
        "cpu_percent": report.get("cpu_percent"),
    }
