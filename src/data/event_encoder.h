/* Encodes built events in the format of sfi.format, for files and consumers of live events. One thread. */
#pragma once

#include "base/error.h"
#include "core/sfi.h"
#include "data/context.h"
#include "format/eformat.h"

struct event_encoder;

const struct eformat *event_encoder_format(const struct scenario *s);
/* -EINVAL: two ROSs have the same source ID, which may be that of a file on this machine; -ENOMEM. */
int event_encoder_check(const struct scenario *s, struct error *error);
/* `buffer` contains the fragments of the built events. Errors as above, which it logs. */
int event_encoder_new(struct event_encoder **ret, const struct data_context *context, const uint8_t *buffer);
struct event_encoder *event_encoder_free(struct event_encoder *e);
/* `status`: bits for the header of the event. The encoding refers to the buffer, and is valid until the next
 * call. Errors as for struct eformat. */
int event_encoder_encode(struct event_encoder *e, const struct sfi_built *built, uint32_t status,
                         const struct eformat_encoding **ret);
