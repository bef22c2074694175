/* A libFuzzer target that reads arbitrary bytes as a fragment, as a FORM_ROS3 fragment, and as an event file,
 * which it replays, verifies and repairs. Build it with clang and -Dfuzz=true; run `fuzz_store CORPUS`. A
 * real event file is a good seed. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "evb/store/event_file.h"
#include "evb/store/replay.h"
#include "evb/store/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static int visit(void *userdata, const struct eformat_fragment *f)
{
        struct event_info info;
        const uint8_t *payload;
        uint32_t n;

        if (f->marker == EFORMAT_EVENT)
                eformat_event_info(f, &info);
        return eformat_verify_sum(f) == EFORMAT_SUM_OK && eformat_raw_payload(f, &payload, &n) ? 1 : 0;
}

static void fuzz_fragment(const uint8_t *bytes, size_t size_bytes)
{
        struct eformat_fault fault = {.offset_bytes = 0};
        struct eformat_ros3 parts;

        if (eformat_walk(bytes, size_bytes, visit, NULL, &fault) < 0)
                assert(fault.reason && fault.offset_bytes <= size_bytes);
        if (eformat_ros3_parse(bytes, size_bytes, 1, &parts, &fault) == 0)
                assert(parts.subdet_header_bytes + parts.ros_bytes == size_bytes);
}

static void fuzz_file(const char *path)
{
        struct event_file_repair repair;
        struct verify_report report;
        struct replay *replay = NULL;
        struct event_file *file;
        struct error error;

        replay_open(&replay, path, &error);
        replay_free(replay);
        if (event_file_repair(path, NULL, 0, &repair) < 0 || event_file_open(&file, path, NULL) < 0)
                return;
        event_file_verify(file, NULL, NULL, NULL, &report);
        assert(report.ended && report.events == repair.events);
        event_file_free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
        static int fd = -1;
        char path[64];

        fuzz_fragment(bytes, size_bytes);
        if (fd < 0)
                fd = memfd_create("fuzz", 0);
        if (fd < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, bytes, size_bytes, 0) != (ssize_t)size_bytes)
                return 0;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        fuzz_file(path);
        return 0;
}
