"""Makes and compares the files of a stream from disk to disk. They have no names, so nothing is left of them."""
import os
import random
import tempfile

from .context import PointFailed

DIRECTORY = "/var/tmp"
STEP_BYTES = 1 << 20
SEED = 940
# What must stay free on the disk.
SPARE_BYTES = 256 << 20


def free_bytes():
    disk = os.statvfs(DIRECTORY)
    return disk.f_bavail * disk.f_frsize


class StreamFiles:
    """The input, of which all is on disk and nothing in memory, and the empty output."""

    def __init__(self, size_bytes, context):
        self.size_bytes, self.context = size_bytes, context
        try:
            self.input, self.output = (tempfile.TemporaryFile(dir=DIRECTORY) for _ in range(2))
            self._fill()
        except OSError as error:
            raise PointFailed(f"{DIRECTORY}: cannot make the files of a stream: {error.strerror}") from error

    def _fill(self):
        step = random.Random(SEED).randbytes(STEP_BYTES)
        for at in range(0, self.size_bytes, STEP_BYTES):
            # Each step differs from the others.
            self.input.write((at.to_bytes(8, "little") + step[8:])[:self.size_bytes - at])
            if self.context.stopped():
                raise PointFailed("interrupted")
        self.input.flush()
        os.fdatasync(self.input.fileno())
        # Only clean pages leave the cache.
        os.posix_fadvise(self.input.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.input.close()
        self.output.close()
        os.sync()

    @staticmethod
    def path(file):
        return f"/proc/{os.getpid()}/fd/{file.fileno()}"

    def compare(self):
        """How many bytes of the output are those of the input, up to the first that differs, and whether all are."""
        self.input.seek(0)
        self.output.seek(0)
        at = 0
        while True:
            sent, received = self.input.read(STEP_BYTES), self.output.read(STEP_BYTES)
            if sent != received:
                same = next((i for i, (a, b) in enumerate(zip(sent, received)) if a != b), min(len(sent), len(received)))
                return at + same, False
            if not sent:
                return at, True
            at += len(sent)


def figures(files):
    """A stream from disk whose output differs from the input, or ends earlier or later, is corrupt."""
    same_bytes, same = files.compare()
    return {"file_bytes": files.size_bytes, "same_bytes": same_bytes, "corrupt": int(not same)}
