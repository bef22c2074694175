/* Injects loss, duplication and reordering into the received datagrams of an endpoint, for tests. */
#pragma once

#include "base/fault.h"
#include "net/endpoint.h"

struct faults;

/* If all fractions are 0, *ret is NULL, which the functions below accept and then do nothing. -ENOMEM. */
int faults_new(struct faults **ret, const struct fault_config *config);
struct faults *faults_free(struct faults *f);

/* Like endpoint_receive(), with faults. n is at least 4, to leave space for duplicated and held datagrams. A
 * held datagram comes with later ones, or, if none come, with the next call. */
int faults_receive(struct faults *f, struct endpoint *e, struct datagram *out, size_t n);
/* Some datagrams are held: call faults_receive() again soon, even if the endpoint is silent. */
bool faults_are_holding(const struct faults *f);
