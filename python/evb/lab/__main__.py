"""The command line of `evb lab`; `evb lab --help` and evb-lab(1) describe it."""
import argparse
import json
import os
import shutil
import subprocess
import sys

from ..interpreter import let_interrupt, use_system_python
from . import catalogue, machine, report, results, virtual
from .judge import judge, markdown, table
from .measurement import Simulation
from .needs import needs_of
from .run import Context, Made, Order, Progress, Run, Stop, make_points, say
from .testbed import TestbedError, open_testbed
from .valid import SAMPLES
from .verdict import Verdict

SKIPPED = 77  # a privilege or a program is missing


def find_evb():
    """The program: `evb lab` names itself, or else that in PATH."""
    path = os.environ.get("EVB_PROGRAM") or shutil.which("evb")
    if not path:
        sys.exit("evb lab: cannot find the program evb; add its directory to PATH, or name it in EVB_PROGRAM")
    return path


def version_of(evb):
    return subprocess.run([evb, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


def write_json(value, path, status):
    """Writes the report of a command with --json; "-": to standard output. Returns `status`, or if that is 0: 2 if the file cannot
    be opened, 1 if it does not hold the whole report."""
    text = json.dumps(value, indent=1) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return status
    try:
        f = open(path, "w", encoding="utf-8")
    except OSError as e:
        print(f"evb: --json {path}: {e.strerror}", file=sys.stderr)
        return status or 2
    try:
        with f:
            f.write(text)
    except OSError as e:
        print(f"evb: --json {path}: cannot write the report: {e.strerror}", file=sys.stderr)
        return status or 1
    return status


def describe_needs(m):
    """"needs" has the text for people; "dfm", "ros" and "sfi" have the nodes, null for this machine alone."""
    needs = needs_of(m)

    def nodes(least, most):
        return {"least": least, "most": most} if needs.testbed else None

    return {"id": m.id, "title": m.title, "published": m.published, "needs": str(needs), "dfm": 1 if needs.testbed else None,
            "ros": nodes(*needs.ros), "sfi": nodes(*needs.sfi), "features": list(needs.features)}


def list_all(o):
    every = [describe_needs(m) for m in catalogue.MEASUREMENTS]
    if o.json:
        return write_json({"measurements": every}, o.json, 0)
    for m in every:
        print(f"{m['id']:10} {m['title']}\n{'':10} published: {m['published']}\n{'':10} needs: {m['needs']}")
    return 0


def clean(o):
    namespaces, directories = machine.clean_namespaces(), machine.clean_states()
    if o.json:
        return write_json({"namespaces": namespaces, "directories": directories}, o.json, 0)
    print(f"removed {namespaces} namespaces and {directories} directories in /tmp of dead runs")
    return 0


def verdicts_of(order, stored):
    """The verdicts of the selected measurements. plan() has said which ones exist elsewhere only."""
    here = [m for m in order.measurements if isinstance(order.bed, Simulation) or not m.virtual_only]
    return [(m, *judge(m, results.of_bed(stored, m, order.bed), order.quick)) for m in here]


def print_verdicts(o, order, stored, made):
    """Returns the exit status."""
    verdicts = verdicts_of(order, stored)
    status = 1 if any(verdict is Verdict.DIFFERS for _, verdict, _ in verdicts) else 0
    if o.json != "-":
        for m, verdict, why in verdicts:
            print(f"{m.id:10} {verdict.value:8} {why}\n{'':10} {'':8} published: {m.published}")
            rows = table(m, results.of_bed(stored, m, order.bed), order.quick)
            if rows:
                print(f"\n{markdown(rows)}\n")
        print(f"{made.repeated} of {made.points} measured points were made again; {made.disturbed} "
              f"{'remains' if made.disturbed == 1 else 'remain'} disturbed; {made.confirmed} made {SAMPLES} times to confirm a "
              "verdict")
    if not o.json:
        return status
    return write_json({"verdicts": [{"id": m.id, "verdict": verdict.value, "why": why} for m, verdict, why in verdicts],
                       "measured_points": made.points, "repeated_points": made.repeated, "disturbed_points": made.disturbed,
                       "confirmed_points": made.confirmed}, o.json, status)


def print_end(o, run):
    if run.interruption():
        say(run.interruption())
        return 1
    status = print_verdicts(o, run.order, run.results, run.made)
    if run.failed:
        say(f"{run.failed} point{'' if run.failed == 1 else 's'} failed")
    if run.made.disturbed:
        say("the same command makes disturbed points again")
    return status or (1 if run.failed + run.skipped + run.made.disturbed > 0 else 0)


class Mistake(Exception):
    """An error of the command line; the exit status is 2, or as given."""

    def __init__(self, text, status=2):
        super().__init__(text)
        self.status = status


def check_simulation(o, evb):
    """Returns the simulation, or None."""
    if not (o.sim or o.seed or o.model):
        return None
    if not o.sim:
        raise Mistake("--seed and --model are for simulations; add --sim")
    if o.config:
        raise Mistake("--sim and --config exclude each other")
    if o.force:
        raise Mistake("nothing disturbs simulated points; leave out --force")
    seed = o.seed if o.seed is not None else "1"
    if not (seed.isascii() and seed.isdigit()) or int(seed) >= 2**63:
        raise Mistake(f'--seed: invalid value "{seed}"; expected a whole number up to 2^63 - 1')
    bad = virtual.invalid_setting(evb, o.model or "")
    if bad:
        raise Mistake(f'--model: unknown or invalid setting "{bad}"; expected e.g. "processors=2 send-time=10us"')
    return Simulation(int(seed), o.model or "")


def find_bed(o, evb):
    """Where the points are made."""
    simulation = check_simulation(o, evb)
    if simulation:
        return simulation
    if o.config:
        return open_testbed(evb, o.config, o.set, o.ssh, o.program)
    if os.geteuid() != 0:
        raise Mistake("network namespaces require root; run it as root, or use other machines (--config)", SKIPPED)
    return None


def run_simulations(run):
    """Nothing disturbs simulated points, so each is made once."""
    points = [point for point in run.points if run.is_missing(point)]
    done = 0
    for point, figures in virtual.make(points, run.context, lambda: run.stopped):
        if figures is None:
            run.failed += 1
        elif run.append(point, figures):
            run.made.points += 1
        done += 1
        run.progress(done, len(points), point)
    run.progress.end()


def run(o):
    stop, evb = Stop(), find_evb()
    words = [word for argument in o.words for word in argument.split(",") if word]
    for option, value in (("set", o.set), ("ssh", o.ssh), ("program", o.program)):
        if value and not o.config:
            raise Mistake(f"--{option} needs --config FILE")
    try:
        order = Order(catalogue.select(words), set(words), find_bed(o, evb), o.quick, o.again, o.force, o.results)
        the_run = Run(order, Context(evb, stopped=stop), results.Machine(version_of(evb)),
                      Progress(o.progress or (sys.stderr.isatty() and not o.quiet)))
    except catalogue.UnknownMeasurement as e:
        raise Mistake(str(e)) from e
    except TestbedError as e:
        print(e, file=sys.stderr)
        return e.status
    except results.NotReadable as e:
        print(e, file=sys.stderr)
        return 1 if isinstance(e, results.Busy) else 2
    if isinstance(order.bed, Simulation):
        run_simulations(the_run)
    elif make_points(the_run):
        return 1
    return print_end(o, the_run)


def draw(description, folder):
    from . import page  # pylint: disable=import-outside-toplevel
    if page.plt is None:
        use_system_python()
        print("evb lab report: matplotlib is not installed; install it with: apt-get install python3-matplotlib", file=sys.stderr)
        return SKIPPED
    path, n = page.write(description, folder)
    print(f"{path}: {n} measurement{'' if n == 1 else 's'}")
    return 0


def make_report(o):
    try:
        stored = results.read(o.words)
    except results.NotReadable as e:
        print(e, file=sys.stderr)
        return 2
    description = report.describe_all(stored, version_of(find_evb()))
    return write_json(description, o.json, 0) if o.json else draw(description, o.output)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="evb lab", description="Repeat the published measurements.", allow_abbrev=False)
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    def add(name, call, text):
        verb = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        verb.add_argument("--json", metavar="FILE", nargs="?", const="-", help="write the report as one JSON object to FILE")
        verb.add_argument("-q", "--quiet", action="store_true", help="no progress")
        verb.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)
        verb.set_defaults(call=call, verb=name)
        return verb

    add("list", list_all, "List the measurements, the published results, and the nodes that each needs.")
    add("clean", clean, "Remove namespaces and directories of dead runs.")
    verb = add("report", make_report, "Make a report with plots and verdicts from results files.")
    verb.add_argument("--output", metavar="DIRECTORY", default="evb-lab", help="directory for the report and its plots")
    verb.add_argument("words", metavar="RESULTS", nargs="+")
    verb = add("run", run, "Measure the points that the results file does not contain yet.")
    verb.add_argument("words", metavar="ID", nargs="+", help="IDs, letters, or all")
    for flag, text in (("quick", "measure fewer and shorter points"), ("again", "repeat points that the file already contains"),
                       ("force", "judge points even if other work disturbed them"),
                       ("sim", "make the points in virtual time"), ("progress", "print progress even if not to a terminal")):
        verb.add_argument(f"--{flag}", action="store_true", help=text)
    for option, metavar, text in (("seed", "N", "seed of the simulations"), ("model", "SETTINGS", "model of the simulations")):
        verb.add_argument(f"--{option}", metavar=metavar, help=text)
    verb.add_argument("--results", metavar="FILE", default="evb-lab.jsonl", help="results file (default: evb-lab.jsonl)")
    verb.add_argument("--config", "--scenario", metavar="FILE", help="measure on the machines of this scenario")
    verb.add_argument("--set", metavar="SECTION.KEY=VALUE", action="append", default=[], help="override a key of the scenario")
    verb.add_argument("--ssh", metavar="COMMAND", help='what reaches a machine, before its address (default: ssh -o BatchMode=yes)')
    verb.add_argument("--program", metavar="PATH", help="evb on the machines (default: evb)")
    return parser.parse_args(arguments)


def main(more=()):
    """`more`: measurements that the catalogue does not have. They are chosen like the others, by their IDs."""
    for m in more:
        catalogue.add(m)
    o = parse(sys.argv[1:])
    if o.verb != "run":  # Stop takes the signal
        let_interrupt()
    try:
        try:
            status = o.call(o)
        except Mistake as e:
            print(f"evb lab {o.verb}: {e}", file=sys.stderr)
            status = e.status
        sys.stdout.flush()
    except OSError as e:
        # A failure to open a file has its name.
        if e.filename is not None:
            raise
        # A report that nobody can read is no success.
        print(f"evb: cannot write to standard output: {e.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
