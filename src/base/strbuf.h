/* Builds text in a caller's array of fixed size. Text that does not fit is truncated, and `cut` is set. The
 * text is always terminated. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct strbuf {
        char *text;
        size_t size_bytes, length;
        bool cut;
};

struct strbuf strbuf_init(char *text, size_t size_bytes); /* size_bytes >= 1 */
void strbuf_add(struct strbuf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Whether the text is valid UTF-8, which JSON and OpenMetrics require. */
bool text_is_utf8(const char *text);
/* Replaces each byte of a control character, which could command a terminal, of a character that changes the
 * direction of writing, and of invalid UTF-8, such as a character that was cut off, by '?', in text from
 * untrusted sources. So the text becomes UTF-8 of the same length. Works in place and returns `text`, which
 * may be NULL. */
char *text_make_printable(char *text);

/* A word that differs from a mistyped one by this many letters is not suggested. */
#define TEXT_FAR 4u
/* Edit distance: the number of letters to change, insert, delete, or exchange with the next one. UINT32_MAX:
 * TEXT_FAR or more. */
unsigned text_distance(const char *a, const char *b);
