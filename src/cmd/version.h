/* What `evb --version` prints. */
#pragma once

/* The commit that a build from a git repository was made of, with "-dirty" if files had been changed; "none":
 * another build, such as one of a released archive. */
extern const char version_commit[];

/* "evb 0.2.0 (commit 9aea2bba0b1f)" on standard output. */
void version_print(void);
