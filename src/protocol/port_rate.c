/* Reduces the rate to a port that loses packets, and lets the rate recover. The header explains the rule. */
#include "protocol/port_rate.h"

/* RFC 9438, section 4.6: the multiplicative decrease, in thousandths. */
#define BETA 700u
/* Fixed-point unit of the cubic function. */
#define UNIT 1024

void port_rate_init(struct port_rate *p, uint64_t now_ns)
{
        *p = (struct port_rate){
                .permille = PORT_RATE_FULL,
                .plateau = PORT_RATE_FULL,
                .look_ns = now_ns + PORT_RATE_LOOK_NS,
                .least = PORT_RATE_FULL,
        };
}

static uint64_t grown(uint64_t now, uint64_t before)
{
        return now > before ? now - before : 0;
}

static void set_share(struct port_rate *p, uint64_t now_ns, uint64_t permille)
{
        bool was_below = p->permille < PORT_RATE_FULL;

        p->permille = (uint32_t)MAX(MIN(permille, (uint64_t)PORT_RATE_FULL), (uint64_t)PORT_RATE_LEAST);
        if (p->permille < PORT_RATE_FULL && !was_below) {
                p->since_ns = now_ns;
                p->least = p->permille;
        } else if (p->permille == PORT_RATE_FULL && was_below)
                p->below_ns += now_ns - p->since_ns;
        p->least = MIN(p->least, p->permille);
}

/* If two decreases follow each other within a short time, both are undone, or neither. */
static void record_for_undo(struct port_rate *p, uint64_t now_ns, uint64_t lost)
{
        if (p->undo_lost == 0 || now_ns - p->decreased_ns >= PORT_RATE_EXCUSE_NS) {
                p->undo_base = p->confirmed - lost;
                p->undo_source_base = p->seen.source_drops;
                p->undo_permille = p->permille;
                p->undo_plateau = p->plateau;
                p->undo_lost = 0;
                p->undo_decreases = 0;
        }
        p->undo_lost += lost;
        p->undo_decreases++;
}

static void decrease(struct port_rate *p, uint64_t now_ns, uint64_t received, uint64_t lost)
{
        record_for_undo(p, now_ns, lost);
        p->plateau = (uint32_t)MAX(p->permille * received / (received + lost), (uint64_t)PORT_RATE_LEAST);
        p->decreased_ns = now_ns;
        p->decreases++;
        if (p->permille == PORT_RATE_FULL)
                p->lost_before = p->lost;
        p->lost += lost;
        set_share(p, now_ns, p->plateau * BETA / 1000);
}

/* RFC 9438, equation 1, with the time to the plateau as the unit: W(t) = plateau (1 + (1 - beta) (t/K -
 * 1)^3). */
static uint64_t share_at(const struct port_rate *p, uint64_t now_ns)
{
        uint64_t since_ns = MIN(now_ns - p->decreased_ns, 8 * PORT_RATE_RECOVER_NS);
        int64_t x = (int64_t)(since_ns * UNIT / PORT_RATE_RECOVER_NS) - UNIT;
        int64_t cube = x * x * x / UNIT / UNIT;

        return (uint64_t)((int64_t)p->plateau * (UNIT * 1000 + (1000 - (int64_t)BETA) * cube) /
                          (UNIT * 1000));
}

/* Undoes the last decreases, because the port did not drop the packets that led to them. */
static void undo(struct port_rate *p, uint64_t now_ns)
{
        p->plateau = p->undo_plateau;
        p->lost -= p->undo_lost;
        p->undo_lost = 0;
        p->decreases -= p->undo_decreases;
        p->decreased_ns = now_ns - MIN(now_ns, PORT_RATE_RECOVER_NS);
        set_share(p, now_ns, p->undo_permille);
}

static void record_excuses(struct port_rate *p, uint64_t now_ns, const struct port_rate_counts *now)
{
        uint64_t source = grown(now->source_drops, p->seen.source_drops);

        if (source > 0)
                p->excused_ns = now_ns + PORT_RATE_EXCUSE_NS;
        if (grown(now->socket_drops, p->seen.socket_drops) > 0)
                p->excused_ns = MAX(p->excused_ns, now_ns + 3 * PORT_RATE_LOOK_NS / 2);
        if (p->undo_lost == 0 || now_ns - p->decreased_ns >= PORT_RATE_EXCUSE_NS)
                return;
        /* Either the senders' own queues dropped the packets, which the senders report one after another, or
         * the packets were late. RFC 4015 undoes a decrease for the second reason. */
        if (2 * grown(now->source_drops, p->undo_source_base) >= p->undo_lost ||
            2 * grown(now->lost, p->undo_base) <= p->undo_lost)
                undo(p, now_ns);
}

bool port_rate_look(struct port_rate *p, uint64_t now_ns, const struct port_rate_counts *now)
{
        uint64_t confirmed = MIN(now->lost, p->seen.lost), received = p->received_before;
        uint64_t lost = grown(confirmed, p->confirmed);
        uint32_t before = p->permille;

        record_excuses(p, now_ns, now);
        p->confirmed = confirmed;
        p->received_before = grown(now->received, p->seen.received);
        p->seen = *now;
        p->look_ns = now_ns + PORT_RATE_LOOK_NS;
        if (lost >= PORT_RATE_LOST_MIN && lost * 1000 > (received + lost) * PORT_RATE_LOST_PERMILLE &&
            now_ns >= p->excused_ns) {
                if (p->decreases == 0 || now_ns - p->decreased_ns >= PORT_RATE_REACT_NS)
                        decrease(p, now_ns, received, lost);
        } else if (p->permille < PORT_RATE_FULL)
                set_share(p, now_ns, MAX(share_at(p, now_ns), (uint64_t)p->permille));
        return p->permille != before;
}

uint64_t port_rate_below_ns(const struct port_rate *p, uint64_t now_ns)
{
        return p->below_ns + (p->permille < PORT_RATE_FULL ? now_ns - p->since_ns : 0);
}
