"""Opens the testbed of `evb lab run --config FILE`: the machines of the sections [node NAME] of a scenario."""
import json
import shlex
import shutil
import subprocess

from . import quantity
from .measurement import Testbed

MISSING = 77  # the exit status if a program is missing


class TestbedError(Exception):
    """The scenario does not describe a testbed, or its machines cannot be reached; the text says why."""

    def __init__(self, text, status=2):
        super().__init__(text)
        self.status = status


def _check_ssh(words):
    if not shutil.which(words[0]):
        raise TestbedError(f"evb lab run: {words[0]} is not installed; install it with: apt-get install openssh-client", MISSING)


def check(evb, path, settings):
    """The effective keys and the nodes of a scenario, as `evb check --json` prints them."""
    words = [evb, "check", path, "--json", *(word for setting in settings for word in ("--set", setting))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TestbedError(done.stderr.strip())
    return json.loads(done.stdout)


def _check_nodes(path, nodes):
    """A measurement chooses sizes and rates."""
    for node in nodes:
        if node["role"] == "ros" and node["source"] != "pattern":
            raise TestbedError(f'{path}: node {node["name"]}.source: evb lab run cannot measure with "{node["source"]}"; '
                               "expected pattern")
        if not node["address"]:
            raise TestbedError(f"{path}: node {node['name']} has no address; evb lab run --config needs a section "
                               "[node NAME] with one for each")


def open_testbed(evb, path, settings, ssh=None, program=None):
    """`settings`: of --set; `ssh`: the command that reaches a machine; `program`: evb on the machines. Raises TestbedError."""
    checked = check(evb, path, settings)
    _check_nodes(path, checked["nodes"])
    network, roles = checked["network"], [node["role"] for node in checked["nodes"]]
    given = {"ssh": tuple(shlex.split(ssh)) if ssh else None, "program": program}
    bed = Testbed(path, tuple(settings), checked["scenario"]["name"], roles.count("ros"), roles.count("sfi"),
                   quantity.parse(network["link-rate"]) or 0, int(quantity.parse(network["mtu"]) or 1500),
                   int(quantity.parse(network["switch-buffer"]) or 0), **{name: value for name, value in given.items() if value})
    _check_ssh(bed.ssh)
    return bed
