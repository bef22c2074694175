/* Reads and writes the state file: JSON that contains the options of qdiscs in hexadecimal, as dumped. */
#include "shape/kernel/state_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "shape/model/kind.h"
#include "shape/model/netlink_message.h"

#define FOLDER "/run/evb"
#define FORMAT 1
#define NEW ".new"
#define OPEN_ATTEMPTS 100
/* Larger files are not state files: an object takes about 1 KiB. */
#define STATE_MAX_BYTES (64 << 20)
#ifndef SO_NETNS_COOKIE /* Linux 5.14 */
#define SO_NETNS_COOKIE 71
#endif

static char *to_hex(const uint8_t *bytes, size_t n)
{
        static const char digits[] = "0123456789abcdef";
        char *text = malloc(2 * n + 1);

        if (!text)
                return NULL;
        for (size_t i = 0; i < n; i++) {
                text[2 * i] = digits[bytes[i] >> 4];
                text[2 * i + 1] = digits[bytes[i] & 15];
        }
        text[2 * n] = '\0';
        return text;
}

/* -1: the character is not a digit. */
static int from_digit(char c)
{
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static uint8_t *from_hex(const char *text, size_t *ret_n)
{
        size_t length = strlen(text), n = length / 2;
        uint8_t *bytes = malloc(n + 1);
        int wrong = length % 2 == 0 ? 0 : -1;

        for (size_t i = 0; bytes && i < n; i++) {
                int high = from_digit(text[2 * i]), low = from_digit(text[2 * i + 1]);

                wrong |= high | low;
                bytes[i] = (uint8_t)((unsigned)high << 4 | (unsigned)low);
        }
        if (wrong & ~15) {
                free(bytes);
                return NULL;
        }
        *ret_n = n;
        return bytes;
}

static json_t *object_to_json(const struct tc_object *o)
{
        _cleanup_free_ char *hex = to_hex(o->options, o->options_bytes);

        _cleanup_free_ char *stab = o->has_stab ? to_hex(o->stab, sizeof o->stab) : NULL;

        return json_pack("{s:i, s:I, s:I, s:I, s:i, s:i, s:I, s:s, s:s, s:s*}", "type", (int)o->type,
                         "handle", (json_int_t)o->handle, "parent", (json_int_t)o->parent, "kernel_handle",
                         (json_int_t)o->kernel_handle, "priority", (int)o->priority, "protocol",
                         (int)o->protocol, "chain", (json_int_t)o->chain, "kind", o->kind_name, "options",
                         hex ?: "", "stab", stab);
}

static bool stab_from_hex(struct tc_object *o, const char *hex)
{
        size_t n = 0;
        _cleanup_free_ uint8_t *bytes = from_hex(hex, &n);

        if (!bytes || n != sizeof o->stab)
                return false;
        memcpy(o->stab, bytes, n);
        o->has_stab = true;
        return true;
}

/* The options are decoded in the same way as the options of a message. */
static int object_from_json(const json_t *j, struct tc_tree *t)
{
        json_int_t handle, parent, kernel_handle, chain = 0;
        int type, priority, protocol, r;
        const char *kind, *hex, *stab = NULL;
        struct tc_object o = {};

        if (json_unpack((json_t *)j, "{s:i, s:I, s:I, s:I, s:i, s:i, s?I, s:s, s:s, s?s}", "type", &type,
                        "handle", &handle, "parent", &parent, "kernel_handle", &kernel_handle, "priority",
                        &priority, "protocol", &protocol, "chain", &chain, "kind", &kind, "options", &hex,
                        "stab", &stab) < 0)
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
        if (stab && !stab_from_hex(&o, stab))
                return -EBADMSG;
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

static int asked_from_json(const json_t *j, struct tc_state *s)
{
        s->asked = calloc(json_array_size(j) + 1, sizeof *s->asked);
        if (!s->asked)
                return -ENOMEM;
        for (size_t i = 0; i < json_array_size(j); i++) {
                const char *address;
                json_int_t rate;

                if (json_unpack(json_array_get(j, i), "{s:s, s:I}", "address", &address, "rate_bps", &rate) <
                            0 ||
                    !tc_address_parse(&s->asked[s->n_asked].address, address))
                        return -EBADMSG;
                s->asked[s->n_asked].permille =
                        (uint32_t)json_integer_value(json_object_get(json_array_get(j, i), "permille"));
                s->asked[s->n_asked++].rate_bps = (uint64_t)rate;
        }
        return 0;
}

/* NULL: the file is not JSON, or cannot be read. json_loadfd() would read byte by byte. */
static json_t *read_json(int fd)
{
        _cleanup_free_ char *text = NULL;
        struct stat st;
        ssize_t n;

        if (fstat(fd, &st) < 0 || st.st_size > STATE_MAX_BYTES)
                return NULL;
        text = malloc((size_t)st.st_size + 1);
        n = text ? pread(fd, text, (size_t)st.st_size, 0) : -1;
        return n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
}

/* -ENOENT: there is no state, or it belongs to a device that was deleted. */
static int read_state(struct tc_state *s)
{
        json_t *j = read_json(s->fd);
        const json_t *saved = json_object_get(j, "saved");
        const char *of = json_string_value(json_object_get(j, "of"));
        int r = json_integer_value(json_object_get(j, "format")) == FORMAT && of ? 0 : -EBADMSG;
        struct stat st;

        if ((!j && fstat(s->fd, &st) == 0 && st.st_size == 0) || (of && strcmp(of, s->of) != 0))
                r = -ENOENT;

        for (size_t i = 0; r >= 0 && i < json_array_size(saved); i++)
                r = object_from_json(json_array_get(saved, i), &s->saved);
        s->restoring = json_is_true(json_object_get(j, "restoring"));
        s->sources = (uint32_t)json_integer_value(json_object_get(j, "sources"));
        if (r >= 0 && json_is_string(json_object_get(j, "device")))
                snprintf(s->name, sizeof s->name, "%s", json_string_value(json_object_get(j, "device")));
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
        s->restoring = false;
        s->sources = 0;
}

/* Unlike the number of a namespace, its cookie is unique until the next boot. If the cookie or the boot id is
 * unavailable, the identity consists of the other parts. */
static void make_identity(struct tc_state *s, const struct tc_device *d)
{
        _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        _cleanup_close_ int from = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        char boot[40] = "";
        uint64_t cookie = 0;
        socklen_t size = sizeof cookie;

        if (from >= 0 && read(from, boot, sizeof boot - 1) > 0)
                boot[strcspn(boot, "\n")] = '\0';
        if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) < 0)
                cookie = 0;
        snprintf(s->of, sizeof s->of, "%s %llu %d", boot, (unsigned long long)cookie, d->ifindex);
}

static const char *state_folder(void)
{
        return getenv("EVB_STATE_DIRECTORY") ?: FOLDER;
}

/* The path contains the device's number, because its name may change. */
static int make_path(struct tc_state *s, const struct tc_device *d)
{
        const char *folder = state_folder();
        struct stat ns;

        if (stat("/proc/thread-self/ns/net", &ns) < 0)
                return -errno;
        make_identity(s, d);
        snprintf(s->name, sizeof s->name, "%s", d->name);
        return (size_t)snprintf(s->path, sizeof s->path, "%s/qos-%lu-%d", folder, (unsigned long)ns.st_ino,
                                d->ifindex) >= sizeof s->path
                       ? -ENAMETOOLONG
                       : 0;
}

static int lock(int fd, int *ret_holder)
{
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

        if (fcntl(fd, F_SETLK, &l) == 0)
                return 0;
        if (errno != EACCES && errno != EAGAIN)
                return -errno;
        *ret_holder = fcntl(fd, F_GETLK, &l) == 0 && l.l_type != F_UNLCK ? l.l_pid : 0;
        return -EBUSY;
}

/* The previous holder may replace or remove the file between open and lock. */
static int open_locked(const char *path, int *ret_holder)
{
        for (unsigned attempt = 0; attempt < OPEN_ATTEMPTS; attempt++) {
                _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
                struct stat ours, there;
                int r;

                if (fd < 0)
                        return -errno;
                r = lock(fd, ret_holder);
                if (r < 0)
                        return r;
                if (fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
                    ours.st_dev == there.st_dev)
                        return take_fd(&fd);
        }
        return -EBUSY;
}

int tc_state_open(struct tc_state *ret, const struct tc_device *d, int *ret_holder)
{
        struct tc_state s = {.fd = -1};
        int r = make_path(&s, d);

        *ret_holder = 0;
        if (r < 0)
                return r;
        if (mkdir(state_folder(), 0755) < 0 && errno != EEXIST)
                return -errno;
        s.fd = open_locked(s.path, ret_holder);
        if (s.fd < 0)
                return s.fd;
        r = read_state(&s);
        if (r < 0) {
                forget(&s);
                s.empty = true;
                s.unreadable = r != -ENOENT;
        }
        *ret = s;
        return 0;
}

int tc_state_peek(struct tc_state *ret, const struct tc_device *d)
{
        struct tc_state s = {.fd = -1};
        int r = make_path(&s, d);

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

/* Writes a new file, and locks it before it replaces the old one. So a reader, or the successor of a killed
 * process, finds a complete file. */
static int replace(struct tc_state *s, const json_t *j)
{
        _cleanup_free_ char *text = json_dumps(j, JSON_COMPACT);
        char path[sizeof s->path + sizeof NEW];
        int fd, holder, r = 0;

        snprintf(path, sizeof path, "%s" NEW, s->path);
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0)
                return -errno;
        errno = 0;
        if (!text)
                r = -ENOMEM;
        else if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
                r = errno ? -errno : -ENOSPC;
        if (r >= 0)
                r = lock(fd, &holder);
        if (r >= 0 && rename(path, s->path) < 0)
                r = -errno;
        if (r < 0) {
                (void)unlink(path);
                close(fd);
                return r;
        }
        close(s->fd);
        s->fd = fd;
        return 0;
}

int tc_state_write(struct tc_state *s)
{
        json_t *saved = json_array(), *asked = json_array(), *j;
        char address[TC_ADDRESS_TEXT_MAX];
        int r;

        for (size_t i = 0; i < s->saved.n; i++)
                json_array_append_new(saved, object_to_json(&s->saved.objects[i]));
        for (size_t i = 0; i < s->n_asked; i++)
                json_array_append_new(asked, json_pack("{s:s, s:I, s:i}", "address",
                                                       tc_address_format(&s->asked[i].address, address),
                                                       "rate_bps", (json_int_t)s->asked[i].rate_bps,
                                                       "permille", (int)s->asked[i].permille));
        j = json_pack("{s:i, s:s, s:s, s:i, s:b, s:o, s:o}", "format", FORMAT, "of", s->of, "device", s->name,
                      "sources", (int)s->sources, "restoring", (int)s->restoring, "saved", saved, "asked",
                      asked);
        if (!j)
                return -ENOMEM;
        r = replace(s, j);
        json_decref(j);
        if (r >= 0)
                s->empty = false;
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
        if (s->fd >= 0 && s->empty) {
                char path[sizeof s->path + sizeof NEW];

                /* If a process was killed while it wrote, it left this file. */
                snprintf(path, sizeof path, "%s" NEW, s->path);
                (void)unlink(path);
                (void)unlink(s->path);
        }
        if (s->fd >= 0)
                close(s->fd);
        s->fd = -1;
}

/* Whether the file was written during this boot, in this namespace, for a device named `name`, but the
 * interface `ifindex` no longer has this name. */
static bool is_lost(const char *path, int ifindex, const char *name, struct tc_state_lost *ret)
{
        json_t *j = json_load_file(path, 0, NULL);
        const char *of = json_string_value(json_object_get(j, "of"));
        const char *called = json_string_value(json_object_get(j, "device"));
        struct tc_state s = {.fd = -1};
        bool lost;

        make_identity(&s, &(struct tc_device){.ifindex = ifindex});
        lost = of && called && strcmp(of, s.of) == 0 && strcmp(called, name) == 0;
        json_decref(j);
        if (!lost)
                return false;
        *ret = (struct tc_state_lost){.ifindex = ifindex};
        (void)if_indextoname((unsigned)ifindex, ret->now);
        snprintf(ret->path, sizeof ret->path, "%s", path);
        return strcmp(ret->now, name) != 0;
}

bool tc_state_find_lost(const char *name, bool also_renamed, struct tc_state_lost *ret)
{
        char present[IF_NAMESIZE];
        DIR *folder = opendir(state_folder());
        bool found = false;
        struct stat ns;

        if (!folder)
                return false;
        if (stat("/proc/thread-self/ns/net", &ns) < 0)
                ns.st_ino = 0;
        for (const struct dirent *d; !found && (d = readdir(folder));) {
                char path[256];
                unsigned long inode;
                int ifindex, end = 0;

                if (sscanf(d->d_name, "qos-%lu-%d%n", &inode, &ifindex, &end) == 2 && !d->d_name[end] &&
                    inode == (unsigned long)ns.st_ino &&
                    (also_renamed || !if_indextoname((unsigned)ifindex, present)) &&
                    (size_t)snprintf(path, sizeof path, "%s/%s", state_folder(), d->d_name) < sizeof path)
                        found = is_lost(path, ifindex, name, ret);
        }
        closedir(folder);
        return found;
}

int tc_state_remove_lost(const struct tc_state_lost *lost)
{
        int holder = 0, fd = open_locked(lost->path, &holder);

        if (fd < 0)
                return fd;
        close(fd);
        return unlink(lost->path) < 0 ? -errno : 0;
}
