/* Measures a thread of a raw stream: messages, bytes and processor time between the warm-up and the end. */
#include "raw.h"

#include <time.h>

#include "base/util.h"
#include "stream/stream.h"
#include "sys/loop.h"
#include "sys/thread.h"

void raw_measure_open(struct raw_measure *m, const struct stream_raw *raw, uint64_t now_ns)
{
        m->begin_ns = now_ns + raw->warm_up_ns;
        m->end_ns = raw->duration_ns > 0 ? m->begin_ns + raw->duration_ns : NEVER_NS;
}

void raw_measure_close(struct raw_measure *m, uint64_t now_ns)
{
        if (!atomic_load_explicit(&m->counts, memory_order_relaxed))
                return;
        m->closed_ns = MIN(now_ns, m->end_ns);
        m->used_ns = thread_used_ns() - m->used_ns;
        atomic_store_explicit(&m->counts, false, memory_order_relaxed);
}

void raw_measure_add(struct raw_measure *m, uint64_t now_ns, uint64_t packets, uint64_t bytes)
{
        if (now_ns >= m->end_ns)
                raw_measure_close(m, now_ns);
        if (now_ns < m->begin_ns || now_ns >= m->end_ns)
                return;
        if (!atomic_load_explicit(&m->counts, memory_order_relaxed)) {
                m->used_ns = thread_used_ns();
                atomic_store_explicit(&m->counts, true, memory_order_relaxed);
        }
        m->packets += packets;
        m->bytes += bytes;
}

/* Returns 0 if the thread has ended. */
static uint64_t read_used_ns(pthread_t thread)
{
        struct timespec t;
        clockid_t clock;

        if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &t) < 0)
                return 0;
        return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t raw_measure_sample(struct raw_measure *m, pthread_t thread, uint64_t now_ns)
{
        bool counts = atomic_load_explicit(&m->counts, memory_order_relaxed);
        uint64_t used_ns;

        if (now_ns < m->due_ns)
                return m->due_ns;
        used_ns = counts ? read_used_ns(thread) : 0;
        now_ns = clock_now_ns();
        if (used_ns > 0 && m->sampled_ns > 0 && m->n_samples < RAW_SAMPLES_MAX)
                m->percent[m->n_samples++] = (float)(100.0 * (double)(used_ns - m->sampled_used_ns) /
                                                     (double)(now_ns - m->sampled_ns));
        m->sampled_ns = used_ns > 0 ? now_ns : 0;
        m->sampled_used_ns = used_ns;
        m->due_ns = now_ns + RAW_SAMPLE_NS;
        return m->due_ns;
}

json_t *raw_measure_describe(const struct raw_measure *m)
{
        json_t *percent = json_array();

        for (unsigned i = 0; i < m->n_samples; i++)
                json_array_append_new(percent, json_real((double)m->percent[i]));
        return json_pack("{s:f, s:I, s:I, s:f, s:o}", "seconds",
                         m->closed_ns > m->begin_ns ? (double)(m->closed_ns - m->begin_ns) / 1e9 : 0.0,
                         "bytes", (json_int_t)m->bytes, "packets", (json_int_t)m->packets, "cpu_seconds",
                         (double)m->used_ns / 1e9, "cpu_percent", percent);
}
