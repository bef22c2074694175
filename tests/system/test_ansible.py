#!/usr/bin/env python3
"""Checks configs/ansible without machines; test_testbed.py sets up some.

    test_ansible.py EVB [CASE...]
"""
import json
import os
import pathlib
import re
import subprocess

from harness import LIMIT_S, ROOT, folder, main
from installed import need_program

ANSIBLE = ROOT / "configs" / "ansible"
HOSTS = {"pc-dfm": "dfm", "pc-ros1": "ros", "pc-ros2": "ros", "pc-sfi1": "sfi"}


def ansible(where, *command, expect=0, limit=LIMIT_S):
    """Runs a command of Ansible that leaves nothing in the home directory."""
    where = pathlib.Path(where)
    environment = {**os.environ, "HOME": str(where / "home"), "ANSIBLE_HOME": str(where / "home"), "LC_ALL": "C.UTF-8", "NO_COLOR": "1",
                   "ANSIBLE_NOCOLOR": "1", "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"), "ANSIBLE_PIPELINING": "1",
                   "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests" / "system" / "ansible_connections"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ANSIBLE, env=environment, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL)
    assert expect is None or done.returncode == expect, f"{command}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def lint(evb):
    """ansible-lint has no finding, with its strictest profile."""
    need_program("ansible-lint")
    with folder() as where:
        text = ansible(where, "ansible-lint", "--offline", "--profile", "production", "--strict", "site.yml", "run.yml", "roles")
        assert "Passed" in text or "0 failure(s)" in text, text
    assert evb


def syntax(evb):
    """The playbooks fit the example of an inventory."""
    need_program("ansible-playbook")
    with folder() as where:
        for name in ("site.yml", "run.yml"):
            ansible(where, "ansible-playbook", "--syntax-check", "-i", "inventory.example.yml", name)
    assert evb


def example(evb):
    """The example of an inventory becomes a valid scenario with all of its nodes."""
    need_program("ansible")
    with folder() as where:
        file = where / "scenario.conf"
        ansible(where, "ansible", "pc-dfm", "-i", "inventory.example.yml", "-c", "local", "-m", "ansible.builtin.template", "-a",
                f"src={ANSIBLE}/roles/evb/templates/scenario.conf.j2 dest={file}", "-e", "ansible_python_interpreter=/usr/bin/python3")
        checked = json.loads(subprocess.run([evb, "check", str(file), "--json"], capture_output=True, text=True, check=True).stdout)
        assert {node["name"]: node["role"] for node in checked["nodes"]} == HOSTS, checked["nodes"]
        inventory = (ANSIBLE / "inventory.example.yml").read_text()
        assert all(f"evb_address: {node['address']}\n" in inventory for node in checked["nodes"])
        buffer = re.search(r"evb_socket_buffer_bytes: (\d+)", inventory)[1]
        assert int(buffer) >= 8 << 20 and "receive-buffer: 8MiB" in inventory


def libraries(evb):
    """The role installs every library of the program."""
    need_program("dpkg-query", "ldd", "readelf")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", subprocess.run(["readelf", "-d", evb], capture_output=True, text=True, check=True).stdout)
    paths = dict(re.findall(r"^\s*(\S+) => (\S+)", subprocess.run(["ldd", evb], capture_output=True, text=True, check=True).stdout, re.M))
    packages = set(re.findall(r"^    - (\S+)$", (ANSIBLE / "roles" / "evb" / "vars" / "main.yml").read_text(), re.M))
    assert "libc.so.6" in needed, needed
    for name in needed:
        path = paths.get(name, "")
        owner = ""
        # dpkg knows a library by its name before or after /usr was merged.
        for each in (path, path.removeprefix("/usr"), f"/usr{path}"):
            owner = owner or subprocess.run(["dpkg-query", "--search", each], capture_output=True, text=True).stdout.split(":")[0]
        # Sanitizers are for tests only.
        assert owner in packages | {"libc6"} or re.fullmatch(r"lib\w*san\d+", owner), (name, path, owner, packages)


if __name__ == "__main__":
    main({"lint": lint, "syntax": syntax, "example": example, "libraries": libraries})
