"""Runs a point of event building in virtual time: the scenario that the lab would run, by `evb sim`."""
from . import event_figures
from .context import PointFailed
from .process import report_of
from .run_events import offer_of, settings_of

# Fewer events do not span a time that means something.
STEADY_EVENTS = 20


def model_of(point):
    """Words without a section are figures of the model."""
    return [f"--model={setting}" for setting in point.settings.split() if "." not in setting.partition("=")[0]]


def steady_share(figures):
    """Short runs would show the start of the run in built_share."""
    whole = figures["whole_bytes_per_second"] or 0
    steady = figures["throughput_bytes_per_second"] or 0
    if figures["events_complete"] < STEADY_EVENTS:
        steady = whole
    return (figures["built_share"] or 0) * steady / whole if whole else 0.0


def virtual_figures(report, figures, offer):
    """What the simulator knows in addition: the whole history, the buffer that the ports to SFIs needed, and the
    control messages at the DFM's link."""
    dfm = next(node for node in report["nodes"] if node["role"] == "dfm")
    seconds = report["seconds"]
    more = {
        "digest": report["digest"],
        "virtual_seconds": seconds,
        "plan_fits": report["plan_fits"],
        "steady_share": steady_share(figures),
        "port_most_bytes": report["port_most_bytes"],
        "dfm_messages_per_second": (dfm["control_sent"] + dfm["control_received"]) / seconds,
    }
    if offer.link_bps:
        most_bytes = max(dfm["control_sent_bytes"], dfm["control_received_bytes"])
        more["dfm_link_share"] = most_bytes * 8 / seconds / offer.link_bps
    return more


def run(point, context):
    words = [context.evb, "sim", "/dev/null", *settings_of(point), *model_of(point), "--seed", point.bed.seed, "--quiet", "--json"]
    report, offer = report_of(words, context), offer_of(point, context)
    if report["violation"]:
        raise PointFailed(f"seed {point.bed.seed}: {report['violation']}")
    figures = event_figures.of_report(report, offer)
    return figures | virtual_figures(report, figures, offer)
