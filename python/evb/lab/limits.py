"""What limited a point of event building: the port, the processors, the offered load, or shaping to a fixed rate."""
import enum

from . import quantity, valid
from .measurement import Settings


class Limit(enum.Enum):
    PORT = "the port"
    PROCESSORS = "the processors"
    LOAD = "the load"
    RATE = "the shaped rate"


# A port that builds this share of what it passes is full, and a load of which this share is built is built.
FULL_SHARE = 0.95
# Senders overload a port that drops this share of the offered packets. Fewer drops may be of short bursts.
DROPPED_SHARE = 0.05
PAYLOAD_BYTES = 1408  # of a packet with an MTU of 1500, as an estimate for all


def _number(result, key, otherwise=0.0):
    value = result.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise


def _offered_packets(result, settings):
    fragment_bytes = settings.number("ros.fragment-size", 1024)
    return _number(result, "triggers") * settings.number("ros.count", 1) * max(fragment_bytes / PAYLOAD_BYTES, 1)


def _is_at_rate(result, settings):
    """Whether all sources together may use less than the port carries."""
    rate_bps = _number(result, "qos_rate_bps") * settings.number("ros.count", 1)
    return 0 < rate_bps < FULL_SHARE * (quantity.parse(settings.text("network.link-rate", "1Gbit")) or 0)


def limit_of(result):
    """A Limit, or None if the result does not tell."""
    settings = Settings(result.get("settings") or "")
    offered, port, built = (result.get(key) for key in ("offered_share", "port_share", "built_share"))
    if port is None or built is None:
        return None
    if port >= FULL_SHARE:
        return Limit.PORT
    if built >= FULL_SHARE and offered is not None:
        return Limit.LOAD
    dropped = _number(result, "switch_packets")
    if dropped > DROPPED_SHARE * _offered_packets(result, settings):
        return Limit.PORT
    if _number(result, "waiting_share") > valid.CROWDED_SHARE:
        return Limit.PROCESSORS
    if _is_at_rate(result, settings):
        return Limit.RATE
    # The simulator's nodes have a processor each.
    is_known = result.get("simulated") is True or result.get("waiting_share") is not None
    return Limit.PORT if is_known and dropped > 0 else None
