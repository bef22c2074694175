"""Commands of the pages, and a shell that types them as a reader would."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time

from harness import LIMIT_S, ROOT

MARK = "evb-test-end-of-command"


class Command:
    """A command of a page, and the lines of output that the page shows below it."""

    def __init__(self, page, text):
        self.page, self.text, self.shown = page, text, []

    def __repr__(self):
        return f"{self.page}: {self.text}"


def blocks(page):
    """Yields language and lines of each fenced block."""
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S):
        yield language, body.splitlines()


def without_comment(line):
    return re.sub(r" +# .*$", "", line)


def commands_of(page):
    """Returns the commands of all blocks without a language, in order. A block without prompts has commands only."""
    found = []
    for language, lines in blocks(page):
        if language:
            continue
        prompts = any(re.match(r"[$#] ", line) for line in lines)
        for line in lines:
            if found and found[-1].text.endswith("\\"):
                found[-1].text = found[-1].text[:-1].rstrip() + " " + line.strip()
            elif not prompts or re.match(r"[$#] ", line):
                found.append(Command(page, without_comment(line[2:] if prompts else line)))
            else:
                found[-1].shown.append(line)
    return found


def file_of(page, name):
    """Returns the file in a page that begins with a comment with its name."""
    for language, lines in blocks(page):
        if language and re.match(rf"# {re.escape(name)}(:|$)", lines[0]):
            return "\n".join(lines) + "\n"
    raise AssertionError(f"{page} has no file {name}")


def table_rows(page, header):
    """Returns the rows of the table whose header has these columns, as lists of cells."""
    text = (ROOT / page).read_text()
    head = "| " + " | ".join(header) + " |\n"
    assert head in text, f"{page} lacks the table {head}"
    rows = []
    for line in text[text.index(head):].splitlines()[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def pattern_of(line):
    """Returns a pattern for a shown line: figures, their units and times differ, and "..." is anything."""
    parts = re.split(r"(\.\.\.|\s+|\d[\d.,:]*(?: [kMG](?=[ iB]|$))?|\b[kM]?B/s|\b[km]?Hz)", line.strip())
    known = {"...": ".*"}
    out = ""
    for part in parts:
        if not part:
            continue
        if part in known:
            out += known[part]
        elif part.isspace():
            out += r"\s+"
        elif re.match(r"\d", part):
            out += r"[\d.,:]+(?: [kMG](?=[ iB]|$))? ?"
        elif part.endswith("B/s"):
            out += r"[kM]?B/s"
        elif part.endswith("Hz"):
            out += "[km]?Hz"
        else:
            out += re.escape(part)
    return out


def check_shown(command, output):
    """Each line that the page shows is in the output, in this order."""
    lines = iter(output.splitlines())
    for shown in command.shown:
        if shown.strip() in ("...", ""):
            continue
        pattern = re.compile(pattern_of(shown))
        assert any(pattern.search(line.strip()) for line in lines), f"{command} does not show: {shown}\n{output}"


class Shell(contextlib.AbstractContextManager):
    """A shell with job control, in the directory `where`; `inside` is a command that starts it, e.g. in a namespace."""

    def __init__(self, where, evb, inside=(), **environment):
        self.where = pathlib.Path(where)
        (self.where / "bin").mkdir(parents=True, exist_ok=True)
        (self.where / "bin" / "evb").symlink_to(evb)
        environment = {**os.environ, "PATH": f"{self.where}/bin:/usr/sbin:/sbin:{os.environ['PATH']}", "LC_ALL": "C",
                       "XDG_STATE_HOME": str(self.where / "state"), "EVB_STATE_DIRECTORY": str(self.where / "qos-state"), **environment}
        self.process = subprocess.Popen([*inside, "bash", "--norc", "-m"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, cwd=self.where, env=environment, start_new_session=True)

    def __exit__(self, *_):
        """Ends everything that the shell started, which is in its session, also if a command does not end by itself."""
        while members := self.members():
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=LIMIT_S)

    def members(self):
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
                if int(session) == self.process.pid and state not in "ZX":
                    found.append(int(path.parent.name))
        return found

    def type(self, text, expect=0):
        """Types a line, and returns what it prints."""
        if "EVB_TEST_TRACE" in os.environ:
            print(text, flush=True)
        self.process.stdin.write(f"{text}\nprintf '\\n%s %s\\n' {MARK} $?\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.startswith(MARK):
                status = int(line.split()[1])
                assert expect is None or status == expect, f"{text}: exit {status}, not {expect}: {''.join(lines)}"
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"{text}: the shell ended: {''.join(lines)}")

    def follow(self, command, edits=(), expect=0):
        """Types a command of a page after the edits, pairs of a pattern and its replacement; checks what it shows."""
        text = command.text
        for pattern, replacement in edits:
            text = re.sub(pattern, replacement, text)
        # A node of a busy machine may answer too late.
        asks = text.startswith("evb status") or text.endswith(" --network")
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                output = self.type(text, expect)
                check_shown(command, output)
                return output
            except AssertionError:
                if not asks or time.monotonic() > deadline:
                    raise
