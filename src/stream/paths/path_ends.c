/* The ends of a path: the file, which has no name so that it cannot be left over, the sockets, and the
 * receiving process. */
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <math.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/pattern.h"
#include "base/util.h"
#include "path_internal.h"
#include "shape/kernel/socket.h"
#include "sys/disk_writer.h"
#include "sys/loop.h"

#define COPY_STEP_BYTES ((uint64_t)1 << 20)

/* Makes an empty file to read and write. Returns its descriptor, owned by the caller, or negative errno. */
static int scratch_file_open(const char *directory)
{
        char path[4096];
        int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

        /* Some file systems do not support O_TMPFILE. */
        if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
                return fd < 0 ? -errno : fd;
        snprintf(path, sizeof path, "%.4000s/evb-scratch-XXXXXX", directory);
        fd = mkostemp(path, O_CLOEXEC);
        if (fd < 0)
                return -errno;
        (void)unlink(path);
        return fd;
}

/* Fills the file with the pattern of this key (base/pattern.h). All of it is on disk on return, because later
 * writes of the kernel would disturb a measurement. Returns negative errno; -EINTR: a signal of
 * signals_hold() is pending. */
static int scratch_file_fill(int fd, uint64_t key, uint64_t size_bytes)
{
        _cleanup_free_ uint8_t *bytes = malloc(COPY_STEP_BYTES);
        struct disk_behind behind = {};
        int r = bytes ? 0 : -ENOMEM;

        for (uint64_t at = 0; r >= 0 && at < size_bytes;) {
                size_t n = (size_t)MIN(COPY_STEP_BYTES, size_bytes - at);
                ssize_t written;

                if (signals_are_waiting())
                        return -EINTR;
                pattern_fill(key, bytes, at, n);
                written = pwrite(fd, bytes, n, (off_t)at);
                if (written <= 0)
                        return written < 0 ? -errno : -EIO;
                at += (uint64_t)written;
                r = disk_write_behind(&behind, fd, at);
        }
        return r >= 0 && fdatasync(fd) < 0 ? -errno : r;
}

/* Makes the file that the data paths send: without a name, filled with a pattern, once for the page cache and
 * once for the disk. If there was only one file, it would have to be read again each time it is removed from
 * the cache. */

#define STEP_BYTES (1u << 20)
/* Minimum free space that must remain on the disk. */
#define SPARE_BYTES (UINT64_C(256) << 20)

struct path_file {
        int fds[PATH_SOURCES]; /* -1: not requested */
        int direct;            /* PATH_DISK with O_DIRECT; negative errno: the file system refused it */
        uint64_t size_bytes;
};

static int check_room(const char *directory, uint64_t size_bytes, struct error *e)
{
        struct statvfs s;
        uint64_t free_bytes;

        if (statvfs(directory, &s) < 0)
                return error_set(e, -errno, "cannot read the free space: %m");
        free_bytes = (uint64_t)s.f_bavail * s.f_frsize;
        if (free_bytes >= size_bytes + SPARE_BYTES)
                return 0;
        return error_set(e, -ENOSPC,
                         "%llu MB are free, and %llu MB needed; choose a smaller file or another directory",
                         (unsigned long long)(free_bytes / 1000000),
                         (unsigned long long)((size_bytes + SPARE_BYTES) / 1000000));
}

static bool is_file(const char *place)
{
        struct stat s;

        return stat(place, &s) == 0 && S_ISREG(s.st_mode);
}

/* Opens the user's file at `place`; *ret_empty: whether it must be filled. */
static int open_kept(struct path_file *f, enum path_source source, const char *place, bool *ret_empty,
                     struct error *e)
{
        struct stat s;

        f->fds[source] = open(place, O_RDWR | O_CLOEXEC);
        if (f->fds[source] < 0 || fstat(f->fds[source], &s) < 0)
                return error_set(e, -errno, "%m");
        *ret_empty = s.st_size == 0;
        if (*ret_empty || (uint64_t)s.st_size == f->size_bytes)
                return 0;
        return error_set(e, -EINVAL, "has %lld bytes; expected an empty file, or one of %llu bytes",
                         (long long)s.st_size, (unsigned long long)f->size_bytes);
}

static int make(struct path_file *f, enum path_source source, const char *place, struct error *e)
{
        bool empty = true;
        char name[64];
        int r = 0;

        if (is_file(place))
                r = open_kept(f, source, place, &empty, e);
        else {
                f->fds[source] = scratch_file_open(place);
                if (f->fds[source] < 0)
                        return error_set(e, f->fds[source], "cannot make a file: %m");
        }
        if (r < 0)
                return r;
        if (empty)
                r = scratch_file_fill(f->fds[source], pattern_key(0, 0, 0), f->size_bytes);
        if (r < 0)
                return error_set(e, r, "cannot write the file: %m");
        if (source == PATH_DISK) {
                snprintf(name, sizeof name, "/proc/self/fd/%d", f->fds[source]);
                f->direct = open(name, O_RDONLY | O_DIRECT | O_CLOEXEC);
                f->direct = f->direct < 0 ? -errno : f->direct;
        }
        return 0;
}

int path_file_new(struct path_file **ret, const char *place, uint64_t size_bytes,
                  const bool want[static PATH_SOURCES], struct error *e)
{
        struct path_file *f = malloc(sizeof *f);
        int r;

        if (!f)
                return error_set(e, -ENOMEM, "cannot make a file: %m");
        *f = (struct path_file){.fds = {-1, -1}, .direct = -1, .size_bytes = size_bytes};
        r = is_file(place)
                    ? 0
                    : check_room(place, size_bytes * ((uint64_t)want[PATH_CACHE] + want[PATH_DISK]), e);
        for (unsigned i = 0; i < PATH_SOURCES && r >= 0; i++) {
                if (want[i])
                        r = make(f, i, place, e);
        }
        if (r < 0) {
                path_file_free(f);
                return error_locate(e, "%s", place);
        }
        *ret = f;
        return 0;
}

struct path_file *path_file_free(struct path_file *f)
{
        if (!f)
                return NULL;
        for (unsigned i = 0; i < PATH_SOURCES; i++) {
                if (f->fds[i] >= 0)
                        close(f->fds[i]);
        }
        if (f->direct >= 0)
                close(f->direct);
        free(f);
        return NULL;
}

int path_file_descriptor(const struct path_file *f, enum path_source source, enum path_reads reads)
{
        return source == PATH_DISK && reads == PATH_DIRECT ? f->direct : f->fds[source];
}

uint64_t path_file_bytes(const struct path_file *f)
{
        return f->size_bytes;
}

void path_file_empty(const struct path_file *f)
{
        if (f->fds[PATH_DISK] >= 0)
                (void)posix_fadvise(f->fds[PATH_DISK], 0, 0, POSIX_FADV_DONTNEED);
}

double path_file_cached_share(const struct path_file *f, enum path_source source)
{
        size_t page = (size_t)sysconf(_SC_PAGESIZE), n = f->size_bytes / page, cached = 0;
        _cleanup_free_ unsigned char *pages = malloc(n);
        void *map = mmap(NULL, f->size_bytes, PROT_READ, MAP_SHARED, f->fds[source], 0);
        bool known = false;

        if (map != MAP_FAILED && pages)
                known = mincore(map, f->size_bytes, pages) == 0;
        if (map != MAP_FAILED)
                munmap(map, f->size_bytes);
        for (size_t i = 0; known && i < n; i++)
                cached += pages[i] & 1;
        return known ? (double)cached / (double)n : NAN;
}

int path_file_warm(const struct path_file *f)
{
        _cleanup_free_ uint8_t *bytes = NULL;

        if (path_file_cached_share(f, PATH_CACHE) == 1)
                return 0;
        bytes = malloc(STEP_BYTES);
        for (uint64_t at = 0; bytes && at < f->size_bytes; at += STEP_BYTES) {
                if (pread(f->fds[PATH_CACHE], bytes, STEP_BYTES, (off_t)at) < 0)
                        return -errno;
        }
        return bytes ? 0 : -ENOMEM;
}

/* Opens a pair of connected sockets on the loopback device. */

/* A burst of the sender, which the receiver must read in its next turn. */
#define RECEIVE_BUFFER_BYTES (8 << 20)

static int open_receiver(enum path_wire wire, struct sockaddr_in *ret)
{
        _cleanup_close_ int fd =
                socket(AF_INET, (wire == PATH_TCP ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
        socklen_t size = sizeof *ret;
        int bytes = RECEIVE_BUFFER_BYTES;

        *ret = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        if (fd < 0)
                return -errno;
        /* TCP sizes its buffers itself. */
        if (wire == PATH_UDP && setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0)
                (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
        if (bind(fd, (struct sockaddr *)ret, size) < 0 || getsockname(fd, (struct sockaddr *)ret, &size) < 0)
                return -errno;
        if (wire == PATH_TCP && listen(fd, 1) < 0)
                return -errno;
        return take_fd(&fd);
}

static int open_sender(enum path_wire wire, const struct sockaddr_in *to)
{
        _cleanup_close_ int fd =
                socket(AF_INET, (wire == PATH_TCP ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);

        if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof *to) < 0)
                return -errno;
        return take_fd(&fd);
}

int path_link_open(struct path_link *l, enum path_wire wire)
{
        struct sockaddr_in at;
        int listener, r = 0;

        *l = (struct path_link){-1, -1};
        l->receiver = open_receiver(wire, &at);
        if (l->receiver >= 0)
                l->sender = open_sender(wire, &at);
        if (l->receiver < 0 || l->sender < 0) {
                r = l->receiver < 0 ? l->receiver : l->sender;
                path_link_close(l);
                return r;
        }
        if (wire == PATH_UDP)
                return 0;
        listener = l->receiver;
        l->receiver = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        r = l->receiver < 0 ? -errno : 0;
        close(listener);
        if (r < 0)
                path_link_close(l);
        return r;
}

void path_link_close(struct path_link *l)
{
        if (l->sender >= 0)
                close(l->sender);
        if (l->receiver >= 0)
                close(l->receiver);
        *l = (struct path_link){-1, -1};
}

/* Makes a device that discards every packet, so that a sender is measured without a receiver's load, as if
 * the receiver were on another machine. It is a dummy device or, if the kernel has none, an ifb device, which
 * discards packets that were not redirected to it (ifb_xmit() in the kernel). */

#define DEVICE "sink"
#define MTU 65535u
/* RFC 5737: reserved for documentation. */
#define OWN_ADDRESS 0xC0000201u  /* 192.0.2.1 */
#define PEER_ADDRESS 0xC0000202u /* 192.0.2.2 */
#define PEER_PORT 9              /* discard, RFC 863 */

static int make_device(struct tc_socket *at, const char *kind)
{
        uint8_t buffer[256] __attribute__((aligned(8))) = {};
        struct nlmsghdr *m = mnl_nlmsg_put_header(buffer);
        struct nlattr *info;
        struct tc_ack ack;

        (void)mnl_nlmsg_put_extra_header(m, sizeof(struct ifinfomsg));
        m->nlmsg_type = RTM_NEWLINK;
        m->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        mnl_attr_put_strz(m, IFLA_IFNAME, DEVICE);
        mnl_attr_put_u32(m, IFLA_MTU, MTU);
        info = mnl_attr_nest_start(m, IFLA_LINKINFO);
        mnl_attr_put_str(m, IFLA_INFO_KIND, kind);
        mnl_attr_nest_end(m, info);
        return tc_socket_ask(at, m, NULL, NULL, &ack);
}

static int make_any_device(void)
{
        static const char *const kinds[] = {"dummy", "ifb"};
        struct tc_socket *at = NULL;
        int r = tc_socket_new(&at);

        for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(kinds); i++) {
                r = make_device(at, kinds[i]);
                if (r >= 0)
                        break;
                r = i + 1 < ARRAY_SIZE(kinds) ? 0 : r;
        }
        tc_socket_free(at);
        return r;
}

/* netdevice(7). Without ARP, packets leave although no machine has the peer's address. */
static int configure(int fd)
{
        struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(OWN_ADDRESS)},
                           mask = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xFFFFFF00u)};
        struct ifreq request = {.ifr_name = DEVICE};

        memcpy(&request.ifr_addr, &own, sizeof own);
        if (ioctl(fd, SIOCSIFADDR, &request) < 0)
                return -errno;
        memcpy(&request.ifr_addr, &mask, sizeof mask);
        if (ioctl(fd, SIOCSIFNETMASK, &request) < 0)
                return -errno;
        request.ifr_flags = IFF_UP | IFF_NOARP;
        return ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

static int refused(const char **ret_what, const char *what, int r)
{
        *ret_what = what;
        return r;
}

int path_sink_open(const char **ret_what)
{
        struct sockaddr_in to = {
                .sin_family = AF_INET, .sin_port = htons(PEER_PORT), .sin_addr.s_addr = htonl(PEER_ADDRESS)};
        _cleanup_close_ int fd = -1;
        int r;

        if (unshare(CLONE_NEWNET) < 0)
                return refused(ret_what, "unshare of a network namespace", -errno);
        r = make_any_device();
        if (r < 0)
                return refused(ret_what, "rtnetlink: make a dummy or ifb device", r);
        fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return refused(ret_what, "socket", -errno);
        r = configure(fd);
        if (r < 0)
                return refused(ret_what, "ioctl: configure the device", r);
        if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
                return refused(ret_what, "connect", -errno);
        return take_fd(&fd);
}

/* The receiving process: checks every byte that arrives, or discards all without copying them. */

#define BUFFER_BYTES 262144u
#define DISCARD_BATCH 64u
/* Bytes of a stream discarded per call. */
#define DISCARD_BYTES (1u << 20)

/* MSG_TRUNC discards the bytes that do not fit, and reports their number (udp(7), tcp(7)). */
static ssize_t discard_stream(int socket, struct path_shared *shared)
{
        ssize_t n = recv(socket, NULL, DISCARD_BYTES, MSG_TRUNC);

        shared->received_bytes += n > 0 ? (uint64_t)n : 0;
        return n;
}

static ssize_t discard_datagrams(int socket, struct path_shared *shared)
{
        struct mmsghdr messages[DISCARD_BATCH] = {};
        int n = recvmmsg(socket, messages, DISCARD_BATCH, MSG_WAITFORONE | MSG_TRUNC, NULL);

        for (int i = 0; i < n; i++)
                shared->received_bytes += messages[i].msg_len;
        return n;
}

static ssize_t check_datagram(int socket, struct path_check *check, uint8_t *buffer)
{
        ssize_t n = recv(socket, buffer, BUFFER_BYTES, 0);

        if (n >= 0)
                path_check_datagram(check, buffer, (size_t)n);
        return n;
}

/* `*held`: number of bytes at the beginning of the buffer that belong to an incomplete header. */
static ssize_t check_stream(int socket, struct path_check *check, uint8_t *buffer, size_t *held)
{
        ssize_t n = recv(socket, buffer + *held, BUFFER_BYTES - *held, 0);
        size_t all, used;

        if (n <= 0)
                return n;
        all = *held + (size_t)n;
        used = path_check_stream(check, buffer, all);
        memmove(buffer, buffer + used, all - used);
        *held = all - used;
        return n;
}

void path_receive(struct path_shared *shared, int socket, enum path_wire wire, struct path_check *check)
{
        struct timeval wait = {.tv_usec = 20000};
        uint8_t *buffer = malloc(BUFFER_BYTES);
        size_t held = 0;

        (void)setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        while (buffer) {
                bool stop = atomic_load(&shared->stop);
                ssize_t n = wire == PATH_TCP ? check ? check_stream(socket, check, buffer, &held)
                                                     : discard_stream(socket, shared)
                            : check ? check_datagram(socket, check, buffer)
                                             : discard_datagrams(socket, shared);

                if (n < 0 && errno != EAGAIN && errno != EINTR) {
                        shared->receive_error = -errno;
                        break;
                }
                if (n == 0 && wire == PATH_TCP)
                        break;
                /* No data arrived, although the sender had already ended. */
                if (n < 0 && stop)
                        break;
                /* Ends the wait of a sender for data that will never be intact. */
                if (check)
                        atomic_store(&shared->received_packets,
                                     check->broken ? UINT64_MAX >> 1 : check->packets);
        }
        if (check) {
                shared->checked_bytes = check->bytes;
                shared->intact = !check->broken && held == 0 && check->left == 0;
        }
        free(buffer);
}
