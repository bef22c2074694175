"""An installation of the build in a directory of the test."""
import json
import os
import pathlib
import re
import shutil
import subprocess

from harness import LIMIT_S, Skip

# Where systemd looks for units, apart from /etc and /run.
UNIT_DIRECTORIES = ("usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
UNITS = ("evb-dfm.service", "evb-qos@.service", "evb-ros@.service", "evb-sfi@.service")


def need_program(*names):
    for name in names:
        if not shutil.which(name):
            raise Skip(f"{name} is not installed")


class Installed:
    """`meson install` of the build of EVB into the directory ROOT."""

    def __init__(self, evb, root):
        self.root = pathlib.Path(root)
        build = next((folder for folder in pathlib.Path(evb).parents if (folder / "meson-info").is_dir()), None)
        if build is None:
            raise Skip(f"{evb} is not in a directory of meson, from which it could be installed")
        need_program("meson")
        if not os.access(build / "meson-logs", os.W_OK):
            raise Skip(f"this user cannot write to {build}, as meson install does")
        options = json.loads((build / "meson-info" / "intro-buildoptions.json").read_text())
        self.options = {option["name"]: option["value"] for option in options}
        self.prefix = self.options["prefix"]
        done = subprocess.run(["meson", "install", "-C", str(build), "--no-rebuild", "--quiet", "--destdir", str(self.root)],
                              capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stdout + done.stderr

    def path(self, name):
        """Returns where a file below the prefix is."""
        return self.root / self.prefix.lstrip("/") / name

    def evb(self):
        return self.path(self.options["bindir"]) / "evb"

    def units(self):
        """Returns the one directory that has the units."""
        found = [path.parent for path in self.root.rglob("evb.target")]
        assert len(found) == 1, found
        return found[0]

    def files(self):
        """Returns the installed files, relative to the prefix; those elsewhere with a slash."""
        prefix = self.path("")
        return {str(path.relative_to(prefix) if path.is_relative_to(prefix) else f"/{path.relative_to(self.root)}")
                for path in self.root.rglob("*") if not path.is_dir()}


def setting(text, key):
    """Returns the values of a key, in order."""
    return re.findall(rf"^{key}=(.*)$", text, re.M)
