/* Walks over all events of a file and checks structure, checksums, counters and pattern data. It passes
 * faults to a callback and counts them in the report. */
#include "store/verify.h"

#include "base/idmap.h"
#include "base/pattern.h"

#define IDS_MAX (1u << 20)
#define EVENT_MIN_BYTES 88u /* including the data record */

struct verify {
        struct verify_report *report;
        verify_fault fault;
        void *userdata;
        uint64_t seed;
        struct idmap ids;       /* seen: event numbers, and L1 IDs of events without a stamp plus 2^63 */
        uint32_t blocks;        /* XOR of the block numbers */
        size_t unstamped_bytes; /* position of the first event without a stamp */

        /* The current event. */
        uint64_t event;
        size_t offset_bytes;
        struct event_info info;
};

static void verify_fault_at(struct verify *v, size_t offset_bytes, const char *reason)
{
        struct eformat_fault fault = {.offset_bytes = offset_bytes, .reason = reason};

        v->report->n_faults++;
        if (v->fault)
                v->fault(v->userdata, v->event, &fault);
}

static void verify_event(struct verify *v, const struct eformat_fragment *f)
{
        bool stamped = eformat_has_stamp(f);
        uint64_t id;

        eformat_event_info(f, &v->info);
        id = stamped ? v->info.event : UINT64_C(1) << 63 | v->info.l1_id;
        v->report->partial_events += (v->info.status & EFORMAT_EVENT_PARTIAL) != 0;
        v->report->stamped_events += stamped;
        if (!stamped && v->unstamped_bytes == 0)
                v->unstamped_bytes = v->offset_bytes;
        if (id == UINT64_MAX) /* only in a damaged stamp */
                return;
        if (idmap_get(&v->ids, id) != IDMAP_NONE)
                v->report->duplicate_events++;
        else
                idmap_put(&v->ids, id, 0);
}

static void verify_rob(struct verify *v, const struct eformat_fragment *f)
{
        uint32_t status = f->n_status > 0 ? eformat_word(f->status, 0) : 0;

        v->report->robs++;
        v->report->dummies += (status & EFORMAT_DUMMY) != 0;
        v->report->truncated += (status & EFORMAT_ROB_TRUNCATED) != 0;
}

/* The bytes of pattern sources depend on the L1 ID. */
static void verify_rod(struct verify *v, const struct eformat_fragment *f)
{
        const uint8_t *payload;
        uint32_t size_bytes;
        size_t right;

        v->report->l1_mismatches += eformat_word(f->specific, 1) != v->info.l1_id;
        if (!v->report->has_seed || !eformat_raw_payload(f, &payload, &size_bytes))
                return;
        right = pattern_check(pattern_key(v->seed, f->source_id & 0xffff, v->info.l1_id), payload, 0,
                              size_bytes);
        v->report->pattern_fragments++;
        v->report->pattern_bytes += size_bytes;
        if (right < size_bytes) {
                v->report->pattern_wrong++;
                verify_fault_at(v, v->offset_bytes + f->offset_bytes + (size_t)(payload - f->bytes) + right,
                                "byte differs from the source pattern");
        }
}

static void verify_sum(struct verify *v, const struct eformat_fragment *f)
{
        enum eformat_sum sum = eformat_verify_sum(f);

        v->report->sums += sum != EFORMAT_SUM_NONE;
        v->report->sums_unknown += sum == EFORMAT_SUM_UNKNOWN;
        v->report->sums_wrong += sum == EFORMAT_SUM_WRONG;
        if (sum == EFORMAT_SUM_WRONG)
                verify_fault_at(v, v->offset_bytes + f->offset_bytes, "checksum mismatch");
}

static int verify_visit(void *userdata, const struct eformat_fragment *f)
{
        struct verify *v = userdata;

        verify_sum(v, f);
        v->report->ros += f->marker == EFORMAT_ROS;
        if (f->marker == EFORMAT_EVENT)
                verify_event(v, f);
        if (f->marker == EFORMAT_ROB)
                verify_rob(v, f);
        if (f->marker == EFORMAT_ROD)
                verify_rod(v, f);
        return 0;
}

static void verify_record(struct verify *v, const struct event_record *record)
{
        struct eformat_fault fault;

        v->offset_bytes = record->offset_bytes + EVENT_FILE_DATA_BYTES;
        v->report->events++;
        v->report->bytes += record->size_bytes;
        v->blocks ^= record->block;
        if (eformat_word(record->event, 0) != EFORMAT_EVENT)
                verify_fault_at(v, v->offset_bytes, "missing event marker");
        else if (eformat_walk(record->event, record->size_bytes, verify_visit, v, &fault) < 0)
                verify_fault_at(v, v->offset_bytes + fault.offset_bytes, fault.reason);
}

static void verify_end(struct verify *v, const struct event_file *file, size_t position)
{
        struct event_file_found found = {v->report->events, v->report->stamped_events, v->blocks};
        struct event_file_end end = {};
        struct eformat_fault fault;
        const char *reason;

        v->event = UINT64_MAX;
        if (event_file_read_end(file, position, &end, &fault) < 0)
                verify_fault_at(v, fault.offset_bytes, fault.reason);
        else if ((reason = event_file_check_end(file, position, &end, &found)))
                verify_fault_at(v, position, reason);
        else
                v->report->ended = true;
        if ((v->report->stamped_events > 0 || end.checked) && v->unstamped_bytes > 0)
                verify_fault_at(v, v->unstamped_bytes,
                                "event without the stamp that this file's events have");
}

int event_file_verify(const struct event_file *file, const uint64_t *seed, verify_fault fault, void *userdata,
                      struct verify_report *ret)
{
        const struct event_file_front *front = event_file_front(file);
        struct verify v = {
                .report = ret, .fault = fault, .userdata = userdata, .seed = seed ? *seed : front->seed};
        struct event_record record;
        struct eformat_fault end_fault;
        size_t position = 0, size_bytes;
        int r;

        event_file_bytes(file, &size_bytes);
        r = idmap_init(&v.ids, (uint32_t)MIN(1 + size_bytes / EVENT_MIN_BYTES, IDS_MAX));
        if (r < 0)
                return r;
        *ret = (struct verify_report){.has_seed = seed || front->has_seed};
        for (; (r = event_file_next(file, &position, &record, &end_fault)) == 1; v.event++)
                verify_record(&v, &record);
        if (r == 0) {
                verify_end(&v, file, position);
        } else {
                v.event = UINT64_MAX;
                verify_fault_at(&v, end_fault.offset_bytes, end_fault.reason);
        }
        idmap_fini(&v.ids);
        return 0;
}
