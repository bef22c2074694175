"""Provides a user-mode Linux kernel and its modules, from the shared directory of the developers or from Debian's archive.
Unpacks them once into the build directory.

    python3 -m uml.kernel BUILD-DIRECTORY/tests/system/uml-kernel [MODULE...]

The gate calls it early, so that no test waits for the archive.
"""
import contextlib
import fcntl
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time

from harness import SHARED, Skip

PACKAGE = "user-mode-linux=5.10um3+b1"
RELEASE = "bullseye"
KEYS = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FETCH_S = 100
TRY_AGAIN_S = 600


def from_shared(to):
    archives = sorted((SHARED / "kernels" / "cbq-uml").glob("uml-*.txz"))
    if not archives:
        return False
    with tarfile.open(archives[-1]) as archive:
        archive.extractall(to)
    return True


def call(words, **options):
    return subprocess.run(words, capture_output=True, text=True, timeout=FETCH_S, **options)


def repositories():
    """Returns the Debian archives that apt is configured to use."""
    uris = re.findall(r"^'(\S+/debian)/+dists/", call(["apt-get", "update", "--print-uris"]).stdout, re.M)
    return list(dict.fromkeys(uris))


def keep_few(to):
    """Keeps only the needed files of the package, which has many modules."""
    for path in [*to.rglob("linux.uml"), *to.rglob("sch_*.ko"), *to.rglob("cls_*.ko"), *to.rglob("dummy.ko"), *to.rglob("veth.ko"),
                 *to.glob("root/usr/share/doc/*/copyright")]:
        path.rename(to / path.name)
    for path in to.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix in (".deb", ".list"):
            path.unlink()


def from_archive(to):
    """Fetches with a separate apt state below `to`, so the machine's apt is unaffected. Returns None, or the error."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return "apt-get or dpkg-deb is not installed"
    wrong = "apt has no Debian archive among its sources"
    for uri in repositories():
        for folder in ("lists/partial", "cache/archives/partial"):
            (to / folder).mkdir(parents=True, exist_ok=True)
        signed = f" [signed-by={KEYS}]" if KEYS.exists() else ""
        (to / "sources.list").write_text(f"deb{signed} {uri} {RELEASE} main\n")
        apt = ["apt-get", "-q", "-o", f"Dir::Etc::SourceList={to}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null", "-o",
               f"Dir::State::Lists={to}/lists", "-o", f"Dir::Cache={to}/cache", "-o", "Acquire::Languages=none", "-o",
               "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false", "-o", "Acquire::http::Timeout=15", "-o", "Acquire::Retries=1"]
        done = call([*apt, "update"])
        if done.returncode == 0:
            done = call([*apt, "download", PACKAGE], cwd=to)
        if done.returncode == 0:
            call(["dpkg-deb", "-x", *map(str, to.glob("*.deb")), to / "root"], check=True)
            keep_few(to)
            return None
        _, _, why = done.stderr.strip().rpartition("\n")
        wrong = f"Debian's {RELEASE} is not available from apt's source: {why}"
    return wrong


def make(fresh, shared):
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    if shared and from_shared(fresh):
        return
    try:
        wrong = from_archive(fresh)
    except (subprocess.SubprocessError, OSError) as e:
        wrong = f"fetching it: {e}"
    if wrong:
        raise Skip(f"no user-mode Linux: {'none' if shared else 'not all modules'} in {SHARED.name}/kernels, and {wrong}")


@contextlib.contextmanager
def locked(path):
    """One test fetches while the others wait, with a time limit."""
    deadline = time.monotonic() + 2 * FETCH_S
    with open(path, "w", encoding="utf-8") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Skip("another test is still fetching the kernel") from None
                time.sleep(0.1)
        yield


def provide(kit, shared):
    """Makes a kit that is not there yet. After a failure, waits TRY_AGAIN_S before it fetches again."""
    failed, fresh = kit.with_name(f"{kit.name}-failed"), kit.with_name(f"{kit.name}-fresh")
    if kit.is_dir():
        return
    if failed.exists() and time.time() - failed.stat().st_mtime < TRY_AGAIN_S:
        raise Skip(failed.read_text())
    try:
        make(fresh, shared)
    except Skip as reason:
        failed.write_text(str(reason))
        raise
    fresh.rename(kit)


def kernel(cache, modules=()):
    """Returns the path of linux.uml, and its modules by name. The kit of the developers may have too few; the archive has all."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise Skip("user-mode Linux is for x86-64 only")
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "lock"):
        for name, shared in (("kit", True), ("kit-archive", False)):
            kit = cache / name
            provide(kit, shared)
            found = {path.stem: path for path in kit.rglob("*.ko")}
            if set(modules) <= set(found):
                return next(kit.rglob("linux.uml")), found
    raise Skip(f"user-mode Linux lacks modules: {', '.join(set(modules) - set(found))}")


if __name__ == "__main__":
    try:
        kernel(pathlib.Path(sys.argv[1]), sys.argv[2:])
    except Skip as e:
        print(e)
        # The first test that needs the kernel tries again.
        (pathlib.Path(sys.argv[1]) / "kit-archive-failed").unlink(missing_ok=True)
