#!/usr/bin/env python3
"""What other kernels than this machine's support, in user-mode Linux 5.10: the layout of the publications, CBQ with TBF; and EDT with fq.

    test_cbq.py EVB [CASE...]
"""
import ipaddress
import json
import pathlib
import re

from harness import Skip, made, main
from uml.machine import Machine

HERE = pathlib.Path(__file__).resolve().parent
PRELOAD, BY_LIBNL, EPOLL, CACHE = made("xsave.so"), made("cbq_by_libnl"), made("epoll.so"), made("uml-kernel")
EDT_MODULES = ["sch_fq", "sch_ingress", "cls_bpf", "cls_u32", "dummy", "veth"]
MODULES = ["sch_cbq", "sch_tbf", "cls_u32", "dummy", "veth"]
LINK_BPS = 10 ** 9
RATES = {"10.0.0.5": 50_000_000, "10.0.0.6": 12_500_000, "fd00::5": 20_000_000, "fd00:1:2::6": 333_333_336}
LIMIT = 5_000_000
DEVICE = "ip link add d0 type dummy && ip link set d0 up"
TC = [f"tc -d {what} show dev d0" for what in ("qdisc", "class", "filter")]


def machine(evb, modules=()):
    binary = pathlib.Path(evb).read_bytes()
    if b"__asan_init" in binary or b"__tsan_init" in binary:
        raise Skip("the shadow memory of sanitizers has no room in user-mode Linux")
    return Machine(PRELOAD, CACHE, modules)


def apply(evb, rates, backend="cbq+tbf", device="d0", link_bps=LINK_BPS):
    to = " ".join(f"--dest {address}={bps}" for address, bps in rates.items())
    return f"{evb} qos apply --dev {device} --backend {backend} --link-rate {link_bps} --set network.port=5000 --set qos.limit={LIMIT} --json {to}"


def done(answer, expect=0):
    assert answer.exit == expect, f"{answer.step}: exit {answer.exit}, not {expect}: {answer.err}\n{answer.out}"
    return answer.out


def report(answer):
    return json.loads(done(answer))


def check_status(status, rates):
    found = {d["address"]: d["rate_bps"] for d in status["destinations"]}
    assert status["backend"] == "cbq+tbf" and found == rates, status
    assert len({d["classid"] for d in status["destinations"]}) == len(rates), status
    assert all(d["limit_bytes"] == LIMIT for d in status["destinations"]), status
    assert status["control"]["classid"] == "e7b:2" and status["default"]["classid"] == "e7b:3", status


def bits(text):
    """A rate as tc writes it, rounded down to its unit."""
    number, unit = re.fullmatch(r"(\d+)([kKMG]?)bit", text).groups()
    return int(number) * {"": 1, "k": 10 ** 3, "K": 10 ** 3, "M": 10 ** 6, "G": 10 ** 9}[unit]


def near(text, bps):
    return 0 <= bps - bits(text) < 1000


def matched_address(block):
    """The destination of a filter's lines "match VALUE/MASK at OFFSET", or None."""
    keys = re.findall(r"match ([0-9a-f]{8})/ffffffff at (\d+)", block)
    if [at for _, at in keys] not in (["16"], ["24", "28", "32", "36"]):
        return None
    return ipaddress.ip_address(bytes.fromhex("".join(value for value, _ in keys)))


def check_tc(qdiscs, classes, filters, status):
    """Check that tc reports the same tree."""
    root = re.search(r"qdisc cbq e7b: root .* rate (\w+) ", qdiscs)
    link = re.search(r"class cbq e7b:1 parent e7b: rate (\w+) .*\(bounded\)", classes)
    assert root and near(root[1], LINK_BPS) and link and near(link[1], LINK_BPS), qdiscs + classes
    assert re.search(r"class cbq e7b:2 parent e7b:1 leaf 2: .* prio 1/1", classes), classes
    assert re.search(r"class cbq e7b:3 parent e7b:1 leaf 3: .* prio 3/3.*\n.*\nsplit e7b: defmap 0000ffff", classes), classes
    blocks = re.split(r"\n(?=filter)", filters)
    assert sum("flowid e7b:2 " in b and "match 00001388/0000ffff" in b for b in blocks) == 2, filters
    for d in status["destinations"]:
        minor = d["classid"].split(":")[1]
        leaf = re.search(rf"class cbq {d['classid']} parent e7b:1 leaf {minor}: rate \w+ .* prio 2/2", classes)
        assert leaf and "bounded" not in leaf[0], classes
        # tc rounds the burst to whole microseconds of the rate, and prints the limit as the time beyond the burst.
        tbf = re.search(rf"qdisc tbf {minor}: parent {d['classid']} rate (\w+) burst (\d+)b/1 .* lat ([\d.]+)(m?)s ", qdiscs)
        assert tbf and near(tbf[1], d["rate_bps"]) and 0 <= d["burst_bytes"] - int(tbf[2]) <= d["rate_bps"] / 8e6 + 1, f"{d}\n{qdiscs}"
        seconds = (d["limit_bytes"] - d["burst_bytes"]) * 8 / d["rate_bps"]
        assert abs(float(tbf[3]) / (1000 if tbf[4] else 1) / seconds - 1) < 0.01, f"{d}\n{qdiscs}"
        own = [b for b in blocks if f"flowid {d['classid']} " in b]
        assert len(own) == 1 and ipaddress.ip_address(d["address"]) == matched_address(own[0]), f"{d}\n{filters}"
        version = "60000000" if ":" in d["address"] else "40000000"
        assert f"match {version}/f0000000 at 0" in own[0], own
    n = len(status["destinations"])
    assert (qdiscs.count("qdisc "), classes.count("class cbq"), filters.count("flowid")) == (n + 3, n + 4, n + 5), qdiscs + classes


def layout(evb):
    """tc reports the installed tree; a second apply changes nothing; rates change in place; removal leaves nothing."""
    status = f"{evb} qos status --dev d0 --json"
    others = {**RATES, "10.0.0.5": 60_000_000, "10.0.0.7": 1_000_000}
    del others["fd00::5"]
    # Enough destinations for a hash table, and one so fast that its turn would be too long for the kernel.
    many = {f"10.0.{i // 50}.{i % 50 + 1}": 600_000_000 if i == 7 else 1_000_000 + 8000 * i for i in range(100)}
    answers = machine(evb).run(MODULES, [
        f"{DEVICE}; tc qdisc show dev d0", apply(evb, RATES), apply(evb, RATES), status, *TC, apply(evb, others), status,
        apply(evb, many), status, apply(evb, RATES, link_bps=2 * LINK_BPS), f"{evb} qos remove --dev d0 --json",
        "tc qdisc show dev d0", "dmesg | grep -iE 'cbq|tbf|warn|bug:'", "ip link set d0 mtu 200",
        apply(evb, RATES)])
    before, first, second, now, *tc, changed, after, more, hashed, other_link, removed, nothing, said, _, small = answers
    # Root, link, control and other traffic with a queue each, two filters for control, three for neighbours; then class, queue and filter for each
    # destination.
    assert report(first)["operations"] == 11 + 3 * len(RATES), first
    assert report(second)["operations"] == 0, second
    for answer in (first, second, now):
        check_status(report(answer), RATES)
    check_tc(*map(done, tc), report(now))
    assert 0 < report(changed)["operations"] < report(first)["operations"], changed
    check_status(report(after), others)
    done(more)
    check_status(report(hashed), many)
    check_status(report(other_link), RATES)
    assert report(removed)["backend"] == "none", removed
    assert done(nothing) == done(before) and "cbq" not in done(nothing), nothing
    assert said.out == "", f"the kernel complains: {said.out}"
    check_status(report(small), RATES)


def auto(evb):
    """The backend auto follows the loaded modules: none; CBQ; then also HTB, which it prefers, and which this kernel cannot offload."""
    guest = machine(evb)
    _, neither, cbq, _, htb_asked, both, _, offload, cbq_asked = guest.run(["sch_tbf", "cls_u32", "dummy"], [
        DEVICE, apply(evb, RATES, "auto"), f"{guest.load('sch_cbq')} && {apply(evb, RATES, 'auto')}", f"{evb} qos remove --dev d0",
        apply(evb, RATES, "htb+tbf"), f"{guest.load('sch_htb')} && {apply(evb, RATES, 'auto')}", f"{evb} qos remove --dev d0",
        apply(evb, RATES, "htb") + " --offload required", apply(evb, RATES)])
    assert neither.exit == 77 and "has no qdisc cbq" in neither.err, neither
    assert report(cbq)["backend"] == "cbq+tbf" and report(cbq)["reasons"]["backend"] == "auto: cbq+tbf, because this kernel has no qdisc htb", cbq
    assert htb_asked.exit == 77 and "has no qdisc htb (module sch_htb)" in htb_asked.err, htb_asked
    assert report(both)["backend"] == "htb+tbf" and "htb+tbf, which this kernel supports" in report(both)["reasons"]["backend"], both
    assert offload.exit == 77 and "d0: this kernel cannot offload htb; expected Linux 5.12 or newer" in offload.err, offload
    assert report(cbq_asked)["backend"] == "cbq+tbf" and report(cbq_asked)["reasons"]["backend"] == "cbq+tbf, as configured", cbq_asked


def handle(number):
    return f"{number >> 16:x}:" + (f"{number & 0xffff:x}" if number & 0xffff else "")


def words_of(commands, kind):
    """evb's view by object: the words after the kind in its tc command."""
    found = {}
    for line in commands:
        at = re.search(rf"(?:handle|classid) (\S+) {kind} (.*)$", line)
        if at:
            words = at[2].split()
            found[at[1]] = dict(zip(words, words[1:])), words, re.search(r"parent (\S+)", line)
    return found


def check_cbq(o, ours):
    """libnl prints CBQ's rate with two decimal places, and all other values exactly."""
    values, words, parent = ours
    text = o["text"]
    rate, unit = re.search(r"rate ([\d.]+)([KM]?i?B)/s", text).groups()
    unit = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]
    bps = bits(values.get("rate", values["bandwidth"]))
    assert abs(float(rate) * unit - bps / 8) <= 0.0051 * unit, (o, words)
    for name in ("mpu", "cell", "allot"):
        assert re.search(rf"\b{name} (\d+)", text)[1] == values[name], (name, o, words)
    assert re.search(r"avgpkt (\d+)", text)[1] == values["avpkt"] and re.search(r"ewma_log (\d+)", text)[1] == values["ewma"], (o, words)
    if o["type"] == "class":
        assert re.search(r"prio (\d+)", text)[1] == values["prio"] and handle(o["parent"]) == parent[1], (o, words)
    split, defmap = re.search(r"split (\S+) defmap (\w+)", text).groups()
    assert (split, int(defmap, 16)) == (values.get("split", "none"), int(values.get("defmap", "0"), 16)), (o, words)


def libnl(evb):
    """libnl-route, which can read CBQ but not create it, reads the same tree as evb."""
    _, first, now, theirs = machine(evb).run(MODULES, [DEVICE, apply(evb, RATES), f"{evb} qos status --dev d0 --json", f"{BY_LIBNL} d0"])
    done(first)
    status = report(now)
    check_status(status, RATES)
    objects = [json.loads(line) for line in done(theirs).splitlines()]
    ours = words_of(status["tc_commands"], "cbq")
    cbq = [o for o in objects if o["kind"] == "cbq" and not (o["type"] == "class" and o["handle"] & 0xffff == 0)]
    assert sorted(handle(o["handle"]) for o in cbq) == sorted(ours), (cbq, ours)
    for o in cbq:
        check_cbq(o, ours[handle(o["handle"])])
    rows = {d["classid"]: d for d in [*status["destinations"], status["control"], status["default"]]}
    queues = [o for o in objects if o["type"] == "qdisc" and o["kind"] in ("tbf", "bfifo")]
    assert sorted(handle(o["parent"]) for o in queues) == sorted(rows), (queues, rows)
    for o in queues:
        row = rows[handle(o["parent"])]
        assert o["limit_bytes"] == row["limit_bytes"], (o, row)
        assert o["kind"] == "bfifo" or o["rate_bytes"] * 8 == row["rate_bps"], (o, row)


def fair(evb):
    """If the kernel has fq_codel, all other traffic gets it, below HTB and CBQ: installed once, read back, repaired and removed."""
    guest = machine(evb)
    load = " && ".join(guest.load(name) for name in ("sch_htb", "sch_tbf", "cls_u32", "dummy"))
    apart = f"{evb} qos apply --dev d0 --config {HERE}/uml/apart.conf --node r --json"
    inner, behind = r"qdisc fq_codel 4001: parent 3001:1 limit 10240p ", "tc qdisc replace dev d0 parent 3001:1 handle 7: pfifo limit 7"
    at, leaf = "qdisc fq_codel 3: parent e7b:3 ", "tc qdisc change dev d0 parent e7b:3 handle 3: fq_codel target 50ms"
    status, replace = f"{evb} qos status --dev d0 --json", "tc qdisc replace dev d0 parent e7b:3 handle 8: pfifo limit 7"
    steps = [f"{load} && {DEVICE}", apply(evb, RATES, "auto"), guest.load("sch_fq_codel"), apply(evb, RATES, "auto"),
             "tc qdisc show dev d0", apply(evb, RATES, "auto"), leaf, apply(evb, RATES, "auto"), replace, apply(evb, RATES, "auto"),
             "tc qdisc show dev d0", status, f"{evb} qos remove --dev d0 --json", "tc qdisc show dev d0",
             "tc qdisc replace dev d0 root handle 9: fq_codel limit 77 flows 99 target 7ms", "tc qdisc show dev d0",
             apply(evb, RATES, "auto"), f"{evb} qos remove --dev d0", "tc qdisc show dev d0",
             guest.load("sch_cbq"), apply(evb, RATES), "tc qdisc show dev d0", apply(evb, RATES, link_bps=2 * 10 ** 8),
             "tc qdisc show dev d0", f"{evb} qos remove --dev d0", apart, "tc qdisc show dev d0", apart, behind, apart,
             "tc qdisc show dev d0", "ip link set d0 mtu 600", f"{apart} --set qos.rate=21Mbit", "tc qdisc show dev d0"]
    answers = guest.run([], steps)
    for answer in answers:
        done(answer)
    (_, without, _, first, shown, again, _, changed, _, replaced, back, now, removed, gone, _, theirs, _, _, restored,
     _, cbq, shown_cbq, slow, shown_slow, _, pair, shown_pair, same, _, mended, shown_mended, _, renewed, shown_renewed) = answers
    # Packets to an SFI that are not data have it below TBF, which is renewed with a shorter burst.
    assert "fq_codel" in report(pair)["reasons"]["apart"] and report(same)["operations"] == 0, (pair, same)
    assert report(mended)["operations"] == 1 and report(renewed)["operations"] > 1, (mended, renewed)
    for each in (shown_pair, shown_mended, shown_renewed):
        assert re.search(inner, each.out), each
    assert report(without)["reasons"]["other"] == "a queue of 1250000 bytes, about 10 ms of the link", without
    # The queue of the same handle has another kind: it is deleted and added.
    assert report(first)["operations"] == 2 and report(first)["reasons"]["other"] == "fq_codel, a short queue for each flow", first
    assert re.search(at + r"limit 10240p flows 1024 quantum 1514 target 5(.0)?ms interval 100(.0)?ms memory_limit 16Mb ecn ", shown.out), shown
    assert [report(a)["operations"] for a in (again, changed, replaced)] == [0, 1, 1], (again, changed, replaced)
    assert at in back.out and report(now)["default"]["limit_bytes"] == 16 << 20, (back, now)
    assert any("parent e7b:3 handle 3: fq_codel limit 10240 target 4999us interval 99999us quantum 1514 memory_limit 16777216b ecn" in c
               for c in report(now)["tc_commands"]), now
    assert report(removed)["backend"] == "none" and "fq_codel" not in gone.out, (removed, gone)
    # That of another program is restored as it was.
    assert restored.out == theirs.out and "flows 99" in theirs.out, (restored, theirs)
    assert report(cbq)["backend"] == "cbq+tbf" and at in shown_cbq.out, shown_cbq
    # At 1 Mbit/s, two frames take 24.2 ms.
    assert report(slow)["operations"] > 0 and re.search(at + r".* target 24(.2)?ms interval 484(.\d)?ms", shown_slow.out), shown_slow


def check_edt(answer, rates):
    status = report(answer)
    assert status["backend"] == "edt" and {d["address"]: d["rate_bps"] for d in status["destinations"]} == rates, status
    assert all(d["limit_bytes"] == LIMIT and d["drops"] == 0 for d in status["destinations"]), status


# An idle guest may sleep for a second. Fails after 1000 attempts.
UNTIL = "n=0; until {}; do n=$((n + 1)); [ $n -lt 1000 ] || exit 1; sleep 0.1; done"


def edt(evb):
    """A second apply changes nothing; what another program changes is noticed and mended; removal restores what was there before."""
    others = {**RATES, "10.0.0.5": 60_000_000, "10.0.0.7": 1_000_000}
    del others["fd00::5"]
    shown, remove = "tc qdisc show dev d0; tc filter show dev d0 egress", f"{evb} qos remove --dev d0 --json"
    same, foreign = apply(evb, RATES, "edt"), "tc filter add dev d0 egress prio 9 u32 match u32 0 0 flowid 1:1"
    watch = " && ".join([
        f"{{ LD_PRELOAD={EPOLL} {evb} qos watch --dev d0 --repair >/run/watch 2>&1 & }}", UNTIL.format("grep -q watching /run/watch"), "tc filter del dev d0 egress prio 1",
        UNTIL.format("tc filter show dev d0 egress | grep -q evb-edt"), "tc qdisc del dev d0 root",
        UNTIL.format("tc qdisc show dev d0 | grep -q 'fq e7b:'"), "kill $!", "wait $!", "cat /run/watch"])
    steps = [f"{DEVICE}; {shown}", same, same, shown, apply(evb, others, "edt"), f"{evb} qos status --dev d0 --json", same,
             "tc qdisc del dev d0 clsact", same, "tc qdisc change dev d0 root fq flow_limit 7", same, watch, f"{evb} qos status --dev d0 --json",
             remove, shown, f"{same} >/dev/null && {foreign} && {same}", remove, shown, "tc qdisc del dev d0 clsact",
             f"tc qdisc add dev d0 clsact && {same} >/dev/null && {remove}", shown, "dmesg | grep -iE 'bpf|warn|bug:'"]
    answers = machine(evb, EDT_MODULES).run(EDT_MODULES, steps)
    before, first, second, now, changed, after, back, _, again, _, repaired, watched, status, removed, nothing, both, kept, theirs, _, empty, clsact, said = answers
    assert [report(a)["operations"] for a in (first, second)] == [2 + len(RATES), 0], (first, second)
    for answer in (first, second, back, again, repaired, status):
        check_edt(answer, RATES)
    assert re.search(r"qdisc fq e7b: root .* flow_limit 100000p ", done(now)) and "handle 0xe7b evb-edt clsact direct-action" in now.out, now
    # One rate changes, one destination comes, and one goes; the root stays.
    assert report(changed)["operations"] == 3, changed
    check_edt(after, others)
    assert report(again)["operations"] == 1 + len(RATES) and report(repaired)["operations"] > 0, (again, repaired)
    assert "d0: bpf filter" in done(watched) and "d0: root qdisc fq e7b: is missing" in watched.out, watched
    for answer in (removed, kept, empty):
        assert report(answer)["backend"] == "none", answer
    assert done(nothing) == done(before) and "fq" not in done(nothing), nothing
    # Filters and a clsact of another program stay.
    assert report(both)["operations"] == 0, both
    assert "evb-edt" not in done(theirs) and "flowid 1:1" in theirs.out and "qdisc clsact" in theirs.out, theirs
    assert "qdisc clsact" in done(clsact) and "evb-edt" not in clsact.out, clsact
    assert said.out == "", f"the kernel complains: {said.out}"


if __name__ == "__main__":
    main({"layout": layout, "fair": fair, "auto": auto, "libnl": libnl, "edt": edt})
