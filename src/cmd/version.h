/* What `evb --version` prints. */
#pragma once

/* The commit that the program was built from, with "-dirty" if files had been changed; "none": it was not
 * built from a git repository, but e.g. from a released archive. */
extern const char version_commit[];

/* "evb 0.2.0 (commit 9aea2bba0b1f)" on standard output. */
void version_print(void);
