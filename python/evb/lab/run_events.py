"""Runs a point of event building by `evb run`, in namespaces of this machine, or on other machines."""
import tempfile

from . import event_figures, machines
from .context import PointFailed
from .measurement import Testbed
from .process import machine_figures, report_of

DIRECTORY = "/var/tmp"


def defaults(context):
    """The defaults of all keys, by section and name. The counts of nodes have none."""
    if "defaults" not in context.kept:
        words = [context.evb, "check", "/dev/null", "--set", "ros.count=1", "--set", "sfi.count=1", "--json"]
        context.kept["defaults"] = report_of(words, context)
    return context.kept["defaults"]


def offer_of(point, context):
    return event_figures.Offer(point, defaults(context))


def settings_of(point):
    """The keys of a scenario, as options."""
    return machines.as_options(f"{key}={value}" for key, value in point.settings.scenario_keys().items())


def run_here(point, context):
    words = [context.evb, "run", "/dev/null", *settings_of(point), "--net", "lab", "--measure", "--quiet", "--json"]
    if point.text("sfi.output") != "file":
        return report_of(words, context, raised=context.raised)
    with tempfile.TemporaryDirectory(prefix="evb-lab-", dir=DIRECTORY) as files:
        return report_of([*words, "--set", f"sfi.directory={files}"], context, raised=context.raised)


def run(point, context):
    report = machines.run_events(point, context, defaults(context)) if isinstance(point.bed, Testbed) else run_here(point, context)
    if report["triggers"] == 0:
        raise PointFailed("the run accepted no trigger")
    return event_figures.of_report(report, offer_of(point, context)) | machine_figures(report)
