/* Measures what a tag costs beside encoding and decoding: processor time per control message, at both ends.
 * Not a test: meson test -C build --benchmark --verbose auth */
#include <sodium.h>
#include <stdio.h>
#include <time.h>

#include "base/util.h"
#include "protocol/auth.h"
#include "protocol/message.h"

#define ROUNDS 200000u
#define REPETITIONS 5

static struct auth_key key;
static struct message m;
static uint8_t bytes[1472 + AUTH_TRAILER_BYTES];
static size_t n;

static double processor_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* An Assign or a Request in one datagram, encoded and decoded. */
static void code(unsigned i)
{
        m.header.transaction = i;
        n = message_encode(&m, bytes, sizeof bytes);
        if (message_decode(&m, bytes, n) != MESSAGE_OK)
                puts("cannot decode");
}

static void tag(unsigned i)
{
        static struct auth_window w;
        struct auth_trailer t = {.session = 1, .number = i, .to = AUTH_NODE(ROLE_SFI, 0)};

        auth_seal(&key, bytes, n, &t);
        if (!auth_open(&key, bytes, n + AUTH_TRAILER_BYTES, &t))
                puts("cannot open");
        (void)auth_window_accept(&w, t.number);
}

static void tag_by_blake2b(unsigned i)
{
        uint8_t out[AUTH_TAG_BYTES];

        bytes[0] = (uint8_t)i;
        for (int end = 0; end < 2; end++)
                crypto_generichash(out, sizeof out, bytes, n + 16, key.bytes, sizeof key.bytes);
}

/* The least time of several repetitions: the machine may do other things meanwhile. */
static double measure(void (*one)(unsigned i))
{
        double best = 1e9;

        for (int k = 0; k < REPETITIONS; k++) {
                double begin = processor_ns();

                for (unsigned i = 0; i < ROUNDS; i++)
                        one(i);
                best = MIN(best, (processor_ns() - begin) / ROUNDS);
        }
        return best;
}

int main(void)
{
        static const size_t entries[] = {1, 40, 256};

        if (auth_key_init(&key, (const uint8_t *)"benchmark", 9) < 0)
                return 1;
        puts("processor time of both ends together, per message");
        puts("entries  bytes  encode and decode  tag and check  the same by BLAKE2b");
        for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
                double coded_ns, tagged_ns;

                m = (struct message){.header = {.sender_role = ROLE_DFM, .cookie = 1, .type = MESSAGE_ASSIGN},
                                     .n = entries[i]};
                for (size_t k = 0; k < entries[i]; k++)
                        m.assign.entries[k] = (struct assign_entry){.event = k,
                                                                    .l1_id = (uint32_t)k,
                                                                    .sequence = (uint32_t)k,
                                                                    .time_ns = k * 1000000};
                coded_ns = measure(code);
                code(0);
                tagged_ns = measure(tag);
                printf("%7zu  %5zu  %14.0f ns  %10.0f ns  %16.0f ns\n", entries[i], n, coded_ns, tagged_ns,
                       measure(tag_by_blake2b));
        }
        return 0;
}
