"""Runs a point of one data path by `evb bench paths`."""
import os
import tempfile

from .context import PointFailed
from .process import report_of

DIRECTORY = "/var/tmp"
WIRES = ("udp", "tcp", "sink")
SOURCES = ("cache", "disk")


def kept_file(context, source, size_bytes):
    """The file of an earlier point serves the later ones of its size: making it takes longer than a point. It has no
    name, so nothing is left of it."""
    files = context.kept.setdefault("path files", {})
    if files.get(source, (0, None))[0] != size_bytes:
        files[source] = size_bytes, tempfile.TemporaryFile(dir=DIRECTORY)
    return f"/proc/{os.getpid()}/fd/{files[source][1].fileno()}"


def run(point, context):
    source = SOURCES[int(point.number("source"))]
    size_bytes = int(point.number("file", 1e9))
    words = [context.evb, "bench", "paths", "--rows", f"{point.number('row', 1):.0f}", "--form", f"{point.number('form'):.0f}",
             "--wire", WIRES[int(point.number("wire"))], "--source", source, "--packet-size", f"{point.number('payload', 1024):.0f}",
             "--duration", f"{point.number('seconds', 2):g}s", "--size", size_bytes,
             "--directory", kept_file(context, source, size_bytes), "--json"]
    paths = report_of(words, context, raised=context.raised)["paths"]
    if len(paths) != 1:
        raise PointFailed("no such data path")
    return {name: value for name, value in paths[0].items() if name != "samples"}
