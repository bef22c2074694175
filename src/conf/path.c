/* Makes the paths of a scenario absolute. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "conf_internal.h"

/* A relative path in the file starts at the directory of the scenario file; any other relative path starts at
 * the current directory. */
static int add_base(const struct loading *l, bool from_file, struct strbuf *b)
{
        const char *slash = from_file ? strrchr(l->path, '/') : NULL;
        char here[PATH_MAX];

        if (!slash || l->path[0] != '/') {
                if (!getcwd(here, sizeof here))
                        return -errno;
                strbuf_add(b, "%s/", here);
        }
        if (slash)
                strbuf_add(b, "%.*s/", (int)(slash - l->path), l->path);
        return 0;
}

/* An absolute path stays valid when the scenario is copied to another directory. */
bool conf_absolute_path(const struct loading *l, bool from_file, const char *path, char *to, size_t to_bytes,
                        char *why, size_t why_bytes)
{
        char whole[3 * PATH_MAX];
        struct strbuf b = strbuf_init(whole, sizeof whole);
        int r = path[0] == '/' ? 0 : add_base(l, from_file, &b);

        if (r < 0) {
                snprintf(why, why_bytes, "cannot resolve \"%.100s\" from the current directory: %s", path,
                         strerror(-r));
                return false;
        }
        while (strncmp(path, "./", 2) == 0)
                path += 2;
        strbuf_add(&b, "%s", strcmp(path, ".") == 0 ? "" : path);
        while (b.length > 1 && whole[b.length - 1] == '/')
                whole[--b.length] = '\0';
        if (b.cut || b.length >= to_bytes) {
                snprintf(why, why_bytes, "path \"%.120s...\" is too long; expected at most %zu bytes", whole,
                         to_bytes - 1);
                return false;
        }
        memcpy(to, whole, b.length + 1);
        return true;
}

/* A relative path in the file starts at the file's directory. */
bool conf_key_path(struct loading *l, const char *section, const char *name, const char *path, char *whole,
                   size_t whole_bytes)
{
        size_t i = (size_t)(scenario_key_find(section, name) - scenario_keys);
        char why[300];

        if (conf_absolute_path(l, l->lines[i] > 0 && !l->from_setting[i], path, whole, whole_bytes, why,
                               sizeof why))
                return true;
        conf_key_error(l, section, name, "%s", why);
        return false;
}
