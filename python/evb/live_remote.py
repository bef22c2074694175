"""Events of an SFI on another machine: a copy of its ring, by TCP (src/live/live_select.h)."""
import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import socket
import stat
import struct

import numpy as np

RECORD = struct.Struct("<6Q16x")
PURPOSE = 4
ROLES = {"dialer": 1, "listener": 2}


def is_remote(address):
    return re.fullmatch(r"(\[[^]]+\]|[^:\[\]]+):\d{1,5}", address) is not None


def read_key(path):
    """The key for live events, from a key file (docs/security.md)."""
    with open(path, "rb") as f:
        if stat.S_IMODE(os.fstat(f.fileno()).st_mode) & 0o077 and not path.startswith(os.environ.get("CREDENTIALS_DIRECTORY", "\0")):
            raise ValueError(f"{path}: others than its owner may use this key; run chmod 600 {path}")
        text = f.read(4096).rstrip(b"\r\n")
    try:
        key = bytes.fromhex(text.decode()) if re.fullmatch(rb"(?:[0-9a-fA-F]{2})+", text) else base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < 32:
        raise ValueError(f"{path}: not a key; expected one line with at least 32 random bytes in base64 or hexadecimal digits")
    master = hashlib.blake2b(key, digest_size=32).digest()
    return hashlib.blake2b(b"", key=master, digest_size=32, salt=struct.pack("<2Q", PURPOSE, 0), person=b"evb-auth" + bytes(8)).digest()


class Lines:
    """The lines of a connection, each with a tag if there is a key (src/protocol/auth.h)."""

    def __init__(self):
        self.key, self.sent, self.received = None, 0, 0

    def begin(self, key, own, peers):
        self.key = hashlib.blake2b(own + peers, key=key, digest_size=32).digest()

    def _tag(self, role, number, text):
        return hashlib.blake2b(struct.pack("<2Q", ROLES[role], number) + text, key=self.key, digest_size=16).hexdigest().encode()

    def seal(self, text):
        if self.key is not None:
            text = self._tag("dialer", self.sent, text) + b" " + text
            self.sent += 1
        return text + b"\n"

    def unseal(self, line):
        """The text of a line; None: it was not made with this key."""
        if self.key is None:
            return line
        tag, _, text = line.partition(b" ")
        if not hmac.compare_digest(tag, self._tag("listener", self.received, text)):
            return None
        self.received += 1
        return text


class Remote:
    """A connection, and the ring that it fills. `head` is laid out as in memory that an SFI shares."""

    def __init__(self, address, request, key_file, wait_s):
        host, port = address.rsplit(":", 1)
        self.address, self.ended, self.counts = address, False, None
        self._lines, self._out, self._position = Lines(), b"", None
        self._received = self._whole = self._released = 0
        key = None if key_file is None else read_key(os.fspath(key_file))
        self.socket = socket.create_connection((host.strip("[]"), int(port)), wait_s)
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # An SFI whose machine is gone.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 20000)
            self._introduce(key)
            self.socket.sendall(self._lines.seal(request.encode()))
            self._make_ring(self._receive_text())
        except BaseException:
            self.socket.close()
            raise

    def _introduce(self, key):
        if key is None:
            return
        own = secrets.token_bytes(16)
        self.socket.sendall(b"key " + own.hex().encode() + b"\n")
        answer = re.fullmatch(rb"key ([0-9a-f]{32})", self._receive_line())
        if not answer:
            raise self._strange()
        self._lines.begin(key, own, bytes.fromhex(answer[1].decode()))

    def _strange(self):
        return ConnectionError(f"{self.address}: the answer is not that of an SFI of this version")

    def _receive_line(self):
        line = b""
        while not line.endswith(b"\n"):
            part = self.socket.recv(1)
            if not part or len(line) > 512:
                raise ConnectionError(f"{self.address}: the SFI ended the connection")
            line += part
        if line.startswith(b"error "):
            raise ValueError("".join(c if c.isprintable() else "?" for c in line[6:-1].decode(errors="replace")))
        return line[:-1]

    def _receive_text(self):
        text = self._lines.unseal(self._receive_line())
        if text is None:
            raise ConnectionError(f"{self.address}: the SFI has another key (network.key-file)")
        return text

    def _make_ring(self, answer):
        found = re.fullmatch(rb"evb-live 1 ring=(\d{1,9})", answer)
        size = int(found[1]) if found else 0
        if size == 0 or size % 64 or size > 256 << 20:
            raise self._strange()
        self.data = np.zeros(size, np.uint8)

    def receive(self):
        """Receives what has come. Returns the position before which records are whole, and whether the connection has ended."""
        at_end, size = self.ended, len(self.data)
        while not at_end:
            at = self._received % size
            room = min(size - at, self._released + size - self._received)
            if room == 0:
                break
            try:
                n = self.socket.recv_into(memoryview(self.data)[at:at + room])
            except BlockingIOError:
                break
            except OSError:
                n = 0
            self._received += n
            at_end = n == 0
            if self._find_whole():
                at_end = True
            # Let the loop have the events that are here.
            if n < room:
                break
        return self._whole, at_end

    def _find_whole(self):
        """Moves on to the last whole record. True: the SFI has ended the connection."""
        size = len(self.data)
        while self._received - self._whole >= 64:
            at = self._whole % size
            record, event, *counts, _ = RECORD.unpack_from(self.data, at)
            if record == 0:
                self.ended, self.counts = True, counts
                return True
            if record % 64 or record > size - at or event > record - 64:
                raise ConnectionError(f"{self.address}: the events are damaged")
            if self._received - self._whole < record:
                break
            self._whole += record
        return False

    def release(self, position):
        """Says that events before this position are no longer used."""
        if position == self._released:
            return
        self._released = self._position = position
        self.flush()

    def flush(self):
        """Sends what is to be sent, as far as there is room."""
        while self._out or self._position is not None:
            if not self._out:
                self._out, self._position = self._lines.seal(b"read %d" % self._position), None
            try:
                self._out = self._out[self.socket.send(self._out):]
            except OSError:
                break  # no room, or the end of the connection, which receive() finds
