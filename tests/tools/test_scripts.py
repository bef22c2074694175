#!/usr/bin/env python3
"""Tests that scripts name missing requirements and exit with status 77, the commit and version of a build, and the verdict
about line coverage.

    test_scripts.py CASE
"""
import ast
import contextlib
import importlib.util
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest.mock
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
sys.path.append(str(ROOT / "tests" / "system"))

from harness import drop_root  # noqa: E402


def run(*command, preexec_fn=None, **environment):
    return subprocess.run([str(word) for word in command], env=environment, preexec_fn=preexec_fn,
                          capture_output=True, text=True)


def assert_missing(done, *texts):
    assert done.returncode == 77 and "Traceback" not in done.stderr, done
    for text in texts:
        assert text in done.stderr, (text, done)


def benchmarks(python):
    """Each missing requirement has its own line."""
    with tempfile.TemporaryDirectory(prefix="evb-test-") as empty:
        for name, root, programs in (("bench-session.py", True, ("ip",)), ("bench-devices.py", True, ("ip",)), ("bench-busy.py", False, ()),
                                     ("demo-jobs.py", True, ("ip", "iperf3", "ping")),
                                     ("faults.py", True, ("ip", "ss", "nft")), ("soak.py", True, ("ip", "ss", "nft"))):
            done = run(python, "-B", SCRIPTS / name, "--evb", f"{empty}/evb", PATH=empty)
            assert_missing(done, f"{empty}/evb does not exist", "scripts/build.sh")
            assert ("need root" in done.stderr) == (root and os.geteuid() != 0), done
            assert done.stderr.count("is not installed; install it with:") == len(programs), done
            assert all(f"{name}: {program} is not installed" in done.stderr for program in programs), done


def demo(_):
    """demo.sh on a system without dpkg, and on one without the packages; as an ordinary user."""
    with tempfile.TemporaryDirectory(prefix="evb-test-") as where:
        os.chmod(where, 0o755)
        for name in ("bash", "dirname", "env"):
            (pathlib.Path(where) / name).symlink_to(f"/usr/bin/{name}")
        done = run("/usr/bin/bash", SCRIPTS / "demo.sh", preexec_fn=drop_root, PATH=where)
        if done.returncode in (126, 127):
            print(f"SKIPPED demo: an ordinary user cannot run {SCRIPTS}/demo.sh")
            sys.exit(77)
        assert_missing(done, "dpkg-query is not installed", "libmnl-dev")
        dpkg = pathlib.Path(where) / "dpkg-query"
        dpkg.write_text("#!/usr/bin/bash\nexit 1\n")
        dpkg.chmod(0o755)
        done = run("/usr/bin/bash", SCRIPTS / "demo.sh", preexec_fn=drop_root, PATH=where)
        assert_missing(done, "apt-get install gcc meson")


def demo_port(_):
    """The demo's rows, picture and verdict: the collapse shows, a row is missing, or the machine was disturbed."""
    spec = importlib.util.spec_from_file_location("demo_port", SCRIPTS / "demo-port.py")
    module = importlib.util.module_from_spec(spec)
    with unittest.mock.patch.object(sys, "path", [str(SCRIPTS), *sys.path]):
        spec.loader.exec_module(module)

    def figures(hz, dropped, disturbed=None):
        return {"whole_events_per_second": hz, "port_share": hz / 137, "switch_packets": dropped, "offered_share": 1.45,
                "latency_p50_us": 302e3, "latency_p99_us": None, "disturbed": disturbed}
    names = [name for name, _, _ in module.WAYS]
    found = dict(zip(names, (figures(1, 12345), figures(110, 80000), None, figures(136, 0))))
    shown, last = module.judge(found)
    assert shown and "builds 136 events/s, and drops no packet; unshaped as in 2003, push builds 1." in last, last
    row = module.row(names[0], found[names[0]], plain=True)
    assert row.split()[4:] == ["1", "." * module.BAR, "1", "%", "12,345", "302", "ms", "-"], row
    assert len(row) == len(module.header()) == len(module.row(names[3], found[names[3]])), row
    assert module.row(names[0], figures(0, 1)).split()[-2:] == ["-", "-"]
    assert "not measured" in module.row(names[2], None)
    root = xml.etree.ElementTree.fromstring(module.svg(found, "a < b & c", last))
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert set(names) <= set(words) and last in words and {"a < b & c", "not measured", "12,345"} <= set(words), words
    bars = [float(bar.get("width")) for bar in root.iter("{http://www.w3.org/2000/svg}rect") if bar.get("fill").startswith("#0")]
    assert len(bars) == 1 and abs(bars[0] - 330 * 136 / 137) < 0.1, bars
    for change, reason in (({names[3]: None}, f"could not measure {names[3]}"),
                           ({names[0]: figures(136, 0)}, "the port dropped nothing"),
                           ({names[0]: figures(69, 9)}, "the ROSs offered 145 % of"),
                           ({names[3]: figures(0, 9, "a timer was 50 ms late")}, "a timer was 50 ms late")):
        shown, last = module.judge(found | change)
        assert not shown and reason in last, (change, last)


def reliability(python):
    """docs/reliability.md states the outcomes and settings of scripts/faults.py, and lists the fuzz targets."""
    done = run(python, "-B", SCRIPTS / "faults.py", "--check-document", PATH=os.environ["PATH"])
    assert done.returncode == 0, done
    table = (ROOT / "docs/reliability.md").read_text(encoding="utf-8").split("| target | reads |")[1].split("\n\n")[0]
    listed = set(re.findall(r"^\| `(\w+)` ", table, re.M))
    assert listed == {path.stem[len("fuzz_"):] for path in (ROOT / "tests/fuzz").glob("fuzz_*.c")}, listed


def coverage(_):
    """A layer with too few executed lines fails, and its worst files are named, unless its tests were skipped."""
    spec = importlib.util.spec_from_file_location("coverage", SCRIPTS / "coverage.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def file(name, executed, lines):
        return module.File(name, {line: int(line <= executed) for line in range(1, lines + 1)})

    by_layer = {"core": [file("src/core/good.c", 975, 1000)],
                "shape/kernel": [file("src/shape/kernel/good.c", 100, 100), file("src/shape/kernel/bad.c", 20, 100), file("src/shape/kernel/none.c", 0, 5)]}
    # Each layer has a mark of its own.
    assert module.LAYERS["core"] == 97.5 and not module.report({"core": [file("src/core/worse.c", 974, 1000)]}, set())
    for skipped, enough in ((set(), False), ({"shape/kernel"}, True)):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            assert module.report(by_layer, skipped) == enough, skipped
        lines = printed.getvalue().splitlines()
        assert lines[1].split() == ["core", "1000", "97.5", "%"], lines
        assert lines[2].split()[:4] == ["shape/kernel", "205", "58.5", "%"] and ("not judged" in lines[2]) == enough, lines
        assert lines[3:] == ([] if enough else ["src/shape/kernel/bad.c: 80 of 100 lines are not executed",
                                                "src/shape/kernel/none.c: 5 of 5 lines are not executed"]), lines


def fuzz(_):
    """fuzz.sh knows each target of the tree, refuses others, and each target has seeds."""
    targets = sorted(path.stem.removeprefix("fuzz_") for path in (ROOT / "tests" / "fuzz").glob("fuzz_*.c"))
    listed = run(SCRIPTS / "fuzz.sh", "--list", PATH=os.environ["PATH"])
    assert listed.returncode == 0 and listed.stdout.split() == targets, (listed, targets)
    for target in targets:
        assert list((ROOT / "tests" / "fuzz" / "corpus" / target).glob("seed-*")), target
    for words, text in ((["--runs"], "--runs needs a number"), (["--seconds", "x"], "--seconds needs a number"),
                        (["nonsense"], "unknown target nonsense; expected one of chunks"), (["--fast"], "unknown option --fast")):
        done = run(SCRIPTS / "fuzz.sh", *words, PATH=os.environ["PATH"])
        assert done.returncode == 2 and text in done.stderr, done


@contextlib.contextmanager
def repository():
    """A new git repository: yields its folder, the environment of its commands, and a function that runs git there."""
    if not shutil.which("git"):
        print("SKIPPED: git is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="evb-test-") as where:
        folder, environment = pathlib.Path(where), {"PATH": os.environ["PATH"], "HOME": where, "GIT_CONFIG_NOSYSTEM": "1"}

        def git(*words, **more):
            done = run("git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@example.org", *words, **environment, **more)
            assert done.returncode == 0, done
            return done.stdout

        git("init", "-q")
        yield folder, environment, git


def commit(_):
    """commit.sh names the commit and whether files were changed, without a lock or a new index, and only of this folder."""
    with repository() as (folder, environment, git):
        def named():
            done = run(SCRIPTS / "commit.sh", folder, **environment)
            return done.returncode, done.stdout, done.stderr

        assert named() == (1, "", ""), named()
        (folder / "file").write_text("a")
        git("add", "file")
        git("commit", "-q", "-m", "first")
        head = git("rev-parse", "HEAD")[:12]
        (folder / "other").write_text("not in the repository")
        os.utime(folder / "file", (1, 1))
        index = (folder / ".git" / "index").stat()  # a file in place of this one has another number
        assert named() == (0, head + "\n", ""), named()
        (folder / "file").write_text("b")
        assert named() == (0, head + "-dirty\n", ""), named()
        now = (folder / ".git" / "index").stat()
        assert (now.st_ino, now.st_mtime_ns) == (index.st_ino, index.st_mtime_ns)
        (folder / "inside").mkdir()
        assert run(SCRIPTS / "commit.sh", folder / "inside", **environment).returncode == 1, "another folder's repository"
        # An archive of `meson dist` names its commit.
        (folder / "archive" / "scripts").mkdir(parents=True)
        copy = shutil.copy(SCRIPTS / "commit.sh", folder / "archive" / "scripts")
        environment |= {"MESON_PROJECT_SOURCE_ROOT": str(folder), "MESON_PROJECT_DIST_ROOT": str(folder / "archive")}
        assert run(SCRIPTS / "commit.sh", "--archive", **environment).returncode == 0
        assert run(copy, folder / "archive", **environment).stdout == head + "\n"


# Builds a package with the version of debian/changelog, which holds what commit.sh prints.
BUILD_PACKAGE = r"""#!/usr/bin/bash
version=$(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)
scripts/commit.sh . >../evb_"$version"_all.deb
touch ../evb.changes ../evb.buildinfo"""


def package(_):
    """Packages have the version alone only if the commit has its tag; else also the time in UTC. They keep the commit."""
    with repository() as (folder, environment, git):
        for name in ("scripts/package.sh", "scripts/commit.sh", ".gitattributes", "debian/control"):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        (folder / "meson.build").write_text("project('evb',\n  version: '1.2.3',\n)\n")
        for name in ("dh", "dpkg-buildpackage"):
            (folder / "bin").mkdir(exist_ok=True)
            (folder / "bin" / name).write_text(BUILD_PACKAGE)
            (folder / "bin" / name).chmod(0o755)
        environment["PATH"] = f"{folder}/bin:{environment['PATH']}"
        git("add", "scripts", ".gitattributes", "debian", "meson.build")
        git("commit", "-q", "-m", "first", GIT_COMMITTER_DATE="2026-01-02T03:04:05+0500")
        head = git("rev-parse", "HEAD")
        candidate = f"1.2.3~202601012204.{head[:8]}"
        for tag, version in (("other", candidate), ("v1.2.3-rc1", candidate), ("v1x2.3", candidate), ("v1.2.3", "1.2.3")):
            git("tag", tag)
            done = run(folder / "scripts" / "package.sh", "deb", folder / "packages", **environment, TZ="Asia/Tokyo")
            built = folder / "packages" / f"evb_{version}_all.deb"
            assert done.returncode == 0 and done.stdout == f"{built}\n", (tag, done)
            assert built.read_text() == head[:12] + "\n", built.read_text()


def el9(_):
    """deps.sh with dnf installs what is missing, or says what it does not support; the Python package and what a build runs need only
    Python 3.9."""
    with tempfile.TemporaryDirectory(prefix="evb-test-") as where:
        for name in ("bash", "mktemp", "rm", "tail"):
            (pathlib.Path(where) / name).symlink_to(shutil.which(name))
        for name, text in {"rpm": '[[ $2 != meson && $2 != gcc ]]', "dnf": 'echo "$*" >>"$0.calls"', "sudo": 'exec "$@"'}.items():
            (pathlib.Path(where) / name).write_text(f"#!{where}/bash\n[[ $1 != -n ]] || shift\n[[ $1 != true ]] || exit 0\n{text}\n")
            (pathlib.Path(where) / name).chmod(0o755)
        done = run("/usr/bin/bash", SCRIPTS / "deps.sh", "build", "package", PATH=where)
        assert done.returncode == 0 and pathlib.Path(where, "dnf.calls").read_text() == "install -y gcc meson\n", done
        assert_missing(run("/usr/bin/bash", SCRIPTS / "deps.sh", "test", PATH=where), "only the purposes build and package", "python3-pyte")
    for path in [*(ROOT / "python").rglob("*.py"), SCRIPTS / "make-dissector.py"]:
        tree = ast.parse(path.read_text(), feature_version=(3, 9))
        later = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
        for node in ast.walk(tree):
            hints = [] if later else [getattr(node, "annotation", None), getattr(node, "returns", None)]
            assert not any(isinstance(part, ast.BinOp) for hint in hints if hint for part in ast.walk(hint)), (path, node.lineno, "hint")
            assert not isinstance(node, ast.keyword) or node.arg not in ("kw_only", "slots", "strict"), (path, node.lineno, node.arg)
            assert not isinstance(node, ast.Attribute) or node.attr not in ("orig_argv", "pairwise", "bit_count"), (path, node.lineno, node.attr)


def purge(_):
    """The purge of a package removes what belongs to it, in either order, and folders only once nobody uses them."""
    own = {"evb-qos": {"etc/evb/qos-eth1.env", "etc/systemd/system/evb-qos@eth1.service.d/a.conf"},
           "evb": {"etc/evb/scenario.conf", "etc/evb/ros.env", "var/lib/evb/run-number", "etc/systemd/system/evb-dfm.service.d/a.conf"}}
    kept = {"etc/evb/key", "run/evb/qos-12-3", "var/lib/evb/a.data", "etc/systemd/system/other.service.d/a.conf"}
    tmpfiles = "usr/lib/tmpfiles.d/evb.conf"

    def files(folder):
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    def purged(folder, name):
        script = re.sub(r"(?<![\w/])/(etc|run|usr|var)/", rf"{folder}/\1/", (ROOT / "debian" / f"{name}.postrm").read_text())
        done = run("sh", "-c", script, name, "purge", PATH=os.environ["PATH"])
        assert done.returncode == 0 and not done.stderr, done

    for first, last, others in (("evb", "evb-qos", kept), ("evb-qos", "evb", kept), ("evb", "evb-qos", set()), ("evb-qos", "evb", set())):
        with tempfile.TemporaryDirectory(prefix="evb-test-") as where:
            folder = pathlib.Path(where)
            for name in own["evb"] | own["evb-qos"] | others | {tmpfiles, "run/evb/empty"}:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).touch()
            (folder / "run/evb/empty").unlink()
            if first == "evb-qos":
                (folder / tmpfiles).unlink()
            purged(folder, first)
            assert files(folder) - {tmpfiles} == own[last] | others, (first, files(folder))
            if first == "evb":
                assert (folder / "var/lib/evb").exists()
                (folder / tmpfiles).unlink()
            purged(folder, last)
            assert files(folder) == others
            assert {path for path in folder.rglob("evb") if path.is_dir()} == {(folder / name).parent for name in others if "/evb/" in name}


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    cases = {"benchmarks": benchmarks, "demo": demo, "demo-port": demo_port, "coverage": coverage, "fuzz": fuzz,
             "reliability": reliability, "commit": commit, "package": package, "el9": el9, "purge": purge}
    cases[sys.argv[1]](sys.executable)
    print(f"ok {sys.argv[1]}")
