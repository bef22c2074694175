/* Reads and writes attributes that several kinds share, and converts units of rates and times. */
#include <assert.h>
#include <string.h>

#include "base/util.h"
#include "shape/model/kind.h"

void kind_read(const struct nlattr *nest, const struct nlattr **ret, unsigned max)
{
        const struct nlattr *a;

        memset(ret, 0, (max + 1) * sizeof *ret);
        if (!nest)
                return;
        mnl_attr_for_each_nested(a, nest)
        {
                unsigned type = mnl_attr_get_type(a);

                if (type <= max)
                        ret[type] = a;
        }
}

bool kind_get(const struct nlattr *a, void *ret, size_t size_bytes)
{
        if (!a || mnl_attr_get_payload_len(a) < size_bytes)
                return false;
        memcpy(ret, mnl_attr_get_payload(a), size_bytes);
        return true;
}

uint32_t kind_get_u32(const struct nlattr *a, uint32_t otherwise)
{
        uint32_t v;

        return kind_get(a, &v, sizeof v) ? v : otherwise;
}

uint64_t kind_get_u64(const struct nlattr *a, uint64_t otherwise)
{
        uint64_t v;

        return kind_get(a, &v, sizeof v) ? v : otherwise;
}

struct tc_ratespec kind_ratespec(uint64_t rate_bytes, uint16_t overhead_bytes)
{
        return (struct tc_ratespec){
                .linklayer = TC_LINKLAYER_ETHERNET,
                .overhead = overhead_bytes,
                .rate = rate_bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)rate_bytes,
        };
}

bool kind_counts_cells(const struct tc_ratespec *rate)
{
        return (rate->linklayer & TC_LINKLAYER_MASK) > TC_LINKLAYER_ETHERNET;
}

void kind_put_rate64(struct nlmsghdr *m, uint16_t type, uint64_t rate_bytes)
{
        if (rate_bytes > UINT32_MAX)
                mnl_attr_put_u64(m, type, rate_bytes);
}

/* tc expects bits; whole units keep the text short. */
void kind_add_rate_words(struct strbuf *b, const char *word, uint64_t rate_bytes)
{
        uint64_t bps = rate_bytes * 8;

        if (bps % 1000000000 == 0)
                strbuf_add(b, " %s %lluGbit", word, (unsigned long long)(bps / 1000000000));
        else if (bps % 1000000 == 0)
                strbuf_add(b, " %s %lluMbit", word, (unsigned long long)(bps / 1000000));
        else if (bps % 1000 == 0)
                strbuf_add(b, " %s %llukbit", word, (unsigned long long)(bps / 1000));
        else
                strbuf_add(b, " %s %llubit", word, (unsigned long long)bps);
}

/* ---- Units ---- */

uint32_t tc_ticks_of_bytes(uint64_t bytes, uint64_t rate_bytes)
{
        unsigned __int128 wanted = (unsigned __int128)bytes * NS_PER_S,
                          each = (unsigned __int128)rate_bytes * TC_TICK_NS;

        assert(rate_bytes > 0);
        wanted = DIV_ROUND_UP(wanted, each);
        return wanted > UINT32_MAX ? UINT32_MAX : (uint32_t)wanted;
}

uint64_t tc_bytes_of_ticks(uint32_t ticks, uint64_t rate_bytes)
{
        return (uint64_t)((unsigned __int128)ticks * TC_TICK_NS * rate_bytes / NS_PER_S);
}

bool tc_ticks_equal(uint32_t a, uint32_t b)
{
        return (a > b ? a - b : b - a) <= 2;
}

uint64_t tc_rate_bytes(uint64_t bps)
{
        return bps / 8 + (bps % 8 > 0);
}

uint8_t tc_rate_table(uint32_t table[TC_RATE_TABLE_SIZE], uint64_t rate_bytes, uint32_t max_bytes,
                      uint32_t min_bytes)
{
        uint8_t cell_log = 0;

        while (max_bytes >> cell_log >= TC_RATE_TABLE_SIZE)
                cell_log++;
        for (unsigned i = 0; i < TC_RATE_TABLE_SIZE; i++)
                table[i] = tc_ticks_of_bytes(MAX((i + 1) << cell_log, min_bytes), rate_bytes);
        return cell_log;
}
