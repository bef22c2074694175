/* Control messages: as a datagram, and at the start of a byte stream. The input is tried as it is, and with a
 * correct header around it, as no fuzzer guesses the check word. */
#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/message.h"
#include "fuzz.h"

#define SIZE_MAX_BYTES 65536u

/* Keeps sender, cookie, type and transaction of the bytes. */
static void seal(uint8_t *bytes, size_t n)
{
        const uint32_t magic = htole32(MESSAGE_MAGIC);
        const uint16_t version = htole16(MESSAGE_VERSION);
        struct message_header h;
        uint32_t check;

        memcpy(bytes, &magic, sizeof magic);
        memcpy(bytes + sizeof magic, &version, sizeof version);
        (void)message_header_decode(&h, bytes, n, &check);
        h.payload_bytes = (uint32_t)(n - MESSAGE_HEADER_BYTES);
        message_header_encode(&h, bytes, message_check(bytes + MESSAGE_HEADER_BYTES, h.payload_bytes));
}

/* What was decoded can be sent on, and means the same then. */
static void check_round_trip(const struct message *m)
{
        static uint8_t once[SIZE_MAX_BYTES], twice[SIZE_MAX_BYTES];
        static struct message again;
        size_t n = message_encode(m, once, sizeof once);

        assert(n >= MESSAGE_HEADER_BYTES);
        assert(message_decode(&again, once, n) == MESSAGE_OK);
        assert(message_encode(&again, twice, sizeof twice) == n && memcmp(once, twice, n) == 0);
        assert(again.n == m->n && again.header.type == m->header.type);
}

static void check_stream(const uint8_t *bytes, size_t n)
{
        static struct message m;
        size_t size = 0;

        assert(message_decode_first(&m, bytes, n, &size) == MESSAGE_OK && size == n);
        assert(message_decode_first(&m, bytes, n - 1, &size) == MESSAGE_SHORT);
        assert(message_decode_first(&m, bytes, n / 2, &size) == MESSAGE_SHORT);
}

static bool accepts(const uint8_t *bytes, size_t n)
{
        static struct message m;

        if (message_decode(&m, bytes, n) != MESSAGE_OK)
                return false;
        assert(m.n <= MESSAGE_ENTRIES_MAX && m.header.payload_bytes == n - MESSAGE_HEADER_BYTES);
        assert(strcmp(message_type_name(m.header.type), "unknown") != 0);
        check_round_trip(&m);
        if (n <= MESSAGE_LEVEL2_BYTES_MAX)
                check_stream(bytes, n);
        return true;
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        bool accepted = accepts(bytes, size_bytes);
        uint8_t *sealed;

        if (size_bytes < MESSAGE_HEADER_BYTES || size_bytes > SIZE_MAX_BYTES)
                return accepted;
        sealed = malloc(size_bytes);
        memcpy(sealed, bytes, size_bytes);
        seal(sealed, size_bytes);
        accepted |= accepts(sealed, size_bytes);
        free(sealed);
        return accepted;
}
