/* The SFI's data socket accepts fragments only from the address of the ROS that they name. */
#include "../test.h"

#include "data/data_receive.h"
#include "net/endpoint.h"
#include "protocol/chunk.h"
#include "data_sample.h"

static void send_as(uint16_t ros, const char *from)
{
        struct chunk_job job = {.chunk = {.event = 5, .l1_id = 5, .fragment_bytes = 8},
                                .to_bytes = 8,
                                .payload = (const uint8_t *)"fragment"};
        struct message_header header = {.cookie = SAMPLE_COOKIE,
                                        .sender_role = ROLE_ROS,
                                        .sender_index = ros,
                                        .type = MESSAGE_FRAGMENTS};
        const struct chunk_datagram *d;
        struct udp_config config = {};
        struct chunk_packer *packer;
        struct endpoint *e;
        struct net_address to;

        assert_int_equal(chunk_packer_new(&packer, 1472, 1), 0);
        assert_int_equal(chunk_pack(packer, &header, &job, 1, &d), 1);
        assert_int_equal(net_address_parse(&to, sample_at(4), 46911), 0);
        assert_int_equal(net_address_parse(&config.local, from, 0), 0);
        assert_int_equal(endpoint_new_udp(&e, &config), 0);
        assert_int_equal(endpoint_send(e, &(struct outgoing){d->iov, d->n_iov, d->size_bytes, &to}, 1), 1);
        endpoint_free(e);
        chunk_packer_free(packer);
}

TEST(fragments_from_other_addresses_are_foreign)
{
        struct sfi_config config = sample_sfi();
        struct data_receiver r = {.ops = &data_receive_udp};
        _cleanup_(sample_close) struct sample n;
        bool more = true;

        sample_open(&n, "sfi1", "udp");
        r.context = n.context;
        r.buffer = calloc(1, config.buffer_bytes);
        assert_int_equal(sfi_new(&r.core, &config, NS_PER_S), 0);
        assert_true(sfi_receive(r.core, NS_PER_S, sample_welcome()));
        assert_int_equal(r.ops->open(&r), 0);
        send_as(0, sample_at(3)); /* the address of the other ROS */
        send_as(0, sample_at(77));
        send_as(2, sample_at(2)); /* the scenario has no ROS 3 */
        for (int i = 0; i < 10000 && stats_get(&n.stats->packets_foreign) < 3; i++) {
                assert_int_equal(loop_wait(n.loop, clock_now_ns() + NS_PER_MS), 0);
                assert_int_equal(r.ops->turn(&r, NS_PER_S, &more), 0);
        }
        assert_int_equal(stats_get(&n.stats->packets_foreign), 3);
        assert_int_equal(sfi_counts(r.core).datagrams_received, 0);
        send_as(0, sample_at(2));
        send_as(1, sample_at(3));
        for (int i = 0; i < 10000 && sfi_counts(r.core).datagrams_received < 2; i++) {
                assert_int_equal(loop_wait(n.loop, clock_now_ns() + NS_PER_MS), 0);
                assert_int_equal(r.ops->turn(&r, NS_PER_S, &more), 0);
        }
        assert_int_equal(sfi_counts(r.core).datagrams_received, 2);
        assert_int_equal(stats_get(&n.stats->packets_foreign), 3);
        r.ops->close(&r);
        sfi_free(r.core);
        free(r.buffer);
}
