"""Reads metrics by HTTP, and checks every rule of OpenMetrics 1.0 that this program could break."""
import collections
import http.client
import math
import re
import sys
import time

from harness import LIMIT_S, ROOT, ask

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
SUFFIXES = {"counter": {"_total"}, "gauge": {""}, "info": {"_info"}, "histogram": {"_bucket", "_count", "_sum"}}
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")


class Scrape:
    """The metrics of one node: families, and samples by name and labels."""

    def __init__(self, text):
        self.families, self.samples = {}, collections.OrderedDict()
        lines = text.split("\n")
        assert lines[-2:] == ["# EOF", ""], lines[-3:]
        name = kind = None
        for line in lines[:-2]:
            assert line and line != "# EOF", text
            if line.startswith("# "):
                word, family, rest = line[2:].split(" ", 2)
                if word == "TYPE":
                    assert family not in self.families, f"{family} has two heads"
                    name, kind = family, rest
                    self.families[name] = {"type": kind, "samples": 0}
                assert family == name and word in ("TYPE", "UNIT", "HELP"), line
                assert not self.families[name]["samples"], f"{line}: after samples"
                if word != "TYPE":
                    assert word not in self.families[name], line
                    self.families[name][word] = rest
                assert word != "UNIT" or name.endswith("_" + rest), line
                continue
            self.add(line, name, kind)
        for family, has in self.families.items():
            assert has["samples"] and "HELP" in has, f"{family} is empty, or has no help"
            if has["type"] == "histogram":
                self.check_histogram(family)

    def add(self, line, family, kind):
        match = SAMPLE.fullmatch(line)
        assert match, f"malformed: {line}"
        name, labels, value = match[1], dict(pair.split("=", 1) for pair in re.findall(LABEL, match[2] or "")), float(match[3])
        assert name.startswith(family) and name[len(family):] in SUFFIXES[kind], f"{line}: not of {kind} {family}"
        assert not math.isnan(value) and (kind == "gauge" or value >= 0), line
        key = (name, frozenset((key, text[1:-1]) for key, text in labels.items()))
        assert key not in self.samples, f"twice: {line}"
        self.samples[key] = value
        self.families[family]["samples"] += 1

    def check_histogram(self, family):
        buckets = [(float(dict(labels)["le"]), value) for (name, labels), value in self.samples.items() if name == family + "_bucket"]
        assert buckets == sorted(buckets) and buckets[-1][0] == math.inf, buckets
        assert buckets[-1][1] == self.value(family + "_count"), family

    def value(self, name, **labels):
        """The sum of the samples with these labels."""
        found = [value for (other, own), value in self.samples.items() if other == name and own >= frozenset(labels.items())]
        assert found, f"no {name} {labels}"
        return sum(found)

    def names(self):
        return {name for name, _ in self.samples}


def scrape(place):
    status, headers, text = ask(place, accept=OPEN_METRICS)
    assert status == 200 and headers["Content-Type"] == OPEN_METRICS, (status, headers)
    return Scrape(text)


def wait_scrape(place, what, condition):
    """Scrapes until the condition holds; the node may not listen yet."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            found = scrape(place)
            if condition(found):
                return found
        except (OSError, http.client.HTTPException):
            found = None
        assert time.monotonic() < deadline, f"{place}: not {what} in {LIMIT_S} s"
        time.sleep(0.05)


def counter_names():
    """The sample and label of each counter of the report, by the rule and its exceptions."""
    source = (ROOT / "src" / "node" / "metrics" / "counters.c").read_text()
    header = (ROOT / "src" / "data" / "stats.h").read_text()
    groups = {group: (name, label) for group, name, label in re.findall(r'\[GROUP_(\w+)\] = \{"(\w+)", "(\w+)"', source)}
    found = {}
    for row in re.split(r"^ {8}X\(", header.partition("#define STATS_COUNTERS")[2].partition("\n\n")[0], flags=re.M)[1:]:
        counter, text = re.match(r"\w+", row)[0], row.replace("\\\n", "")
        metric, grouped = re.search(r'METRIC\("(\w+)"\)', text), re.search(r'GROUPED\((\w+),\s+"(\w+)"\)', text)
        if grouped:
            found[counter] = (groups[grouped[1]][0] + "_total", {groups[grouped[1]][1]: grouped[2]})
        else:
            found[counter] = (re.sub(r"_ns$", "_seconds", f"evb_{metric[1] if metric else counter}") + "_total", {})
    assert len(found) > 100 and groups.keys() >= {"PACKETS", "REGIONS"}, f"no counters: {found}, {groups}"
    return found


def official_parser():
    """The parser of Prometheus' own client; None: it is not installed."""
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        from prometheus_client.openmetrics import parser
    except ImportError:
        return None
    finally:
        sys.path.pop()
    return parser.text_string_to_metric_families
