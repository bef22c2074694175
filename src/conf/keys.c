/* The table of keys, and the way of one value from text and back. How a file is read is in scenario.c. */
#include "evb/conf/keys.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "evb/base/quantity.h"
#include "evb/base/strbuf.h"
#include "evb/base/util.h"
#include "conf_internal.h"

#define AT(section, member) offsetof(struct scenario, section.member)
#define ANY UINT64_MAX
#define MS NS_PER_MS
#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define GIB (KIB * MIB)

/* clang-format off */
const struct scenario_key scenario_keys[] = {
        {"scenario", "name", KEY_TEXT, AT(scenario, name), "", "", 0, 0, 0, "Name of the run in reports; the file's name where empty."},
        {"scenario", "mode", KEY_CHOICE, AT(scenario, mode), "push", "push|pull", 0, 0, 0, "Who starts a transfer: the DFM's multicast tells the ROSs to send (push), or the SFI asks each ROS (pull)."},
        {"scenario", "transport", KEY_CHOICE, AT(scenario, transport), "udp", "udp|tcp", 0, 0, 0, "How fragments travel. Control messages are UDP in both."},
        {"scenario", "duration", KEY_TIME, AT(scenario, duration_ns), "0", NULL, 0, 0, ANY, "How long triggers are taken; 0: until stopped or until trigger.events are done."},

        {"trigger", "rate", KEY_FREQUENCY, AT(trigger, rate_millihertz), "max", "max", SCENARIO_MAX, 1, ANY, "Mean trigger rate; max: one as soon as an SFI has a free credit."},
        {"trigger", "events", KEY_COUNT, AT(trigger, events), "0", NULL, 0, 0, ANY, "Triggers to take; 0: no end."},
        {"trigger", "kind", KEY_CHOICE, AT(trigger, kind), "periodic", "periodic|poisson|burst", 0, 0, 0, "How triggers are spaced."},
        {"trigger", "burst-length", KEY_COUNT, AT(trigger, burst_length), "10", NULL, 0, 1, 1000000, "Triggers that come together where trigger.kind is burst."},

        {"dfm", "policy", KEY_CHOICE, AT(dfm, policy), "credits", "credits|round-robin|least-loaded", 0, 0, 0, "Which SFI with a free credit gets the next event."},
        {"dfm", "clear-group", KEY_COUNT, AT(dfm, clear_group), "100", NULL, 0, 1, 256, "Events that one Clear message lets the ROSs drop."},
        {"dfm", "clear-after", KEY_TIME, AT(dfm, clear_after_ns), "10ms", NULL, 0, MS / 10, 60 * NS_PER_S, "How long an ended event waits for its group to fill."},
        {"dfm", "event-timeout", KEY_TIME, AT(dfm, event_timeout_ns), "10s", NULL, 0, MS, 3600 * NS_PER_S, "When an SFI has not finished an event by then, it is assigned again."},
        {"dfm", "reassign", KEY_COUNT, AT(dfm, reassign), "1", NULL, 0, 0, 100, "How often an event may be assigned again before it is lost."},
        {"dfm", "keep-alive", KEY_TIME, AT(dfm, keep_alive_ns), "200ms", NULL, 0, MS, 60 * NS_PER_S, "How often nodes tell each other that they live."},
        {"dfm", "lost-after", KEY_TIME, AT(dfm, lost_after_ns), "30s", NULL, 0, 0, 24 * 3600 * NS_PER_S,
         "Time without a message from the DFM after which a node of a run ends, with exit status 75: "
         "its unit starts it again, for the next run (0: never)."},
        {"dfm", "node-timeout", KEY_TIME, AT(dfm, node_timeout_ns), "3s", NULL, 0, 10 * MS, 3600 * NS_PER_S, "A node not heard of for so long is gone."},

        {"ros", "count", KEY_COUNT, AT(ros, count), "0", NULL, 0, 0, EVB_ROS_MAX, "Makes nodes ros1, ros2 … on this machine; where [node NAME] sections name them, the first so many of these, 0: all."},
        {"ros", "source", KEY_TEXT, AT(ros, source), "pattern",
         "pattern | file:PATH | udp:PORT | tcp:HOST:PORT", 0, 0, 0,
         "Where fragments come from: pattern (every byte is checked at the SFI), an event file taken apart, "
         "or front-end electronics. Frames of a front-end carry no event number: the ROS counts them, and "
         "frame k belongs to trigger k. A loss that the ROS detects gives the run exit status 1: a datagram "
         "that its socket drops, a malformed one, a broken connection. A frame that is lost before it "
         "reaches the ROS goes undetected, and all later frames belong to wrong triggers.", true},
        {"ros", "fragment-size", KEY_BYTES, AT(ros, fragment_size_bytes), "1024", NULL, 0, 0, EVB_FRAGMENT_MAX_BYTES, "Payload of one ROS's fragment, pattern source."},
        {"ros", "fragment-sizes", KEY_TEXT, AT(ros, fragment_sizes), "fixed", "fixed | uniform:A-B | lognormal:MEAN,SIGMA", 0, 0, 0, "How the sizes are distributed; fixed: all are ros.fragment-size. SIGMA is that of the logarithm."},
        {"ros", "buffer-size", KEY_BYTES, AT(ros, buffer_size_bytes), "64MiB", NULL, 0, EVB_FRAGMENT_MAX_BYTES, 64 * GIB, "Memory for fragments that are not cleared yet."},
        {"ros", "buffer-events", KEY_COUNT, AT(ros, buffer_events), "65536", NULL, 0, 16, 16777216, "Fragments held at most."},
        {"ros", "stagger", KEY_CHOICE, AT(ros, stagger), "yes", "no|yes", 0, 0, 0, "UDP: the ROSs begin each round at different SFIs."},
        {"ros", "pacing", KEY_RATE, AT(ros, pacing_bps), "none", "none", SCENARIO_UNLIMITED, 8000, UINT64_C(400000000000), "UDP: the program itself keeps to this rate for each SFI, without the kernel's help; to compare shaping with."},

        {"sfi", "count", KEY_COUNT, AT(sfi, count), "0", NULL, 0, 0, EVB_SFI_MAX, "Makes nodes sfi1, sfi2 … on this machine; where [node NAME] sections name them, the first so many of these, 0: all."},
        {"sfi", "output", KEY_CHOICE, AT(sfi, output), "null", "null|file", 0, 0, 0, "What becomes of built events: checked and dropped, or written."},
        {"sfi", "directory", KEY_TEXT, AT(sfi, directory), ".", "a directory that exists", 0, 0, 0, "Where event files go.", true},
        {"sfi", "file-events", KEY_COUNT, AT(sfi, file_events), "0", NULL, 0, 0, UINT32_MAX, "The next file is begun after so many events; 0: never for that reason."},
        {"sfi", "file-size", KEY_BYTES, AT(sfi, file_size_bytes), "2GiB", NULL, 0, 0, 1024 * GIB, "The next file is begun before this size is passed; 0: never for that reason."},
        {"sfi", "format", KEY_CHOICE, AT(sfi, format), "eformat3", "eformat3|eformat5", 0, 0, 0, "Raw event format v3.0 in EventStorage v2, or v5.0 in v6."},
        {"sfi", "durability", KEY_CHOICE, AT(sfi, durability), "written", "none|written|synced", 0, 0, 0,
         "What a complete event survives: nothing (none: it may stay in the SFI's buffer for up to 1 s), "
         "a crash of the SFI (written: the kernel has it), or a crash of its machine (synced: the disk has "
         "it)."},
        {"sfi", "credits", KEY_COUNT, AT(sfi, credits), "auto", "auto", SCENARIO_AUTO, 1, 12000, "Events that an SFI may hold; auto: as many as its memory and its socket buffer take."},
        {"sfi", "outstanding", KEY_COUNT, AT(sfi, outstanding), "auto", "auto", SCENARIO_AUTO, 1, 12000, "Pull: events that an SFI has asked for at a time; auto: as many as its socket buffer takes."},
        {"sfi", "buffer-size", KEY_BYTES, AT(sfi, buffer_size_bytes), "128MiB", NULL, 0, EVB_FRAGMENT_MAX_BYTES, 256 * GIB, "Memory for fragments of events that are not written yet."},
        {"sfi", "timeout", KEY_TIME, AT(sfi, timeout_ns), "2s", NULL, 0, MS, 3600 * NS_PER_S, "An event that is not whole by then is built without what is missing."},
        {"sfi", "re-ask", KEY_COUNT, AT(sfi, re_ask), "auto", "auto", SCENARIO_UNBOUNDED, 0, 100,
         "Maximum consecutive unanswered retries for a missing fragment (0: none; auto: until sfi.timeout)."},
        {"sfi", "re-ask-after", KEY_TIME, AT(sfi, retry_after_ns), "auto", "auto", SCENARIO_AUTO, MS / 10, 60 * NS_PER_S, "After how long; auto: from how long fragments usually take."},
        {"sfi", "verify", KEY_CHOICE, AT(sfi, verify), "yes", "no|yes", 0, 0, 0, "Check every byte of pattern fragments."},

        {"network", "link-rate", KEY_RATE, AT(network, link_rate_bps), "unlimited", "unlimited", SCENARIO_UNLIMITED, 1000000, UINT64_C(400000000000), "Rate of each node's wire."},
        {"network", "mtu", KEY_BYTES, AT(network, mtu_bytes), "1500", NULL, 0, 1280, 65535, "Largest packet: data and control datagrams are made to fit."},
        {"network", "switch-buffer", KEY_BYTES, AT(network, switch_buffer_bytes), "256KiB", NULL, 0, 4096, GIB, "Buffer of each of the switch's output ports."},
        {"network", "control-group", KEY_TEXT, AT(network, control_group), "239.255.69.86", "a multicast address | none", 0, 0, 0, "Where the DFM multicasts; none: it sends to each node in turn.", true},
        {"network", "control-port", KEY_COUNT, AT(network, control_port), "26800", NULL, 0, 1, 65535,
         "UDP port of control messages.", true},
        {"network", "data-port", KEY_COUNT, AT(network, data_port), "26801", NULL, 0, 1, 65535,
         "UDP or TCP port of an SFI for fragments.", true},
        {"network", "order-port", KEY_COUNT, AT(network, order_port), "26802", NULL, 0, 1, 65535,
         "TCP port of the DFM for standby nodes and the commands of evb lab.", true},
        {"network", "command-from", KEY_TEXT, AT(network, command_from), "nodes",
         "nodes, ADDRESS, ADDRESS/BITS, separated by commas", 0, 0, 0,
         "Addresses that commands of evb lab may come from, besides loopback; nodes: the addresses of the "
         "scenario's nodes.", true},
        {"network", "send-buffer", KEY_BYTES, AT(network, send_buffer_bytes), "auto", "auto", SCENARIO_AUTO, 4096, GIB, "Socket buffer of each of a ROS's data sockets."},
        {"network", "receive-buffer", KEY_BYTES, AT(network, receive_buffer_bytes), "auto", "auto", SCENARIO_AUTO, 4096, GIB, "Socket buffer of an SFI's data socket."},
        {"network", "segmentation", KEY_CHOICE, AT(network, segmentation), "auto", "auto|on|off", 0, 0, 0, "Let the kernel cut and join datagrams (UDP_SEGMENT, UDP_GRO)."},
        {"network", "loss", KEY_FRACTION, AT(network, loss), "0", NULL, 0, 0, 0, "Fraction of datagrams that each node's receive path drops, for tests."},
        {"network", "reorder", KEY_FRACTION, AT(network, reorder), "0", NULL, 0, 0, 0, "Fraction that it holds back, for tests."},
        {"network", "duplicate", KEY_FRACTION, AT(network, duplicate), "0", NULL, 0, 0, 0, "Fraction that it doubles, for tests."},
        {"network", "fault-seed", KEY_COUNT, AT(network, fault_seed), "1", NULL, 0, 0, ANY, "Seed of these faults."},

        {"qos", "backend", KEY_CHOICE, AT(qos, backend), "none", "none|auto|htb|htb+tbf|cbq+tbf", 0, 0, 0, "Shaping at the source."},
        {"qos", "rate", KEY_RATE, AT(qos, rate_bps), "auto", "auto", SCENARIO_AUTO, 8000, UINT64_C(400000000000), "Rate for each destination."},
        {"qos", "burst", KEY_BYTES, AT(qos, burst_bytes), "auto", "auto", SCENARIO_AUTO, 64, GIB, "Burst for each destination."},
        {"qos", "limit", KEY_BYTES, AT(qos, limit_bytes), "auto", "auto", SCENARIO_AUTO, 64, UINT32_MAX, "Queue for each destination."},
        {"qos", "control-rate", KEY_RATE, AT(qos, control_rate_bps), "auto", "auto", SCENARIO_AUTO, 8000, UINT64_C(400000000000), "Rate kept for control messages."},

        {"qos", "overhead", KEY_BYTES, AT(qos, overhead_bytes), "auto", "auto", SCENARIO_UNCHANGED, 0, 256, "Bytes that a packet takes on the wire beyond what the kernel counts; auto: 24 (preamble, checksum, gap of Ethernet) with qos.rate = auto, 0 with a rate that is told."},
        {"qos", "required", KEY_CHOICE, AT(qos, required), "yes", "no|yes", 0, 0, 0, "yes: a ROS that cannot shape does not run; no: it runs unshaped, and says so."},
        {"qos", "on-drift", KEY_CHOICE, AT(qos, on_drift), "repair", "repair|warn", 0, 0, 0,
         "What a ROS does when another program changes its shaping: repair it, or only warn. Either way the "
         "ROS logs the change and reports how long it was unshaped."},

        {"tuning", "mtu", KEY_BYTES, AT(tuning, mtu_bytes), "unchanged", "unchanged", SCENARIO_UNCHANGED, 68, 65535, "MTU of a ROS's interface while it runs."},
        {"tuning", "rx-usecs", KEY_COUNT, AT(tuning, rx_usecs), "unchanged", "unchanged", SCENARIO_UNCHANGED, 0, 1000000, "Interrupt coalescing: longest time from a packet's arrival to the interrupt, in microseconds."},
        {"tuning", "rx-frames", KEY_COUNT, AT(tuning, rx_frames), "unchanged", "unchanged", SCENARIO_UNCHANGED, 0, 1000000, "Interrupt coalescing: most packets received before the interrupt."},
        {"tuning", "tx-usecs", KEY_COUNT, AT(tuning, tx_usecs), "unchanged", "unchanged", SCENARIO_UNCHANGED, 0, 1000000, "As rx-usecs, of packets sent."},
        {"tuning", "tx-frames", KEY_COUNT, AT(tuning, tx_frames), "unchanged", "unchanged", SCENARIO_UNCHANGED, 0, 1000000, "As rx-frames, of packets sent."},

        {"standby", "allow", KEY_TEXT, AT(standby, allow), "none",
         "none, or qos, tuning, link-rate, output, separated by commas", 0, 0, 0,
         "Settings that commands of evb lab may change on this node: qos.*, tuning.*, network.link-rate, "
         "sfi.output and sfi.file-*.", true},
        {"standby", "idle-timeout", KEY_TIME, AT(standby, idle_timeout_ns), "60s", NULL, 0, 100 * MS,
         3600 * NS_PER_S,
         "Time after which the DFM disconnects a silent evb lab, unless something that it ordered runs.",
         true},

        {"run", "number", KEY_COUNT, AT(run, number), "auto", "auto", SCENARIO_AUTO, 1, UINT32_MAX,
         "Run number, in the names and headers of event files. auto: with ros.source = file:, that file's "
         "number; otherwise the next number that the DFM's machine has not used. The other nodes learn it "
         "from the DFM."},
        {"run", "seed", KEY_COUNT, AT(run, seed), "1", NULL, 0, 0, ANY, "Seed of pattern, sizes and triggers."},
        {"run", "stop-timeout", KEY_TIME, AT(run, stop_timeout_ns), "45s", NULL, 0, 0, 3600 * NS_PER_S,
         "Maximum time for which a stopped node continues to serve until the DFM has ended the run. Keep it "
         "below TimeoutStopSec= of the units (60 s)."},
};
/* clang-format on */

const size_t n_scenario_keys = ARRAY_SIZE(scenario_keys);
_Static_assert(ARRAY_SIZE(scenario_keys) <= CONF_KEYS_MAX, "struct loading remembers where each key was set");

const struct scenario_key *scenario_key_find(const char *section, const char *name)
{
        for (size_t i = 0; i < n_scenario_keys; i++) {
                if (strcmp(scenario_keys[i].section, section) == 0 &&
                    strcmp(scenario_keys[i].name, name) == 0)
                        return &scenario_keys[i];
        }
        return NULL;
}

bool scenario_setting_is_local(const char *setting)
{
        size_t n = strcspn(setting, "=");

        if (strncmp(setting, "node ", 5) == 0)
                return true;
        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];
                size_t section = strlen(k->section);

                if (k->local && n == section + 1 + strlen(k->name) &&
                    strncmp(setting, k->section, section) == 0 && setting[section] == '.' &&
                    strncmp(setting + section + 1, k->name, strlen(k->name)) == 0)
                        return true;
        }
        return false;
}

/* The index of a word in "a|b|c", or -1. */
static int choice_index(const char *words, const char *word)
{
        size_t n = strlen(word);

        for (int i = 0;; i++) {
                size_t length = strcspn(words, "|");

                if (length == n && strncmp(words, word, n) == 0)
                        return i;
                if (words[length] == '\0')
                        return -1;
                words += length + 1;
        }
}

static int parse_number(const struct scenario_key *key, const char *value, uint64_t *ret)
{
        switch (key->kind) {
        case KEY_COUNT:
                return quantity_parse_count(value, ret);
        case KEY_BYTES:
                return quantity_parse_bytes(value, ret);
        case KEY_RATE:
                return quantity_parse_rate(value, ret);
        case KEY_TIME:
                return quantity_parse_time(value, ret);
        case KEY_FREQUENCY:
                return quantity_parse_frequency(value, ret);
        default:
                return -EINVAL;
        }
}

static int set_number(const struct scenario_key *key, uint64_t *at, const char *value)
{
        uint64_t number;
        int r;

        if (key->words && strcmp(value, key->words) == 0) {
                *at = key->word_value;
                return 0;
        }
        r = parse_number(key, value, &number);
        if (r < 0)
                return -EINVAL;
        if (number < key->least || number > key->most)
                return -EINVAL;
        *at = number;
        return 0;
}

/* What comes back when it is written to a file and read again: one line, no comment, no blanks around. */
static bool is_line(const char *value)
{
        for (const char *c = value; *c; c++) {
                bool edge = c == value || c[1] == '\0', behind_blank = c == value || c[-1] == ' ';

                if ((unsigned char)*c < ' ' || *c == 0x7f || (*c == ' ' && edge) ||
                    (strchr("#;", *c) && behind_blank))
                        return false;
        }
        return true;
}

int scenario_key_set(struct scenario *s, const struct scenario_key *key, const char *value)
{
        void *at = (char *)s + key->offset;
        int choice;

        switch (key->kind) {
        case KEY_TEXT:
                if (strlen(value) >= SCENARIO_TEXT_MAX || !is_line(value))
                        return -EINVAL;
                strcpy(at, value);
                return 0;
        case KEY_CHOICE:
                choice = choice_index(key->words, value);
                if (choice < 0)
                        return -EINVAL;
                *(uint64_t *)at = (uint64_t)choice;
                return 0;
        case KEY_FRACTION:
                return quantity_parse_fraction(value, at) < 0 ? -EINVAL : 0;
        default:
                return set_number(key, at, value);
        }
}

static const char *const kind_texts[] = {
        [KEY_COUNT] = "a count",
        [KEY_BYTES] = "a size (B, kB, KiB, MB, MiB, GB, GiB)",
        [KEY_RATE] = "a rate (bit, kbit, Mbit, Gbit)",
        [KEY_TIME] = "a time (ns, us, ms, s, min, h)",
        [KEY_FREQUENCY] = "a frequency (mHz, Hz, kHz, MHz)",
        [KEY_FRACTION] = "a fraction from 0 to 1, or per cent",
};

/* A number in the unit of its key, short and exact. */
static void add_number(struct strbuf *b, enum key_kind kind, uint64_t v)
{
        static const struct {
                enum key_kind kind;
                uint64_t factor;
                const char *unit;
        } units[] = {
                {KEY_BYTES, GIB, "GiB"},         {KEY_BYTES, MIB, "MiB"},
                {KEY_BYTES, KIB, "KiB"},         {KEY_RATE, 1000000000, "Gbit"},
                {KEY_RATE, 1000000, "Mbit"},     {KEY_RATE, 1000, "kbit"},
                {KEY_TIME, NS_PER_S, "s"},       {KEY_TIME, NS_PER_MS, "ms"},
                {KEY_TIME, NS_PER_US, "us"},     {KEY_TIME, 1, "ns"},
                {KEY_FREQUENCY, 1000000, "kHz"}, {KEY_FREQUENCY, 1000, "Hz"},
                {KEY_FREQUENCY, 1, "mHz"},
        };

        for (size_t i = 0; v > 0 && i < ARRAY_SIZE(units); i++) {
                if (units[i].kind == kind && v % units[i].factor == 0) {
                        strbuf_add(b, "%" PRIu64 "%s", v / units[i].factor, units[i].unit);
                        return;
                }
        }
        strbuf_add(b, "%" PRIu64, v);
}

/* Fractions are whole billionths; never "1e-05", which is none. */
static void add_fraction(struct strbuf *b, double v)
{
        strbuf_add(b, "%.9f", v);
        while (b->text[b->length - 1] == '0')
                b->text[--b->length] = '\0';
        if (b->text[b->length - 1] == '.')
                b->text[--b->length] = '\0';
}

char *scenario_key_allowed(const struct scenario_key *key, char *text, size_t size_bytes)
{
        struct strbuf b = strbuf_init(text, size_bytes);

        if (key->kind == KEY_CHOICE || (key->kind == KEY_TEXT && key->words[0])) {
                strbuf_add(&b, "%s", key->words);
                return text;
        }
        if (key->kind == KEY_TEXT) {
                strbuf_add(&b, "text of at most %d bytes", SCENARIO_TEXT_MAX - 1);
                return text;
        }
        if (key->words)
                strbuf_add(&b, "%s, or ", key->words);
        strbuf_add(&b, "%s", kind_texts[key->kind]);
        if (key->kind == KEY_FRACTION)
                return text;
        if (key->most != ANY) {
                strbuf_add(&b, " from ");
                add_number(&b, key->kind, key->least);
                strbuf_add(&b, " to ");
                add_number(&b, key->kind, key->most);
        } else if (key->least > 0) {
                strbuf_add(&b, " from ");
                add_number(&b, key->kind, key->least);
        }
        return text;
}

char *scenario_key_value(const struct scenario *s, const struct scenario_key *key, char *text,
                         size_t size_bytes)
{
        const void *at = (const char *)s + key->offset;
        struct strbuf b = strbuf_init(text, size_bytes);

        if (key->kind == KEY_TEXT) {
                strbuf_add(&b, "%s", (const char *)at);
                return text;
        }
        if (key->kind == KEY_FRACTION) {
                add_fraction(&b, *(const double *)at);
                return text;
        }
        uint64_t v = *(const uint64_t *)at;

        if (key->kind == KEY_CHOICE) {
                const char *word = key->words;

                for (uint64_t i = 0; i < v; i++)
                        word += strcspn(word, "|") + 1;
                strbuf_add(&b, "%.*s", (int)strcspn(word, "|"), word);
        } else if (key->words && v == key->word_value)
                strbuf_add(&b, "%s", key->words);
        else
                add_number(&b, key->kind, v);
        return text;
}

void scenario_keys_print(FILE *to)
{
        const char *section = "";
        char allowed[256];

        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];

                if (strcmp(section, k->section) != 0)
                        fprintf(to, "%s[%s]\n", i > 0 ? "\n" : "", section = k->section);
                fprintf(to, "%s\n    %s\n    allowed: %s; default: %s\n", k->name, k->help,
                        scenario_key_allowed(k, allowed, sizeof allowed),
                        k->standard[0] ? k->standard : "(empty)");
        }
}

void scenario_keys_print_man(FILE *to)
{
        const char *section = "";
        char allowed[256];

        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];

                if (strcmp(section, k->section) != 0) {
                        if (i > 0)
                                fprintf(to, ".El\n");
                        fprintf(to, ".Ss [%s]\n.Bl -tag -width indent\n", section = k->section);
                }
                fprintf(to, ".It Cm %s.%s\n%s\nAllowed: %s.\n", k->section, k->name, k->help,
                        scenario_key_allowed(k, allowed, sizeof allowed));
                if (k->standard[0])
                        fprintf(to, "Default: %s.\n", k->standard);
        }
        fprintf(to, ".El\n");
}
