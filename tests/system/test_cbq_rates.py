#!/usr/bin/env python3
"""Rates in user-mode Linux 5.10: CBQ with TBF, and EDT with fq. Its guests are paused by whatever else runs, so only they run.

    test_cbq_rates.py EVB [CASE...]
"""
from harness import Skip, main
from test_cbq import EDT_MODULES, MODULES, apply, check_edt, check_status, done, machine, report


def rates(evb):
    """Traffic to three destinations at once arrives at the three requested rates. IPv4 only, because this kernel's IPv6
    is a module that is not available; the bursts compensate for pauses of 10 ms."""
    rate = {"10.7.0.5": 5_000_000, "10.7.0.6": 10_000_000, "10.7.0.7": 20_000_000}
    guest = machine(evb)
    make = ["ip netns add a", "ip netns add b", "ip link add v0 netns a type veth peer name v1 netns b",
            "ip -n a address add 10.7.0.1/24 dev v0", *(f"ip -n b address add {address}/24 dev v1" for address in rate),
            "ip -n a link set v0 up", "ip -n b link set v1 up"]
    made, shaped, measured, now = guest.run(MODULES, [
        " && ".join(make), f"ip netns exec a {apply(evb, rate, device='v0')} --set qos.burst=25kB",
        f"{guest.python('meter.py')} a b 3 10 {' '.join(rate)}", f"ip netns exec a {evb} qos status --dev v0 --json"], seconds=120)
    done(made)
    check_status(report(shaped), rate)
    result = report(measured)
    print(f"{result['counted']} of {result['windows']} windows count, longest pause of the guest {result['pause_s'] * 1000:.0f} ms")
    assert all(got < 1.25 * asked for asked, got in zip(rate.values(), result["average_bps"])), result
    if result["counted"] < 10:
        raise Skip(f"processor time: the guest paused in all but {result['counted']} of {result['windows']} windows")
    for (address, asked), got in zip(rate.items(), result["bps"]):
        print(f"{address}: {asked / 1e6:g} Mbit/s asked, {got / 1e6:.2f} measured")
        assert abs(got / asked - 1) < 0.25, result
    for d in report(now)["destinations"]:
        assert d["packets"] > 0 and d["overlimits"] > 0 and d["drops"] == 0, d


def departures(evb):
    """What is sent at once arrives at the rates of the destinations, whole, and a new rate drops nothing of what waits."""
    rate, frames, bits_each = {"10.7.0.5": 4_000_000, "10.7.0.6": 5_000_000, "10.7.0.7": 6_000_000}, 150, 1514 * 8
    slow = {**rate, "10.7.0.5": 1_000_000}
    guest = machine(evb, EDT_MODULES)
    make = ["ip netns add a", "ip netns add b", "ip link add v0 netns a type veth peer name v1 netns b",
            "ip -n a address add 10.7.0.1/24 dev v0", *(f"ip -n b address add {address}/24 dev v1" for address in rate),
            "ip -n a link set v0 up", "ip -n b link set v1 up"]

    def shape(rates):
        return f"ip netns exec a {apply(evb, rates, 'edt', device='v0')}"

    def send(times, command, *addresses):
        return guest.python("depart.py", "a", "b", str(times), str(frames), command, *addresses)

    tries = 5
    made, shaped, sent, slower, during, now = guest.run(EDT_MODULES, [
        " && ".join(make), shape(rate), send(tries, "", *rate), shape(slow), send(1, shape(rate), "10.7.0.5"),
        f"ip netns exec a {evb} qos status --dev v0 --json"], seconds=150)
    for answer in (made, shaped, slower):
        done(answer)
    results, [result], slowest = report(sent), report(during), 0
    assert len(results) == tries and all(r["arrived"] == [frames] * len(rate) for r in results) and result["arrived"] == [frames], (results, result)
    for i, (address, bps) in enumerate(rate.items()):
        # Never faster; the last frame may arrive late if the guest is slow.
        exact, took = (frames - 1) * bits_each / bps, min(r["seconds"][i] for r in results)
        print(f"{address}: {bps / 1e6:g} Mbit/s asked, at most {(frames - 1) * bits_each / took / 1e6:.3f} measured")
        assert took >= exact, (address, took, exact)
        slowest = max(slowest, took / exact)
    # The frames keep the times of the rate at which they were sent.
    assert result["seconds"][0] >= (frames - 1) * bits_each / slow["10.7.0.5"], result
    check_edt(now, rate)
    for d in report(now)["destinations"]:
        assert d["packets"] == frames * (tries + (d["address"] == "10.7.0.5")) and d["bytes"] == d["packets"] * 1514, d
    if slowest > 1.05:
        raise Skip(f"processor time: the guest needed {slowest:.2f} times as long as the rates allow")


main({"rates": rates, "departures": departures})
