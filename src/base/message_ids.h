/* IDs of the messages that programs look for in the journal (MESSAGE_ID= of systemd.journal-fields(7)). Each
 * has an entry in configs/systemd/evb.catalog. An ID never changes its meaning; a new message gets a new one,
 * made by `systemd-id128 new`. */
#pragma once

#define LOG_ID_WAITING "7bd6e692acf94202b2cee6cbbf22fc8a"         /* for whom a node waits before the run */
#define LOG_ID_CONNECTED "25a4cc8c52cb41a99b2ef658d246ec76"       /* a connection exists (again) */
#define LOG_ID_RUN_BEGUN "9eb7b07281fd49febde1b6351763c82f"       /* a run has begun on this node */
#define LOG_ID_RUN_ENDED "c16dc9585ac144bca439c8a0989e4613"       /* its accounts */
#define LOG_ID_STOPPED "d71cf6d7c5f54822817ac84137a88f68"         /* who stops the node or the run, and why */
#define LOG_ID_NODE_JOINED "491fbf40caef451bbfc43859abd266fe"     /* at the DFM */
#define LOG_ID_NODE_LEFT "779cbcada6a942fb957531e88fccc5e2"       /* at the DFM */
#define LOG_ID_NODE_LOST "38c8ec14618446d1a0072d0e9ba337e1"       /* a node fell silent */
#define LOG_ID_NODE_BACK "44d229946b164f419faf8a4e759cbfc9"       /* it is heard again, or has restarted */
#define LOG_ID_NODE_REFUSED "91add94a7a3049a9a50bb8ca5ac16c23"    /* it may not join */
#define LOG_ID_EVENT_PARTIAL "539df8b2d7c649dfb82ccbcf5b9c4141"   /* the first partial event */
#define LOG_ID_EVENT_LOST "eb54582ded32486e974c0bc6fcb3077f"      /* the first lost event of an SFI */
#define LOG_ID_EVENT_CORRUPT "d7867d60218c4e98a96903c90b0ce273"   /* the first corrupt fragment */
#define LOG_ID_BUFFER_SMALL "62ac71652fc74b69980a1c87042f5328"    /* a socket got less than requested */
#define LOG_ID_HELD_BACK "a20fe742004e4d6aa6382ae22d784d55"       /* no progress */
#define LOG_ID_RESUMED "adad2b64f52241d7951aa273392c4cb8"         /* progress again */
#define LOG_ID_OUTPUT_UNUSABLE "4da48d0be4c54f72a6466d00f7a10cf4" /* sfi.directory cannot be written */
#define LOG_ID_OUTPUT_FAILED "97b29ed699c444d0ada36dae7ac6d84e"   /* events cannot be written */
