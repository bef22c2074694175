/* What both transports of a ROS share: from the core's jobs to pieces of the buffer. */
#include "data_send.h"

#include "evb/base/arena.h"

size_t data_sender_take(struct data_sender *s, uint32_t sfi)
{
        size_t n = ros_jobs(s->core, sfi, s->jobs, SEND_JOBS_MAX);

        for (size_t i = 0; i < n; i++) {
                struct ros_job *j = &s->jobs[i];

                s->chunk_jobs[i] = j->job;
                if (j->at == ARENA_NONE)
                        continue;
                s->chunk_jobs[i].payload = s->buffer + j->at;
                if (j->fill)
                        source_fill(s->source, j->job.chunk.event, s->buffer + j->at, j->job.chunk.fragment_bytes);
        }
        return n;
}

struct message_header data_sender_header(const struct data_sender *s, uint32_t sfi)
{
        return (struct message_header){
                .cookie = ros_member(s->core)->cookie,
                .sender_role = ROLE_ROS,
                .sender_index = (uint16_t)s->node->self->index,
                .type = MESSAGE_FRAGMENTS,
                .transaction = ros_transaction(s->core, sfi),
        };
}
