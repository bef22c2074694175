/* The state file of a shaped device, which may be damaged, or another program's. What can be read can be
 * compared, sent to the kernel, and written as the same state. The file names the loopback device, which
 * nothing here changes. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "shape/model/netlink_message.h"
#include "shape/kernel/state_file.h"
#include "fuzz.h"

static struct {
        char folder[32];
        struct tc_device device;
        char of[96], path[256];
} t;

static void remove_folder(void)
{
        unlink(t.path);
        rmdir(t.folder);
}

static void set_up(void)
{
        struct tc_state s;
        int holder;

        /* In memory, if possible. */
        strcpy(t.folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/evb-fuzz-XXXXXX" : "/tmp/evb-fuzz-XXXXXX");
        assert(mkdtemp(t.folder));
        setenv("EVB_STATE_DIRECTORY", t.folder, 1);
        t.device = (struct tc_device){.ifindex = 1, .name = "lo"};
        assert(tc_state_open(&s, &t.device, &holder) == 0);
        strcpy(t.of, s.of);
        strcpy(t.path, s.path);
        tc_state_fini(&s);
        atexit(remove_folder);
}

/* Frees the text. */
static bool write_text(int fd, char *text)
{
        bool ok = text && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

        free(text);
        return ok;
}

/* The input; if it is an object, as that of this device. */
static bool write_file(const uint8_t *bytes, size_t n)
{
        int fd = open(t.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        json_t *o = json_loadb((const char *)bytes, n, 0, NULL);
        bool ok = fd >= 0;

        if (ok && json_is_object(o)) {
                json_object_set_new(o, "of", json_string(t.of));
                ok = write_text(fd, json_dumps(o, 0));
        } else if (ok)
                ok = write(fd, bytes, n) == (ssize_t)n;
        json_decref(o);
        if (fd >= 0)
                close(fd);
        return ok;
}

static void check_objects(const struct tc_tree *tree)
{
        static _Alignas(struct nlmsghdr) char bytes[TC_MESSAGE_MAX];

        for (size_t i = 0; i < tree->n; i++) {
                const struct tc_change change = {.verb = TC_ADD, .object = &tree->objects[i]};
                int r = tc_message_encode((struct nlmsghdr *)bytes, 1, &change);

                assert(r == 0 || (r == -EMSGSIZE && !tree->objects[i].kind));
                assert(i == 0 || tc_object_compare(&tree->objects[i - 1], &tree->objects[i]) <= 0);
        }
}

static void check_written(const struct tc_state *first)
{
        _cleanup_(tc_state_fini) struct tc_state s, again;
        int holder;

        assert(tc_state_open(&s, &t.device, &holder) == 0 && !s.empty && !s.unreadable);
        assert(tc_state_write(&s) == 0);
        assert(tc_state_peek(&again, &t.device) == 0);
        assert(again.saved.n == first->saved.n && again.n_asked == first->n_asked);
        for (size_t i = 0; i < again.saved.n; i++)
                assert(again.saved.objects[i].handle == first->saved.objects[i].handle &&
                       again.saved.objects[i].options_bytes == first->saved.objects[i].options_bytes);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        struct tc_state s;

        if (!t.folder[0])
                set_up();
        if (!write_file(bytes, size_bytes) || tc_state_peek(&s, &t.device) < 0)
                return false;
        check_objects(&s.saved);
        check_written(&s);
        tc_state_fini(&s);
        return true;
}
