/* Injects loss, duplication and reordering into the received datagrams of an endpoint, for tests. */
#pragma once

#include "base/fault.h"
#include "net/endpoint.h"

struct faults;

/* If all fractions are 0, *ret is NULL, for which the functions below inject nothing. -ENOMEM. */
int faults_new(struct faults **ret, const struct fault_config *config);
struct faults *faults_free(struct faults *f);

/* Like endpoint_receive(), with faults. n is at least 4, to leave space for duplicated and held datagrams. A
 * held datagram is returned with later ones or, if none arrive, by the next call. */
int faults_receive(struct faults *f, struct endpoint *e, struct datagram *out, size_t n);
/* Whether datagrams are held: then call faults_receive() again soon, even if no datagram arrives. */
bool faults_are_holding(const struct faults *f);
