/* All messages between the roles: the header of control messages, their bodies, and their encoding. Data
 * messages (Fragments) have a shorter header: see chunk.h. docs/protocol.md describes every byte;
 * tests/tools/test_protocol_doc.py compares it with this file. The type numbers of Run-2 are used where one
 * exists, with payloads of our own, and without compatibility with another system. All integers are
 * little-endian. Pure: no clock, socket or allocation. Any thread, with its own structs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/event.h"

#define MESSAGE_MAGIC UINT32_C(0x31425645) /* "EVB1" */
#define MESSAGE_VERSION 6
#define MESSAGE_HEADER_BYTES 32

/* X(constant, number, name, direction) */
#define MESSAGE_TYPES(X)                                                                                     \
        X(MESSAGE_UPDATE, 0x00DCDF00, "Update", "SFI to DFM")                                                \
        X(MESSAGE_ASSIGN, 0x00DCDF01, "Assign", "DFM to one SFI; in push also to all ROSs")                  \
        X(MESSAGE_BUILD, 0x00DCDF0F, "Build",                                                                \
          "as Assign, for events that are assigned again; in push announced to all")                         \
        X(MESSAGE_CLEAR, 0x00DCDF10, "Clear", "DFM to all ROSs")                                             \
        X(MESSAGE_KEEP_ALIVE, 0x00DCDF11, "KeepAlive", "DFM to all")                                         \
        X(MESSAGE_REQUEST, 0x00DCDF20, "Request", "SFI or level-2 client to ROS")                            \
        X(MESSAGE_XON, 0x00DCDF50, "XON", "ROS to DFM")                                                      \
        X(MESSAGE_XOFF, 0x00DCDF51, "XOFF", "ROS to DFM")                                                    \
        X(MESSAGE_FRAGMENTS, 0x00EB0001, "Fragments", "ROS to SFI or level-2 client")                        \
        X(MESSAGE_ALIVE, 0x00EB0002, "Alive", "ROS or SFI to DFM")                                           \
        X(MESSAGE_UPDATE_ACK, 0x00EB0003, "UpdateAck", "DFM to SFI")                                         \
        X(MESSAGE_TOTALS, 0x00EB0004, "Totals", "ROS to SFI")                                                \
        X(MESSAGE_JOIN, 0x00EB0005, "Join", "ROS or SFI to DFM")                                             \
        X(MESSAGE_WELCOME, 0x00EB0006, "Welcome", "DFM to ROS or SFI")                                       \
        X(MESSAGE_INQUIRY, 0x00EB0007, "Inquiry", "DFM to SFI")                                              \
        X(MESSAGE_INVENTORY, 0x00EB0008, "Inventory", "SFI to DFM")                                          \
        X(MESSAGE_RATE, 0x00EB0010, "Rate", "SFI to all ROSs")                                               \
        X(MESSAGE_NUMBERS, 0x00EB0011, "Numbers", "ROS to DFM")                                              \
        X(MESSAGE_DECISION, 0x00EB0012, "Decision", "level-2 client to DFM")                                 \
        X(MESSAGE_UNDECIDED, 0x00EB0013, "Undecided", "DFM to level-2 client")                               \
        X(MESSAGE_DECISION_ACK, 0x00EB0014, "DecisionAck", "DFM to level-2 client")                          \
        X(MESSAGE_NUMBERS_ACK, 0x00EB0015, "NumbersAck", "DFM to ROS")                                       \
        X(MESSAGE_READOUTS, 0x00EB0016, "Readouts", "DFM to level-2 client")                                 \
        X(MESSAGE_METADATA, 0x00EB0017, "Metadata", "DFM to SFI")                                            \
        X(MESSAGE_PROBE, 0x00EB0020, "Probe", "ROS to DFM or SFI, and back")

enum message_type {
#define X(constant, number, name, direction) constant = number,
        MESSAGE_TYPES(X)
#undef X
};

struct message_header {
        uint64_t cookie; /* of the run, random, never 0; 0: the sender is in no run */
        enum node_role sender_role;
        uint16_t sender_index;
        uint32_t type;
        uint32_t transaction;   /* sequence number, in a sequence that depends on the type */
        uint32_t payload_bytes; /* size as received; in a message to send: 0, or the size that message_fit()
                                   computed */
        /* Fragments only: number of bytes that the ROS has queued for this SFI after this message, at most
         * UINT32_MAX. */
        uint32_t queued_bytes;
};

/* Why bytes are not a valid message of this run. */
enum message_verdict {
        MESSAGE_OK,
        MESSAGE_SHORT,   /* fewer bytes than the header has, or than it announces */
        MESSAGE_FOREIGN, /* from another program, because the magic is wrong */
        MESSAGE_OTHER_VERSION,
        MESSAGE_OTHER_RUN, /* the message has the cookie of another run */
        MESSAGE_MALFORMED, /* the check word, a length, a count or a value is wrong */
};

/* The check word of `n` bytes; see docs/protocol.md. */
uint32_t message_check(const void *bytes, size_t n);

void message_header_encode(const struct message_header *h, uint8_t bytes[static MESSAGE_HEADER_BYTES],
                           uint32_t check_of_payload);
/* Reads only the header. The caller must check the payload (*ret_check is the expected check word) and the
 * run to which the message belongs. */
enum message_verdict message_header_decode(struct message_header *ret, const uint8_t *bytes, size_t n,
                                           uint32_t *ret_check);

struct assign_entry {
        uint64_t event;
        uint64_t time_ns; /* time of the trigger, since 1970, UTC */
        uint32_t l1_id;
        uint32_t sequence; /* number of this assignment to the SFI since it joined */
        uint16_t sfi;
        uint16_t flags; /* ASSIGN_VOID */
};

/* The event was taken back from this SFI, and the entry contains only its sequence number. */
#define ASSIGN_VOID 1u
#define ASSIGN_VOID_EVENT (UINT64_MAX - 1)

struct finished_entry {
        uint64_t event;
        uint64_t payload_bytes;
        uint32_t missing; /* number of fragments of required ROSs that the event does not have */
        uint32_t absent;  /* number of fragments of optional ROSs that the event does not have */
        uint32_t end;     /* enum event_end, or UPDATE_WRITING */
        bool unanswered;  /* lost, because each ROS that is present reports that no frame came */
};

/* The event is built and is still being written, which may take longer than the DFM waits for an event. */
#define UPDATE_WRITING 3u

struct request_entry {
        uint64_t event;
        uint32_t l1_id;
        uint32_t from_bytes, to_bytes; /* the requested range; to UINT32_MAX: to the end */
        uint32_t again;                /* 0: the first request */
};

/* State of a node, or of the run as the DFM reports it. */
enum run_state { RUN_STARTING = 1, RUN_RUNNING, RUN_DRAINING, RUN_ENDED };

#define MESSAGE_ENTRIES_MAX 256
/* Entries of Assign, Build, Update, Clear, Request and Numbers have few bytes if they follow each other, and
 * never more than this (without event information). */
#define MESSAGE_ENTRY_BYTES_MAX 32
#define MESSAGE_KEYS_MAX 32

/* Flags that a node adds to its state. */
#define ALIVE_XOFF 1u         /* XOFF applies; repeated here in case the XOFF message is lost */
#define ALIVE_FAILED 2u       /* the output of the node failed, so the run must end */
#define ALIVE_UNRELIABLE 4u   /* frames may be in events of other triggers */
#define ALIVE_QUIET 8u        /* the front-end is silent: `frames` is final */
#define ALIVE_COUNTS 16u      /* this ROS matches frames to events by counting them */
#define ALIVE_OUT_OF_STEP 32u /* the numbers of its front-end do not follow the triggers */
#define ALIVE_SHORT 64u       /* frames of the ROS were lost, or are in no event; or the SFI found a fault */
#define ALIVE_SURPLUS 128u    /* frames for which no trigger came fill the ROS, and more wait for room */

/* Flags of KeepAlive. AWAITS_FRAMES: the next trigger waits for its frame in ROSs that count frames. */
#define KEEP_ALIVE_AWAITS_FRAMES 1u
#define KEEP_ALIVE_STALLED 2u  /* the DFM ends the run because the run made no progress */
#define KEEP_ALIVE_RESUMES 4u  /* the DFM collects the results of a previous DFM's run */
#define KEEP_ALIVE_FOLLOWED 8u /* triggers may have come after the last one that was accepted */

/* Why a node makes no progress, according to its own report. Later versions may report further reasons. */
enum node_reason {
        REASON_NONE,
        REASON_NO_FRONT_END, /* a ROS: its front-end is not connected */
        REASON_BUFFER_FULL,
        REASON_SLOW_OUTPUT,
        REASON_OUT_OF_STEP, /* the numbers of its front-end do not follow the triggers */
        REASON_SILENT,      /* a ROS: its front-end sends nothing although events wait */
        REASON_DISK_FULL,
        REASON_WAITS_FOR,      /* an SFI: it waits for fragments of the ROS `reason_node` */
        REASON_QUEUE_FULL,     /* a ROS: the send queue to the SFI `reason_node` is full */
        REASON_OUTPUT_MISSING, /* an SFI: its directory, or its file, does not exist */
        REASON_OUTPUT_DENIED,  /* an SFI: its directory is read-only, or belongs to another user */
        NODE_REASONS,
};

/* What a node waits for. */
struct node_obstacle {
        enum node_reason reason;
        uint16_t node;    /* reason_node */
        uint32_t n_nodes; /* number of nodes in the same state as `node`, including `node` */
        uint64_t since_ns;
};

/* The node counts frames of its front-end, so it must join before a run begins. */
#define JOIN_COUNTS 1u

/* The transaction of Welcome: the run had begun, is the resumed run of a previous DFM, and follows another
 * run of this DFM. Within a run, it grows only. */
#define WELCOME_LATE 1u
#define WELCOME_RESUMED 2u
#define WELCOME_FOLLOWS 4u

/* The DFM's answer to Join. */
enum welcome_verdict {
        WELCOME_OK,
        WELCOME_OTHER_CONFIG, /* the scenarios differ in key number `key` */
        WELCOME_OTHER_RUN,    /* another run number is configured */
        WELCOME_OCCUPIED, /* another incarnation of this node was present a moment ago, so the node must retry
                             later */
        WELCOME_TWICE,    /* another incarnation of this node is present */
        WELCOME_OVER,     /* the node's run has ended */
        WELCOME_BEGUN, /* the run has begun, but the node would have to count frames from the beginning of the
                          run */
        WELCOME_ADDRESS, /* another address is configured for this node */
        WELCOME_VERDICTS,
};
/* Value of `key` if the tables of keys differ, rather than a value. */
#define WELCOME_KEY_TABLE UINT16_MAX

/* State of 64 consecutive events; bit i stands for event number `from` + i. */
struct inventory_entry {
        uint64_t ended; /* the event was built here */
        uint64_t open;  /* the event was assigned here and has not ended; if the bit in `ended` is also set:
                           built here as partial */
};

#define INVENTORY_LATE 1u /* the SFI joined after the run had begun: it may have replaced a process */

/* The results of an SFI in the run before it joined this DFM. */
struct node_totals {
        uint64_t complete, partial;
        uint64_t missing; /* number of fragments that the partial events are missing */
        uint64_t absent;  /* number of fragments of optional ROSs that events do not have */
        uint64_t payload_bytes;
};

/* The decision of level 2 about an event. */
enum decision_verdict { DECISION_ACCEPT = 1, DECISION_REJECT };

struct decision_entry {
        uint64_t event;
        uint8_t verdict; /* enum decision_verdict */
        uint8_t stream;  /* of an accepted event, for its header */
        uint32_t l2_info;
};

/* An event that waits for its decision. */
struct undecided_entry {
        uint64_t event;
        uint64_t number;  /* number of the trigger, as boards count it */
        uint64_t time_ns; /* of the trigger, since 1970, UTC */
        uint32_t type;    /* of the trigger */
        uint32_t flags;   /* of the trigger */
};

/* A ROS that answers requests of level-2 clients. */
struct readout_entry {
        uint16_t index;
        uint16_t port;       /* for TCP */
        uint32_t flags;      /* READOUT_PRESENT */
        uint8_t address[16]; /* IPv6, or IPv4-mapped (RFC 4291, 2.5.5.2) */
};

#define READOUT_PRESENT 1u

/* Names and values with which an operator started the run. */
#define METADATA_NAME_BYTES 64   /* with the zero byte at its end */
#define METADATA_VALUE_BYTES 192 /* with the zero byte at its end */
#define METADATA_MAX 12

struct metadata_entry {
        char name[METADATA_NAME_BYTES], value[METADATA_VALUE_BYTES];
};

struct metadata_set {
        uint16_t version; /* version of the set; increases with each set that the DFM receives; 0: none */
        uint16_t n;
        struct metadata_entry entries[METADATA_MAX];
};

/* One decoded control message. The header's type selects the member of the union. */
struct message {
        struct message_header header;
        size_t n; /* entries */
        /* Incarnation of the DFM that sends the message, or that its sender follows; not between ROS and
         * SFI. */
        uint64_t dfm;
        union {
                struct {
                        bool with_info; /* infos[i] belongs to entries[i] */
                        /* If set, announces to the ROSs which SFI builds which event: entries of any SFI,
                         * without sequence and time. Otherwise, assigns events to one SFI, with consecutive
                         * sequence numbers. */
                        bool announces;
                        uint16_t sfi;
                        uint32_t resets;       /* of the DFM, as in KeepAlive */
                        uint32_t incarnation;  /* low half of the incarnation of that SFI */
                        uint32_t finished_ack; /* see UpdateAck */
                        struct assign_entry entries[MESSAGE_ENTRIES_MAX];
                        struct event_info infos[MESSAGE_ENTRIES_MAX];
                } assign;
                struct {
                        uint64_t granted; /* maximum number of events that may be assigned to this SFI since
                                             it joined, in total */
                        uint32_t assign_ack; /* all assignments below this sequence number have arrived */
                        uint32_t first;      /* sequence number of the first entry */
                        uint64_t incarnation;
                        struct finished_entry entries[MESSAGE_ENTRIES_MAX];
                } update;
                struct {
                        uint64_t oldest; /* every event below this number has ended */
                        /* With level 2, a ROS may not know the event, so the L1 ID of the event identifies
                         * its frame. */
                        bool with_l1_ids;
                        /* Low half of `resets` of KeepAlive, if a ROS may not have received the last reset;
                         * otherwise 0. */
                        uint16_t resets;
                        uint64_t events[MESSAGE_ENTRIES_MAX];
                        uint32_t l1_ids[MESSAGE_ENTRIES_MAX]; /* of the events, if with_l1_ids */
                } clear;
                struct {
                        uint64_t oldest, triggers;
                        uint32_t state; /* enum run_state */
                        uint32_t
                                clear_next; /* sequence of the next Clear: reveals the loss of the last one */
                        /* Number of the first trigger after the last reset of the boards' counters, and the
                         * number of such resets in the run. 0 for triggers that the DFM makes. */
                        uint64_t reset_number;
                        uint32_t resets;
                        uint16_t flags; /* KEEP_ALIVE_* */
                        /* Version of the metadata, which an SFI must have before it opens a file; 0: none. */
                        uint16_t metadata;
                        uint64_t ros_live[EVB_ROS_MAX / 64]; /* bit i: events wait for ROS i */
                        uint64_t sfi_live[EVB_SFI_MAX / 64]; /* bit i: SFI i is present */
                } keep_alive;
                struct {
                        uint32_t resets; /* that the SFI knows of, or of Undecided; 0: unknown */
                        struct request_entry entries[MESSAGE_ENTRIES_MAX];
                } request;
                struct {
                        uint64_t incarnation;
                        uint64_t frames; /* ROS: number of frames that it counted from the front-end so far,
                                            including lost frames */
                        uint32_t state;  /* enum run_state */
                        uint32_t reason_ms; /* duration of `reason` */
                        uint16_t flags;     /* ALIVE_* */
                        uint16_t reason;    /* enum node_reason, or a later one */
                        uint32_t resets;    /* ROS: number of resets that KeepAlives have announced to it */
                        uint32_t room; /* ROS: events whose frames fit into half of its buffer; 0: unknown */
                        uint16_t reason_node; /* index of the node that `reason` is about, if any */
                        uint16_t metadata;    /* SFI: version of the metadata that it has; 0: none */
                } alive;
                struct {
                        uint64_t incarnation;
                        uint32_t finished_ack; /* all finished events below this sequence number have arrived
                                                */
                } update_ack;
                struct {
                        uint64_t incarnation;
                        uint64_t newest; /* number of the highest known event, plus 1 */
                        uint64_t oldest; /* every event below has ended */
                        uint32_t run;    /* the node's run, or the configured number; 0: any */
                        uint32_t flags;  /* JOIN_* */
                        uint32_t table;  /* digest of the names of the keys */
                        uint32_t keys[MESSAGE_KEYS_MAX]; /* digest of the value of each key */
                } join;
                struct {
                        uint64_t incarnation; /* incarnation of the node, from its Join */
                        uint32_t run;
                        uint16_t verdict; /* enum welcome_verdict */
                        uint16_t key;
                } welcome;
                struct {
                        uint64_t incarnation;
                        uint64_t from; /* first event, a multiple of 64 */
                } inquiry;
                struct {
                        uint64_t incarnation;
                        uint64_t from, end; /* first event of the first entry; one past the last event */
                        struct node_totals totals;
                        uint32_t flags; /* INVENTORY_* */
                        struct inventory_entry entries[MESSAGE_ENTRIES_MAX];
                } inventory;
                struct {
                        uint32_t incarnation; /* low half of the incarnation of the ROS */
                } xoff;                       /* XON and XOFF */
                struct {
                        uint32_t datagrams; /* number of data datagrams sent to this SFI so far (mod 2^32),
                                               which reveals that the last ones were lost */
                        uint64_t fragments;
                        uint32_t dropped; /* packets to this SFI that the ROS's own shaping dropped (mod 2^32)
                                           */
                } totals;
                struct {
                        uint64_t lost;     /* number of packets lost on the way that led to reductions */
                        uint32_t permille; /* share of the planned rate that the SFI's port sustains: 1..1000
                                            */
                } rate;
                struct {
                        uint32_t incarnation; /* low half of the incarnation of the ROS */
                        uint32_t resets;      /* number of resets that the ROS received in KeepAlive */
                        uint32_t next;        /* L1 ID that follows the newest known trigger, if `knows` */
                        bool knows; /* if set, the numbers are L1 IDs; otherwise, they are counters of frames
                                     */
                        bool last;  /* no further number follows: the run drains */
                        uint32_t numbers[MESSAGE_ENTRIES_MAX];
                } announced;
                struct {
                        uint32_t incarnation; /* low half of the incarnation of the ROS */
                        uint32_t ack;         /* all numbers below this sequence number were accepted */
                        uint32_t resets;
                        bool go_on; /* there is room again for numbers from `ack` on */
                } numbers_ack;
                struct {
                        struct decision_entry entries[MESSAGE_ENTRIES_MAX];
                } decision;
                struct {
                        uint32_t resets; /* as in KeepAlive */
                        struct undecided_entry entries[MESSAGE_ENTRIES_MAX];
                } undecided;
                struct {
                        uint32_t next;   /* all Decisions below this number were accepted */
                        uint32_t state;  /* enum run_state */
                        uint32_t unused; /* entries of this connection that had no effect (mod 2^32) */
                } decision_ack;
                struct {
                        struct readout_entry entries[MESSAGE_ENTRIES_MAX];
                } readouts;
                /* One entry, a name and its value, of a set of `count` entries; SFIs collect them all. A set
                 * may be empty. */
                struct {
                        uint16_t version, number, count;
                        struct metadata_entry entry;
                } metadata;
                /* Short and long Probes show whether the path carries datagrams of network.mtu bytes. */
                struct {
                        bool answers;
                        uint32_t padding_bytes; /* number of zeros that follow */
                } probe;
        };
        /* Size of the entries as message_fit() encoded them, for message_encode(); 0: not all of them are
         * valid. */
        uint32_t coded_bytes;
        uint8_t coded[MESSAGE_ENTRIES_MAX * MESSAGE_ENTRY_BYTES_MAX];
};

/* Size of a Probe without padding. */
#define MESSAGE_PROBE_BYTES (MESSAGE_HEADER_BYTES + 8)

/* Bytes of event information in each entry that has it. */
#define MESSAGE_INFO_BYTES 56

/* The largest message from or to a level-2 client. */
#define MESSAGE_LEVEL2_BYTES_MAX (MESSAGE_HEADER_BYTES + 16 + MESSAGE_ENTRIES_MAX * 32)

/* Number of bytes for entries in a message of `bytes` bytes, including the header. */
size_t message_room(uint32_t type, size_t bytes);
/* Number of entries that fit in any case; at most MESSAGE_ENTRIES_MAX. */
size_t message_entries_fit(uint32_t type, size_t bytes);
/* Reduces m->n to the number of entries that fit into a message of `bytes` bytes, and encodes these entries.
 * Afterwards, the entries must not change, nor the fields on which they depend (the type, `announces`,
 * `with_l1_ids`, Clear's `oldest`). For messages with compact entries; the caller has filled in m->n of them,
 * at most MESSAGE_ENTRIES_MAX. */
void message_fit(struct message *m, size_t bytes);

/* Returns the bytes written, or 0 if `size` is too small (a caller's error: see message_fit). */
size_t message_encode(const struct message *m, uint8_t *bytes, size_t size);
/* Number of bytes that message_encode() writes. Needs no time after message_fit(). */
size_t message_bytes(const struct message *m);
/* Decodes one complete control message of any run. If the result is not MESSAGE_OK, *ret is unspecified. */
enum message_verdict message_decode(struct message *ret, const uint8_t *bytes, size_t n);

/* Decodes the first message of a byte stream from or to a level-2 client. MESSAGE_SHORT: the message is
 * incomplete. After MESSAGE_OK, *ret_bytes is its size. */
enum message_verdict message_decode_first(struct message *ret, const uint8_t *bytes, size_t n,
                                          size_t *ret_bytes);

const char *message_type_name(uint32_t type); /* "Update", or "unknown" */
