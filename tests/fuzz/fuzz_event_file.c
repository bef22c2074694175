/* Event files: replayed, verified, repaired, and verified again. A repaired file is whole. */
#include <assert.h>

#include "store/event_file.h"
#include "store/replay.h"
#include "store/verify.h"
#include "fuzz.h"
#include "memory_file.h"

#define NOW ((time_t)1775621020)

static void replay(const char *path)
{
        struct replay *r = NULL;
        struct error e = {};

        if (replay_open(&r, path, &e) < 0)
                assert(e.code < 0 && e.message[0]);
        replay_free(r);
}

static void verify(const char *path, struct verify_report *ret)
{
        struct event_file *file;

        assert(event_file_open(&file, path, NULL) == 0);
        assert(event_file_verify(file, NULL, NULL, NULL, ret) == 0);
        event_file_free(file);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        const char *path = memory_file(bytes, size_bytes);
        struct event_file_repair first, second;
        struct verify_report before, after;

        if (!path)
                return false;
        replay(path);
        if (event_file_repair(path, NULL, NOW, &first) < 0)
                return false;
        verify(path, &after);
        assert(after.ended && after.events == first.events);
        /* Nothing is left to repair. */
        assert(event_file_repair(path, NULL, NOW, &second) == 0);
        assert(second.was_whole && second.events == first.events && second.cut_bytes == 0);
        replay(path);
        if (!first.was_whole)
                return first.events > 0;
        verify(path, &before);
        assert(before.events == after.events);
        return true;
}
