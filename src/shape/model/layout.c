/* Makes the tree for a plan: its filters here, its classes in layout_classes.c. */
#include "shape/model/layout.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "layout_internal.h"
#include "shape/model/kind.h"

#define TABLE_V4 UINT32_C(0x100)
#define TABLE_V6 UINT32_C(0x101)
#define BUCKETS 256
#define BUCKET_BITS 8
#define OFFSET_V4 16 /* offset of the destination in the IPv4 header, and in the IPv6 header */
#define OFFSET_V6 24

/* Not the priorities of earlier versions, whose filters match by protocol: a priority has only one protocol.
 */
enum priority { CONTROL_V4 = 12, CONTROL_V6, LINEAR_V4 = 22, LINEAR_V6, HASHED_V4 = 32, HASHED_V6 };

bool tc_layout_address(const struct tc_object *f, struct tc_address *ret)
{
        unsigned words = f->priority % 2 ? 4 : 1, offset = f->priority % 2 ? OFFSET_V6 : OFFSET_V4;
        const struct tc_u32 *u = &f->params.u32;

        if (f->type != TC_FILTER || f->kind != &tc_kind_u32 || f->parent != TC_OUR_ROOT ||
            f->priority < LINEAR_V4 || f->priority > HASHED_V6 || f->chain > 0 || u->divisor > 0 ||
            u->link > 0 || u->n_matches != words + 1)
                return false;
        for (unsigned i = 0; i < words; i++) {
                const struct tc_u32_match *m = &u->matches[i];

                if (m->offset != (int32_t)(offset + 4 * i) || memcmp(m->mask, "\xff\xff\xff\xff", 4) != 0)
                        return false;
                memcpy(ret->bytes + 4 * i, m->value, 4);
        }
        ret->n_bytes = (uint8_t)(4 * words);
        return true;
}

static struct tc_object filter(enum priority priority)
{
        return (struct tc_object){
                .type = TC_FILTER,
                .parent = TC_OUR_ROOT,
                .priority = priority,
                .protocol = ETH_P_ALL,
                .kind_name = "u32",
                .kind = &tc_kind_u32,
        };
}

static void match(struct tc_object *f, uint32_t mask, uint32_t value, int offset)
{
        struct tc_u32_match *m = &f->params.u32.matches[f->params.u32.n_matches++];

        mask = htonl(mask);
        value = htonl(value);
        memcpy(m->mask, &mask, 4);
        memcpy(m->value, &value, 4);
        m->offset = offset;
}

/* Does not match by protocol: a packet from a VLAN device above carries its tag, and the protocol of the tag,
 * in metadata. */
static void match_version(struct tc_object *f)
{
        match(f, 0xf0000000, f->priority % 2 ? 0x60000000 : 0x40000000, 0);
}

/* UDP to the control port. Later fragments of an IPv4 packet carry no port; their offset excludes them. */
static int add_control(struct tc_tree *t, uint16_t port)
{
        struct tc_object v4 = filter(CONTROL_V4), v6 = filter(CONTROL_V6);
        int r;

        v4.handle = v6.handle = 1;
        v4.params.u32.classid = v6.params.u32.classid = TC_CONTROL_CLASS;
        match(&v4, 0x00001fff, 0, 4);
        match(&v4, 0x00ff0000, IPPROTO_UDP << 16, 8);
        match(&v4, 0x0000ffff, port, 20);
        match(&v6, 0x0000ff00, IPPROTO_UDP << 8, 4);
        match(&v6, 0x0000ffff, port, 40);
        match_version(&v4);
        match_version(&v6);
        r = tc_tree_add(t, &v4);
        return r < 0 ? r : tc_tree_add(t, &v6);
}

static int add_destination(struct tc_tree *t, const struct tc_address *a, uint32_t minor,
                           const struct layout_hash *hash)
{
        bool v6 = a->n_bytes == 16;
        struct tc_object f = filter((hash ? HASHED_V4 : LINEAR_V4) + v6);
        uint32_t word;

        f.handle = minor & 0xfff;
        if (hash)
                f.handle |= (v6 ? TABLE_V6 : TABLE_V4) << 20 | layout_hash_bucket(hash, a) << 12;
        f.params.u32.classid = TC_ID(TC_OUR_MAJOR, minor);
        for (int i = 0; i < a->n_bytes; i += 4) {
                memcpy(&word, a->bytes + i, 4);
                match(&f, UINT32_MAX, ntohl(word), (v6 ? OFFSET_V6 : OFFSET_V4) + i);
        }
        match_version(&f);
        return tc_tree_add(t, &f);
}

/* A table with a bucket for each value of the hashed address bits, and the filter that leads to it. */
static int add_table(struct tc_tree *t, bool v6, const struct layout_hash *hash)
{
        struct tc_object table = filter(HASHED_V4 + v6), way = filter(HASHED_V4 + v6);
        uint32_t mask = htonl((uint32_t)(BUCKETS - 1) << hash->shift);
        int r;

        table.handle = way.params.u32.link = (v6 ? TABLE_V6 : TABLE_V4) << 20;
        table.params.u32.divisor = BUCKETS;
        way.handle = 1;
        memcpy(way.params.u32.hash_mask, &mask, sizeof mask);
        way.params.u32.hash_offset = (int16_t)((v6 ? OFFSET_V6 : OFFSET_V4) + 4 * hash->word);
        match_version(&way);
        r = tc_tree_add(t, &table);
        return r < 0 ? r : tc_tree_add(t, &way);
}

/* The hash of the installed table. */
static bool read_hash(const struct tc_tree *have, bool v6, struct layout_hash *ret)
{
        struct tc_object place = filter(HASHED_V4 + v6);
        const struct tc_object *way;
        uint32_t mask;

        place.handle = 1;
        way = tc_tree_find(have, &place);
        if (!way || way->kind != &tc_kind_u32 || way->params.u32.link == 0)
                return false;
        memcpy(&mask, way->params.u32.hash_mask, sizeof mask);
        mask = ntohl(mask);
        ret->word = (unsigned)(way->params.u32.hash_offset - (v6 ? OFFSET_V6 : OFFSET_V4)) / 4;
        ret->shift = mask ? (unsigned)__builtin_ctz(mask) : 0;
        return ret->word < (v6 ? 4 : 1) && ret->shift <= 32 - BUCKET_BITS &&
               mask == (uint32_t)(BUCKETS - 1) << ret->shift;
}

static int add_filters(struct tc_tree *t, const struct tc_plan *p, const uint32_t *minors,
                       const struct tc_tree *have)
{
        struct layout_hash hashes[2];
        size_t n_of[2] = {};
        int r = 0;

        for (size_t i = 0; i < p->n; i++)
                n_of[p->addresses[i].n_bytes == 16]++;
        for (int v6 = 0; r >= 0 && v6 < 2; v6++) {
                struct layout_hash old;

                if (n_of[v6] <= TC_LINEAR_MAX)
                        continue;
                layout_hash_choose(&hashes[v6], p, v6, read_hash(have, v6, &old) ? &old : NULL);
                r = add_table(t, v6, &hashes[v6]);
        }
        for (size_t i = 0; r >= 0 && i < p->n; i++) {
                bool v6 = p->addresses[i].n_bytes == 16;

                r = add_destination(t, &p->addresses[i], minors[i],
                                    n_of[v6] > TC_LINEAR_MAX ? &hashes[v6] : NULL);
        }
        if (r >= 0 && p->control_port > 0)
                r = add_control(t, p->control_port);
        return r;
}

/* Assigns class numbers: a destination keeps its number, or gets the lowest free one. */
struct numbers {
        bool taken[FIRST_MINOR]; /* by minor - FIRST_MINOR */
        uint32_t *minors;
};

static int compare_addresses(const void *a, const void *b)
{
        const struct tc_address *x = a, *y = b;

        return memcmp(x->bytes, y->bytes, sizeof x->bytes) ?: x->n_bytes - y->n_bytes;
}

struct known {
        struct tc_address address; /* first member: the sort key */
        uint32_t minor;
};

static int choose_numbers(struct numbers *n, const struct tc_plan *p, const struct tc_tree *have)
{
        _cleanup_free_ struct known *known = calloc(have->n + 1, sizeof *known);
        size_t n_known = 0;
        uint32_t next = 1;

        if (!known)
                return -ENOMEM;
        for (size_t i = 0; i < have->n; i++) {
                uint32_t minor = TC_MINOR(have->objects[i].params.u32.classid);
                struct known k = {.minor = minor};

                if (tc_layout_address(&have->objects[i], &k.address) && minor > FIRST_MINOR &&
                    minor < 2 * FIRST_MINOR)
                        known[n_known++] = k;
        }
        qsort(known, n_known, sizeof *known, compare_addresses);
        for (size_t i = 0; i < p->n; i++) {
                const struct known *k =
                        bsearch(&p->addresses[i], known, n_known, sizeof *known, compare_addresses);

                if (!k || n->taken[k->minor - FIRST_MINOR])
                        continue;
                n->minors[i] = k->minor;
                n->taken[k->minor - FIRST_MINOR] = true;
        }
        /* Prefers numbers whose classes are not draining. */
        for (size_t i = 0; i < n_known && p->n + n_known < TC_DESTINATIONS_MAX; i++)
                n->taken[known[i].minor - FIRST_MINOR] = true;
        for (size_t i = 0; i < p->n; i++) {
                if (n->minors[i] != 0)
                        continue;
                while (n->taken[next])
                        next++;
                n->taken[next] = true;
                n->minors[i] = FIRST_MINOR + next;
        }
        return 0;
}

int tc_layout_make(struct tc_tree *ret, const struct tc_plan *p, const struct tc_tree *have)
{
        static const struct tc_tree nothing;
        _cleanup_free_ uint32_t *minors = calloc(p->n, sizeof *minors);
        _cleanup_free_ struct numbers *numbers = calloc(1, sizeof *numbers);
        struct tc_tree t = {};
        int r = minors && numbers ? 0 : -ENOMEM;

        if (r >= 0) {
                numbers->minors = minors;
                if (tc_layout_owner(have) != TC_OWNER_OURS)
                        have = &nothing;
                r = choose_numbers(numbers, p, have);
        }
        if (r >= 0)
                r = layout_add_classes(&t, p, minors);
        if (r >= 0)
                r = add_filters(&t, p, minors, have);
        if (r < 0) {
                tc_tree_fini(&t);
                return r;
        }
        tc_tree_sort(&t);
        *ret = t;
        return 0;
}

/* Examines an installed tree: its backend, the owner of its root, and whether a dump can restore it. */

static const char *const classless[] = {
        "pfifo", "bfifo",  "pfifo_fast", "tbf",  "fq",      "fq_codel", "codel",
        "sfq",   "fq_pie", "pie",        "cake", "noqueue", "noop",     "sfb",
};
/* Their dumps lack parts that a request needs or may have had: RED's logarithm table, netem's distributions.
 */
static const char *const incomplete_kinds[] = {"red", "gred", "choke", "netem"};

static bool is_among(const char *kind, const char *const *kinds, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                if (strcmp(kind, kinds[i]) == 0)
                        return true;
        }
        return false;
}

static bool has_children(const struct tc_tree *t, const struct tc_object *root)
{
        for (size_t i = 0; i < t->n; i++) {
                const struct tc_object *o = &t->objects[i];

                if (o != root && o->handle != 0 && TC_MAJOR(o->parent) == TC_MAJOR(root->handle) &&
                    o->parent != TC_ROOT)
                        return true;
        }
        return false;
}

const struct tc_object *tc_layout_incomplete(const struct tc_tree *have)
{
        for (size_t i = 0; i < have->n; i++) {
                const struct tc_object *o = &have->objects[i];

                if (o->type == TC_QDISC && o->handle != 0 &&
                    (is_among(o->kind_name, incomplete_kinds, ARRAY_SIZE(incomplete_kinds)) ||
                     tc_object_is_missing_table(o)))
                        return o;
        }
        return NULL;
}

enum tc_backend tc_layout_backend(const struct tc_tree *have)
{
        const struct tc_object *root = tc_tree_qdisc(have, TC_ROOT);

        if (!root || root->handle != TC_OUR_ROOT || !root->kind)
                return TC_BACKEND_NONE;
        if (root->kind == &tc_kind_cbq)
                return root->params.cbq.off_time == TC_OUR_MAJOR ? TC_BACKEND_CBQ_TBF : TC_BACKEND_NONE;
        if (root->kind != &tc_kind_htb || root->params.htb_qdisc.rate2quantum != TC_OUR_MAJOR)
                return TC_BACKEND_NONE;
        for (size_t i = 0; i < have->n; i++) {
                const struct tc_object *o = &have->objects[i];

                if (o->type == TC_QDISC && o->kind == &tc_kind_tbf && TC_MINOR(o->parent) >= FIRST_MINOR)
                        return TC_BACKEND_HTB_TBF;
        }
        return TC_BACKEND_HTB;
}

const char *tc_backend_name(enum tc_backend backend)
{
        static const char *const names[] = {
                [TC_BACKEND_NONE] = "none",       [TC_BACKEND_AUTO] = "auto",       [TC_BACKEND_HTB] = "htb",
                [TC_BACKEND_HTB_TBF] = "htb+tbf", [TC_BACKEND_CBQ_TBF] = "cbq+tbf",
        };

        return names[backend];
}

enum tc_owner tc_layout_owner(const struct tc_tree *have)
{
        const struct tc_object *root = tc_tree_qdisc(have, TC_ROOT);

        if (!root || root->handle == 0)
                return TC_OWNER_KERNEL;
        if (tc_layout_backend(have) != TC_BACKEND_NONE)
                return TC_OWNER_OURS;
        if (is_among(root->kind_name, classless, ARRAY_SIZE(classless)) && !has_children(have, root) &&
            !tc_layout_incomplete(have))
                return TC_OWNER_CLASSLESS;
        return TC_OWNER_FOREIGN;
}
