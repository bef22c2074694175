/* The table of keys: one entry per key with its place in struct scenario, default, bounds and description.
 * keys.c converts values; read.c looks keys up. */
#include "conf/keys.h"

#include "base/util.h"
#include "conf_internal.h"

/* Optional last arguments of an entry. */
#define WAS(name_) .old_name = name_
#define OR(word, value) .other_word = word, .other_value = value
#define LIVE(roles) .applied_by = roles /* nodes of these roles apply a new value at run time */
#define ONLY(roles) .used_by = roles    /* only nodes of these roles use the key */
/* The value of the old key qualifies the values `with` of this key. */
#define PART_OF(section_, key_, with_, usual_, ...)                                                          \
        .section = section_, .key = key_, .with = with_, .usual = usual_, ##__VA_ARGS__
/* Two names of the same removed key. */
#define CONGESTION PART_OF("scenario", "transport", "tcp", "auto", .words = "auto|reno|cubic|bbr|dctcp")
#define STAGGER PART_OF("test", "pacing", "none", "yes", .words = "no|yes", .whole = "together")
#define DFM KEY_OF(ROLE_DFM)
#define ROS KEY_OF(ROLE_ROS)
#define SFI KEY_OF(ROLE_SFI)

#define KEY(kind_, section_, name_, member, standard_, help_, ...)                                           \
        {                                                                                                    \
                .section = section_, .name = name_, .kind = kind_,                                           \
                .offset = offsetof(struct scenario, member), .standard = standard_, .help = help_,           \
                ##__VA_ARGS__                                                                                \
        }
#define TEXT(section, name, member, standard, words_, help, ...)                                             \
        KEY(KEY_TEXT, section, name, member, standard, help, .words = words_, ##__VA_ARGS__)
#define CHOICE(section, name, member, standard, words_, help, ...)                                           \
        KEY(KEY_CHOICE, section, name, member, standard, help, .words = words_, ##__VA_ARGS__)
#define FRACTION(section, name, member, standard, help, ...)                                                 \
        KEY(KEY_FRACTION, section, name, member, standard, help, ##__VA_ARGS__)
#define NUMBER(kind, section, name, member, standard, least_, most_, help, ...)                              \
        KEY(kind, section, name, member, standard, help, .least = least_, .most = most_, ##__VA_ARGS__)
/* A number, or a word that stands for the number word_value. */
#define NUMBER_OR(kind, section, name, member, standard, word, value, least_, most_, help, ...)              \
        KEY(kind, section, name, member, standard, help, .words = word, .word_value = value,                 \
            .least = least_, .most = most_, ##__VA_ARGS__)

#define ANY UINT64_MAX
#define MS NS_PER_MS
#define HOUR (3600 * NS_PER_S)
#define KIB UINT64_C(1024)
#define GIB (KIB * KIB * KIB)
#define RATE_MIN 8000
#define RATE_MAX UINT64_C(400000000000)
#define EVENTS_HELD_MAX 12000

const struct scenario_key scenario_keys[] = {
        TEXT("scenario", "name", scenario.name, "", "",
             "Name of the run in reports (empty: the name of the file without .conf)."),
        CHOICE("scenario", "mode", scenario.mode, "push", "push|pull",
               "Transfer mode: in push, a multicast of the DFM makes the ROSs send; in pull, the SFI "
               "requests fragments from each ROS."),
        CHOICE("scenario", "transport", scenario.transport_choice, "udp",
               "udp|tcp|tcp:reno|tcp:cubic|tcp:bbr|tcp:dctcp",
               "Transport of fragments, with TCP's congestion control at the ROSs (tcp: the kernel's "
               "default). Control messages always use UDP."),
        NUMBER(KEY_TIME, "scenario", "duration", scenario.duration_ns, "0", 0, ANY,
               "Time for which the DFM accepts triggers (0: until the run is stopped or trigger.events are "
               "done).",
               ONLY(DFM)),

        TEXT("trigger", "source", trigger.source, "internal",
             "internal, udp:[GROUP:]PORT, frames[:ROS] [within TIME], or clock[:TIME[+OVERLAP]] [within "
             "TIME], e.g. clock:10ms+100us",
             "Source of triggers: internal (the DFM makes them, by trigger.rate and trigger.kind), udp:PORT "
             "(a trigger box sends them to this port of the DFM, or of a multicast group, from which ROSs "
             "receive their times, too; see docs/protocol.md for the bytes), frames (one event per number "
             "that frames of front-ends carry; needs ros.event-number), or clock (one event per slice of "
             "time, for readout without triggers). With frames:ROS, only frames of this ROS make events, and "
             "frames of other ROSs whose number it does not have are left over. TIME is the length of a "
             "slice (clock: 10ms). The frames of the last OVERLAP of each slice are copied into the next "
             "slice too, which needs ros.event-time. So that events follow the order of numbers, a number "
             "waits for the frames of the other ROSs for the time after within (default: 100ms), or until "
             "all required ROSs got that far. With ros.event-time, a slice closes this time after its end, "
             "by the times of the board's frames."),
        TEXT("trigger", "busy-to", trigger.busy_to, "none", "none or HOST:PORT",
             "Address and UDP port to which the DFM sends the busy signal, at each change and every 100 ms: "
             "busy from 80 % to 60 % of all credits, of 4096 waiting triggers, or of the undecided events. "
             "HOST is a numeric IPv4 or [IPv6] address. After 300 ms of silence, the DFM counts as busy.",
             ONLY(DFM)),
        NUMBER_OR(KEY_FREQUENCY, "trigger", "rate", trigger.rate_millihertz, "max", "max", SCENARIO_MAX, 1,
                  ANY, "Mean rate of internal triggers (max: a trigger as soon as an SFI has a free credit).",
                  LIVE(DFM)),
        NUMBER(KEY_COUNT, "trigger", "events", trigger.events, "0", 0, ANY,
               "Number of triggers to accept (0: no limit).", ONLY(DFM)),
        CHOICE("trigger", "kind", trigger.kind, "periodic", "periodic|poisson|burst",
               "Distribution of the intervals between internal triggers.", LIVE(DFM)),
        NUMBER(KEY_TIME, "dfm", "node-timeout", dfm.node_timeout_ns, "3s", 10 * MS, HOUR,
               "Time without a message from a node after which it counts as gone. After ten times this time "
               "without a message from the DFM, a node ends with exit status 75, so that its unit restarts "
               "it for the next run."),
        NUMBER_OR(KEY_TIME, "dfm", "start-timeout", dfm.start_timeout_ns, "auto", "auto", SCENARIO_AUTO,
                  10 * MS, HOUR,
                  "Time for which the start of a run waits for further nodes after a node has joined (auto: "
                  "dfm.node-timeout).",
                  ONLY(DFM)),

        TEXT("level2", "listen", level2.listen, "none", "none or tcp:PORT",
             "TCP port on which the DFM lists new events and takes decisions about them (none: all events "
             "are built). Only accepted events are built. All nodes of a run set it, or none. "
             "docs/protocol.md describes the messages; evb level2 is a client to try it."),
        TEXT("level2", "timeout", level2.timeout, "1s", "TIME or TIME:reject, e.g. 200ms:reject",
             "Time after which an event without a decision is accepted, or with reject, rejected."),
        TEXT("level2", "regions", level2.regions, "none", "none or tcp:PORT",
             "TCP port of each ROS on which level-2 clients request fragments of undecided events, their "
             "regions of interest (none: clients decide without them). Each ROS sends them at most a tenth "
             "of network.link-rate, or 100 Mbit/s if that is unlimited."),

        NUMBER(KEY_COUNT, "ros", "count", ros.count, "0", 0, EVB_ROS_MAX,
               "Number of ROSs: nodes ros1, ros2, ... on this machine. If the scenario has [node NAME] "
               "sections, only the first N of their ROSs are used (0: all)."),
        TEXT("ros", "source", ros.source, "pattern",
             "pattern, file:PATH, udp:PORT, udp:HOST:PORT or tcp:HOST:PORT",
             "Source of fragments of each ROS whose [node NAME] section has no source of its own: pattern "
             "(the SFI checks every byte), the fragments of an event file, or frames of front-end "
             "electronics, which ros.event-number assigns to triggers."),
        TEXT("ros", "frame", ros.frame, FRAME_STANDARD,
             "datagram, length OFFSET[.BIT]:BITS[:be] [unit N] [plus N], fixed N, or marker HEX [end HEX]; "
             "with skip N",
             "Where a frame of a front-end begins and ends. With datagram, each datagram is a frame. With "
             "length, the field at this place counts units of N bytes (1 without unit) of the frame, and "
             "plus bytes are added if it does not count all of the frame. With fixed, each frame has N "
             "bytes. With marker, a frame begins with these bytes and lasts until the next marker, or up to "
             "and with end; with length or fixed, a marker lets the ROS find the next frame after a wrong "
             "one. With skip, the first N bytes of a frame are not stored, and OFFSET of ros.event-number "
             "and ros.event-time counts from the byte after them."),
        TEXT("ros", "event-number", ros.event_number, "count", "count, or OFFSET[.BIT]:BITS[:be] [mod N]",
             "Place of the trigger's number in a frame of a front-end: it begins at byte OFFSET of the "
             "payload, and has BITS (1 to 64), little-endian, or big-endian with :be. BIT is the bit of that "
             "byte at which it begins, counted from the least significant one, or from the most significant "
             "one with :be. With mod N, the counter is 0 again after N values. The ROS matches frames to "
             "triggers by this number. With count, frames carry no number, and frame k belongs to trigger k: "
             "if the board omits, repeats or reorders a frame, neither ROS nor SFI can notice it, and all "
             "its later fragments are built into events of other triggers. If the ROS itself notices a loss, "
             "the run ends with exit status 1."),
        TEXT("ros", "number-from", ros.number_from, "0", "a whole number, which may be negative",
             "Number that a board gives to the trigger with number 0."),
        TEXT("ros", "event-time", ros.event_time, "none",
             "none, or OFFSET[.BIT]:BITS[:be] [follow | within TIME]",
             "Place of the time in a frame of a front-end, as ros.event-number has that of a number: a "
             "counter of ros.tick. With trigger.source = clock, the frames of a ROS whose time is in a slice "
             "are its fragment, and the times of the boards make the events. With follow, slices follow the "
             "measured drift of the board's clock against the machine's. With within, and trigger.source = "
             "udp:GROUP:PORT, a frame belongs to the trigger whose time is that of the frame, up to TIME; "
             "the offset of the board's clock is found, and its drift followed. This replaces event-number."),
        NUMBER(KEY_TIME, "ros", "tick", ros.tick_ns, "1ns", 1, HOUR, "Time of one count of ros.event-time."),
        TEXT("ros", "fragments", ros.fragments, "one",
             "one, or join [count N | count OFFSET[.BIT]:BITS[:be] | last OFFSET[.BIT]:BITS[:be]] [demux "
             "OFFSET[.BIT]:BITS[:be]] [index OFFSET[.BIT]:BITS[:be]] [within TIME]",
             "Which frames of a front-end form its fragment of an event: one, or all with the number of its "
             "trigger (join), each preceded by its length. Such a fragment ends with a frame of a newer "
             "number; or, if frames come in any order, when as many frames have come as count says, or with "
             "the frame in which the field last is not 0. In any case, it ends when no frame of it has come "
             "for the time after within (default: 100ms, at most half of ros.wait); a fragment that then "
             "lacks frames is incomplete. With index, the frames of a fragment have a number in it, counted "
             "from 0, by which they are ordered and repeated ones are detected. With demux, the stream has "
             "the frames of several boards, each with the ID of its board at this place, and the frames of "
             "each board form a fragment of their own: its ID in event files is the sum of source-id and the "
             "ID of the board."),
        NUMBER_OR(KEY_TIME, "ros", "wait", ros.wait_ns, "auto", "auto", SCENARIO_AUTO, MS / 10, HOUR,
                  "Time for which a triggered event waits for a frame from a front-end (auto: three quarters "
                  "of sfi.timeout). Then it is built without the frame, which is late if it still comes. "
                  "With ros.event-time, after a silence of this time, or of half of dfm.node-timeout, the "
                  "slices up to that of the board's last frame close. The key wait of a [node NAME] section "
                  "overrides this for one ROS."),
        TEXT("ros", "fragment-size", ros.fragment_size, "1KiB",
             "a size up to 4MiB, uniform:A-B or lognormal:MEAN,SIGMA",
             "Payload size of a fragment from the pattern source, or the distribution of these sizes. SIGMA "
             "is the standard deviation of the logarithm."),
        NUMBER(KEY_BYTES, "ros", "buffer-size", ros.buffer_size_bytes, "64MiB", EVB_FRAGMENT_MAX_BYTES,
               64 * GIB, "Memory for fragments that are not cleared yet."),

        NUMBER(KEY_COUNT, "sfi", "count", sfi.count, "0", 0, EVB_SFI_MAX,
               "Number of SFIs: nodes sfi1, sfi2, ... on this machine. If the scenario has [node NAME] "
               "sections, only the first N of their SFIs are used (0: all)."),
        CHOICE("sfi", "output", sfi.output, "null", "null|file|live",
               "Output of built events: null checks and discards them, file writes them, live gives each one "
               "to a consumer in mode all at live.listen, and counts it as built when the consumer has "
               "finished it.",
               ONLY(SFI)),
        TEXT("sfi", "directory", sfi.directory, ".", "an existing directory", "Directory for event files.",
             ONLY(SFI)),
        TEXT("sfi", "file-name", sfi.file_name, "run{run}_{sequence}",
             "atlas, or letters, digits, . _ + = - and {run}, {sfi}, at the end _{sequence}",
             "Names of event files, without .data: {run} is the run number (6 digits), {sfi} the name of the "
             "SFI, {sequence} the number of the file (4 digits). With several SFIs, _{sfi} comes before "
             "_{sequence} if the pattern has no {sfi}. atlas: "
             "dataYY_evb.RUN.physics_Main.daq.RAW._lb0000._SFI-N._SEQUENCE.",
             ONLY(SFI)),
        NUMBER(KEY_COUNT, "sfi", "file-events", sfi.file_events, "0", 0, UINT32_MAX,
               "Maximum number of events in a file (0: no limit).", ONLY(SFI)),
        NUMBER(KEY_BYTES, "sfi", "file-size", sfi.file_size_bytes, "2GiB", 0, 1024 * GIB,
               "Maximum size of a file (0: no limit).", ONLY(SFI)),
        CHOICE("sfi", "format", sfi.format, "eformat3", "eformat3|eformat5",
               "Format of event files: raw event format v3.0 in EventStorage v2, or v5.0 in v6.", ONLY(SFI)),
        CHOICE("sfi", "durability", sfi.durability, "written", "none|written|synced",
               "Failure that a complete event survives: none (the event may stay in the SFI's buffer for up "
               "to 1 s), a crash of the SFI (written: the kernel has it), or a crash of its machine (synced: "
               "the disk has it).",
               ONLY(SFI)),
        CHOICE("sfi", "page-cache", sfi.page_cache, "drop", "drop|keep|bypass",
               "What happens to event data in the page cache: drop them once the disk has them (the memory "
               "serves the next data), keep them (other programs can read new files without the disk, as far "
               "as there is memory), or bypass it (O_DIRECT; for a disk that is faster than copies in "
               "memory. Events larger than 4 MiB pass through the page cache).",
               ONLY(SFI)),
        CHOICE("sfi", "slow-disk", sfi.slow_disk, "wait", "wait|drop",
               "What the SFI does if the disk is slower than the triggers: wait (its credits run out, and "
               "the DFM holds triggers back), or drop built events while half of its credits wait for the "
               "disk. These events are lost, and the exit status of the run is 1.",
               LIVE(SFI)),
        NUMBER_OR(KEY_COUNT, "sfi", "credits", sfi.credits, "auto", "auto", SCENARIO_AUTO, 1, EVENTS_HELD_MAX,
                  "Maximum number of events in an SFI (auto: as many as its memory and its socket buffer "
                  "hold, plus those that only wait for silent ROSs; see CREDITS in evb.conf(5)).",
                  LIVE(SFI)),
        NUMBER_OR(KEY_COUNT, "sfi", "outstanding", sfi.outstanding, "auto", "auto", SCENARIO_AUTO, 1,
                  EVENTS_HELD_MAX,
                  "Maximum number of events that an SFI requests at a time in pull mode (auto: over UDP, the "
                  "bytes on their way are limited instead, to what the buffer of a switch port holds, and "
                  "requests are spaced at network.link-rate; if that is unlimited, the limit is found from "
                  "losses and latency; over TCP, 16 MiB of events).",
                  LIVE(SFI)),
        NUMBER(KEY_BYTES, "sfi", "buffer-size", sfi.buffer_size_bytes, "128MiB", EVB_FRAGMENT_MAX_BYTES,
               256 * GIB, "Memory for fragments of events that are not written yet.", ONLY(SFI)),
        NUMBER(KEY_TIME, "sfi", "timeout", sfi.timeout_ns, "2s", MS, HOUR,
               "Time after which the SFI builds an incomplete event without its missing fragments. After "
               "five times this time, the DFM reassigns an event that its SFI has not finished."),
        NUMBER_OR(KEY_COUNT, "sfi", "retries", sfi.retries, "auto", "auto", SCENARIO_UNBOUNDED, 0, 100,
                  "Maximum number of consecutive unanswered retries for a missing fragment (0: never retry; "
                  "auto: retry until sfi.timeout).",
                  WAS("sfi.re-ask"), LIVE(SFI)),

        TEXT("network", "clients", network.clients, "nodes",
             "none, or nodes, ADDRESS or ADDRESS/BITS, separated by commas",
             "Addresses, besides loopback, whose clients may send commands to control.listen over TCP, and "
             "decide as level 2 (nodes: the addresses of the scenario's nodes). The DFM's own machine may "
             "always send commands.",
             WAS("control.allow")),
        NUMBER_OR(KEY_RATE, "network", "link-rate", network.link_rate_bps, "unlimited", "unlimited",
                  SCENARIO_UNLIMITED, 1000000, RATE_MAX, "Rate of the link of each node."),
        NUMBER_OR(KEY_BYTES, "network", "mtu", network.mtu_bytes, "auto", "auto", SCENARIO_AUTO, 1280, 65535,
                  "Maximum packet size; data and control datagrams fit into it (auto: 1500, and for "
                  "fragments by UDP what each path carries)."),
        NUMBER(KEY_BYTES, "network", "switch-buffer", network.switch_buffer_bytes, "256KiB", 4096, GIB,
               "Buffer size of each output port of the switch."),
        TEXT("network", "control-group", network.control_group, "239.255.69.86",
             "a multicast address, or none",
             "Multicast group for messages of the DFM to all ROSs (none: it sends to each ROS in turn)."),
        NUMBER(KEY_COUNT, "network", "port", network.control_port, "26800", 1, 65534,
               "UDP port for control messages. An SFI receives fragments on the next port, by UDP or TCP.",
               WAS("network.control-port")),
        TEXT("network", "key-file", network.key_file, "", "a file, or nothing",
             "File with the key that all machines share, which authenticates control messages (empty: none). "
             "See docs/security.md."),
        TEXT("network", "dscp", network.dscp, "none",
             "none, or CONTROL,DATA: numbers from 0 to 63, or cs0 to cs7, af11 to af43, ef and le",
             "DSCP of control messages and of fragments, by which switches choose their queues, e.g. "
             "cs6,af21 (none: 0 for both). On a VLAN device, egress-qos-map sees the first three bits of the "
             "DSCP as priority, at most 6. See docs/network.md."),
        NUMBER_OR(KEY_BYTES, "network", "socket-buffer", network.socket_buffer_bytes, "auto", "auto",
                  SCENARIO_AUTO, 4096, GIB,
                  "Buffer of each data socket: of a ROS for sending, of an SFI for receiving.",
                  WAS("network.receive-buffer")),
        NUMBER(KEY_TIME, "network", "busy-poll", network.busy_poll_ns, "0", 0, NS_PER_S,
               "Time after the last work in which each node looks for more without sleeping, and "
               "SO_BUSY_POLL of its sockets (0: it sleeps at once). Only for machines with more processors "
               "than processes: each node takes one. See docs/performance.md."),
        FRACTION("network", "loss", network.loss, "0",
                 "Fraction of received datagrams that each node drops, for tests; run.seed selects them."),
        FRACTION("network", "reorder", network.reorder, "0",
                 "Fraction of received datagrams that each node delays, for tests."),
        FRACTION("network", "duplicate", network.duplicate, "0",
                 "Fraction of received datagrams that each node duplicates, for tests."),

        CHOICE("qos", "backend", qos.backend_choice, "none",
               "none|auto|htb|htb+tbf|cbq+tbf|edt|socket|auto:optional|htb:optional|htb+tbf:optional|cbq+tbf:"
               "optional|edt:optional|socket:optional",
               "Queueing disciplines that shape traffic at the source (auto: the first of htb+tbf, htb and "
               "cbq+tbf that the kernel supports; edt: departure times and fq), or socket: each ROS has the "
               "kernel pace its TCP connections, without a privilege. A ROS that cannot shape refuses to "
               "run; with :optional, it warns and runs unshaped."),
        CHOICE("qos", "offload", qos.offload, "no", "no|auto|required",
               "Whether the network card shapes, with a queue for each SFI; needs qos.backend = htb or auto. "
               "auto: if the card can; required: a ROS refuses to run if its card cannot. No card has been "
               "tried yet; see docs/shaping.md."),
        NUMBER_OR(KEY_RATE, "qos", "rate", qos.rate_bps, "auto", "auto", SCENARIO_AUTO, RATE_MIN, RATE_MAX,
                  "Rate for each destination.", LIVE(ROS)),
        NUMBER_OR(KEY_BYTES, "qos", "burst", qos.burst_bytes, "auto", "auto", SCENARIO_AUTO, 64, GIB,
                  "Burst size for each destination.", LIVE(ROS)),
        NUMBER_OR(KEY_BYTES, "qos", "limit", qos.limit_bytes, "auto", "auto", SCENARIO_AUTO, 64, UINT32_MAX,
                  "Queue size for each destination.", LIVE(ROS)),
        NUMBER_OR(KEY_RATE, "qos", "control-rate", qos.control_rate_bps, "auto", "auto", SCENARIO_AUTO,
                  RATE_MIN, RATE_MAX,
                  "Maximum rate of all control messages into the port of an SFI; data get the rest (auto: "
                  "what the assignments of small events need, 0.1 % of network.link-rate or more)."),

        TEXT("metrics", "listen", metrics.listen, "none", "none, :PORT, HOST:PORT or unix:PATH",
             "Where each node serves its metrics by HTTP, as OpenMetrics at /metrics, and the DFM also a "
             "page for browsers at /: a TCP port of its own address (:PORT) or of another numeric address of "
             "its machine (0.0.0.0 or [::]: all), or a Unix socket, whose path contains the name of the node "
             "as %n. With evb run, where all nodes share a machine, the DFM gets HOST:PORT and the other "
             "nodes the next ports; see docs/monitoring.md."),

        TEXT("live", "listen", live.listen, "none", "none, HOST:PORT or unix:PATH",
             "Where each SFI offers its built events to programs such as evb live: a TCP port of a numeric "
             "address of its machine (0.0.0.0 or [::]: all), whose clients need the key of network.key-file, "
             "if there is one; or a Unix socket, whose path contains the name of the node as %n, and which "
             "its owner and group may use. With evb run, the first SFI gets HOST:PORT, and the other SFIs "
             "the next ports. The run never waits for these programs (unless live.all = yes), but each event "
             "that one gets costs the SFI a copy; see docs/python.md.",
             ONLY(SFI)),
        CHOICE("live", "all", live.all, "no", "no|yes",
               "Whether programs at live.listen may use mode all, in which they get all events: while one "
               "has no room, the SFI waits, and with it the run (always yes with sfi.output = live).",
               ONLY(SFI)),

        TEXT("control", "listen", control.listen, "none", "none, :PORT, HOST:PORT or unix:PATH",
             "Where the DFM takes commands of evb ctl: a TCP port of its own address (:PORT) or of another "
             "numeric address of its machine, or a Unix socket, which its owner and group may use. With this "
             "key, nodes stay for further runs; without it, each node serves one run. See docs/operate.md."),
        TEXT("control", "token-file", control.token_file, "", "a file, or nothing",
             "File whose first line is the token that TCP clients must present (evb ctl --token-file); "
             "empty: none. If control.listen is set too, metrics.listen of the DFM takes commands with this "
             "token.",
             ONLY(DFM)),

        NUMBER_OR(KEY_COUNT, "run", "number", run.number, "auto", "auto", SCENARIO_AUTO, 1, UINT32_MAX,
                  "Run number in the names and headers of event files (next: the next unused number on the "
                  "DFM's machine; the run does not begin if it cannot be stored there. auto: like next, but "
                  "the time if no number can be stored, and the number in the file if all ROSs replay one). "
                  "The other nodes receive it from the DFM.",
                  OR("next", SCENARIO_NEXT)),
        CHOICE("run", "start", run.start, "auto", "auto|manual",
               "When a run begins: once all nodes are present (auto), or only after evb ctl start as well "
               "(manual; needs control.listen).",
               ONLY(DFM)),
        NUMBER(KEY_COUNT, "run", "seed", run.seed, "1", 0, ANY,
               "Seed of patterns, fragment sizes and triggers."),
        NUMBER(KEY_TIME, "run", "stop-timeout", run.stop_timeout_ns, "45s", 0, HOUR,
               "Maximum time for which a stopped node continues to serve until the DFM has ended the run, "
               "and then for which the DFM waits until the SFIs have closed their files. Keep it below "
               "TimeoutStopSec= of the units (60 s).",
               LIVE(DFM | ROS | SFI)),
        NUMBER(KEY_TIME, "run", "stall-timeout", run.stall_timeout_ns, "10min", 0, 24 * HOUR,
               "Time without progress after which the DFM ends the run, so that all nodes exit with status 1 "
               "(0: never). Only time counts in which an event is open, or a trigger is held back: a pause "
               "of the triggers, however long, does not end a run.",
               ONLY(DFM)),

        CHOICE("log", "level", log.level, "info", "error|warning|info|debug",
               "Least important messages that a node logs. EVB_LOG in the environment overrides it; see "
               "evb(1).",
               LIVE(DFM | ROS | SFI)),

        /* Only for tests and measurements, because the defaults are right for a run. */
        NUMBER(KEY_TIME, "test", "keep-alive", dfm.keep_alive_ns, "200ms", MS, 60 * NS_PER_S,
               "Interval between keep-alive messages of a node. Those of the DFM must leave enough of "
               "qos.control-rate for assignments.",
               WAS("dfm.keep-alive")),
        TEXT("test", "stand-in", level2.stand_in, "none",
             "none, FRACTION:TIME or FRACTION:TIME:N, e.g. 0.1:5ms",
             "For tests: a stand-in farm (evb level2) that evb run starts beside the DFM. It accepts this "
             "FRACTION of the events, and decides each event after this TIME. With N, it first requests N "
             "fragments of each event.",
             WAS("level2.stand-in")),
        NUMBER(KEY_COUNT, "test", "buffer-events", ros.buffer_events, "65536", 16, 16777216,
               "Maximum number of fragments in the buffer, and of open events in the DFM. At most half of "
               "them, or 16384, wait for a decision of level 2.",
               WAS("ros.buffer-events")),
        NUMBER_OR(KEY_RATE, "test", "pacing", ros.pacing, "none", "none", SCENARIO_UNLIMITED, RATE_MIN,
                  RATE_MAX,
                  "Rate to each SFI that the ROS itself enforces, without the kernel, for comparison with "
                  "shaping (together: none, and all ROSs start their rounds at the same SFI, not each at a "
                  "different one; UDP only).",
                  OR("together", SCENARIO_TOGETHER), ONLY(ROS), WAS("ros.pacing")),
        NUMBER_OR(KEY_BYTES, "test", "overhead", qos.overhead_bytes, "auto", "auto", SCENARIO_UNCHANGED, 0,
                  256,
                  "Bytes per packet on the wire that the kernel does not count (auto: 24 for the preamble, "
                  "checksum and gap of Ethernet if qos.rate is auto, otherwise 0).",
                  WAS("qos.overhead")),
};

const struct removed_key removed_keys[] = {
        {"level2.undecided", PART_OF("level2", "timeout", NULL, "accept", .words = "accept|reject")},
        {"network.tcp-congestion", CONGESTION},
        {"test.tcp-congestion", CONGESTION},
        {"qos.required",
         PART_OF("qos", "backend", NULL, "yes", .words = "no|yes", .written = "optional", .without = "none")},
        {"trigger.leader", PART_OF("trigger", "source", "frames", "any")},
        {"trigger.slice", PART_OF("trigger", "source", "clock", "10ms", .is_time = true)},
        {"trigger.slice-overlap",
         PART_OF("trigger", "source", "clock", "0", .after = "+", .first = ":10ms", .is_time = true)},
        {"trigger.window",
         PART_OF("trigger", "source", "frames|clock", "100ms", .after = CONF_WITHIN, .is_time = true)},
        {"ros.fragment-sizes", PART_OF("ros", "fragment-size", NULL, "fixed", .whole = "")},
        {"ros.stagger", STAGGER},
        {"test.stagger", STAGGER},
        {"network.command-from", "evb lab reaches other machines by ssh"},
        {"network.order-port", "evb lab reaches other machines by ssh"},
        {"standby.allow", "evb lab reaches other machines by ssh"},
        {"standby.idle-timeout", "evb lab reaches other machines by ssh"},
        {"dfm.poll", "set network.busy-poll"},
        {"sfi.receive-threads", "run several SFIs on the machine"},
        {"sfi.write-direct", "set sfi.page-cache = bypass"},
        {"level2.from", "set network.clients"},
        {"network.data-port", "it is the port after network.port"},
        {"network.send-buffer", "set network.socket-buffer"},
        {"dfm.clear-group", "the DFM clears 100 events at a time"},
        {"test.clear-group", "the DFM clears 100 events at a time"},
        {"dfm.clear-after", "an event waits 10 ms for its Clear message"},
        {"test.clear-after", "an event waits 10 ms for its Clear message"},
        {"trigger.burst-length", "a burst has 10 triggers"},
        {"test.burst-length", "a burst has 10 triggers"},
        {"trigger.busy-above", "the DFM becomes busy at 80 %"},
        {"test.busy-above", "the DFM becomes busy at 80 %"},
        {"trigger.busy-below", "the DFM stops being busy at 60 %"},
        {"test.busy-below", "the DFM stops being busy at 60 %"},
        {"trigger.queue", "65536 triggers of a trigger box may wait for a credit"},
        {"level2.regions-rate", "it is a tenth of network.link-rate"},
        {"test.regions-rate", "it is a tenth of network.link-rate"},
        {"sfi.re-ask-after", "the time before a retry follows the measured latency"},
        {"sfi.retry-after", "the time before a retry follows the measured latency"},
        {"sfi.verify", "pattern fragments are always checked"},
        {"test.verify", "pattern fragments are always checked"},
        {"network.fault-seed", "set run.seed"},
        {"test.fault-seed", "set run.seed"},
        {"qos.on-drift", "a ROS always repairs its shaping"},
        {"test.on-drift", "a ROS always repairs its shaping"},
        {"qos.on-loss", "ROSs reduce their rate if qos.rate = auto"},
        {"test.on-loss", "ROSs reduce their rate if qos.rate = auto"},
        {"dfm.event-timeout", "it is five times sfi.timeout"},
        {"dfm.reassign", "an event is reassigned once"},
        {"test.reassign", "an event is reassigned once"},
        {"dfm.lost-after", "it is ten times dfm.node-timeout"},
        {"test.lost-after", "it is ten times dfm.node-timeout"},
        {"level2.window", "half of test.buffer-events, at most 16384, are undecided"},
        {"test.level2-window", "half of test.buffer-events, at most 16384, are undecided"},
        {"dfm.policy", "the SFI with the largest share of its credits free gets the event"},
        {"test.policy", "the SFI with the largest share of its credits free gets the event"},
        {"network.segmentation"},
        {"test.segmentation"},
        {"tuning.mtu", "set the MTU of the device (ip link)"},
        {"tuning.rx-usecs", "set the device (ethtool -C)"},
        {"tuning.rx-frames", "set the device (ethtool -C)"},
        {"tuning.tx-usecs", "set the device (ethtool -C)"},
        {"tuning.tx-frames", "set the device (ethtool -C)"},
        {},
};

const size_t n_scenario_keys = ARRAY_SIZE(scenario_keys);
_Static_assert(ARRAY_SIZE(scenario_keys) <= CONF_KEYS_MAX, "struct loading remembers where each key was set");
