/* Converts between bytes, rates and the kernel's ticks. */
#include "shape/model/units.h"

#include <assert.h>

#include "base/util.h"

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
