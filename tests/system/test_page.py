#!/usr/bin/env python3
"""The page of the DFM: what it serves, and to how many.

    test_page.py EVB [CASE...]
"""
import contextlib
import http.server
import json
import re
import socket
import threading
import time

from control import TOKEN, control_bed, free_port
from harness import LIMIT_S, OWN_NET, ask, folder, main

HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"


@contextlib.contextmanager
def page_bed(evb, keys=None):
    """All nodes wait for a run; yields the bed and the place of the DFM."""
    with folder() as own:
        key = own / "token"
        key.write_text(TOKEN)
        port = free_port(f"{OWN_NET}.1")
        with control_bed(evb, {"metrics.listen": f":{port}", "control.token-file": key, "trigger.rate": "500Hz", "sfi.output": "null",
                               "sfi.credits": 100, **(keys or {})}) as b:
            b.start_all()
            b.wait_listening()
            b.wait_state("configured")
            yield b, f"{b.addresses['dfm']}:{port}"


def status_of(place):
    return json.loads(ask(place, "/status")[2])


def message_of(place):
    """The states of all nodes; None: the DFM is about to ask them."""
    code, headers, text = ask(place, "/events")
    assert code == 200 and headers["Content-Type"] == "text/event-stream" and headers["Cache-Control"] == "no-store", headers
    assert re.fullmatch(r"retry: (200|1000\ndata: [^\n]+)\n\n", text), text
    return json.loads(text.partition("data: ")[2]) if "data: " in text else None


def files(evb):
    """The DFM serves the page with headers that allow nothing from outside; other nodes name its address."""
    with page_bed(evb) as (b, place):
        code, headers, html = ask(place, "/")
        assert code == 200 and headers["Content-Type"] == "text/html; charset=utf-8", headers
        assert headers["Cache-Control"] == "no-cache" and headers["X-Content-Type-Options"] == "nosniff", headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'self';") and "unsafe" not in policy and "frame-ancestors 'none'" in policy, policy
        # Nothing inline, nothing from elsewhere.
        assert not re.search(r"<style|<script(?![^>]* src=)| style=| on\w+=|https?:|//", re.sub(r"<!doctype html>", "", html)), html
        links = re.findall(r'(?:href|src)="(/[\w.]+)\?(\w{12})"', html)
        assert {path for path, _ in links} == {"/icon.svg", "/page.css", "/page.js", "/picture.js"} and len({h for _, h in links}) == 1, links
        types = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
        for path, version in links:
            code, headers, text = ask(place, f"{path}?{version}")
            assert code == 200 and headers["Content-Type"] == types[path[path.rindex("."):]] and len(text) > 200, (path, headers)
            assert "immutable" in headers["Cache-Control"] and headers["X-Content-Type-Options"] == "nosniff", headers
        code, headers, text = ask(place, "/", method="HEAD")
        assert code == 200 and int(headers["Content-Length"]) == len(html.encode()) and text == "", headers
        code, headers, text = ask(place, "/events", method="HEAD")
        assert code == 200 and headers["Content-Type"] == "text/event-stream" and text == "", headers
        assert ask(place, "/page.html")[0] == ask(place, "/../page.css")[0] == 404
        assert ask(place, "/", method="POST", body="x")[0] == 405 and ask(place, "/events", method="POST", body="x")[0] == 405
        samples = json.loads(ask(place, "/history")[2])["samples"]
        assert all(len(sample) == 5 for sample in samples), samples
        ros = f"{b.addresses['ros1']}:{place.rpartition(':')[2]}"
        code, headers, text = ask(ros, "/")
        assert code == 200 and headers["Content-Type"].startswith("text/plain") and f"http://{place}/" in text, text
        assert ask(ros, "/page.js")[0] == ask(ros, "/events")[0] == 404
        b.terminate()


def wait_message(place, what, condition):
    deadline = time.monotonic() + LIMIT_S
    while True:
        message = message_of(place)
        if message and condition(message):
            return message
        assert time.monotonic() < deadline, f"not {what}: {message}"
        time.sleep(0.1)


def events(evb):
    """A page gets the states of all nodes while it asks for them, and a run goes on."""
    with page_bed(evb) as (b, place):
        b.start_run()
        message = wait_message(place, "rates", lambda m: all(n["reachable"] and n["rates"]["bytes_per_second"] > 0 for n in m["nodes"]))
        assert [n["node"] for n in message["nodes"]] == ["dfm", "ros1", "ros2", "ros3", "sfi1", "sfi2"], message
        assert message["dfm"] == "dfm" and message["commands"]["resume"] == ["paused"] and "null" not in json.dumps(message["nodes"][1]["peers"]), message
        assert abs(message["time"] - time.time()) < LIMIT_S
        later = wait_message(place, "a newer one", lambda m: m["elapsed"] > message["elapsed"])
        assert later["elapsed"] - message["elapsed"] < LIMIT_S
        assert ask(place, "/status")[0] == ask(place, "/")[0] == 200
        before = status_of(place)["counts"]["events_complete"]
        b.wait("events", lambda: status_of(place)["counts"]["events_complete"] > before + 500)
        # The rates since the start, also without somebody who looks.
        b.wait("a rate", lambda: any(sample[2] > 0 for sample in json.loads(ask(place, "/history")[2])["samples"]))
        samples = json.loads(ask(place, "/history")[2])["samples"]
        assert all(0 <= sample[4] <= 1 for sample in samples), samples
        b.kill("ros2")
        # It may be asked in the moment of its death, and a node of a busy machine may answer too late.
        wait_message(place, "gone", lambda m: m["nodes"][1]["reachable"] and not m["nodes"][2]["reachable"] and "refused" in m["nodes"][2]["problem"])


class Liar(http.server.BaseHTTPRequestHandler):
    """A node that says what it likes."""

    state = {}

    def do_GET(self):
        text = json.dumps(self.state).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def liar(address, port, state):
    handler = type("Handler", (Liar,), {"state": state})
    with http.server.ThreadingHTTPServer((address, port), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


def listens(host, port):
    try:
        socket.create_connection((host, port), timeout=LIMIT_S).close()
    except ConnectionRefusedError:
        return False
    return True


def are_judged(nodes):
    """Whether what the liars say is shown, as far as it may be."""
    return (nodes["dfm"]["reachable"]
            and nodes["ros1"]["reachable"] and nodes["ros1"]["reason"].startswith(HOSTILE) and "x" not in nodes["ros1"]
            and not nodes["ros2"]["reachable"] and "too many to show" in nodes["ros2"]["problem"]
            and nodes["ros3"]["reachable"] and nodes["ros3"]["rates"] == "none"
            and "is not a node of evb" in nodes["sfi1"]["problem"] and "timed out" in nodes["sfi2"]["problem"])


def liars(evb):
    """A node may answer anything, or nothing: the others are shown, and what is too long is not."""
    port = free_port(f"{OWN_NET}.1")
    with control_bed(evb, {"metrics.listen": f":{port}", "sfi.output": "null"}) as b, contextlib.ExitStack() as stack:
        at = b.addresses
        stack.enter_context(liar(at["ros1"], port, {"node": "ros1", "role": "ros", "state": "running", "reason": HOSTILE + "\n\ndata: 1\n\n", "x": None}))
        stack.enter_context(liar(at["ros2"], port, {"node": "ros2", "state": "running", "much": "y" * 400_000}))
        stack.enter_context(liar(at["ros3"], port, {"node": "ros3", "state": "running", "peers": 7, "shaping": {"a": [1]}, "rates": "none"}))
        stack.enter_context(liar(at["sfi1"], port, ["no", "state"]))
        silent = stack.enter_context(socket.create_server((at["sfi2"], port)))
        b.start("dfm")
        b.wait("the page", lambda: listens(at["dfm"], port))
        place = f"{at['dfm']}:{port}"
        # On a busy machine, any of them may answer too late.
        first = wait_message(place, "answers", lambda m: are_judged({n["node"]: n for n in m["nodes"]}))["elapsed"]
        # The silent one delays nobody for longer than its time.
        assert wait_message(place, "the next one", lambda m: m["elapsed"] > first)["elapsed"] - first < LIMIT_S / 10
        silent.close()
        b.terminate()


if __name__ == "__main__":
    main({"files": files, "events": events, "liars": liars})
