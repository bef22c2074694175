/* Requests of consumers of live events: the line that a client of the SFI's socket sends. */
#include <assert.h>
#include <string.h>

#include "base/util.h"
#include "live/live_select.h"
#include "fuzz.h"

static void check_selection(const struct live_request *r)
{
        struct live_counts counts = {};
        uint64_t selected = 0;

        for (uint64_t i = 0; i < 64; i++) {
                struct live_event e = {
                        .number = i, .trigger_type = (uint32_t)(i % 8), .is_partial = i % 3 == 0};

                selected += live_request_selects(r, &counts, &e);
        }
        assert(counts.offered == 64 && counts.matched <= 64 && selected <= counts.matched);
        assert(r->stride > 1 || r->fraction < 1 || selected == counts.matched);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        struct live_request r = {}, again = {};
        char line[LIVE_LINE_MAX + 8] = "";
        struct error e = {};

        memcpy(line, bytes, MIN(size_bytes, sizeof line - 1));
        if (live_request_parse(&r, line, &e) < 0) {
                assert(e.message[0] && strnlen(e.message, sizeof e.message) < sizeof e.message);
                return false;
        }
        assert(r.mode <= LIVE_ALL && r.status <= LIVE_PARTIAL && r.offset < r.stride);
        assert(r.fraction >= 0 && r.fraction <= 1 && r.n_types <= LIVE_TYPES_MAX);
        assert(r.ring_bytes > 0 && r.ring_bytes <= LIVE_RINGS_MAX_BYTES && r.ring_bytes % 4096 == 0);
        assert(strnlen(r.group, sizeof r.group) < sizeof r.group);
        assert(live_request_parse(&again, line, &e) == 0 && live_request_equals(&r, &again));
        check_selection(&r);
        return true;
}
