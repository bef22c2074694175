/* Makes the devices of a long path, and runs its two delay lines in a process. A delay line is a ring of
 * frames, each due a fixed time after its arrival. */
#include "run/long_path.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "run/testbed.h"
#include "sys/loop.h"
#include "sys/memory.h"
#include "sys/thread.h"

#define TUN "/dev/net/tun"
#define DEVICE "eth0"
/* The queue of the device holds the packets that arrive until the process looks again: 100 ms at 1 Gbit/s. */
#define QUEUE_PACKETS 10000
/* Interval at which the process looks for packets. Packets that arrive within it are read together, so they
 * are delayed by up to this time in addition. */
#define LOOK_NS (100 * NS_PER_US)

enum { SENDER, RECEIVER, ENDS };

static const char *const end_names[ENDS] = {"sender", "receiver"};

struct shared {
        struct delay_line_counts counts[ENDS]; /* of packets from each end */
};

struct long_path {
        int namespaces[ENDS], devices[ENDS];
        unsigned made; /* number of namespaces made */
        pid_t process;
        struct shared *shared;
};

bool long_path_is_possible(void)
{
        return access(TUN, R_OK | W_OK) == 0;
}

static void name_of(unsigned end, char *name, size_t size)
{
        snprintf(name, size, "evb-%d-%s", (int)getpid(), end_names[end]);
}

static int set_address(int s, unsigned long request, struct ifreq *i, const char *text)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(text)};

        memcpy(&i->ifr_addr, &a, sizeof a);
        return ioctl(s, request, i) < 0 ? -errno : 0;
}

static int set_up(int s, struct ifreq *i, const char *address, uint32_t mtu_bytes)
{
        int r;

        i->ifr_mtu = (int)mtu_bytes;
        if (ioctl(s, SIOCSIFMTU, i) < 0)
                return -errno;
        i->ifr_qlen = QUEUE_PACKETS;
        if (ioctl(s, SIOCSIFTXQLEN, i) < 0)
                return -errno;
        if ((r = set_address(s, SIOCSIFADDR, i, address)) < 0 ||
            (r = set_address(s, SIOCSIFNETMASK, i, "255.255.255.0")) < 0)
                return r;
        i->ifr_flags = IFF_UP | IFF_RUNNING;
        return ioctl(s, SIOCSIFFLAGS, i) < 0 ? -errno : 0;
}

/* A device belongs to the namespace in which it is opened. */
static int open_device(const char *address, uint32_t mtu_bytes, int *ret)
{
        _cleanup_close_ int fd = open(TUN, O_RDWR | O_NONBLOCK | O_CLOEXEC),
                            s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq i = {.ifr_name = DEVICE};
        int r;

        if (fd < 0 || s < 0)
                return -errno;
        i.ifr_flags = IFF_TUN | IFF_NO_PI;
        if (ioctl(fd, TUNSETIFF, &i) < 0)
                return -errno;
        r = set_up(s, &i, address, mtu_bytes);
        if (r < 0)
                return r;
        *ret = take_fd(&fd);
        return 0;
}

static int make_end(struct long_path *p, unsigned end, uint32_t mtu_bytes)
{
        _cleanup_close_ int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
        char name[64];
        int r;

        if (home < 0)
                return -errno;
        name_of(end, name, sizeof name);
        r = netns_make(name, &p->namespaces[end]);
        if (r < 0)
                return r;
        p->made++;
        r = netns_enter(p->namespaces[end]);
        if (r >= 0) {
                r = open_device(end == SENDER ? LONG_PATH_FROM : LONG_PATH_TO, mtu_bytes, &p->devices[end]);
                if (netns_enter(home) < 0)
                        abort();
        }
        return r;
}

static _Noreturn void become_path(const struct long_path *p, const struct long_path_config *config,
                                  pid_t parent)
{
        struct delay_line lines[ENDS];

        (void)priority_raise();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
        for (unsigned end = 0; end < ENDS; end++) {
                lines[end] = (struct delay_line){.from = p->devices[end],
                                                 .to = p->devices[ENDS - 1 - end],
                                                 .delay_ns = config->delay_ns,
                                                 .loss = end == SENDER ? config->loss : 0,
                                                 .frame_bytes = config->mtu_bytes,
                                                 .counts = &p->shared->counts[end]};
                if (getppid() != parent || delay_line_init(&lines[end]) < 0)
                        _exit(1);
        }
        while (true) {
                for (unsigned end = 0; end < ENDS; end++)
                        delay_line_turn(&lines[end], clock_now_ns());
                nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        }
}

int long_path_new(struct long_path **ret, const struct long_path_config *config, struct error *e)
{
        struct long_path *p = calloc(1, sizeof *p);
        pid_t parent = getpid();
        int r = 0;

        if (p)
                p->shared = memory_map_shared(sizeof *p->shared);
        if (!p || !p->shared) {
                free(p);
                return error_set(e, -ENOMEM, "cannot make a long path: %m");
        }
        p->devices[SENDER] = p->devices[RECEIVER] = -1;
        netns_clean();
        for (unsigned end = 0; r >= 0 && end < ENDS; end++)
                r = make_end(p, end, config->mtu_bytes);
        if (r >= 0) {
                p->process = fork();
                if (p->process == 0)
                        become_path(p, config, parent);
                r = p->process < 0 ? -errno : 0;
        }
        if (r < 0) {
                long_path_free(p);
                return error_set(e, r, "cannot make the devices of a long path (" TUN "): %m");
        }
        *ret = p;
        return 0;
}

struct long_path *long_path_free(struct long_path *p)
{
        char name[64];

        if (!p)
                return NULL;
        if (p->process > 0) {
                kill(p->process, SIGKILL);
                waitpid(p->process, NULL, 0);
        }
        for (unsigned end = 0; end < MIN(p->made, (unsigned)ENDS); end++) {
                if (p->devices[end] >= 0)
                        close(p->devices[end]);
                close(p->namespaces[end]);
                name_of(end, name, sizeof name);
                netns_remove(name);
        }
        memory_unmap(p->shared, sizeof *p->shared);
        free(p);
        return NULL;
}

pid_t long_path_process(const struct long_path *p)
{
        return p->process;
}

/* Returns the number of packets for which the sender's device had no room; 0: unknown. */
static uint64_t device_drops(const struct long_path *p)
{
        _cleanup_close_ int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
        uint64_t drops = 0;
        char line[512];
        FILE *f;

        if (home < 0 || netns_enter(p->namespaces[SENDER]) < 0)
                return 0;
        f = fopen("/proc/thread-self/net/dev", "re");
        /* Eight columns for receiving, then bytes, packets, errors and drops for sending. */
        while (f && fgets(line, sizeof line, f))
                (void)sscanf(line, " " DEVICE ": %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %" SCNu64,
                             &drops);
        if (f)
                fclose(f);
        if (netns_enter(home) < 0)
                abort();
        return drops;
}

void long_path_read(const struct long_path *p, struct long_path_counts *ret)
{
        const struct delay_line_counts *c = p->shared->counts;

        *ret = (struct long_path_counts){
                .carried_packets = atomic_load(&c[SENDER].carried),
                .lost_packets = atomic_load(&c[SENDER].lost),
                .failed_packets =
                        atomic_load(&c[SENDER].failed) + atomic_load(&c[RECEIVER].failed) + device_drops(p),
        };
}

/* Room for 100 ms of full frames at 2 Gbit/s. */
#define SLOTS 16384u
/* Maximum number of packets that are read at once, because other packets may become due in the meantime. */
#define TAKE_MAX 512u

struct delayed {
        uint64_t due_ns;
        uint32_t bytes;
        bool counts;
};

int delay_line_init(struct delay_line *d)
{
        d->slots = calloc(SLOTS, sizeof *d->slots);
        d->frames = calloc(SLOTS, d->frame_bytes);
        d->head = d->tail = 0;
        d->random = UINT64_C(0x9E3779B97F4A7C15);
        if (d->slots && d->frames)
                return 0;
        delay_line_fini(d);
        return -ENOMEM;
}

void delay_line_fini(struct delay_line *d)
{
        free(d->slots);
        free(d->frames);
        d->slots = NULL;
        d->frames = NULL;
}

static void count(_Atomic uint64_t *counter)
{
        atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* xorshift64* (Vigna 2016), so that the same packets are lost in each run. */
static bool is_unlucky(struct delay_line *d)
{
        d->random ^= d->random >> 12;
        d->random ^= d->random << 25;
        d->random ^= d->random >> 27;
        return (double)((d->random * UINT64_C(0x2545F4914F6CDD1D)) >> 11) * 0x1p-53 < d->loss;
}

static bool is_udp(const uint8_t *frame, ssize_t n)
{
        struct iphdr ip;

        if (n < (ssize_t)sizeof ip)
                return false;
        memcpy(&ip, frame, sizeof ip);
        return ip.version == 4 && ip.protocol == IPPROTO_UDP;
}

static uint8_t *frame_at(const struct delay_line *d, uint64_t i)
{
        return d->frames + i % SLOTS * d->frame_bytes;
}

static void read_frames(struct delay_line *d, uint64_t now_ns)
{
        for (unsigned i = 0; i < TAKE_MAX; i++) {
                uint8_t *frame = frame_at(d, d->head);
                ssize_t n;
                bool udp;

                if (d->head - d->tail == SLOTS)
                        return;
                n = read(d->from, frame, d->frame_bytes);
                if (n <= 0)
                        return;
                udp = is_udp(frame, n);
                if (udp && d->loss > 0 && is_unlucky(d)) {
                        count(&d->counts->lost);
                        continue;
                }
                d->slots[d->head++ % SLOTS] = (struct delayed){now_ns + d->delay_ns, (uint32_t)n, udp};
        }
}

static void pass_on(struct delay_line *d, uint64_t now_ns)
{
        while (d->tail < d->head) {
                const struct delayed *next = &d->slots[d->tail % SLOTS];

                if (next->due_ns > now_ns)
                        return;
                if (write(d->to, frame_at(d, d->tail), next->bytes) != (ssize_t)next->bytes)
                        count(&d->counts->failed);
                else if (next->counts)
                        count(&d->counts->carried);
                d->tail++;
        }
}

void delay_line_turn(struct delay_line *d, uint64_t now_ns)
{
        read_frames(d, now_ns);
        pass_on(d, now_ns);
}
