/* Runs a target over files and the files of folders, without libFuzzer. A file whose name begins with "seed-"
 * must be accepted: a seed that the code refuses has become useless. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

static struct {
        unsigned files, refused;
} t;

/* NULL: it cannot be read. */
static uint8_t *read_file(const char *path, size_t *ret_bytes)
{
        FILE *f = fopen(path, "re");
        uint8_t *bytes = NULL;
        struct stat st;

        if (f && fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode)) {
                *ret_bytes = (size_t)st.st_size;
                /* An empty file has an address, too. */
                bytes = malloc(*ret_bytes + (*ret_bytes == 0));
                if (bytes && fread(bytes, 1, *ret_bytes, f) != *ret_bytes) {
                        free(bytes);
                        bytes = NULL;
                }
        }
        if (f)
                fclose(f);
        return bytes;
}

static void run_file(const char *path)
{
        const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
        size_t n = 0;
        uint8_t *bytes = read_file(path, &n);

        if (!bytes) {
                printf("%s: cannot be read\n", path);
                t.refused++;
                return;
        }
        t.files++;
        if (!fuzz_accepts(bytes, n) && strncmp(name, "seed-", 5) == 0) {
                printf("%s: refused; each seed-... must be accepted\n", path);
                t.refused++;
        }
        free(bytes);
}

static void run(const char *path)
{
        char full[PATH_MAX];
        DIR *folder = opendir(path);

        if (!folder) {
                run_file(path);
                return;
        }
        for (const struct dirent *d; (d = readdir(folder));) {
                if (d->d_name[0] != '.' &&
                    (size_t)snprintf(full, sizeof full, "%s/%s", path, d->d_name) < sizeof full)
                        run_file(full);
        }
        closedir(folder);
}

int main(int argc, char **argv)
{
        for (int i = 1; i < argc; i++)
                run(argv[i]);
        printf("%u files, %u of them wrong\n", t.files, t.refused);
        return t.files == 0 || t.refused > 0;
}
