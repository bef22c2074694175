/* The files of the DFM's page, which embed.py builds into the program. */
#pragma once

#include <stddef.h>

struct page_file {
        const char *path; /* as requested */
        const char *content_type, *cache_control;
        const unsigned char *bytes;
        size_t n_bytes;
};

extern const struct page_file page_files[];
extern const size_t n_page_files;
