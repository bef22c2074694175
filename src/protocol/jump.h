/* Follows a number that grows in small steps: the oldest open event, as messages report it. A leap counts
 * only after three messages confirm it, so one forged message does not release everything. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define JUMP_AGREE 3u

struct jump {
        uint64_t suspect;
        uint32_t agreeing;
        bool started; /* the first number arrived */
};

/* Whether `value` may replace `now`. `window`: the longest step that needs no confirmation. */
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
