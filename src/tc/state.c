/* The file of what was there before us, as JSON; options as they were dumped, in hexadecimal. */
#include "evb/tc/state.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "evb/base/util.h"
#include "evb/tc/kind.h"
#include "evb/tc/message.h"

#define FOLDER "/run/evb"
#define FORMAT 1

static char *to_hex(const uint8_t *bytes, size_t n)
{
        char *text = malloc(2 * n + 1);

        if (!text)
                return NULL;
        for (size_t i = 0; i < n; i++)
                snprintf(text + 2 * i, 3, "%02x", bytes[i]);
        text[2 * n] = '\0';
        return text;
}

static uint8_t *from_hex(const char *text, size_t *ret_n)
{
        size_t n = strlen(text) / 2;
        uint8_t *bytes = malloc(n + 1);

        for (size_t i = 0; bytes && i < n; i++) {
                unsigned v;

                if (sscanf(text + 2 * i, "%2x", &v) != 1) {
                        free(bytes);
                        return NULL;
                }
                bytes[i] = (uint8_t)v;
        }
        *ret_n = n;
        return bytes;
}

static json_t *object_to_json(const struct tc_object *o)
{
        _cleanup_free_ char *hex = to_hex(o->options, o->options_bytes);

        return json_pack("{s:i, s:I, s:I, s:I, s:i, s:i, s:I, s:s, s:s}", "type", (int)o->type, "handle", (json_int_t)o->handle, "parent",
                         (json_int_t)o->parent, "kernel_handle", (json_int_t)o->kernel_handle, "priority", (int)o->priority, "protocol",
                         (int)o->protocol, "chain", (json_int_t)o->chain, "kind", o->kind_name, "options", hex ?: "");
}

/* Decoded as a message would be. */
static int object_from_json(const json_t *j, struct tc_tree *t)
{
        json_int_t handle, parent, kernel_handle, chain = 0;
        int type, priority, protocol, r;
        const char *kind, *hex;
        struct tc_object o = {};

        if (json_unpack((json_t *)j, "{s:i, s:I, s:I, s:I, s:i, s:i, s?I, s:s, s:s}", "type", &type, "handle", &handle, "parent", &parent,
                        "kernel_handle", &kernel_handle, "priority", &priority, "protocol", &protocol, "chain", &chain, "kind", &kind, "options", &hex) < 0)
                return -EBADMSG;
        if (type < TC_QDISC || type > TC_FILTER || strlen(kind) >= sizeof o.kind_name)
                return -EBADMSG;
        o = (struct tc_object){
                .type = (enum tc_type)type,
                .handle = (uint32_t)handle,
                .parent = (uint32_t)parent,
                .kernel_handle = (uint32_t)kernel_handle,
                .priority = (uint16_t)priority,
                .protocol = (uint16_t)protocol,
                .chain = (uint32_t)chain,
        };
        strcpy(o.kind_name, kind);
        o.options = from_hex(hex, &o.options_bytes);
        if (!o.options)
                return -EBADMSG;
        r = tc_object_decode_options(&o);
        if (r >= 0)
                r = tc_tree_add(t, &o);
        if (r < 0)
                free(o.options);
        return r;
}

static json_t *tuning_to_json(const struct tc_tuning *t)
{
        return json_pack("[I, I, I, I, I]", (json_int_t)t->mtu_bytes, (json_int_t)t->rx_usecs, (json_int_t)t->rx_frames, (json_int_t)t->tx_usecs,
                         (json_int_t)t->tx_frames);
}

static int tuning_from_json(const json_t *j, struct tc_tuning *ret)
{
        json_int_t v[5];

        if (json_unpack((json_t *)j, "[I, I, I, I, I]", &v[0], &v[1], &v[2], &v[3], &v[4]) < 0)
                return -EBADMSG;
        *ret = (struct tc_tuning){(uint32_t)v[0], (uint32_t)v[1], (uint32_t)v[2], (uint32_t)v[3], (uint32_t)v[4]};
        return 0;
}

static int asked_from_json(const json_t *j, struct tc_state *s)
{
        s->asked = calloc(json_array_size(j) + 1, sizeof *s->asked);
        if (!s->asked)
                return -ENOMEM;
        for (size_t i = 0; i < json_array_size(j); i++) {
                const char *address;
                json_int_t rate;

                if (json_unpack(json_array_get(j, i), "{s:s, s:I}", "address", &address, "rate_bps", &rate) < 0 ||
                    !tc_address_parse(&s->asked[s->n_asked].address, address))
                        return -EBADMSG;
                s->asked[s->n_asked++].rate_bps = (uint64_t)rate;
        }
        return 0;
}

static int read_state(struct tc_state *s)
{
        json_t *j = json_loadfd(s->fd, 0, NULL);
        const json_t *saved = json_object_get(j, "saved");
        int r = json_integer_value(json_object_get(j, "format")) == FORMAT ? 0 : -EBADMSG;

        for (size_t i = 0; r >= 0 && i < json_array_size(saved); i++)
                r = object_from_json(json_array_get(saved, i), &s->saved);
        if (r >= 0)
                r = tuning_from_json(json_object_get(j, "previous"), &s->previous);
        if (r >= 0)
                r = asked_from_json(json_object_get(j, "asked"), s);
        json_decref(j);
        tc_tree_sort(&s->saved);
        return r;
}

static void forget(struct tc_state *s)
{
        tc_tree_fini(&s->saved);
        free(s->asked);
        s->asked = NULL;
        s->n_asked = 0;
        s->previous = TC_TUNING_UNCHANGED;
}

static int make_path(const struct tc_device *d, char *path, size_t size)
{
        const char *folder = getenv("EVB_STATE_DIRECTORY") ?: FOLDER;
        struct stat ns;

        if (stat("/proc/thread-self/ns/net", &ns) < 0)
                return -errno;
        if (mkdir(folder, 0755) < 0 && errno != EEXIST)
                return -errno;
        return (size_t)snprintf(path, size, "%s/qos-%lu-%s", folder, (unsigned long)ns.st_ino, d->name) >= size ? -ENAMETOOLONG : 0;
}

static int lock(struct tc_state *s, int *ret_holder)
{
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

        if (fcntl(s->fd, F_SETLK, &l) == 0)
                return 0;
        if (errno != EACCES && errno != EAGAIN)
                return -errno;
        *ret_holder = fcntl(s->fd, F_GETLK, &l) == 0 && l.l_type != F_UNLCK ? l.l_pid : 0;
        return -EBUSY;
}

int tc_state_open(struct tc_state *ret, const struct tc_device *d, int *ret_holder)
{
        struct tc_state s = {.fd = -1, .previous = TC_TUNING_UNCHANGED};
        int r = make_path(d, s.path, sizeof s.path);

        *ret_holder = 0;
        if (r < 0)
                return r;
        s.fd = open(s.path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (s.fd < 0)
                return -errno;
        r = lock(&s, ret_holder);
        if (r < 0) {
                close(s.fd);
                return r;
        }
        if (read_state(&s) < 0) {
                forget(&s);
                s.empty = true;
        }
        *ret = s;
        return 0;
}

int tc_state_peek(struct tc_state *ret, const struct tc_device *d)
{
        struct tc_state s = {.fd = -1, .previous = TC_TUNING_UNCHANGED};
        int r = make_path(d, s.path, sizeof s.path);

        if (r < 0)
                return r;
        s.fd = open(s.path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (s.fd < 0)
                return -errno;
        r = read_state(&s);
        close(take_fd(&s.fd));
        if (r < 0) {
                forget(&s);
                return r;
        }
        *ret = s;
        return 0;
}

int tc_state_write(struct tc_state *s)
{
        json_t *saved = json_array(), *asked = json_array(), *j;
        char address[TC_ADDRESS_TEXT_MAX];
        int r = 0;

        for (size_t i = 0; i < s->saved.n; i++)
                json_array_append_new(saved, object_to_json(&s->saved.objects[i]));
        for (size_t i = 0; i < s->n_asked; i++)
                json_array_append_new(asked, json_pack("{s:s, s:I}", "address", tc_address_format(&s->asked[i].address, address), "rate_bps",
                                                       (json_int_t)s->asked[i].rate_bps));
        j = json_pack("{s:i, s:o, s:o, s:o}", "format", FORMAT, "saved", saved, "previous", tuning_to_json(&s->previous), "asked", asked);
        /* Through the descriptor that holds the lock. */
        if (!j)
                return -ENOMEM;
        if (ftruncate(s->fd, 0) < 0 || lseek(s->fd, 0, SEEK_SET) < 0)
                r = -errno;
        else if (json_dumpfd(j, s->fd, JSON_COMPACT) < 0)
                r = errno ? -errno : -EIO;
        json_decref(j);
        s->empty = r < 0;
        return r;
}

void tc_state_erase(struct tc_state *s)
{
        forget(s);
        s->empty = true;
        (void)!ftruncate(s->fd, 0);
}

void tc_state_fini(struct tc_state *s)
{
        if (!s)
                return;
        forget(s);
        if (s->fd >= 0 && s->empty)
                (void)unlink(s->path);
        if (s->fd >= 0)
                close(s->fd);
        s->fd = -1;
}
