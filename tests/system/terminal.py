"""Runs a program in a pseudo-terminal, and keeps its screen as a terminal would."""
import contextlib
import fcntl
import os
import pathlib
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

from harness import LIMIT_S, Skip

LAST_S = 10


def emulator():
    """The package python3-pyte, a VT100 in memory."""
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        import pyte
    except ImportError:
        raise Skip("python3-pyte is not installed") from None
    finally:
        sys.path.pop()
    return pyte


def make_screen(width, height):
    """A screen and its stream. pyte ignores SU and SD, with which ncurses moves lines on an xterm (ECMA-48)."""
    pyte = emulator()

    class Screen(pyte.Screen):
        def move_lines(self, move, count):
            x, y = self.cursor.x, self.cursor.y
            self.cursor.y = self.margins.top if self.margins else 0
            move(count)
            self.cursor.x, self.cursor.y = x, y

        def scroll_up(self, count=1):
            self.move_lines(self.delete_lines, count)

        def scroll_down(self, count=1):
            self.move_lines(self.insert_lines, count)

    class Stream(pyte.ByteStream):
        csi = {**pyte.ByteStream.csi, "S": "scroll_up", "T": "scroll_down"}
        events = pyte.ByteStream.events | {"scroll_up", "scroll_down"}

    screen = Screen(width, height)
    return screen, Stream(screen)


class Led:
    """A program in a session with a leader of its own, as subprocess.Popen has it."""

    def __init__(self, words, **options):
        status, status_end = os.pipe()
        hold_end, self.hold = os.pipe()
        leader = str(pathlib.Path(__file__).with_name("session_leader.py"))
        self.leader = subprocess.Popen([sys.executable, leader, str(status_end), str(hold_end), *words], start_new_session=True,
                                       pass_fds=(status_end, hold_end), **options)
        os.close(status_end)
        os.close(hold_end)
        self.status = open(status, "rb", buffering=0)
        self.pid, self.returncode = int(self.status.readline()), None

    def poll(self):
        try:
            return self.wait(timeout=0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self.status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.leader.args, timeout)
            self.returncode = int(self.status.readline())
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def end_session(self):
        os.close(self.hold)
        self.leader.wait()
        self.status.close()


class Terminal(contextlib.AbstractContextManager):
    """A terminal of width x height with one program in a session of its own."""

    def __init__(self, words, width, height, env=None, **options):
        self.screen, self.stream = make_screen(width, height)
        self.master, self.slave = os.openpty()
        self.lock, self.raw, self.over = threading.Lock(), b"", os.eventfd(0)
        self.set_size(width, height)
        self.modes = termios.tcgetattr(self.slave)
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "LINES", "COLUMNS", "LC_CTYPE")}
        environment.update({"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})})
        self.process = Led(words, env=environment, stdin=self.slave, stdout=self.slave, stderr=self.slave, **options)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.end_session()
        self.hang_up()
        os.close(self.slave)

    def set_size(self, width, height):
        self.width, self.height = width, height
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("4H", height, width, 0, 0))

    def resize(self, width, height):
        """The kernel sends SIGWINCH."""
        with self.lock:
            self.screen.resize(height, width)
            self.set_size(width, height)

    def read(self):
        while self.over not in select.select([self.master, self.over], [], [])[0]:
            try:
                more = os.read(self.master, 65536)
            except OSError:
                return
            with self.lock:
                self.raw += more
                self.stream.feed(more)

    def hang_up(self):
        """The user closes the window."""
        if self.over is not None:
            # Otherwise, it might read from the next terminal, which gets the same descriptor.
            os.eventfd_write(self.over, 1)
            self.reader.join()
            os.close(self.master)
            os.close(self.over)
            self.over = None

    def type(self, keys):
        os.write(self.master, keys if isinstance(keys, bytes) else keys.encode())

    def lines(self):
        with self.lock:
            return [line.rstrip() for line in self.screen.display]

    def wait(self, what, condition):
        """Waits until the condition holds for the lines of the screen, and returns them."""
        deadline, last = time.monotonic() + LIMIT_S, None
        while True:
            lines = self.lines()
            if condition(lines):
                return lines
            # What it printed last may still be on its way to the screen.
            if self.process.poll() is not None:
                last = last or time.monotonic() + LAST_S
                assert time.monotonic() < last, f"exit {self.process.returncode} before {what}:\n" + "\n".join(lines)
            assert time.monotonic() < deadline, f"no {what} in {LIMIT_S} s:\n" + "\n".join(lines)
            time.sleep(0.02)

    def wait_text(self, pattern):
        return self.wait(pattern, lambda lines: any(re.search(pattern, line) for line in lines))

    def end(self, *expect):
        """The program ended, and left the terminal as it was. Returns its status."""
        status = self.process.wait(timeout=LIMIT_S)
        assert status in (expect or (0,)), (status, self.raw[-2000:])
        after = termios.tcgetattr(self.slave)
        assert after == self.modes, f"the terminal has other modes than before: {after}, {self.modes}"
        self.wait_restored()
        return status

    def wait_restored(self):
        """The previous screen and the cursor are back."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            with self.lock:
                raw = self.raw
            if b"\x1b[?1049h" not in raw or (raw.rfind(b"\x1b[?1049l") > raw.rfind(b"\x1b[?1049h")
                                             and raw.rfind(b"\x1b[?25h") > raw.rfind(b"\x1b[?25l")):
                return
            assert time.monotonic() < deadline, raw[-200:]
            time.sleep(0.02)
