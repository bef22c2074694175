/* What each fuzz target defines. libfuzzer.c hands it to libFuzzer; corpus.c runs it over files, in the
 * ordinary build and without clang. Both give each input as an allocation of its exact size, so that
 * AddressSanitizer sees a read past its end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Passes the input to the code under test, and asserts what must hold for any input. True: the code accepted
 * it, as it must accept each file of the corpus whose name begins with "seed-". */
bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes);
