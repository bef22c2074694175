/* Writes seeds made by the program's own encoders: fuzz_seeds CORPUS. Run it after a change of a format, and
 * commit what changed. Other seeds are real files and replies, or written by hand. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "format/eformat.h"
#include "protocol/chunk.h"
#include "protocol/message.h"
#include "shape/model/kind.h"
#include "shape/model/layout.h"
#include "shape/model/netlink_message.h"

#define COOKIE UINT64_C(0x0123456789ABCDEF)
#define ENTRIES 3u

static const char *corpus;

static void write_seed(const char *target, const char *name, const void *bytes, size_t n)
{
        char path[500];
        FILE *f;

        snprintf(path, sizeof path, "%s/%s/seed-%s", corpus, target, name);
        f = fopen(path, "we");
        if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) {
                perror(path);
                exit(1);
        }
}

/* Values without which the message is not valid. */
static void fill(struct message *m)
{
        switch (m->header.type) {
        case MESSAGE_KEEP_ALIVE:
                m->keep_alive.state = RUN_RUNNING;
                break;
        case MESSAGE_ALIVE:
                m->alive.state = RUN_RUNNING;
                break;
        case MESSAGE_RATE:
                m->rate.permille = 750;
                break;
        case MESSAGE_METADATA:
                m->metadata.version = m->metadata.count = 1;
                strcpy(m->metadata.entry.name, "Shift");
                strcpy(m->metadata.entry.value, "night");
                break;
        case MESSAGE_DECISION_ACK:
                m->decision_ack.state = RUN_RUNNING;
                break;
        default:
                break;
        }
}

/* Entries that do not follow each other, so that each is long. */
static void fill_entry(struct message *m, size_t k)
{
        uint64_t event = 1000 * k * k + 7;

        switch (m->header.type) {
        case MESSAGE_ASSIGN:
        case MESSAGE_BUILD:
                m->assign.with_info = true;
                m->assign.entries[k] = (struct assign_entry){.event = event,
                                                             .l1_id = (uint32_t)k,
                                                             .sequence = (uint32_t)k,
                                                             .time_ns = event << 20};
                m->assign.infos[k] = (struct event_info){.global_id = event, .l1_id = (uint32_t)k};
                break;
        case MESSAGE_UPDATE:
                m->update.entries[k] = (struct finished_entry){
                        .event = event, .payload_bytes = 3000, .missing = (uint32_t)k, .end = EVENT_PARTIAL};
                break;
        case MESSAGE_CLEAR:
                m->clear.events[k] = event;
                break;
        case MESSAGE_REQUEST:
                m->request.entries[k] = (struct request_entry){
                        .event = event, .l1_id = (uint32_t)k, .from_bytes = 64, .to_bytes = UINT32_MAX};
                break;
        case MESSAGE_DECISION:
                m->decision.entries[k] = (struct decision_entry){.event = event, .verdict = DECISION_ACCEPT};
                break;
        case MESSAGE_NUMBERS:
                m->announced.numbers[k] = (uint32_t)event;
                break;
        case MESSAGE_READOUTS:
                m->readouts.entries[k] =
                        (struct readout_entry){.index = (uint16_t)k, .port = 26804, .flags = READOUT_PRESENT};
                break;
        default:
                break;
        }
}

static bool has_entries(uint32_t type)
{
        return type == MESSAGE_ASSIGN || type == MESSAGE_BUILD || type == MESSAGE_UPDATE ||
               type == MESSAGE_CLEAR || type == MESSAGE_REQUEST || type == MESSAGE_DECISION ||
               type == MESSAGE_NUMBERS || type == MESSAGE_JOIN || type == MESSAGE_INVENTORY ||
               type == MESSAGE_UNDECIDED || type == MESSAGE_READOUTS;
}

static void write_messages(void)
{
        static const uint32_t types[] = {
#define X(constant, number, name, direction) constant,
                MESSAGE_TYPES(X)
#undef X
        };
        static uint8_t bytes[65536];
        static struct message m;

        for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
                if (types[i] == MESSAGE_FRAGMENTS)
                        continue;
                memset(&m, 0, sizeof m);
                m.header = (struct message_header){
                        .cookie = COOKIE, .sender_role = ROLE_SFI, .sender_index = 1, .type = types[i]};
                fill(&m);
                m.n = has_entries(types[i]) ? ENTRIES : 0;
                for (size_t k = 0; k < m.n; k++)
                        fill_entry(&m, k);
                size_t n = message_encode(&m, bytes, sizeof bytes);

                if (n == 0) {
                        fprintf(stderr, "%s cannot be encoded\n", message_type_name(types[i]));
                        exit(1);
                }
                write_seed("message", message_type_name(types[i]), bytes, n);
        }
}

static void write_chunks(void)
{
        static const uint32_t sizes[] = {0, 1, 33, 1000, 40, 2000};
        static const uint8_t payload[2000] = {1, 2, 3};
        const struct message_header h = {
                .cookie = COOKIE, .sender_role = ROLE_ROS, .sender_index = 7, .type = MESSAGE_FRAGMENTS};
        const struct chunk_datagram *d;
        struct chunk_job jobs[ARRAY_SIZE(sizes)];
        struct chunk_packer *p;
        size_t n;

        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
                jobs[i] = (struct chunk_job){.chunk = {.event = 100 + i * i,
                                                       .l1_id = (uint32_t)i,
                                                       .fragment_bytes = sizes[i],
                                                       .order = (uint16_t)(i % 2)},
                                             .to_bytes = sizes[i],
                                             .payload = payload};
        assert(chunk_packer_new(&p, 600, 16) == 0);
        n = chunk_pack(p, &h, jobs, ARRAY_SIZE(jobs), &d);
        for (size_t i = 0; i < n; i++) {
                uint8_t bytes[1000], *at = bytes;
                char name[32];

                for (uint32_t k = 0; k < d[i].n_iov; k++)
                        at = mempcpy(at, d[i].iov[k].iov_base, d[i].iov[k].iov_len);
                snprintf(name, sizeof name, "datagram-%zu", i);
                write_seed("chunks", name, bytes, (size_t)(at - bytes));
        }
        chunk_packer_free(p);
}

static void write_event(const struct eformat *format)
{
        static struct eformat_encoding e;
        static const uint8_t payload[] = "payload of a board";
        const struct eformat_settings settings = {.checksum = EFORMAT_CHECKSUM_ADLER32};
        struct built_fragment fragments[] = {
                {.data = payload, .size_bytes = sizeof payload, .source_id = eformat_source_id(0)},
                {.source_id = eformat_source_id(1), .order = 1, .status = FRAGMENT_LOST},
        };
        const struct built_event event = {
                .info = {.l1_id = 7}, .n_fragments = ARRAY_SIZE(fragments), .fragments = fragments};
        static uint8_t bytes[4096];
        uint8_t *at = bytes;

        assert(format->encode(&event, &settings, &e) == 0);
        for (size_t i = 0; i < e.n_iov; i++)
                at = mempcpy(at, e.iov[i].iov_base, e.iov[i].iov_len);
        write_seed("fragment", format->name, bytes, (size_t)(at - bytes));
}

/* As boards with their own headers deliver it: the header of a sub-detector, and a ROS with two ROBs. */
static void write_ros3(void)
{
        enum { DATA = 3, ROB = 8 + 9 + DATA + 4, ROBS = 2 };
        uint32_t w[9 + 11 + ROBS * ROB] = {EFORMAT_SUBDET,
                                           sizeof w / 4,
                                           9,
                                           EFORMAT_VERSION_3,
                                           0x510000,
                                           1,
                                           0,
                                           1,
                                           0,
                                           EFORMAT_ROS,
                                           sizeof w / 4 - 9,
                                           11,
                                           EFORMAT_VERSION_3,
                                           0x510001,
                                           1,
                                           0,
                                           3,
                                           7,
                                           7,
                                           0};
        size_t n = 20;

        for (unsigned i = 0; i < ROBS; i++) {
                const uint32_t rob[ROB] = {EFORMAT_ROB,
                                           ROB,
                                           8,
                                           EFORMAT_VERSION_3,
                                           0x510001 + i,
                                           1,
                                           0,
                                           0,
                                           EFORMAT_ROD,
                                           9,
                                           EFORMAT_VERSION_3,
                                           0x510001 + i,
                                           0,
                                           7,
                                           0,
                                           0,
                                           0,
                                           1,
                                           2,
                                           3,
                                           0,
                                           1,
                                           DATA,
                                           1};

                memcpy(w + n, rob, sizeof rob);
                n += ROB;
        }
        for (size_t i = 0; i < n; i++)
                w[i] = htole32(w[i]);
        write_seed("fragment", "ros3", w, sizeof w);
}

/* The first objects of each kind and type in the tree of a backend. */
static void write_netlink(enum tc_backend backend)
{
        static _Alignas(struct nlmsghdr) char bytes[TC_MESSAGE_MAX];
        struct tc_destination to[70] = {};
        const struct tc_request q = {.link_rate_bps = 1000000000,
                                     .mtu_bytes = 1500,
                                     .sources = 6,
                                     .backend = backend,
                                     .fair = backend == TC_BACKEND_HTB_TBF ? TC_FAIR_YES : TC_FAIR_NO,
                                     .control_port = 26800,
                                     .destinations = to,
                                     .n_destinations = ARRAY_SIZE(to)};
        const struct tc_tree nothing = {.n = 0};
        struct error error = {};
        _cleanup_(tc_plan_fini) struct tc_plan plan;
        _cleanup_(tc_tree_fini) struct tc_tree tree;
        char name[64], last[64] = "";

        for (size_t i = 0; i < ARRAY_SIZE(to); i++)
                to[i].address =
                        (struct tc_address){.bytes = {10, 0, 0, (uint8_t)i}, .n_bytes = i % 2 ? 16 : 4};
        assert(tc_plan_make(&plan, &q, &error) == 0 && tc_layout_make(&tree, &plan, &nothing) == 0);
        for (size_t i = 0; i < tree.n; i++) {
                const struct tc_object *o = &tree.objects[i];
                const struct tc_change change = {.verb = TC_ADD, .object = o};
                struct nlmsghdr *m = (struct nlmsghdr *)bytes;

                if (o->kind == &tc_kind_edt) /* not in netlink */
                        continue;
                snprintf(name, sizeof name, "%s-%d-%s%s", tc_backend_name(backend), (int)o->type,
                         o->kind_name, o->type == TC_FILTER && o->params.u32.divisor ? "-table" : "");
                if (strcmp(name, last) == 0)
                        continue;
                strcpy(last, name);
                assert(tc_message_encode(m, 3, &change) == 0);
                write_seed("netlink", name, m, m->nlmsg_len);
        }
}

int main(int argc, char **argv)
{
        if (argc != 2) {
                fprintf(stderr, "usage: fuzz_seeds CORPUS\n");
                return 2;
        }
        corpus = argv[1];
        write_messages();
        write_chunks();
        write_event(&eformat_3);
        write_event(&eformat_5);
        write_ros3();
        write_netlink(TC_BACKEND_HTB);
        write_netlink(TC_BACKEND_HTB_TBF);
        write_netlink(TC_BACKEND_CBQ_TBF);
        write_netlink(TC_BACKEND_EDT);
        return 0;
}
