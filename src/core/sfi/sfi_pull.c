/* Pull by bytes: chooses the ROS to send the next request to, and how much of its fragments to request,
 * within the limit of bytes in flight to the SFI's port. */
#include "sfi_requests.h"

/* The share of the limit that one ROS may take, in multiples of an equal share. */
#define ROS_SHARE 2u
/* Maximum number of events requested before the size of an event is known, if credits are configured.
 * Automatic credits are fewer until then. */
#define EVENTS_FIRST 2u

/* A batch holds a whole fragment if the limit then still has room for three others. */
static uint64_t batch_bytes(const struct sfi_requests *q, uint32_t ros)
{
        uint64_t whole = sfi_wire_bytes(q->config, sfi_size_expected(&q->streams[ros].size, q->config));

        return MAX(sfi_limit_batch_bytes(q->limit), MIN(whole, q->limit->bytes / 4));
}

/* Bytes that the ROS must send before it can serve another request: the bytes in flight to this SFI, and the
 * part of the reported backlog that the ROS's link cannot have sent yet. */
static uint64_t load_bytes(const struct sfi_requests *q, uint64_t now_ns, uint32_t ros)
{
        const struct sfi_stream *stream = &q->streams[ros];
        uint64_t since_ns = MIN(now_ns - stream->backlog_ns, NS_PER_S), sent = 0;

        if (stream->backlog_bytes > 0 && q->config->port_rate_bps > 0)
                sent = (uint64_t)((unsigned __int128)q->config->port_rate_bps * since_ns / NS_PER_S / 8);
        else if (since_ns > q->retry->srtt_ns)
                sent = UINT64_MAX;
        return q->slots->sources[ros].in_flight_bytes + stream->backlog_bytes -
               MIN(sent, stream->backlog_bytes);
}

/* Starts no more events than fit into the memory. Otherwise, an older event could displace a younger one,
 * whose data would then arrive only as fast as retries allow. More events may be assigned than fit, because
 * some credits were granted before the first events showed the size of an event. */
static bool may_begin(const struct sfi_requests *q, uint32_t slot)
{
        const struct sfi_slots *t = q->slots;

        if (t->items[slot].requested || t->n_requested == 0)
                return true;
        if (t->event_bytes == 0)
                return q->config->credits == 0 || t->n_requested - t->n_waits < EVENTS_FIRST;
        return (t->n_requested + t->n_building + UINT64_C(1)) * t->event_bytes <=
               q->config->buffer_bytes / 4 * 3;
}

/* If a ROS does not answer, the bytes requested from it still count, and the other ROSs continue. If no ROS
 * is live, requests go to all ROSs. */
static bool may_ask(const struct sfi_requests *q, uint32_t ros)
{
        const struct sfi_slots *t = q->slots;
        const struct sfi_source *source = &t->sources[ros];
        uint64_t with_batch;

        if (source->next == SLOT_NONE && source->rests == 0)
                return false;
        if (source->rests == 0 && !may_begin(q, source->next))
                return false;
        if (t->n_live > 0 && !sfi_slots_ros_is_live(t, ros))
                return false;
        if (source->in_flight_bytes == 0)
                return true;
        with_batch = source->in_flight_bytes + batch_bytes(q, ros);
        return with_batch * MAX(t->n_live, 1u) <= ROS_SHARE * q->limit->bytes;
}

/* The ROS with the least to send, among those from which something can be requested. SLOT_NONE: none. */
static uint32_t choose_ros(const struct sfi_requests *q, uint64_t now_ns, bool *ret_is_idle)
{
        uint32_t n_ros = q->config->n_ros, best = SLOT_NONE;
        uint64_t least = UINT64_MAX;

        *ret_is_idle = true;
        for (uint32_t k = 0; k < n_ros && least > 0; k++) {
                uint32_t ros = q->turn + k < n_ros ? q->turn + k : q->turn + k - n_ros;
                const struct sfi_source *source = &q->slots->sources[ros];
                uint64_t load;

                if (source->next == SLOT_NONE && source->rests == 0)
                        continue;
                *ret_is_idle = false;
                load = load_bytes(q, now_ns, ros);
                if (load >= least || !may_ask(q, ros))
                        continue;
                least = load;
                best = ros;
        }
        return best;
}

/* The oldest slot with data that can be requested from the ROS; SLOT_NONE: none. */
static uint32_t next_slot(const struct sfi_requests *q, uint32_t ros)
{
        const struct sfi_slots *t = q->slots;
        uint32_t slot = t->collecting[true].first;

        if (t->sources[ros].rests == 0)
                return t->sources[ros].next;
        while (slot != SLOT_NONE && !sfi_fragment_has_rest(sfi_fragment(t, slot, ros)))
                slot = t->items[slot].next;
        return slot;
}

static void request_range(struct sfi_requests *q, uint64_t now_ns, struct message *m, uint32_t slot,
                          uint32_t ros, uint32_t bytes)
{
        struct sfi_slot *e = &q->slots->items[slot];
        struct sfi_fragment *f = sfi_fragment(q->slots, slot, ros);

        if (q->slots->sources[ros].in_flight_bytes == 0)
                q->streams[ros].owing_ns = now_ns;
        f->asked_from = f->asked;
        f->asked += bytes;
        f->asked_number = ++q->streams[ros].number;
        f->asked_ns = now_ns;
        f->skipped = false;
        sfi_slots_count(q->slots, ros, f);
        if (!e->requested) {
                sfi_slots_set_requested(q->slots, now_ns, slot);
                sfi_requests_plan(q, now_ns, slot);
        }
        /* With each first request to a ROS, the full time-out of the event starts again. The slot is examined
         * in any case. */
        e->expire_ns = MAX(e->expire_ns, now_ns + q->config->timeout_ns);
        sfi_slots_limit_wait(q->slots, slot);
        sfi_limit_spend(q->limit, now_ns, bytes);
        m->request.entries[m->n++] = (struct request_entry){
                .event = e->event,
                .l1_id = e->l1_id,
                .from_bytes = f->asked_from,
                .to_bytes = f->asked,
        };
}

/* Returns the part that fits, in whole frames if there is room for at least one. */
static uint32_t part_that_fits(const struct sfi_requests *q, uint64_t room)
{
        uint32_t most = sfi_limit_payload_bytes(q->limit, room), frame = sfi_frame_payload_bytes(q->config);

        return most > frame ? most / frame * frame : most;
}

/* Requests the next range from the ROS within `*room` bytes at the port. A fragment that does not fit begins
 * a message of its own, and is divided if necessary. False: nothing more fits. */
static bool request_next(struct sfi_requests *q, uint64_t now_ns, struct message *m, uint32_t ros,
                         uint64_t *room)
{
        struct sfi_slots *t = q->slots;
        uint32_t slot = next_slot(q, ros), wanted = 0;
        uint64_t port_bytes;

        if (slot == SLOT_NONE)
                return false;
        struct sfi_fragment *f = sfi_fragment(t, slot, ros);

        /* The fragment has memory for its remaining bytes, or had it until an older event took it. */
        if (!sfi_fragment_has_rest(f) && !may_begin(q, slot))
                return false;

        if (!f->known)
                wanted = sfi_size_expected(&q->streams[ros].size, q->config);
        else if (sfi_fragment_has_rest(f))
                wanted = (uint32_t)ALIGN_UP(f->bytes - f->asked, EVB_BLOCK_BYTES);
        port_bytes = sfi_wire_bytes(q->config, wanted);
        if (port_bytes > *room) {
                wanted = m->n > 0 ? 0 : part_that_fits(q, *room);
                if (wanted == 0)
                        return false;
                port_bytes = sfi_wire_bytes(q->config, wanted);
        }
        if (t->sources[ros].next == slot)
                t->sources[ros].next = t->items[slot].next;
        if (wanted > 0)
                request_range(q, now_ns, m, slot, ros, wanted);
        else
                f->skipped = true;
        *room -= port_bytes;
        return true;
}

/* Whether a batch of `batch` bytes must wait, for data or for its time. While half of the limit is in flight,
 * arriving data wakes the caller in time, and a timer would only cost another wake-up. */
static bool must_wait(struct sfi_requests *q, uint64_t now_ns, uint64_t room, uint64_t batch)
{
        uint64_t in_flight = sfi_requests_in_flight(q), ready_ns = sfi_limit_ready_ns(q->limit);

        if (in_flight > 0 && room < batch) {
                q->limit->was_reached = true;
                return true;
        }
        if (now_ns < ready_ns && in_flight < q->limit->bytes / 2)
                q->ready_ns = ready_ns;
        return now_ns < ready_ns;
}

bool sfi_pull_make(struct sfi_requests *q, uint64_t now_ns, struct message_to *to, struct message *m)
{
        size_t max = message_entries_fit(MESSAGE_REQUEST, q->config->message_bytes);
        uint64_t limit = q->limit->bytes - MIN(q->assigns_bytes, q->limit->bytes / 2);
        uint64_t room;
        bool is_idle;

        if (!q->slots->sources)
                return false;
        sfi_requests_find_silent(q, now_ns);
        room = limit - MIN(limit, sfi_requests_in_flight(q));
        q->ready_ns = NEVER_NS;
        /* The common case: waits without checking each ROS. */
        if (q->slots->n_requested < q->slots->collecting[true].n &&
            must_wait(q, now_ns, room, sfi_limit_batch_bytes(q->limit)))
                return false;
        member_address(q->member, m, MESSAGE_REQUEST);
        for (uint32_t k = 0; k <= q->config->n_ros; k++) {
                uint32_t ros = choose_ros(q, now_ns, &is_idle);
                uint64_t batch;

                if (is_idle)
                        sfi_limit_rest(q->limit);
                if (ros == SLOT_NONE)
                        return false;
                batch = batch_bytes(q, ros);
                if (must_wait(q, now_ns, room, batch))
                        return false;
                batch = MIN(room, batch);
                while (m->n < max && request_next(q, now_ns, m, ros, &batch))
                        ;
                q->turn = ros + 1 < q->config->n_ros ? ros + 1 : 0;
                *to = (struct message_to){ROLE_ROS, (uint16_t)ros};
                if (m->n > 0)
                        return true;
        }
        /* In all ROSs, only fragments were left that had arrived without a request. */
        q->ready_ns = now_ns + SFI_SCAN_PAUSE_NS;
        return false;
}
