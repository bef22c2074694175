"""The key as docs/protocol.md describes it, written from that document: key files, subkeys, tags of messages, lines of connections."""
import base64
import hashlib
import json
import os
import struct

CONTROL, COMMANDS, STREAM = 1, 2, 3
TRAILER_BYTES = 32
MASK = 2 ** 64 - 1


def write_key(path, random=None):
    """Writes a key file; returns its key."""
    random = random or os.urandom(32)
    path.write_text(base64.b64encode(random).decode() + "\n")
    path.chmod(0o600)
    return hashlib.blake2b(random, digest_size=32).digest()


def derive(key, purpose):
    return hashlib.blake2b(b"", digest_size=32, key=key, salt=struct.pack("<QQ", purpose, 0), person=b"evb-auth".ljust(16, b"\0")).digest()


def rounds(n, a, b, c, d):
    """n SipRounds; in local variables, as messages have thousands of words."""
    for _ in range(n):
        a = a + b & MASK
        b = (b << 13 & MASK | b >> 51) ^ a
        a = a << 32 & MASK | a >> 32
        c = c + d & MASK
        d = (d << 16 & MASK | d >> 48) ^ c
        a = a + d & MASK
        d = (d << 21 & MASK | d >> 43) ^ a
        c = c + b & MASK
        b = (b << 17 & MASK | b >> 47) ^ c
        c = c << 32 & MASK | c >> 32
    return a, b, c, d


def siphash(key, data):
    """SipHash-2-4 with 128 bits (Aumasson and Bernstein, 2012; the reference implementation's 128-bit variant)."""
    k0, k1 = struct.unpack_from("<QQ", key)
    a, b, c, d = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573
    whole = data + b"\0" * (7 - len(data) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", whole):
        a, b, c, d = rounds(2, a, b, c, d ^ word)
        a ^= word
    a, b, c, d = rounds(4, a, b, c ^ 0xEE, d)
    first = a ^ b ^ c ^ d
    a, b, c, d = rounds(4, a, b ^ 0xDD, c, d)
    return struct.pack("<QQ", first, a ^ b ^ c ^ d)


class Line:
    """One end of a connection that tags its lines; this end made the connection."""

    def __init__(self, key, own, peers):
        self.key = hashlib.blake2b(own + peers, digest_size=32, key=key).digest()
        self.sent = self.received = 0

    def tag(self, direction, number, text):
        return hashlib.blake2b(struct.pack("<QQ", direction, number) + text, digest_size=16, key=self.key).hexdigest().encode()

    def seal(self, text):
        self.sent += 1
        return self.tag(1, self.sent - 1, text) + b" " + text

    def open(self, line):
        tag, text = line[:32], line[33:]
        assert tag == self.tag(2, self.received, text), line
        self.received += 1
        return text


class Connection:
    """A JSON connection to a server, with a key or (None) without one. `key` is that of the purpose."""

    def __init__(self, connection, key=None):
        self.connection, self.rest, self.key, self.line = connection, b"", key, None

    def _read(self):
        while b"\n" not in self.rest:
            try:
                part = self.connection.recv(65536)
            except ConnectionResetError:
                return None
            if not part:
                return None
            self.rest += part
        line, self.rest = self.rest.split(b"\n", 1)
        return line

    def introduce(self):
        """Exchanges nonces; also returns the server's refusal, or None at the end."""
        own = os.urandom(16)
        self.connection.sendall(json.dumps({"key": {"nonce": own.hex()}}).encode() + b"\n")
        line = self._read()
        message = json.loads(line) if line else None
        if message and "key" in message:
            self.line = Line(self.key, own, bytes.fromhex(message["key"]["nonce"]))
        return message

    def send(self, message):
        raw = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        if self.key and not self.line:
            self.introduce()
        if self.line:
            raw = b"\n".join(self.line.seal(part) if part else b"" for part in raw.split(b"\n"))
        self.connection.sendall(raw)

    def receive(self):
        """Returns the next message, or None at the end."""
        if self.key and not self.line and (refused := self.introduce()) is not None and "refused" in refused:
            return refused
        line = self._read()
        if line is None:
            return None
        return json.loads(self.line.open(line) if self.line and not line.startswith(b"{") else line)
