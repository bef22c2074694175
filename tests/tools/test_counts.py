#!/usr/bin/env python3
"""Tests what scripts/counts.py says: of figures that grew, of a build without figures, and without valgrind.

    test_counts.py CASE
"""
import copy
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "counts.py"
RECORDED = {"push": {"ros": {"all": 1000.0, "layers": {"core/ros": 400.0, "base": 590.0, "conf": 10.0},
                             "functions": {"core/ros/ros.c: ros_receive": 300.0, "base/arena.c: arena_alloc": 200.0}}}}
# As callgrind writes it: a function with an inlined line, a call of the C library, and one of the test's own.
PROFILE = """ob=/x/counted
fl=/src/evb/build/../src/core/ros/ros.c
fn=ros_receive.isra.0
10 5
fi=/src/evb/build/../src/base/cursor.h
20 7
fe=/src/evb/build/../src/core/ros/ros.c
cob=/usr/lib/libc.so.6
cfi=./string/memcpy.S
cfn=memcpy@GLIBC_2.2.5
calls=1 1
11 100
cfi=/src/evb/build/../tests/counts/sockets.c
cfn=__wrap_sendmmsg
calls=1 1
12 1000
13 1

fl=/src/evb/build/../tests/counts/sockets.c
fn=__wrap_sendmmsg
1 900
cob=/usr/lib/libc.so.6
cfn=memcpy@GLIBC_2.2.5
calls=1 1
2 100

ob=/usr/lib/libc.so.6
fl=./string/memcpy.S
fn=memcpy@GLIBC_2.2.5
1 200
"""


def module():
    spec = importlib.util.spec_from_file_location("counts", SCRIPT)
    counts = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(counts)
    return counts


def profile():
    """The test's own sockets cost nothing, and a library costs what the product made it do."""
    found = module().Profile()
    found.add(PROFILE)
    assert dict(found.layers) == {"core/ros": 6, "base": 7, "libraries": 100}, found.layers
    assert dict(found.functions) == {"core/ros/ros.c: ros_receive": 13,
                                     "core/ros/ros.c: ros_receive, in memcpy": 100}, found.functions


def growth():
    """Growth of 5 % passes, more fails and names the layer and the functions; less is no finding."""
    compare = module().compare_instructions

    def findings(layer, function, n):
        now = copy.deepcopy(RECORDED)
        ros = now["push"]["ros"]
        ros["layers"][layer] += n
        ros["functions"][function] = ros["functions"].get(function, 0) + n
        ros["all"] += n
        return compare(now, RECORDED)

    assert findings("core/ros", "core/ros/ros.c: ros_receive", 19) == []
    assert findings("core/ros", "core/ros/ros.c: ros_receive", -100) == []
    found = findings("core/ros", "core/ros/ros.c: ros_receive", 24)
    assert found[0].startswith("push, ros, core/ros: 424.0 instructions per event, recorded 400.0 (+6.0 %)"), found
    assert found[1].split() == ["+24.0", "core/ros/ros.c:", "ros_receive"] and len(found) == 2, found
    found = findings("base", "base/heap.c: heap_put", 60)
    assert found[0].startswith("push, ros: 1,060.0") and found[1].startswith("push, ros, base: 650.0"), found
    assert found[2].endswith("base/heap.c: heap_put") and len(found) == 3, found
    # Too small to be held on its own.
    assert findings("conf", "conf/keys.c: key_find", 5) == []


def calls():
    """So do system calls, and one of a new kind fails however rare it is."""
    compare, recorded = module().compare_calls, {"push": {"ros": {"recvmmsg": 60.0, "sendmmsg": 30.0}}}
    assert compare({"push": {"ros": {"recvmmsg": 62.9, "sendmmsg": 30.0}}}, recorded) == []
    found = compare({"push": {"ros": {"recvmmsg": 64.0, "sendmmsg": 30.0}}}, recorded)
    assert len(found) == 1 and "push, ros, recvmmsg: 64.0" in found[0] and "(+6.7 %)" in found[0], found
    found = compare({"push": {"ros": {"recvmmsg": 60.0, "sendmmsg": 30.0, "ioctl": 0.1}}}, recorded)
    assert len(found) == 1 and "push, ros, ioctl: 0.1" in found[0] and "recorded none" in found[0], found


def skipped():
    """A machine without valgrind, and a build without recorded figures or without the header, are named."""
    with tempfile.TemporaryDirectory(prefix="evb-test-") as where:
        folder = pathlib.Path(where)
        program = folder / "counted"

        def run(path, **report):
            program.write_text(f"#!/bin/sh\nprintf '%s\\n' '{json.dumps(report)}'\n")
            program.chmod(0o755)
            return subprocess.run([sys.executable, "-B", SCRIPT, "--program", program, "instructions"], env={"PATH": path},
                                  capture_output=True, text=True)

        def assert_skipped(done, text):
            assert done.returncode == 77 and text in done.stderr and "Traceback" not in done.stderr, done

        assert_skipped(run(where), "valgrind is not installed; scripts/deps.sh test installs it")
        (folder / "valgrind").write_text("#!/bin/sh\nexit 3\n")
        (folder / "valgrind").chmod(0o755)
        path = f"{where}:{os.environ['PATH']}"
        assert_skipped(run(path, callgrind=False, build="gcc"), "built without valgrind/callgrind.h")
        assert_skipped(run(path, callgrind=True, build="tcc 0"), "this build is tcc 0")


def main():
    {"profile": profile, "growth": growth, "calls": calls, "skipped": skipped}[sys.argv[1]]()


if __name__ == "__main__":
    main()
