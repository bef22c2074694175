/* The terminal of evb top. While a screen is open, nothing else may write to the terminal. */
#pragma once

#include <stdbool.h>

#include "top_view.h"

enum top_key {
        TOP_KEY_NONE,
        TOP_KEY_QUIT,
        TOP_KEY_NEXT,
        TOP_KEY_PREVIOUS,
        TOP_KEY_REVERSE,
        TOP_KEY_UP,
        TOP_KEY_DOWN,
        TOP_KEY_PAGE_UP,
        TOP_KEY_PAGE_DOWN,
        TOP_KEY_HOME,
        TOP_KEY_END,
        TOP_KEY_HELP,
        TOP_KEY_PAUSE,
        TOP_KEY_RESIZED,
        TOP_KEY_OTHER,
};

struct top_screen;

/* Whether standard output is a terminal on which lines can be placed. */
bool top_screen_is_possible(void);
/* -ENOTTY, -ENOMEM. top_screen_free() restores the terminal, so a signal must not end the program before
 * that. */
int top_screen_open(struct top_screen **ret);
struct top_screen *top_screen_free(struct top_screen *s);
void top_screen_get_size(struct top_screen *s, size_t *ret_width, size_t *ret_height);
void top_screen_draw(struct top_screen *s, const struct top_line *lines, size_t n);
/* Does not wait; TOP_KEY_NONE: no key was pressed. */
enum top_key top_screen_read_key(struct top_screen *s);
