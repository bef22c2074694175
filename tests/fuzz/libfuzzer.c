/* Connects a target to libFuzzer. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
        (void)fuzz_accepts(bytes, size_bytes);
        return 0;
}
