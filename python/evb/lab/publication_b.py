"""Publication B: TCP and QoS on Gigabit Ethernet (Yasu et al., about 2000)."""
from . import vary
from .measurement import Kind, Mark, Measurement
from .publication_a import FEW_TCP_SIZES, TCP_SIZES, agrees_if
from .query import NEVER_X
from .verdict import Verdict

# Memory copy below the rate of the published gigabit link would limit the throughput.
LINK_MBYTE_PER_S = 125.0
# The full rate leaves no time to make up for a late timer: in seven runs on two processors, one of them with a compile job on
# the machine, the slowest flow reached 84 to 98 %.
RATE_KEPT = 0.99
# "Works well". Two processors reach 96 to 98 %, and 94 % in half a second beside a compile job.
WELL_SHARE = 0.9


def judge_b1(j):
    slowest = j.of().least("mbyte_per_s")
    return (Verdict.BETTER if slowest > LINK_MBYTE_PER_S else Verdict.DIFFERS,
            f"memory copy runs at {slowest:.0f} to {j.of().most('mbyte_per_s'):.0f} Mbyte/s; a gigabit link needs "
            f"{LINK_MBYTE_PER_S:.0f}")


def judge_b2(_):
    return Verdict.UNKNOWN, ("the lab's virtual devices have no interrupts to coalesce; this needs real network cards, whose "
                             "coalescing ethtool -C sets")


def judge_b3(j):
    normal, jumbo = j.of("MTU 1500").most("received_mbps"), j.of("MTU 9000").most("received_mbps")
    return (agrees_if(jumbo >= 980 and jumbo > normal),
            f"peak throughput is {normal:.0f} Mbit/s at MTU 1500 and {jumbo:.0f} Mbit/s at MTU 9000")


def worst_share(j, key, most_x):
    """The lowest measured rate relative to the configured one, of which TCP's payload is 1448 in 1514 bytes."""
    shares = {i: value / (j.points[i].x * 1448 / 1514) for i, value in j.of().between(0, most_x).figures(key)}
    worst = min(shares, key=shares.get, default=None)
    if worst is None or shares[worst] >= 1:
        return 1
    j.decisive[worst] = True
    return shares[worst]


def judge_b4(j):
    low, full = worst_share(j, "received_mbps", 600), worst_share(j, "received_mbps", NEVER_X)
    return agrees_if(low > 0.97), (
        f"TCP payload reaches at least {100 * low:.1f} % of its share of the rate up to 600 Mbit/s, and {100 * full:.1f} % up to "
        "950 Mbit/s; B3 shows the limit of one TCP connection here")


def judge_b5(j):
    low, full = worst_share(j, "least_mbps", 200), worst_share(j, "least_mbps", NEVER_X)
    return Verdict.BETTER if full > RATE_KEPT else agrees_if(low > 0.95), (
        f"the slowest of three flows reaches at least {100 * low:.1f} % of its rate up to 200 Mbit/s, and {100 * full:.1f} % up "
        "to 320 Mbit/s")


def judge_b6(j):
    share = worst_share(j, "least_mbps", NEVER_X)
    return agrees_if(share > WELL_SHARE), f"the slowest of three flows reaches at least {100 * share:.1f} % of its rate"


MEASUREMENTS = [
    Measurement(
        id="B1",
        title="Memory copy",
        published="the better chipset wins; memory copy limits TCP",
        x_label="block size, bytes",
        y_label="throughput, Mbyte/s",
        y="mbyte_per_s",
        log_x=True,
        kind=Kind.COPY,
        base="seconds=0.2",
        series={"memcpy": ""},
        x=[64, 1024, 16384, 262144, 4194304, 67108864], quick_x=[1024, 262144, 4194304],
        vary=vary.nothing,
        judge=judge_b1,
    ),
    Measurement(
        id="B2",
        title="TCP throughput against interrupt coalescing",
        published="best at 996/1000 with MTU 1500 and at 200/300 with MTU 9000",
        x_label="MTU, bytes",
        y_label="throughput, Mbit/s",
        y="received_mbps",
        kind=Kind.FLOWS,
        base="kind=2 message=65536 socket=528288 seconds=1",
        series={"as the device has it": ""},
        x=[1500, 9000], quick_x=[1500],
        vary=vary.mtu_bytes,
        judge=judge_b2,
    ),
    Measurement(
        id="B3",
        title="TCP throughput against message size and MTU",
        published="jumbo frames reach 990 Mbit/s",
        x_label="message size, bytes",
        y_label="throughput, Mbit/s",
        y="received_mbps",
        log_x=True,
        kind=Kind.FLOWS,
        base="kind=2 socket=528288 seconds=1",
        series={"MTU 1500": "mtu=1500", "MTU 9000": "mtu=9000"},
        x=TCP_SIZES, quick_x=FEW_TCP_SIZES,
        marks=[Mark("2000: jumbo", 10000, 990)],
        vary=vary.message_bytes,
        judge=judge_b3,
    ),
    Measurement(
        id="B4",
        title="QoS 1x1: configured and measured rate",
        published="allocation works; overhead is near 1 %",
        x_label="configured rate, Mbit/s",
        y_label="measured rate, Mbit/s",
        y="received_mbps",
        kind=Kind.FLOWS,
        base="kind=2 message=65536 seconds=1.5",
        series={"TCP": ""},
        x=[10, 50, 100, 200, 400, 600, 800, 950], quick_x=[50, 400, 950],
        vary=vary.rate_mbps,
        judge=judge_b4,
    ),
    Measurement(
        id="B5",
        title="QoS 1x3: one source, three destinations",
        published="works at low rates, not at full rate; unshaped, each flow gets over 200 Mbit/s",
        x_label="configured rate of each flow, Mbit/s",
        y_label="slowest flow, Mbit/s",
        y="least_mbps",
        kind=Kind.FLOWS,
        base="kind=2 message=65536 receivers=3 seconds=1.5",
        series={"shaped": ""},
        x=[50, 100, 200, 300, 320], quick_x=[100, 320],
        vary=vary.rate_mbps,
        judge=judge_b5,
    ),
    Measurement(
        id="B6",
        title="QoS 3x1: three sources, one destination",
        published="works well",
        x_label="configured rate of each flow, Mbit/s",
        y_label="slowest flow, Mbit/s",
        y="least_mbps",
        kind=Kind.FLOWS,
        base="kind=2 message=65536 senders=3 seconds=1.5",
        series={"shaped": ""},
        x=[50, 100, 200, 300, 320], quick_x=[100, 320],
        vary=vary.rate_mbps,
        judge=judge_b6,
    ),
]
