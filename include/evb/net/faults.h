/* Injects loss, doubling and reordering into what an endpoint receives, for tests of the programs themselves.
 */
#pragma once

#include "evb/base/fault.h"
#include "evb/net/endpoint.h"

struct faults;

/* All fractions 0: *ret is NULL, which everything below takes and then does nothing. -ENOMEM. */
int faults_new(struct faults **ret, const struct fault_config *config);
struct faults *faults_free(struct faults *f);

/* As endpoint_receive(), with faults; n is 4 or more, to have room for what is doubled and was held.
 * Datagrams that are held back come with later ones, or, where none come, with the next call. */
int faults_receive(struct faults *f, struct endpoint *e, struct datagram *out, size_t n);
/* Some are held back: call faults_receive() again soon, even if the endpoint is silent. */
bool faults_are_holding(const struct faults *f);
