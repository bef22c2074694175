/* The send functions of all paths. Private to src/stream/paths. */
#pragma once

struct path_sender;

/* path_send_read.c: through a buffer of the program. */
int path_read_send(struct path_sender *s);   /* E1, E4: header in the buffer */
int path_read_writev(struct path_sender *s); /* E5 */
/* path_send_map.c: from the mapped file. */
int path_map_send(struct path_sender *s); /* E2 */
int path_map_cork(struct path_sender *s); /* E6 */
int path_map_more(struct path_sender *s);
int path_map_writev(struct path_sender *s); /* E7 */
int path_map_batch(struct path_sender *s);
/* path_send_file.c: pages of the file, without a buffer. */
int path_file_send(struct path_sender *s);   /* E3 */
int path_file_splice(struct path_sender *s); /* E3, E12 */
int path_file_cork(struct path_sender *s);   /* E8 */
int path_file_more(struct path_sender *s);
/* path_send_zerocopy.c: from the mapped file with MSG_ZEROCOPY, or with vmsplice(). */
int path_zerocopy_more(struct path_sender *s);    /* E9 */
int path_zerocopy_sendmsg(struct path_sender *s); /* E10 */
int path_map_vmsplice(struct path_sender *s);
int path_zerocopy_batch(struct path_sender *s); /* E11 */
/* path_send_uring.c: batches of linked requests. */
int path_uring_map(struct path_sender *s);    /* E11 */
int path_uring_splice(struct path_sender *s); /* E12 */
int path_uring_read(struct path_sender *s);   /* E13 */
