/* Turns the core's jobs into chunks of the ROS's buffer, for both transports. */
#include "data/data_send.h"

#include "base/arena.h"
#include "base/util.h"

#define FIRST_JOBS 8

/* Generates the payload of the first n jobs if it does not exist, and returns the payload bytes of these
 * jobs. */
static uint64_t fill(struct data_sender *s, size_t n)
{
        uint64_t bytes = 0;

        for (size_t i = 0; i < n; i++) {
                struct ros_job *j = &s->jobs[i];

                s->chunk_jobs[i] = j->job;
                if (j->at == ARENA_NONE)
                        continue;
                bytes += j->job.to_bytes - j->job.chunk.offset;
                s->chunk_jobs[i].payload = s->buffer + j->at;
                if (j->fill)
                        source_fill(s->source, j->job.chunk.event, j->job.chunk.l1_id, s->buffer + j->at,
                                    j->job.chunk.fragment_bytes);
        }
        return bytes;
}

size_t data_sender_pop(struct data_sender *s, uint32_t sfi, uint64_t bytes)
{
        size_t wanted = bytes < DATA_SENDER_ALL ? FIRST_JOBS : SEND_JOBS_MAX;

        /* The number is doubled, so that the work is at most twice the work for the jobs used. */
        for (;; wanted = MIN(2 * wanted, (size_t)SEND_JOBS_MAX)) {
                size_t n = ros_jobs(s->core, sfi, s->jobs, wanted);

                if (fill(s, n) >= bytes || n < wanted || wanted == SEND_JOBS_MAX)
                        return n;
        }
}

struct message_header data_sender_header(const struct data_sender *s, uint32_t sfi)
{
        return (struct message_header){
                .cookie = ros_member(s->core)->cookie,
                .sender_role = ROLE_ROS,
                .sender_index = (uint16_t)s->context.self->index,
                .type = MESSAGE_FRAGMENTS,
                .transaction = ros_transaction(s->core, sfi),
                .queued_bytes = (uint32_t)MIN(ros_queued(s->core, sfi).bytes, (uint64_t)UINT32_MAX),
        };
}
