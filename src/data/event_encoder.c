/* Adds the source IDs and the order of its fragments to each built event, and encodes it. */
#include "event_encoder.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/replay.h"

struct encoder_source {
        uint32_t id;
        uint16_t order; /* in the event, unless a file determines it */
        bool is_file, optional;
        struct number_field board; /* of a stream of several boards: the ID of a frame's board */
        /* The boards of the stream that were in an event so far, a bit each. */
        uint64_t known[(1u << JOIN_BOARD_BITS_MAX) / 64];
};

struct event_encoder {
        const uint8_t *buffer;
        uint32_t n_ros;
        struct encoder_source *sources; /* of each ROS */
        const struct eformat *format;
        struct eformat_settings settings;
        struct eformat_encoding *encoding;
        struct built_event event;
};

/* Returns the ID that a ROS's source has in the file that it replays, or evb's own ID if the file is on
 * another machine. Consecutive ROSs usually replay the same file, so *replay keeps it open. */
static uint32_t id_in_file(const struct scenario *s, const struct scenario_node *n, struct replay **replay,
                           const char **path)
{
        uint32_t rank = scenario_rank_in_file(s, n);
        struct error e = {};

        if (!*path || strcmp(*path, n->source_at) != 0) {
                *replay = replay_free(*replay);
                *path = n->source_at;
                if (replay_open(replay, *path, &e) < 0)
                        *replay = NULL;
        }
        return *replay && rank < replay_sources(*replay) ? replay_source_id(*replay, rank)
                                                         : eformat_source_id(n->index);
}

/* Fragments of one sub-detector are adjacent. Fragments from files come first, in the file's order. */
static void order_sources(struct event_encoder *e)
{
        bool has_file = false;

        for (uint32_t i = 0; i < e->n_ros; i++)
                has_file |= e->sources[i].is_file;
        for (uint32_t i = 0; i < e->n_ros; i++) {
                struct encoder_source *s = &e->sources[i];

                s->order = (uint16_t)(s->is_file ? i : has_file ? EVB_ROS_MAX : 0);
                for (uint32_t k = 0; !s->is_file && k < e->n_ros; k++)
                        s->order += !e->sources[k].is_file && e->sources[k].id < s->id;
        }
}

/* The scenario's own IDs are different; those in files are not known before. */
static int check_ids(const struct event_encoder *e, const struct scenario *s, struct error *error)
{
        for (uint32_t i = 0; i < e->n_ros; i++) {
                const struct encoder_source *a = &e->sources[i];

                for (uint32_t k = 0; k < i; k++) {
                        const struct encoder_source *b = &e->sources[k];

                        if (a->id >= b->id + (1u << b->board.bits) || b->id >= a->id + (1u << a->board.bits))
                                continue;
                        return error_set(error, -EINVAL,
                                         "%s and %s have the same source ID 0x%06x in events, so no reader "
                                         "could tell their fragments apart; expected another source-id, or "
                                         "files with different sources",
                                         scenario_node_of(s, ROLE_ROS, k)->name,
                                         scenario_node_of(s, ROLE_ROS, i)->name, MAX(a->id, b->id));
                }
        }
        return 0;
}

static int describe_sources(struct event_encoder *e, const struct scenario *s, struct error *error)
{
        struct replay *replay = NULL;
        const char *path = NULL;

        e->n_ros = (uint32_t)s->ros.count;
        e->sources = calloc(e->n_ros, sizeof *e->sources);
        if (!e->sources)
                return error_set(error, -ENOMEM, "%m");

        for (uint32_t i = 0; i < e->n_ros; i++) {
                const struct scenario_node *n = scenario_node_of(s, ROLE_ROS, i);

                e->sources[i].is_file = n->source_kind == SOURCE_FILE;
                e->sources[i].optional = !n->required;
                if (scenario_has_front_end(n))
                        e->sources[i].board = n->board.join.board;
                if (n->source_id != SCENARIO_AUTO)
                        e->sources[i].id = n->source_id;
                else if (e->sources[i].is_file)
                        e->sources[i].id = id_in_file(s, n, &replay, &path);
                else
                        e->sources[i].id = eformat_source_id(i);
        }
        replay_free(replay);
        order_sources(e);
        return check_ids(e, s, error);
}

const struct eformat *event_encoder_format(const struct scenario *s)
{
        return s->sfi.format == FORMAT_EFORMAT5 ? &eformat_5 : &eformat_3;
}

int event_encoder_check(const struct scenario *s, struct error *error)
{
        struct event_encoder e = {};
        int r = describe_sources(&e, s, error);

        free(e.sources);
        return r;
}

int event_encoder_new(struct event_encoder **ret, const struct data_context *context, const uint8_t *buffer)
{
        const struct scenario *s = context->scenario;
        struct event_encoder *e = calloc(1, sizeof *e);
        struct error error = {};

        if (!e)
                return log_error_errno(ENOMEM, "builder: %m");
        *e = (struct event_encoder){
                .buffer = buffer,
                .format = event_encoder_format(s),
                .settings = {.sfi_source_id = eformat_sfi_id(context->self->index + 1),
                             .checksum = EFORMAT_CHECKSUM_ADLER32},
        };
        e->encoding = malloc(sizeof *e->encoding);
        e->event.fragments = calloc(scenario_sources(s), sizeof *e->event.fragments);
        if (!e->encoding || !e->event.fragments)
                (void)error_set(&error, -ENOMEM, "%m");
        else
                (void)describe_sources(e, s, &error);
        if (error.code < 0) {
                event_encoder_free(e);
                return log_error_errno(error.code, "builder: %s", error.message);
        }
        *ret = e;
        return 0;
}

struct event_encoder *event_encoder_free(struct event_encoder *e)
{
        if (!e)
                return NULL;
        free(e->sources);
        free(e->encoding);
        free(e->event.fragments);
        free(e);
        return NULL;
}

/* The length of the next frame of a joined fragment, and its board. False: the rest is no frame. */
static bool next_frame(const struct number_field *board, const uint8_t *bytes, uint32_t size_bytes,
                       uint32_t *ret_bytes, uint64_t *ret_board)
{
        uint32_t length;

        if (size_bytes < sizeof length)
                return false;
        memcpy(&length, bytes, sizeof length);
        length = le32toh(length);
        *ret_bytes = length + (uint32_t)sizeof length;
        return length <= size_bytes - sizeof length &&
               number_read(board, bytes + sizeof length, length, ret_board);
}

static bool has_board(const uint64_t *boards, uint32_t board)
{
        return (boards[board / 64] >> board % 64 & 1) > 0;
}

/* Adds empty fragments: nothing shows which frames are missing, so each known board without a frame gets one,
 * with the status of the others. */
static size_t add_missing(const struct encoder_source *source, struct built_fragment *first, size_t n,
                          const uint64_t *boards)
{
        struct built_fragment empty = *first;

        empty.data = NULL;
        empty.size_bytes = 0;
        for (uint32_t board = 0; board < 1u << source->board.bits && n < (size_t)1 << source->board.bits;
             board++) {
                if (!has_board(source->known, board) || has_board(boards, board))
                        continue;
                empty.source_id = source->id + board;
                first[n++] = empty;
        }
        return n;
}

/* Divides the fragment of a stream of several boards into one for each board, whose frames are adjacent.
 * Bytes that are no such frames stay in the last fragment. Returns the number of fragments, at least 1. */
static size_t divide(struct encoder_source *source, struct built_fragment *first)
{
        uint64_t boards[ARRAY_SIZE(source->known)] = {}, board, last = UINT64_MAX;
        const uint8_t *bytes = first->data;
        uint32_t left = first->size_bytes, n_bytes;
        struct built_fragment *f = first;
        size_t n = 0;

        for (; next_frame(&source->board, bytes, left, &n_bytes, &board); bytes += n_bytes, left -= n_bytes) {
                if (board != last && n < (size_t)1 << source->board.bits) {
                        f = first + n++;
                        *f = *first;
                        f->data = bytes;
                        f->size_bytes = 0;
                        f->source_id = source->id + (uint32_t)board;
                        last = board;
                        boards[board / 64] |= UINT64_C(1) << board % 64;
                }
                f->size_bytes += n_bytes;
        }
        f->size_bytes += n > 0 ? left : 0;
        for (size_t i = 0; i < ARRAY_SIZE(boards); i++)
                source->known[i] |= boards[i];
        /* Bytes without a frame keep the ID of the stream. */
        if (first->status != FRAGMENT_OK && first->status != FRAGMENT_NONE)
                n = add_missing(source, first, n + (n == 0 && left > 0), boards);
        return MAX(n, (size_t)1);
}

static void describe(struct event_encoder *e, const struct sfi_built *built, uint32_t status)
{
        e->event.info = built->info;
        e->event.info.event = built->event;
        e->event.status = status | (built->assigned_again ? EFORMAT_EVENT_DUPLICATE_DFM : 0) |
                          (built->l1_mismatch ? EFORMAT_L1_MISMATCH : 0);
        e->event.n_fragments = 0;
        for (uint32_t i = 0; i < e->n_ros; i++) {
                const struct sfi_fragment *f = &built->fragments[i];
                struct built_fragment *to = &e->event.fragments[e->event.n_fragments++];
                bool bytes = f->whole && f->at != ARENA_NONE;

                *to = (struct built_fragment){
                        .data = bytes ? e->buffer + f->at : NULL,
                        .size_bytes = bytes ? f->bytes : 0,
                        .source_id = e->sources[i].id,
                        .order = e->sources[i].is_file && f->whole ? f->order : e->sources[i].order,
                        .form = f->form,
                        .status = f->whole ? f->status : FRAGMENT_LOST,
                        .optional = e->sources[i].optional,
                };
                if (e->sources[i].board.bits > 0)
                        e->event.n_fragments += divide(&e->sources[i], to) - 1;
        }
}

int event_encoder_encode(struct event_encoder *e, const struct sfi_built *built, uint32_t status,
                         const struct eformat_encoding **ret)
{
        int r;

        describe(e, built, status);
        r = e->format->encode(&e->event, &e->settings, e->encoding);
        if (r < 0)
                return r;
        *ret = e->encoding;
        return 0;
}
