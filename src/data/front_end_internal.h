/* Shared by the files of the front-end: its state; its stream (front_end_tcp.c); what its frames pass through
 * (front_end_collect.c); and its messages about faulty frames and connections (front_end_text.c). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/front_end.h"
#include "net/tcp.h"

/* Limit of one turn, so that a flood does not starve the rest of the ROS. */
#define FRONT_END_FRAMES_MAX 4096
/* Pause of a stream after the buffer was full. */
#define FRONT_END_FULL_PAUSE_NS NS_PER_MS
#define FRONT_END_QUIET_NS (200 * NS_PER_MS)
/* If there is no connection for longer than this, it is logged. */
#define FRONT_END_MISSING_NS (2 * NS_PER_S)

/* Explains that a datagram of `bytes` bytes is not a frame: it is shorter than 4 bytes, or its first 4 bytes
 * give a wrong length. */
void front_end_explain_length(uint32_t length, size_t bytes, char *text, size_t text_bytes);
/* Explains that frames do not follow the triggers: `last` is the last frame, and a frame of the newest
 * trigger would have *expected (NULL: counters are times). */
void front_end_explain_number(const struct number_field *field, const struct ros_sample *last,
                              const uint64_t *expected, char *text, size_t text_bytes);
/* Whether these bytes of a datagram consist of whole frames; if not, explains the first one that does not
 * fit. */
bool front_end_is_whole(const struct frame_rule *frame, const uint8_t *bytes, size_t n, char *text,
                        size_t text_bytes);
/* Logs the text of front_end_explain_start(); returns -EPROTO. */
int front_end_log_start(const struct frame_rule *frame, const uint8_t *bytes, size_t n);
/* Explains why there is no connection: a negative errno; 0: unknown. */
const char *front_end_explain_loss(int why);

enum front_end_gap { GAP_MALFORMED, GAP_DROPPED, GAP_BROKEN, GAP_FOREIGN, GAP_BETWEEN, GAPS };

/* Frames that were lost before the ROS read them. */
struct front_end_gaps {
        uint64_t n, first_frame;
        const char *first;      /* description of the first gap; NULL: none */
        uint64_t last_ns[GAPS]; /* times of the last gap of each kind; 0: never */
};

struct front_end {
        struct ros *core;
        uint8_t *buffer;
        struct slicer *slicer;   /* NULL: frames have no times */
        struct joiner *joiner;   /* NULL: each frame or slice is a fragment */
        struct matcher *matcher; /* NULL: frames have numbers, or are in slices */
        uint64_t now_ns;         /* time of the current turn */
        struct node_stats *stats;
        struct loop *loop;
        struct loop_io io;
        bool ready;
        uint64_t full_ns; /* when the buffer last had no room for a datagram; 0: never */
        uint64_t again_ns, received_ns;
        uint64_t opened_ns;   /* socket opened, connected, or read empty for this run; 0: never yet */
        uint64_t emptied_ns;  /* time of the last turn that read all that had arrived */
        uint64_t mark;        /* ros_reads_first() of the last turn */
        uint64_t marked_ns;   /* what came before this is read first; 0: there is no mark */
        uint64_t held;        /* what may still wait from before the mark: datagrams, or bytes */
        uint64_t narrow_ns;   /* when the board may last have waited for room in the connection; 0: never */
        uint64_t burst_bytes; /* number of bytes read since the socket was last empty */
        struct frame_rule frame;
        struct number_field number;
        size_t fields_end; /* bytes of a frame up to the end of the fields that are read on arrival */
        struct ros_sample last;
        uint64_t frames; /* number of frames so far */
        struct front_end_gaps gaps;
        /* Frames from before the run may still wait to be read. Frames that begin now are in no run. */
        bool between;
        bool follows;        /* if the board may have waited for room, this lasts until it is silent */
        uint64_t until_ns;   /* but not longer */
        bool agrees;         /* such frames are gaps if frames are counted, as others must match them */
        bool is_joined;      /* the ROS has joined the run */
        bool gap_waits;      /* the first of them is already recorded as a gap */
        uint64_t n_between;  /* number of such frames that are not logged yet */
        bool awaits_run;     /* see front_end_refuse(); `between` is also true */
        uint64_t n_doubtful; /* frames that came meanwhile, and were not excused */
        /* UDP */
        struct endpoint *endpoint;
        unsigned device;  /* index of the device on which a group was joined; 0: none */
        uint64_t dropped; /* number of dropped datagrams that are already counted as gaps */
        /* TCP */
        bool tcp, up;
        /* The stream is paused because the buffer is full. It is not in the loop then, because a closed
         * stream would wake the loop continuously. */
        bool paused;
        size_t taken_bytes; /* number of bytes read in this turn */
        struct net_address local, to;
        struct tcp_backoff backoff;
        bool was_up, complained;
        uint64_t down_since_ns; /* 0: before the first turn */
        int why_down;
        struct tcp_reader reader;
        /* The frame being received; its bytes go to `place` unless it is discarded. */
        size_t scanned; /* bytes of the frame searched so far for its end */
        bool found;     /* a frame has been found since the connection began */
        /* Bytes outside frames have arrived since the last frame, or before the first one. */
        bool has_foreign;
        bool in_frame, stored;
        uint8_t *place;
        uint32_t frame_bytes, frame_done;
        bool is_between;        /* it began between two runs */
        bool is_carried;        /* it began in the previous run */
        uint64_t between_bytes; /* staged bytes that came between two runs, and begin a frame */
        uint8_t discarded[65536];
};

/* Records lost frames that have no numbers; the first of them would have been the next frame. */
void front_end_add_gap(struct front_end *f, uint64_t n, enum front_end_gap kind, const char *detail);
/* A frame of `bytes` bytes begins; its first `n` bytes are at `payload`. */
enum ros_verdict front_end_arrive(struct front_end *f, const uint8_t *payload, size_t n, uint32_t bytes);
/* Ends the frame; `whole`: all of it was read. */
void front_end_end_frame(struct front_end *f, bool whole);
/* Counts n frames that came before the run. */
void front_end_discard_between(struct front_end *f, uint64_t n);
/* Whether what came before the mark may still wait to be read. */
bool front_end_is_reading(const struct front_end *f);
/* Passes closed slices, joined fragments and matched frames on. */
void front_end_deliver(struct front_end *f, bool full);
/* A read from this time on that leaves nothing in the socket has read all that came before the mark. */
uint64_t front_end_read_from_ns(const struct front_end *f);

/* Whether a frame of the run has come in part. */
bool front_end_has_part(const struct front_end *f);

void front_end_turn_tcp(struct front_end *f, uint64_t now_ns);
void front_end_disconnect(struct front_end *f);

/* Records that `n` frames were lost; the first of them would have been frame `frame`. For each kind, logs
 * each new fault. `detail` may be "". `numbered`: frames contain numbers or times. */
void front_end_record_gap(struct front_end_gaps *g, uint64_t now_ns, uint64_t n, uint64_t frame,
                          enum front_end_gap kind, const char *detail, bool numbered);
void front_end_gap_reasons(const struct front_end_gaps *g, bool numbered, struct reasons *to);

/* Logs that the connection ended after this number of frames. Returns whether a frame was lost. */
bool front_end_log_loss(int why, bool in_frame, bool begun, uint64_t frames);
/* Logs that *n frames came before the run; then *n is 0. */
void front_end_log_between(uint64_t *n);
void front_end_log_missing(const struct net_address *to, uint64_t for_ns, int why);
void front_end_log_return(const struct net_address *to, uint64_t after_ns);
