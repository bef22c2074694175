/* A turn of an SFI, as in node/role_sfi.c with data/data_receive_udp.c. */
#include <string.h>

#include "sim_internal.h"

#define CHUNKS 1024
/* Maximum number of datagrams in a turn, before control messages and timers. */
#define DATAGRAMS_MAX (8 * 512)
#define FAREWELLS 3
#define FAREWELL_NS (20 * NS_PER_MS)
/* Same value as in node/role_sfi.c. */
#define TOTALS_NS (250 * NS_PER_MS)
#define ACKNOWLEDGE_NS (2 * NS_PER_S)

/* Without payload, `payload` may be NULL. */
static void store(struct sim *s, struct sim_node *n, struct sfi_chunk *chunks, size_t *k,
                  const uint8_t *payload)
{
        sfi_reserve(n->sfi, sim_now_ns(s), chunks, *k);
        sim_coverage_add(s, n, chunks, *k);
        for (size_t i = 0; payload && i < *k; payload += chunks[i++].chunk.length) {
                if (chunks[i].verdict == SFI_STORE)
                        memcpy(n->buffer + chunks[i].at, payload, chunks[i].chunk.length);
        }
        sfi_commit(n->sfi, sim_now_ns(s), chunks, *k);
        n->worked_chunks += (uint32_t)*k;
        *k = 0;
}

/* Reads the directory of a data message, and its payload, if there is one. */
static void receive_packet(struct sim *s, struct sim_node *n, const struct sim_packet *p,
                           struct sfi_chunk *chunks, size_t *k)
{
        struct chunk_reader reader;
        const uint8_t *payload;
        enum message_verdict v =
                chunk_reader_begin(&reader, p->head, p->head_bytes, sfi_member(n->sfi)->cookie);

        stats_count_refusal(n->stats, v);
        if (v != MESSAGE_OK)
                return;
        if (sfi_count_datagram(n->sfi, reader.header.sender_index, reader.header.transaction))
                sfi_record_queued(n->sfi, sim_now_ns(s), reader.header.sender_index,
                                  reader.header.queued_bytes);
        while (chunk_reader_next(&reader, &chunks[*k].chunk, &payload)) {
                chunks[*k].source = reader.header.sender_index;
                if (++*k == CHUNKS)
                        store(s, n, chunks, k, NULL);
        }
        if (n->buffer)
                store(s, n, chunks, k, p->head + reader.head_bytes);
}

static void receive_fragments(struct sim *s, struct sim_node *n)
{
        struct sfi_chunk chunks[CHUNKS];
        struct sim_packet *p;
        size_t k = 0;

        for (uint32_t i = 0; i < DATAGRAMS_MAX && (p = sim_receive(s, n, SOCKET_DATA)); i++) {
                sim_trace_delivery(s, n, p);
                n->worked_packets++;
                receive_packet(s, n, p, chunks, &k);
                sim_packet_release(p);
        }
        if (k > 0)
                store(s, n, chunks, &k, NULL);
}

static bool awaits(const struct sim *s, const struct sim_node *n)
{
        uint64_t since_ns = sim_now_ns(s) - n->drained_ns;

        return (!sfi_has_totals(n->sfi) && since_ns < TOTALS_NS) ||
               (n->farewells == 0 && sfi_unacknowledged(n->sfi) > 0 && since_ns < ACKNOWLEDGE_NS);
}

static void say_farewell(struct sim *s, struct sim_node *n)
{
        uint64_t now_ns = sim_now_ns(s);

        if (sfi_run_state(n->sfi) != RUN_ENDED || !sfi_is_drained(n->sfi) || now_ns < n->farewell_ns)
                return;
        n->farewell_ns = now_ns + FAREWELL_NS;
        if (!sim_output_close(s, n))
                return;
        if (n->drained_ns == NEVER_NS)
                n->drained_ns = now_ns;
        if (awaits(s, n))
                return;
        if (n->farewells++ >= FAREWELLS && !sfi_is_awaited(n->sfi, now_ns))
                n->has_left = true;
        else
                sfi_set_ended(n->sfi, now_ns);
}

void sim_sfi_turn(struct sim *s, struct sim_node *n)
{
        const struct message *m;
        struct message_to to;

        while ((m = sim_receive_message(s, n)))
                sfi_receive(n->sfi, sim_now_ns(s), m);
        receive_fragments(s, n);
        sim_output_turn(s, n);
        say_farewell(s, n);
        if (sim_now_ns(s) >= sfi_port_rate(n->sfi)->look_ns)
                sfi_set_socket_drops(n->sfi, n->inboxes[SOCKET_DATA].dropped);
        while (sfi_step(n->sfi, sim_now_ns(s), &to, &s->message))
                sim_send_message(s, n, to, &s->message);
        sim_output_turn(s, n);
}

uint64_t sim_sfi_deadline_ns(const struct sim *s, const struct sim_node *n)
{
        uint64_t deadline_ns = MIN(sfi_deadline_ns(n->sfi), sim_output_deadline_ns(s, n));

        if (sfi_run_state(n->sfi) == RUN_ENDED && sfi_is_drained(n->sfi))
                deadline_ns = MIN(deadline_ns, n->farewell_ns);
        return deadline_ns;
}
