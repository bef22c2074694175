#!/usr/bin/env python3
"""What a browser shows of a real run on the page of the DFM.

    test_page_browser.py EVB [CASE...]

With EVB_PAGE_PICTURES=FOLDER, it leaves pictures of the page there.
"""
import json
import os
import pathlib
import re
import signal
import time

from browser import browser
from control import TOKEN
from harness import LIMIT_S, main
from test_page import HOSTILE, page_bed, status_of

WIDTHS = (375, 1440)


def judged(kind="good", word="running", why=""):
    return {"view": {"kind": kind, "word": word, "why": why}}


def many(ros, sfi):
    """A message of many nodes, of which one is gone and one stalls."""
    nodes = [{"node": "dfm", "role": "dfm", "state": "running", "reachable": True, "start_time": 1, "run": 7, **judged(),
              "rates": {"triggers_hz": 900, "events_hz": 899, "bytes_per_second": 1e8, "busy_share": 0.1},
              "peers": [{"node": "ros1", "role": "ros", "live": False}]}]
    nodes += [{"node": f"ros{i + 1}", "role": "ros", "state": "running", "reachable": i > 0, "problem": "no answer from 10.0.0.1:9464: Connection refused" if i == 0 else None,
               **(judged("gone", "gone", "no answer from 10.0.0.1:9464: Connection refused") if i == 0 else judged()),
               "rates": {"bytes_per_second": 1e6 * (1 + i % 5), "fragments_hz": 900}, "buffer_used": 0.3} for i in range(ros)]
    nodes += [{"node": f"sfi{i + 1}", "role": "sfi", "state": "running", "reachable": True, "rates": {"bytes_per_second": 1e7, "events_hz": 100},
               "buffer_used": 0.95, **judged(),
               **({"stalled_seconds": 4, "reason": "the disk is full", **judged("bad", "stalled", "the disk is full")} if i == 1 else {})} for i in range(sfi)]
    return {"time": time.time(), "elapsed": 50, "dfm": "dfm", "scenario": "many", "mode": "push", "transport": "udp", "nodes": nodes, "shaping": [
        {"node": f"sfi{i + 1}", "address": f"10.0.1.{i + 1}", "sources": ros, "rate_bps": 1e9, "backlog_bytes": 2e5, "limit_bytes": 3e5, "bytes": 1e9, "drops": 12} for i in range(sfi)]}


class Looker:
    def __init__(self, page, place):
        self.page, self.base = page, f"http://{place}/"
        self.pictures = os.environ.get("EVB_PAGE_PICTURES")

    def at_all_sizes(self, name, schemes=("light", "dark")):
        """Nothing may be wider than the screen."""
        for width in WIDTHS:
            self.page.set_size(width)
            for scheme in schemes:
                self.page.set_colours(scheme)
                wide = self.page.wait("layout", f"innerWidth === {width} && document.documentElement.scrollWidth")
                assert wide <= width, f"{name}: {wide} pixels at {width}"
                outside = self.page.evaluate(f"[...document.querySelectorAll('.node, .tiles dd, h1, .banner')].filter((e) => e.getBoundingClientRect().right > {width}).map((e) => e.textContent)")
                assert not outside, f"{name} at {width}: {outside}"
                if self.pictures:
                    self.page.picture(pathlib.Path(self.pictures) / f"{name}-{width}-{scheme}.png")

    def tile(self, name):
        return f"[...document.querySelectorAll('.tiles div')].find((e) => e.querySelector('dt').textContent === {json.dumps(name)})?.querySelector('dd span').textContent"

    def box(self, node):
        return f"document.querySelector('.node[data-node={node}]')"

    def wait_banner(self, text):
        self.page.wait(f"banner {text}", f"document.getElementById('banners').textContent.includes({json.dumps(text)})")

    def click(self, label):
        self.page.wait(f"button {label}", f"(() => {{ const b = [...document.querySelectorAll('button')].find((e) => e.textContent === {json.dumps(label)} && !e.disabled && e.offsetParent); b?.click(); return Boolean(b); }})()")

    def enabled(self):
        return self.page.evaluate("[...document.querySelectorAll('#control button:not(:disabled)')].map((e) => e.textContent)")


def check_control(look, b, place):
    """Commands need the token, and the state must permit them."""
    page = look.page
    page.wait("buttons", "!document.getElementById('control').hidden")
    assert look.enabled() == ["Start", "Next run"], look.enabled()
    look.click("Start")
    page.wait("question", "document.activeElement.id === 'token'")
    page.call("Input.insertText", text="a wrong one")
    page.key("Enter", 13)
    look.wait_banner("refused the token: wrong token")
    assert page.evaluate("sessionStorage.getItem('evb-token')") is None
    page.call("Input.insertText", text=TOKEN)
    page.key("Enter", 13)
    b.wait_state("running")
    page.wait("pause", "!buttons.get('pause').disabled && buttons.get('start').disabled")
    look.click("Pause")
    look.wait_banner("The run is paused")
    assert b.state()["state"] == "paused"
    look.click("Resume")
    b.wait_state("running")
    # A request without the right token changes nothing, even from this page.
    code = page.evaluate("fetch('/control', {method: 'POST', body: '{\"command\": \"stop\"}'}).then((r) => r.status)")
    assert code == 401 and b.state()["state"] == "running", code
    # The browser logs both refusals, and nothing else.
    assert len(page.problems) == 2 and all("401" in text and "/control" in text for text in page.problems), page.problems
    page.problems.clear()


def check_figures(look, b, place):
    """The page has the figures of /status."""
    page = look.page

    def same(name, read, unit):
        # Both change every second.
        deadline = time.monotonic() + LIMIT_S
        while True:
            expected, shown = page.evaluate(f"si({read(status_of(place))}, {json.dumps(unit)})"), page.evaluate(look.tile(name))
            if expected == shown and not expected.startswith("0"):
                return
            assert time.monotonic() < deadline, f"{name}: {shown}, not {expected}"
            time.sleep(0.1)

    same("Event rate", lambda s: s["rates"]["events_hz"], "Hz")
    same("Data rate", lambda s: s["rates"]["bytes_per_second"], "B/s")
    complete = int(page.evaluate(look.tile("Complete events")).replace("\u202f", ""))
    assert 0 < complete <= status_of(place)["counts"]["events_complete"], complete
    # Each pair has an arrow with its rate; together they carry what the DFM counts.
    page.wait("arrows", "[...document.querySelectorAll('#arrows text.rate')].filter((e) => /^[1-9].*B\\/s$/.test(e.textContent)).length === 6")
    page.wait("rates of pairs", "(() => { const all = [...pairRates(message, previous).values()].reduce((a, b) => a + b, 0), dfm = message.nodes[0].rates.bytes_per_second; return all > 0.5 * dfm && all < 2 * dfm; })()")
    page.wait("a running ROS", f"{look.box('ros1')}.querySelector('.word').textContent === 'running'")
    page.wait("charts", "[...document.querySelectorAll('.chart path.line')].every((e) => e.getAttribute('d').length > 20)")
    rows = page.evaluate("[...document.querySelectorAll('#loss tbody tr')].map((r) => r.textContent)")
    assert len(rows) == 13 and any(row.startswith("Network and switch") for row in rows), rows
    page.evaluate("document.querySelector('details summary').click()")
    page.wait("rows of all nodes", "document.querySelectorAll('#node-table tbody tr').length === 6")
    page.evaluate("document.querySelector('details summary').click()")
    # The button prevails over the system.
    page.set_colours("light")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.evaluate("document.getElementById('theme').click()")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.evaluate("localStorage.removeItem('evb-theme'); delete document.documentElement.dataset.theme; showTheme()")
    page.set_colours("dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def check_stall(look, b, place):
    """Why a run stalls is on the page, in the words of /status."""
    for sfi in ("sfi1", "sfi2"):
        os.kill(b.processes[sfi].pid, signal.SIGSTOP)
    look.wait_banner("The run makes no progress for")
    reason = status_of(place)["reason"]
    assert reason, "no reason"
    look.wait_banner(reason.split(",")[0].split(" for ")[0][:40])
    look.page.wait("stalled DFM", f"{look.box('dfm')}.querySelector('.word').textContent === 'stalled'")
    look.page.wait("silent SFI", f"{look.box('sfi1')}.textContent.includes('timed out')")
    look.at_all_sizes("stalled", ("light",))
    for sfi in ("sfi1", "sfi2"):
        os.kill(b.processes[sfi].pid, signal.SIGCONT)
    look.page.wait("progress", "!document.getElementById('banners').textContent.includes('no progress')")


def check_losses(look, b, place):
    """A node that is gone, and a DFM that restarts."""
    page = look.page
    b.kill("ros3")
    page.wait("gone", f"['gone', 'no figures'].includes({look.box('ros3')}.querySelector('.word').textContent) && {look.box('ros3')}.textContent.includes('refused')")
    page.wait("idle arrows", "document.querySelectorAll('#arrows path.flow.idle').length >= 2")
    assert not page.problems, page.problems
    b.kill("dfm")
    look.wait_banner("No connection to the DFM: these figures are")
    assert page.evaluate("document.body.classList.contains('old')")
    b.start("dfm")
    page.wait("the new DFM", "!document.body.classList.contains('old') && !document.getElementById('banners').textContent.includes('No connection') && message.elapsed < 60")
    assert all("ERR_" in text and "/events" in text or "/history" in text for text in page.problems), page.problems
    page.problems.clear()


def check_gaps(page):
    """Rates are over the time between two messages: ten times as long after a DFM was suspended. There are none after a restart."""
    def receive(elapsed, sent, start=1, sources=2):
        message = many(2, 1)
        message["elapsed"] = elapsed
        message["nodes"][1].update({"reachable": True, "start_time": start, "peers": [{"node": "sfi1", "bytes": sent}]})
        message["shaping"][0].update({"bytes": sent, "sources": sources})
        page.evaluate(f"receive({json.dumps(json.dumps(message))})")
        pair = page.evaluate("pairRates(message, previous).get('ros1 sfi1') ?? null")
        return pair, page.evaluate("document.querySelector('#shaping tbody td:nth-child(3)').textContent").replace("\u00a0", " ")

    page.evaluate("previous = message = null; 0")
    assert receive(100, 1e6) == (None, "–")
    assert receive(101, 2e6) == (1e6, "8.00 Mbit/s")
    assert receive(111, 12e6) == (1e6, "8.00 Mbit/s")
    # A ROS restarts, one answers again, and the DFM restarts.
    assert receive(112, 1e3, start=2) == (None, "–")
    assert receive(113, 9e9, start=2, sources=3)[1] == "–"
    text = page.evaluate("(() => { const m = structuredClone(message); m.elapsed = 1; m.nodes[1].peers[0].bytes = 0; receive(JSON.stringify(m)); return document.body.textContent; })()")
    assert page.evaluate("pairRates(message, null).size") == 0 and not re.search(r"NaN|Infinity|undefined|-\d|e\+", text), text


def check_control_figures(look):
    """Run time, last run, metadata and disk; losses are folded while there are none; a narrow screen has a table of the worst nodes first."""
    page, message = look.page, many(2, 2)
    message["time"] = 1.7e9
    message["control"] = {"seconds": 3725.9, "paused_seconds": 0, "next_run": None, "metadata": {HOSTILE: HOSTILE, "beam": "e-"},
                          "last_run": {"run": 6, "status": "fell short", "reasons": ["3 events lost"], "events": {"complete": 1200, "partial": 1, "lost": 3}, "end": "2023-11-14T22:03:20Z"}}
    sfis = [node for node in message["nodes"] if node["role"] == "sfi"]
    for node, free, low in ((sfis[0], 5e11, False), (sfis[1], 7e11, True)):
        node.update({"output_free_bytes": free, "output_left_seconds": 1800 if low else 90000, "disk": {"text": "", "low": low}, "rate_permille": 480 if low else 1000})
    message["places"] = [{"place": "Network and switch", "unit": "packet", "total": 0, "nodes": {}}, {"place": "Source queue", "unit": "packet", "nodes": {}}]

    def receive():
        message["elapsed"] += 1
        page.evaluate(f"receive({json.dumps(json.dumps(message))})")
        return page.text().replace("\u00a0", " ").replace("\u202f", " ")

    page.set_size(1440)
    page.evaluate("previous = message = null; 0")
    text = receive()
    assert page.evaluate(look.tile("Run time")) == "1:02:05" and "22:13:20 UTC" in text, text
    last = "run 6: fell short; 3 events lost · 1 200 complete events, 1 partial, 3 lost · ended 10 min ago, 22:03:20 UTC"
    assert last in text and text.count(HOSTILE) == 2 and page.evaluate("window.hacked") is None, text
    assert page.evaluate(look.tile("Disk")).replace("\u00a0", " ") == "700 GB" and "free at sfi2, full in 30 min" in text, text
    assert "reduced to 48 %" in page.evaluate("document.querySelector('#shaping td.warn').textContent").replace("\u00a0", " ")
    assert "reduced" in page.evaluate(f"{look.box('sfi2')}.textContent") and "reduced" not in page.evaluate(f"{look.box('sfi1')}.textContent")
    opened = "document.getElementById('loss-box').open"
    assert "No loss known; 1 place unknown" in text and not page.evaluate(opened), text
    message["places"][0].update({"total": 5, "nodes": {"sfi1": 5}})
    assert "5 packets" in receive() and page.evaluate(opened)
    page.evaluate(f"{opened} = false")
    receive()
    assert not page.evaluate(opened), "opened again"
    look.at_all_sizes("last-run", ("light",))
    page.set_size(375)
    page.wait("the table", "!document.getElementById('picture').offsetParent && Boolean(document.querySelector('#node-table td')?.offsetParent)")
    # It has the rows of earlier figures until the browser says that it was opened.
    page.wait("the worst nodes first", "[...document.querySelectorAll('#node-table tbody td:first-child')].map((e) => e.firstChild.textContent).join() === 'ros1,sfi2,dfm,ros2,sfi1'")
    page.set_size(1440)
    page.wait("the picture", "document.getElementById('picture').offsetParent && document.querySelectorAll('#arrows path').length > 0")


def check_made_up(look):
    """Many nodes fit; texts from the network stay texts."""
    page = look.page
    # The facts about the real last run have counts of their own.
    page.evaluate("connection.close(); previous = message = null; byId('facts').replaceChildren(); 0")
    for ros, sfi in ((24, 8), (92, 8), (1, 1), (40, 60)):
        page.evaluate("previous = message = null; 0")
        page.set_size(1440)
        page.evaluate(f"receive({json.dumps(json.dumps(many(ros, sfi)))})")
        assert page.evaluate("document.querySelectorAll('.node').length") == 1 + ros + sfi
        # One label for each node that has an arrow of its own, or one for all.
        labels = (ros if ros < 33 else 1) + (sfi if sfi < 33 else 1)
        page.wait("labels", f"document.querySelectorAll('#arrows text.rate').length === {labels}")
        look.at_all_sizes(f"nodes-{ros}-{sfi}", ("light",))
        summary = page.evaluate("document.getElementById('summary').textContent")
        assert summary.endswith(f"{ros} ROS{'s' if ros > 1 else ''} · {sfi} SFI{'s' if sfi > 1 else ''}"), summary
    # A run that loses events, before and after an operator has paused it; each count of one is in the singular.
    message = many(2, 2)
    del message["nodes"][4]["stalled_seconds"]
    message["nodes"][1]["reachable"], message["nodes"][0]["peers"] = True, []
    for node in (message["nodes"][1], message["nodes"][4]):
        node.update(judged())
    message["nodes"][0]["counts"] = {"triggers": 1, "events_lost": 1}
    reason = "1 event lost in the last 7 s; missing fragments: ros1 4"
    for node in (message["nodes"][0], message["nodes"][3]):
        node.update({"condition": "losing", "problem": "1 event lost in the last 7 s", **judged("bad", "losing", "1 event lost in the last 7 s")})
    for state in ("losing", "paused"):
        message["elapsed"] += 1
        message["nodes"][0].update({"condition": state, "control_state": "paused" if state == "paused" else "running", **judged("bad", state)})
        message["run"] = {"ok": False, "run": 7, "state": state, "reason": reason, "blames": True}
        page.evaluate(f"receive({json.dumps(json.dumps(message))})")
        banners = page.evaluate("document.getElementById('banners').textContent")
        assert banners.count(reason) == 1 and ("▲" in banners) == ("paused" in banners) == (state == "paused"), banners
        assert f"run 7 · {state} · " in page.evaluate("document.getElementById('summary').textContent")
        assert page.evaluate(f"{look.box('sfi1')}.querySelector('.word').textContent") == "losing"
        text = page.evaluate("document.getElementById('main').textContent")
        assert "of 1 trigger" in text and "of 1 triggers" not in text and "1 event" in text and "1 events" not in text, text
        assert page.evaluate(f"{look.box('dfm')}.querySelector('.word').textContent") == state
    look.at_all_sizes("losing", ("light",))
    for blames, reason in ((True, "ros1: its shaping is not installed as planned"), (False, "no trigger for 9.0 s")):
        message["run"] = {"ok": True, "run": 7, "state": "running", "reason": reason, "blames": blames}
        page.evaluate(f"receive({json.dumps(json.dumps(message))})")
        banners = page.evaluate("document.getElementById('banners').textContent")
        assert (f"▲ {reason}" in banners) == (reason in banners) == blames and "loses" not in banners, banners
    check_gaps(page)
    check_control_figures(look)
    message = many(2, 2)
    message["scenario"] = HOSTILE
    message["run"] = {"ok": False, "run": 7, "state": HOSTILE, "reason": HOSTILE, "blames": True}
    for node in message["nodes"][1:]:
        node.update({"node": node["node"] + HOSTILE, "problem": HOSTILE, "reason": HOSTILE, "state": HOSTILE, "stalled_seconds": 1, **judged("bad", HOSTILE[:15], HOSTILE)})
    message["nodes"][1]["rates"] = message["nodes"][2]["peers"] = "text"
    message["shaping"][0].update({"node": HOSTILE, "address": HOSTILE, "rate_bps": HOSTILE})
    page.evaluate(f"document.getElementById('node-table-box').open = true; receive({json.dumps(json.dumps(message))})")
    assert page.text().count(HOSTILE) > 10, page.text()
    assert page.evaluate("window.hacked") is None and page.evaluate("document.querySelectorAll('main script, main img, header img').length") == 0
    look.at_all_sizes("hostile", ("light",))


def in_browser(evb):
    with browser() as page, page_bed(evb) as (b, place):
        look = Looker(page, place)
        page.set_size(1440)
        page.open(look.base)
        page.wait("figures", "document.querySelectorAll('.node').length === 6")
        check_control(look, b, place)
        check_figures(look, b, place)
        look.at_all_sizes("run")
        look.click("Stop")
        page.wait("question", "document.getElementById('confirm').open")
        look.click("Cancel")
        check_stall(look, b, place)
        assert b.state()["state"] == "running", b.state()
        assert not page.problems, page.problems
        check_losses(look, b, place)
        page.evaluate("order('stop'); 0")
        look.click("Stop the run")
        b.wait("end of the run", lambda: b.state()["state"] in ("draining", "idle", "configured", "error"))
        # The run may end in an error, if the machine is loaded.
        page.wait("nothing to stop", "buttons.get('stop').disabled && !buttons.get('start').disabled")
        check_made_up(look)
        assert not page.problems, page.problems
        strangers = [address for address in page.addresses if not address.startswith((look.base, "about:"))]
        assert not strangers and look.base + "events" in page.addresses, page.addresses


main({"browser": in_browser})
