"""Computes the figures of plain flows from the reports of `evb stream --format raw`. An unknown figure is None, never 0."""
import itertools

from .measurement import ECHO, TCP

EDGES_PERCENT = (1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100, 110, 150, 200)
GAPS = (("gap_p1_us", 0.01), ("gap_p25_us", 0.25), ("gap_p50_us", 0.5), ("gap_p75_us", 0.75), ("gap_p99_us", 0.99), ("gap_p999_us", 0.999))
# Ten bins per decade, from 100 ns to 1 s.
GAP_EDGES_US = [int(10 ** (2 + i / 10)) / 1e3 for i in range(71)]


def mbps(measured):
    return measured["bytes"] * 8 / measured["seconds"] / 1e6 if measured["seconds"] else 0.0


def cpu_percent(reports):
    """The sum of what the measured threads used, in per cent of a processor."""
    return sum(100 * r["measured"]["cpu_seconds"] / r["measured"]["seconds"] for r in reports if r["measured"]["seconds"])


def quantile(values, q):
    return values[min(int(q * len(values)), len(values) - 1)]


def cpu_shares(reports):
    """How the shares of a processor in each interval are distributed, over all threads."""
    shares = sorted(share for r in reports for share in r["measured"]["cpu_percent"])
    if not shares:
        return None
    below = [sum(share <= edge for share in shares) / len(shares) for edge in EDGES_PERCENT]
    return {**{f"p{q}": quantile(shares, q / 100) for q in (10, 50, 90, 99)}, "edges": list(EDGES_PERCENT), "below": below}


def gaps(times):
    """Times between packets at the first receiver."""
    counts = list(itertools.accumulate(n for _, n in times["histogram"])) if times else []
    if not counts:
        return {name: None for name, _ in GAPS} | {"gap_max_us": None}

    def at(q):
        return next(upper for (upper, _), n in zip(times["histogram"], counts) if n >= q * counts[-1])

    def below(edge):
        return max((n for (upper, _), n in zip(times["histogram"], counts) if upper <= edge), default=0) / counts[-1]

    return {name: at(q) for name, q in GAPS} | {"gap_max_us": times["max"], "gap_edges_us": GAP_EDGES_US,
                                                "gap_below": list(map(below, GAP_EDGES_US))}


def echoes(report):
    """Of the sender of echo requests."""
    times = report["round_trip_us"] or {}
    return {"echoes": float(sum(n for _, n in times.get("histogram", []))), "echo_p50_us": times.get("p50"),
            "echo_p99_us": times.get("p99"), "echo_max_us": times.get("max")}


def one_way(kind, sent, received, watched):
    """`sent`, `received`: the reports of all senders and of all receivers; `watched`: the packets at the first one."""
    figures = {
        "sent_mbps": sum(mbps(r["measured"]) for r in sent),
        "received_mbps": sum(mbps(r["measured"]) for r in received),
        "least_mbps": min(mbps(r["measured"]) for r in received),
    }
    if kind != TCP:
        expected, arrived = sum(r["packets_sent"] for r in received), sum(r["packets_received"] for r in received)
        figures["loss_percent"] = 100 * (1 - arrived / expected) if expected else None
        figures["lost_messages"] = expected - arrived if expected else None
    figures |= {"sender_cpu_percent": cpu_percent(sent), "receiver_cpu_percent": cpu_percent(received)}
    return figures | (gaps(received[0]["inter_packet_us"]) if watched else {})


def of_reports(kind, sent, received, watched):
    figures = echoes(sent[0]) if kind == ECHO else one_way(kind, sent, received, watched)
    sender_cpu = cpu_shares(sent)
    return figures | {
        "sender_cpu": sender_cpu, "receiver_cpu": cpu_shares(received),
        "sender_cpu_p50_percent": sender_cpu["p50"] if sender_cpu else None,
        "socket_packets": None if kind == TCP else sum(r["lost_at"]["socket"] or 0 for r in received),
    }
