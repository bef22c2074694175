#!/usr/bin/env python3
"""Tests the systemd units: systemd-analyze accepts them, and they restart nodes after transient errors only.

    test_units.py EVB CASE
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

UNITS = pathlib.Path(__file__).resolve().parents[2] / "configs" / "systemd"
NAMES = {"evb-dfm.service": [], "evb-ros@.service": ["evb-ros-shaping.conf"], "evb-sfi@.service": ["evb-sfi-watching.conf"]}


def setting(text, key):
    """Returns the values of a key, in order."""
    return re.findall(rf"^{key}=(.*)$", text, re.M)


def seconds(text):
    return float(re.fullmatch(r"([\d.]+)s", text)[1])


def restarts(evb):
    """Only a crash or status 75 restarts a node, without limit. A stop leaves time to drain."""
    keys = subprocess.run([evb, "check", "--keys"], capture_output=True, text=True, check=True).stdout
    stop = re.search(r"stop-timeout\n.*\n.*default: (\d+)s\)\n", keys)
    for name in NAMES:
        text = (UNITS / name).read_text()
        head, service = text.split("[Service]")
        assert setting(head, "StartLimitIntervalSec") == ["0"], (name, "the start limit belongs in [Unit]")
        assert setting(service, "Restart") == ["on-failure"] and seconds(*setting(service, "RestartSec")) >= 1, name
        assert sorted(setting(service, "RestartPreventExitStatus")[0].split()) == ["1", "2", "77"], name
        assert not setting(service, "SuccessExitStatus"), name
        if name == "evb-dfm.service":
            assert setting(service, "StateDirectory") == ["evb"], "a restarted DFM reads its run from the state directory"
        if name == "evb-ros@.service":
            assert " qos remove " in setting(service, "ExecStopPost")[0], "a killed ROS leaves its shaping installed"
        assert seconds(*setting(service, "TimeoutStopSec")) >= int(stop[1]) + 10, name


def verify(evb):
    """Runs systemd-analyze verify, with and without the drop-ins."""
    if not shutil.which("systemd-analyze"):
        print("SKIPPED verify: systemd-analyze is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="evb-test-") as where:
        for with_drop_ins in (False, True):
            for name, drop_ins in NAMES.items():
                (pathlib.Path(where) / name).write_text((UNITS / name).read_text().replace("/usr/bin/evb", evb))
                for drop_in in drop_ins if with_drop_ins else []:
                    folder = pathlib.Path(where) / f"{name}.d"
                    folder.mkdir()
                    (folder / "own.conf").write_text((UNITS / drop_in).read_text().replace("/usr/bin/evb", evb))
            for name in NAMES:
                path = pathlib.Path(where) / name.replace("@.", "@node1.")
                if "@" in name:
                    path.unlink(missing_ok=True)
                    path.symlink_to(pathlib.Path(where) / name)
                done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, timeout=120,
                                      env={**os.environ, "SYSTEMD_UNIT_PATH": f"{where}:", "SYSTEMD_LOG_LEVEL": "warning"})
                ours = [line for line in done.stderr.splitlines() if "evb" in line and not re.search(r"user|User", line)]
                assert done.returncode == 0 and not ours, (name, done.returncode, done.stderr)


if __name__ == "__main__":
    evb_, case = sys.argv[1:3]
    {"restarts": restarts, "verify": verify}[case](str(pathlib.Path(evb_).resolve()))
    print(f"ok {case}")
