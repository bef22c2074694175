/* Encodes and decodes packet headers, and the offer of a stream as JSON. All input is checked. */
#include "stream/rules/setup.h"

#include <endian.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/cursor.h"
#include "base/util.h"

/* Size of the text of a 64-bit number, which JSON numbers do not cover. */
#define HEX64_MAX 17
#define TCP_MESSAGE_MAX_BYTES (4u << 20)
/* Maximum duration: a day. */
#define RAW_NS_MAX (86400 * (json_int_t)NS_PER_S)

static const char *const format_names[] = {
        [STREAM_PLAIN] = "plain", [STREAM_VDIF] = "vdif", [STREAM_RAW] = "raw"};

const char *setup_format_name(enum stream_format format)
{
        return format_names[format];
}

bool setup_format_parse(enum stream_format *ret, const char *text)
{
        for (size_t i = 0; i < ARRAY_SIZE(format_names); i++) {
                if (strcmp(text, format_names[i]) != 0)
                        continue;
                *ret = (enum stream_format)i;
                return true;
        }
        return false;
}

static json_t *encode_hex64(uint64_t v)
{
        char text[HEX64_MAX];

        snprintf(text, sizeof text, "%016llx", (unsigned long long)v);
        return json_string(text);
}

static bool decode_hex64(const json_t *value, uint64_t *ret)
{
        const char *text = json_string_value(value);

        if (!text || strlen(text) != HEX64_MAX - 1 || strspn(text, "0123456789abcdef") != HEX64_MAX - 1)
                return false;
        *ret = strtoull(text, NULL, 16);
        return true;
}

/* SipHash-2-4 detects changes, but not an attack by the sender, who could send other data anyway. */
json_t *setup_digest(const struct stream_offer *o, const void *bytes, size_t n)
{
        const uint64_t keys[] = {htole64(o->rule.cookie), htole64(o->key)};
        uint64_t digest;

        _Static_assert(sizeof keys == crypto_shorthash_KEYBYTES, "libsodium");
        _Static_assert(sizeof digest == crypto_shorthash_BYTES, "libsodium");
        crypto_shorthash((unsigned char *)&digest, bytes, n, (const unsigned char *)keys);
        return encode_hex64(le64toh(digest));
}

static json_t *encode_header(const uint8_t *bytes, size_t n)
{
        char text[2 * VDIF_HEADER_BYTES + 1] = "";

        for (size_t i = 0; i < n; i++)
                snprintf(text + 2 * i, 3, "%02x", bytes[i]);
        return json_string(text);
}

/* Returns the number of bytes; 0: it is not a valid header. */
static size_t decode_header(const json_t *value, uint8_t bytes[static VDIF_HEADER_BYTES])
{
        const char *text = json_string_value(value);
        size_t n = text ? strlen(text) : 0;

        if (n == 0 || n % 2 > 0 || n > (size_t)2 * VDIF_HEADER_BYTES || strspn(text, "0123456789abcdef") != n)
                return 0;
        for (size_t i = 0; i < n / 2; i++) {
                unsigned byte;

                if (sscanf(text + 2 * i, "%2x", &byte) != 1)
                        return 0;
                bytes[i] = (uint8_t)byte;
        }
        return n / 2;
}

static json_t *encode_plan(const struct vdif_plan *p)
{
        json_t *headers = json_array();

        for (uint32_t i = 0; i < p->n_threads; i++)
                json_array_append_new(headers, encode_header(p->threads[i].header, p->header_bytes));
        return json_pack("{s:i, s:o}", "frames_per_second", (int)p->frames_per_second, "headers", headers);
}

static json_t *encode_raw(const struct stream_raw *r)
{
        char group[NET_ADDRESS_TEXT_MAX];

        return json_pack("{s:b, s:b, s:s?, s:I, s:I}", "tcp", (int)r->tcp, "echo", (int)r->echo, "group",
                         r->grouped ? net_address_format(&r->group, group) : NULL, "warm_up_ns",
                         (json_int_t)r->warm_up_ns, "duration_ns", (json_int_t)r->duration_ns);
}

json_t *setup_encode(const struct stream_offer *o)
{
        json_t *m =
                json_pack("{s:s, s:i, s:s, s:s, s:o, s:i, s:i, s:b, s:b, s:b}", "type", "open", "protocol",
                          SETUP_PROTOCOL, "program", "evb " EVB_VERSION, "format",
                          setup_format_name(o->rule.format), "cookie", encode_hex64(o->rule.cookie),
                          "payload_bytes", (int)o->rule.payload_bytes, "udp_port", (int)o->udp_port,
                          "pattern", (int)o->pattern, "spaced", (int)o->spaced, "follows", (int)o->follows);

        json_object_set_new(m, "key", encode_hex64(o->key));
        json_object_set_new(m, "repairs", json_boolean(o->repairs));
        json_object_set_new(m, "resumes", json_boolean(o->resumes));
        if (o->rule.format == STREAM_VDIF)
                json_object_set_new(m, "vdif", encode_plan(&o->plan));
        if (o->rule.format == STREAM_RAW)
                json_object_set_new(m, "raw", encode_raw(&o->raw));
        return m;
}

static bool decode_number(const json_t *m, const char *name, json_int_t least, json_int_t most,
                          json_int_t *ret)
{
        const json_t *value = json_object_get(m, name);

        *ret = json_integer_value(value);
        return json_is_integer(value) && *ret >= least && *ret <= most;
}

static bool decode_plan(struct vdif_plan *ret, const json_t *value)
{
        const json_t *headers = json_object_get(value, "headers");
        json_int_t per_second;

        if (!decode_number(value, "frames_per_second", 0, INT32_MAX, &per_second) ||
            json_array_size(headers) == 0)
                return false;
        for (size_t i = 0; i < json_array_size(headers); i++) {
                uint8_t header[VDIF_HEADER_BYTES] = {};
                size_t n = decode_header(json_array_get(headers, i), header);

                if (n == 0 || (i == 0 && vdif_plan_begin(ret, header, n) < 0) || i == VDIF_PLAN_THREADS_MAX)
                        return false;
                (void)vdif_plan_add(ret, header, n);
                if (ret->n_threads != i + 1)
                        return false;
        }
        ret->frames_per_second = (uint32_t)per_second;
        return true;
}

/* A packet is a frame, or one of its equal parts. */
static bool decode_vdif(struct stream_offer *o, const json_t *value)
{
        uint32_t part = o->rule.payload_bytes;

        if (!decode_plan(&o->plan, value) || o->plan.frame_bytes % part > 0)
                return false;
        o->rule.parts = o->plan.frame_bytes / part;
        return o->rule.parts == 1 || (o->rule.parts <= PACKET_PARTS_MAX && part >= VDIF_HEADER_BYTES);
}

static bool decode_raw(struct stream_raw *ret, const json_t *value)
{
        const char *group = json_string_value(json_object_get(value, "group"));
        json_int_t warm_up_ns, duration_ns;

        if (!decode_number(value, "warm_up_ns", 0, RAW_NS_MAX, &warm_up_ns) ||
            !decode_number(value, "duration_ns", 0, RAW_NS_MAX, &duration_ns))
                return false;
        ret->tcp = json_is_true(json_object_get(value, "tcp"));
        ret->echo = json_is_true(json_object_get(value, "echo"));
        ret->warm_up_ns = (uint64_t)warm_up_ns;
        ret->duration_ns = (uint64_t)duration_ns;
        ret->grouped = group;
        if (ret->tcp + ret->echo + ret->grouped > 1)
                return false;
        return !group || (net_address_parse_with_port(&ret->group, group) >= 0 &&
                          net_address_is_multicast(&ret->group) && net_address_port(&ret->group) > 0);
}

/* Returns the maximum size of a message in the transport. */
static json_int_t most_bytes(const struct stream_offer *o)
{
        return o->raw.tcp ? TCP_MESSAGE_MAX_BYTES : PACKET_MAX_BYTES - packet_header_bytes(&o->rule);
}

int setup_decode(struct stream_offer *ret, const json_t *m, struct error *e)
{
        json_int_t protocol, payload, port;
        const char *format = json_string_value(json_object_get(m, "format"));
        struct stream_offer *o = ret;

        /* It may contain an offer that was refused. */
        *o = (struct stream_offer){};
        if (!decode_number(m, "protocol", 0, INT32_MAX, &protocol) || protocol != SETUP_PROTOCOL)
                return error_set(e, -EPROTO,
                                 "the sender has version %lld of the protocol, this receiver (evb %s) has "
                                 "version %d; use the same version of evb on both ends",
                                 (long long)protocol, EVB_VERSION, SETUP_PROTOCOL);
        if (!format || !setup_format_parse(&o->rule.format, format))
                return error_set(e, -EBADMSG, "unknown format; this receiver knows plain, vdif and raw");
        if (o->rule.format == STREAM_RAW && !decode_raw(&o->raw, json_object_get(m, "raw")))
                return error_set(e, -EBADMSG, "the sender's description of a raw stream is invalid");
        if (!decode_number(m, "payload_bytes", 1, most_bytes(o), &payload) ||
            !decode_number(m, "udp_port", 1, UINT16_MAX, &port) ||
            !decode_hex64(json_object_get(m, "cookie"), &o->rule.cookie) ||
            !decode_hex64(json_object_get(m, "key"), &o->key))
                return error_set(e, -EBADMSG, "the sender's offer is incomplete or out of range");
        o->rule.payload_bytes = (uint32_t)payload;
        o->udp_port = (uint16_t)port;
        o->pattern = json_is_true(json_object_get(m, "pattern"));
        o->spaced = json_is_true(json_object_get(m, "spaced"));
        o->follows = json_is_true(json_object_get(m, "follows"));
        o->repairs = json_is_true(json_object_get(m, "repairs"));
        o->resumes = json_is_true(json_object_get(m, "resumes"));
        if (o->rule.format == STREAM_VDIF && !decode_vdif(o, json_object_get(m, "vdif")))
                return error_set(e, -EBADMSG, "the sender's description of VDIF frames contradicts itself");
        return 0;
}

/* 400 Gbit/s, which more than one thread reaches on no device. The speed of the device cannot be the limit,
 * because virtual devices exceed their speeds, and packets may arrive at another device than expected. */
#define LINK_BYTES_PER_NS 50u
/* Size of the IPv4 and UDP headers. */
#define OUTER_HEADERS_BYTES 28u

uint32_t packet_header_bytes(const struct packet_rule *rule)
{
        static const uint32_t bytes[] = {
                [STREAM_PLAIN] = PACKET_PLAIN_BYTES, [STREAM_VDIF] = PACKET_VTP_BYTES, [STREAM_RAW] = 0};

        return rule->unnumbered ? 0 : bytes[rule->format];
}

uint32_t packet_cut(uint32_t frame_bytes, uint32_t most_bytes)
{
        for (uint32_t n = 1; n <= PACKET_PARTS_MAX && frame_bytes / n >= VDIF_HEADER_BYTES; n++)
                if (frame_bytes % n == 0 && frame_bytes / n <= most_bytes)
                        return n;
        return 0;
}

void packet_write(const struct packet_rule *rule, void *to, uint64_t sequence)
{
        struct writer w = writer_init(to, packet_header_bytes(rule));

        writer_u64(&w, rule->first + sequence);
        if (rule->format == STREAM_PLAIN)
                writer_u64(&w, rule->cookie);
}

enum packet_kind packet_read(const struct packet_rule *rule, const void *bytes, size_t n,
                             uint64_t *ret_sequence)
{
        struct reader r = reader_init(bytes, n);
        uint64_t sequence = rule->unnumbered ? 0 : reader_u64(&r) - rule->first;

        if (rule->format == STREAM_PLAIN && !rule->unnumbered && reader_u64(&r) != rule->cookie && !r.failed)
                return PACKET_FOREIGN;
        if (r.failed || reader_left(&r) == 0)
                return PACKET_SHORT;
        if (reader_left(&r) > rule->payload_bytes)
                return PACKET_FOREIGN;
        if (rule->format == STREAM_VDIF && reader_left(&r) < rule->payload_bytes)
                return PACKET_SHORT;
        *ret_sequence = sequence;
        return PACKET_OURS;
}

uint64_t packet_most(const struct packet_rule *rule, uint64_t elapsed_ns)
{
        uint32_t bytes = OUTER_HEADERS_BYTES + packet_header_bytes(rule) + rule->payload_bytes;

        return elapsed_ns / bytes * LINK_BYTES_PER_NS + elapsed_ns % bytes * LINK_BYTES_PER_NS / bytes;
}

/* Plain packets of another program may be longer than the first one. */
#define PLAIN_PACKET_BYTES 9000u

/* Returns the size of the frame whose header is at `bytes`; 0: there is none. */
static uint32_t frame_bytes_at(const uint8_t *bytes)
{
        struct vdif_header h;

        return vdif_read(&h, bytes, VDIF_HEADER_BYTES) < 0 ? 0 : h.frame_bytes;
}

bool setup_of_packet(struct stream_offer *ret, enum stream_format format,
                     const uint8_t bytes[static SETUP_PACKET_BYTES], size_t n)
{
        struct reader number = reader_init(bytes, PACKET_VTP_BYTES);
        struct packet_rule rule = {.format = format, .payload_bytes = (uint32_t)n, .unnumbered = true};
        uint32_t left = n > SETUP_PACKET_BYTES ? (uint32_t)n - PACKET_VTP_BYTES : 0, numbered;

        if (format == STREAM_PLAIN) {
                rule.payload_bytes = MAX(rule.payload_bytes, PLAIN_PACKET_BYTES);
                ret->rule = rule;
                return n > 0;
        }
        numbered = left > 0 ? frame_bytes_at(bytes + PACKET_VTP_BYTES) : 0;
        /* Whole frames first, because their size is compared exactly. */
        if (numbered != left && n >= VDIF_HEADER_BYTES && frame_bytes_at(bytes) == n)
                numbered = 0;
        else if (numbered == 0 || numbered % left > 0 || numbered / left > PACKET_PARTS_MAX)
                return false;
        if (numbered > 0) {
                rule.unnumbered = false;
                rule.first = reader_u64(&number);
                rule.payload_bytes = left;
                rule.parts = numbered / left;
                bytes += PACKET_VTP_BYTES;
        }
        ret->rule = rule;
        return vdif_plan_begin(&ret->plan, bytes, VDIF_HEADER_BYTES) >= 0 &&
               vdif_plan_add(&ret->plan, bytes, VDIF_HEADER_BYTES);
}
