"""Decides whether the rest of the machine disturbed a point.

Packets that the testbed itself lost disturb a point, too: its queues only overflow if processors are away for long.

Figures of a point, beside those of its kind; None if unknown (points on other machines have none of them):
  stolen_share, others_share, waiting_share, wait_mean_us, timer_late_p99_us, timer_late_max_us: what the machine did
  repeats: how many times the point was made again
  disturbed: the reason why the point is invalid, or None
"""
import copy

# A disturbed point is made again at most so many times: so often at once, and the rest at the end of the run, when what
# disturbed it may be over.
REPEATS_MAX, REPEATS_AT_ONCE = 3, 1
# A point on which the verdict "differs" rests counts with the median of so many results.
SAMPLES = 3
# Verdicts distinguish throughputs that differ by 1 % (extensions.py), so the hypervisor must not take much more. The kernel
# counts in ticks of 10 ms, each 1 % of the shortest points on two processors.
STOLEN_SHARE_MAX = 0.02
# Socket buffers and shaping queues (4 MiB) hold 34 ms of a 1 Gbit/s link: a longer pause loses packets that a free machine would
# not have lost. The bound cannot be much lower, because the point's own processes hold a processor in the kernel, which does not
# preempt them: for up to 28 ms with three shaped TCP flows.
LATE_MAX_US = 40000.0
# One timer in a hundred. Processes with real-time priority that hold the processors for 20 ms five times a second reach 18 ms and
# cost a tenth of the throughput; the point's own processes reached 10 ms.
LATE_P99_US = 15000.0
# Others use what the lab leaves idle, and the lab's processes wait for each other; neither disturbs. Others disturb if they use
# this share of the processors while the lab's processes wait.
OTHERS_SHARE_MAX = 0.2
# With raised priority (src/sys/thread.h), a process waits 20 to 1700 us for its turn while 20 processes are busy, and longer only
# if the lab itself leaves nothing to others. A longer wait means that the priority has no effect, for example because others are
# in a cgroup with a weight of its own.
WAIT_MEAN_US = 3000.0
# At equal priority the others do take what the lab waits for: points built 12 to 97 % of what they should.
WAITING_SHARE_EQUAL_MAX = 0.2
# The processors limit a point whose processes waited longer for them than this share of the time of all processors. The
# simulator, whose nodes have a processor each, then makes something else: in a quick run of C1 to C10 on a quiet machine, it
# differed by at most 1.4 % at the 39 points below this bound, and by up to 99 % at those above (docs/scaling.md).
CROWDED_SHARE = 0.4

SHARES = ("stolen_share", "others_share", "waiting_share", "wait_mean_us", "timer_late_p99_us", "timer_late_max_us")
LOSSES = ("switch_packets", "source_packets", "socket_packets", "events_lost", "events_partial", "lost_messages",
          "network_packets", "nic_packets", "path_lost_packets", "lost_packets", "lost_percent", "corrupt")


def _reasons(figures, watched_seconds, raised):
    """Unknown figures disturb nothing."""
    share = {name: figures[name] if figures[name] is not None else 0 for name in SHARES}
    waits = share["wait_mean_us"] > WAIT_MEAN_US if raised else share["waiting_share"] > WAITING_SHARE_EQUAL_MAX
    if watched_seconds is not None and watched_seconds <= 0:
        yield "the lab itself was not scheduled in time to watch the machine"
    if share["stolen_share"] > STOLEN_SHARE_MAX:
        yield (f"the hypervisor took {100 * share['stolen_share']:.1f} % of the processor time, more than "
               f"{100 * STOLEN_SHARE_MAX:g} %")
    for name, subject, most_us in (("timer_late_max_us", "a timer was {:.1f} ms late", LATE_MAX_US),
                                   ("timer_late_p99_us", "1 % of the timers were {:.1f} ms late or more", LATE_P99_US)):
        if share[name] > most_us:
            yield f"{subject.format(share[name] / 1e3)}, more than {most_us / 1e3:g} ms"
    if share["others_share"] > OTHERS_SHARE_MAX and waits:
        yield (f"other processes used {100 * share['others_share']:.0f} % of the processors while the point's waited "
               f"{'long for their turns' if raised else 'at equal priority'}")
    lost = figures.get("testbed_lost_packets") or 0
    if lost > 0:
        yield (f"the testbed itself lost {lost} packet{'' if lost == 1 else 's'}, which real links and ports would have "
               "carried")


def describe(figures, raised):
    """Adds `disturbed`, and unknown shares. `watched_seconds` (absent: nobody watched) does not stay. `raised`: the point's
    processes had a raised priority."""
    for name in SHARES:
        figures.setdefault(name, None)
    watched_seconds = figures.pop("watched_seconds", None)
    figures["disturbed"] = "; ".join(_reasons(figures, watched_seconds, raised)) or None


def reason(result):
    """Why a result is disturbed, or None. Results of earlier versions are not."""
    text = result.get("disturbed")
    return text if isinstance(text, str) else None


def make(run, repeats_max, stop):
    """Calls `run`, which returns figures, until they are undisturbed, `stop` says so, or it was repeated `repeats_max` times.
    Returns the figures of the last attempt, with `repeats`."""
    figures = run()
    repeats = 0
    while reason(figures) and repeats < repeats_max and not stop():
        figures = run()
        repeats += 1
    figures["repeats"] = repeats
    return figures


def _number(result, key):
    value = result.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def median(results, y):
    """The result with the median of figure `y` among valid ones of the same point; their number is odd. Counts of losses are
    the largest of all: one loss is enough to tell that a point loses."""
    chosen = copy.deepcopy(sorted(results, key=lambda result: _number(result, y))[len(results) // 2])
    for key in LOSSES:
        largest = max(results, key=lambda result: _number(result, key))
        if _number(largest, key) > _number(chosen, key):
            chosen[key] = largest[key]
    chosen["samples"] = len(results)
    return chosen
