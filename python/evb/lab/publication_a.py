"""Publication A: measurements of UDP multicast and TCP with QoS at the sender (Yasu et al., CHEP 2001)."""
from . import vary
from .measurement import Kind, Measurement
from .verdict import Verdict

# One busy receiver on a machine with few processors causes as much; the published plots would not show it.
SOME_LOSS_PERCENT = 0.5
# The receivers accept 58,000 packets/s. The published ones lost packets at 60 bytes and 50 Mbit/s (A3: 61,275 packets/s with
# 42 bytes of headers), but not at 70 bytes (55,804).
MULTICAST = "kind=1 senders=1 receivers=3 receiver_pps=58000 seconds=1"
MULTICAST_SIZES = [10, 20, 40, 60, 80, 100, 200, 400, 800, 1200, 1472]
FEW_SIZES = [40, 100, 1472]
TCP_SIZES, FEW_TCP_SIZES = [10, 30, 100, 300, 1000, 3000, 10000], [100, 1000, 10000]
NO_QOS, QOS_10, QOS_1000 = "no QoS", "QoS at 10 Mbit/s", "QoS at 1000 Mbit/s"


def agrees_if(condition):
    return Verdict.AGREES if condition else Verdict.DIFFERS


def judge_a1(j):
    loss = j.of().least("loss_percent")
    return agrees_if(loss > SOME_LOSS_PERCENT), (
        f"loss is {loss:.1f} % to {j.of().most('loss_percent'):.1f} % over all sizes; each receiver accepts 58,000 packets/s, "
        "as A3 implies for the published ones")


def judge_a2(j):
    loss = j.of().most("loss_percent")
    return agrees_if(loss < SOME_LOSS_PERCENT), f"loss is at most {loss:.2f} % at any size"


def judge_a3(j):
    small = j.of().between(0, 40).most("loss_percent")
    large = j.of().between(70).most("loss_percent")
    return (agrees_if(small > SOME_LOSS_PERCENT and large < SOME_LOSS_PERCENT),
            f"loss is {small:.1f} % up to 40 bytes and {large:.2f} % from 70 bytes")


def judge_a4(j):
    small = j.of().between(0, 100).most("loss_percent")
    large = j.of().between(201).most("loss_percent")
    return (agrees_if(large < SOME_LOSS_PERCENT),
            f"loss is {small:.1f} % up to 100 bytes and {large:.2f} % above 200 bytes")


def judge_a5(j):
    none, qos = j.of(NO_QOS).most("received_mbps"), j.of(QOS_1000).most("received_mbps")
    return (agrees_if(qos > 0.95 * none),
            f"peak throughput is {none:.0f} Mbit/s without QoS and {qos:.0f} Mbit/s with QoS")


def judge_a6(j):
    none, qos = j.of(NO_QOS).most("sender_cpu_percent"), j.of(QOS_1000).most("sender_cpu_percent")
    why = (f"the sender uses at most {none:.0f} % of a CPU without QoS and {qos:.0f} % with QoS; this excludes the kernel's "
           "work after the queue")
    if none <= 0 or qos <= 0:
        return Verdict.DIFFERS, why
    return Verdict.BETTER if qos <= none + 10 else Verdict.AGREES, why


def judge_a7(j):
    none, qos, tail = (j.of(NO_QOS).most("gap_p50_us"), j.of(QOS_10).most("gap_p50_us"), j.of(QOS_10).most("gap_p99_us"))
    return (Verdict.BETTER if 0 < none < 50 and 0 < tail < 5000 else Verdict.DIFFERS,
            f"the median gap is {none:.0f} us without QoS and {qos:.0f} us with QoS, 99 % of the gaps are below {tail:.0f} us; "
            "high-resolution timers replace the 10 ms tick")


def judge_a8(j):
    none, qos = j.of(NO_QOS).most("gap_p50_us"), j.of(QOS_10).most("gap_p50_us")
    return (agrees_if(900 < none < 1100 and 900 < qos < 1100),
            f"the median gap is {none:.0f} us without QoS and {qos:.0f} us with QoS")


def multicast(number, title, published, series, judge, **others):
    """A1 to A4 differ in the rate of the sender."""
    return Measurement(id=f"A{number}", title=f"UDP multicast to 3 receivers, {title}", published=published,
                       x_label="message size, bytes", y_label="loss, %", y="loss_percent", log_x=True, kind=Kind.FLOWS,
                       base=MULTICAST, series=series, vary=vary.message_bytes, judge=judge,
                       **{"x": MULTICAST_SIZES, "quick_x": FEW_SIZES, **others})


MEASUREMENTS = [
    multicast(1, "best effort", "loss at every size", {"best effort": ""}, judge_a1),
    multicast(2, "10 Mbit/s", "no loss at any size", {"10 Mbit/s": "rate=10000000"}, judge_a2),
    multicast(3, "50 Mbit/s", "loss at 60 bytes and below only", {"50 Mbit/s": "rate=50000000"}, judge_a3,
              x=[10, 20, 40, 50, 60, 70, 80, 100], quick_x=[10, 40, 100]),
    multicast(4, "100 Mbit/s", "no loss above 200 bytes", {"100 Mbit/s": "rate=100000000"}, judge_a4),
    Measurement(
        id="A5",
        title="TCP throughput with QoS that limits nothing",
        published="the same peak throughput with and without QoS",
        x_label="message size, bytes",
        y_label="throughput, Mbit/s",
        y="received_mbps",
        log_x=True,
        kind=Kind.FLOWS,
        base="kind=2 seconds=1",
        series={NO_QOS: "", QOS_1000: "rate=1000000000"},
        x=TCP_SIZES, quick_x=FEW_TCP_SIZES,
        vary=vary.message_bytes,
        judge=judge_a5,
    ),
    Measurement(
        id="A6",
        title="CPU usage of a TCP sender, with and without QoS",
        published="QoS costs 10 percentage points for small messages; its share grows for large ones",
        x_label="message size, bytes",
        y_label="CPU usage of the sender, %",
        y="sender_cpu_p50_percent",
        log_x=True,
        kind=Kind.FLOWS,
        base="kind=2 seconds=1",
        series={NO_QOS: "", QOS_1000: "rate=1000000000"},
        x=TCP_SIZES, quick_x=FEW_TCP_SIZES,
        vary=vary.message_bytes,
        judge=judge_a6,
    ),
    Measurement(
        id="A7",
        title="Gaps between TCP packets at 10 Mbit/s",
        published="with QoS, some packets leave on the 10 ms scheduler tick; without, most gaps are some 10 us",
        x_label="message size, bytes",
        y_label="median gap, us",
        y="gap_p50_us",
        kind=Kind.FLOWS,
        base="kind=2 watch=1 seconds=2",
        series={NO_QOS: "", QOS_10: "rate=10000000"},
        x=[1448], quick_x=[1448],
        vary=vary.message_bytes,
        judge=judge_a7,
    ),
    Measurement(
        id="A8",
        title="Gaps between TCP packets with a 1 kHz trigger",
        published="most gaps are 1 ms, with and without QoS",
        x_label="message size, bytes",
        y_label="median gap, us",
        y="gap_p50_us",
        kind=Kind.FLOWS,
        base="kind=2 watch=1 messages_per_s=1000 seconds=2",
        series={NO_QOS: "", QOS_10: "rate=10000000"},
        x=[1000], quick_x=[1000],
        vary=vary.message_bytes,
        judge=judge_a8,
    ),
]
