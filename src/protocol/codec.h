/* Walks over a message's body, and either reads into the fields or writes from them, so that both directions
 * agree. */
#pragma once

#include "base/cursor.h"
#include "base/util.h"
#include "protocol/message.h"

struct codec {
        bool decode;
        struct reader r;
        struct writer w;
};

#define CODEC_FIELD(name, type)                                                                              \
        static _always_inline_ void field_##name(struct codec *c, type *v)                                   \
        {                                                                                                    \
                if (c->decode)                                                                               \
                        *v = reader_##name(&c->r);                                                           \
                else                                                                                         \
                        writer_##name(&c->w, *v);                                                            \
        }

CODEC_FIELD(u8, uint8_t)
CODEC_FIELD(u16, uint16_t)
CODEC_FIELD(u32, uint32_t)
CODEC_FIELD(u64, uint64_t)
CODEC_FIELD(varint, uint64_t)
#undef CODEC_FIELD

/* Encodes or decodes the entries of Assign, Build, Update, Clear, Request or Numbers, whose number is known.
 * False: a value is never valid. The cursor reports missing bytes. */
bool entries_code(struct codec *c, struct message *m);
/* Encodes entries to m->coded, as long as each fits into `room` together with `more` bytes. Reduces m->n to
 * the number of entries that fit, and returns their bytes, including `more`. */
size_t entries_fit(struct message *m, size_t room, size_t more);
/* decision.c: encodes or decodes the body of Decision, Undecided or DecisionAck after `dfm`. */
bool decision_code(struct codec *c, struct message *m);
/* entries.c: encodes or decodes the body of Probe. */
bool probe_code(struct codec *c, struct message *m);
/* entries.c: encodes or decodes the body of Numbers or NumbersAck. */
bool numbers_code(struct codec *c, struct message *m);
