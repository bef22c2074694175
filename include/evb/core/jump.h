/* A number that only grows, and by little: the oldest open event, as a message gives it. A leap is believed when it is said
 * three times, so that one forged message does not let go of everything. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define JUMP_AGREE 3u

struct jump {
        uint64_t suspect;
        uint32_t agreeing;
        bool started; /* the first number is believed */
};

/* Whether `value` may take the place of `now`; `window`: the farthest that needs no confirmation. */
static inline bool jump_is_believed(struct jump *j, uint64_t now, uint64_t value, uint64_t window)
{
        if (!j->started || value <= now || value - now <= window) {
                j->started = true;
                j->agreeing = 0;
                return true;
        }
        bool agrees = j->agreeing > 0 && value >= j->suspect && value - j->suspect <= window;

        j->agreeing = agrees ? j->agreeing + 1 : 1;
        j->suspect = value;
        if (j->agreeing < JUMP_AGREE)
                return false;
        j->agreeing = 0;
        return true;
}
