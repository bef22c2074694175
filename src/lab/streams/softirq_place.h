/* The processor that takes packets from a network interface. One thread. */
#pragma once

/* Makes `processor` serve the interface's receive queue in a namespace: receive packet steering
 * (Documentation/networking/scaling.rst) hands each packet over to it before the network stack sees it, as
 * the interrupt of a network card would. Without this, a veth is served where the packet was sent. Requires
 * CAP_SYS_ADMIN. Negative errno. */
int softirq_place(int namespace, const char *device, unsigned processor);
