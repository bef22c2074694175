/* Wraps scenario_load() for callers that show a single error. */
#include "evb/launch/scenario_load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "evb/base/util.h"

struct scenario *scenario_load_one(const char *path, const char *const *settings, size_t n, char *why,
                                   size_t size)
{
        _cleanup_free_ struct scenario *s = calloc(1, sizeof *s);
        _cleanup_free_ struct scenario_errors *errors = calloc(1, sizeof *errors);
        int r = s && errors ? scenario_load(s, path, settings, n, errors) : -ENOMEM;

        if (r == 0)
                return take_ptr(s);
        snprintf(why, size, "%s", errors && errors->n > 0 ? errors->text[0] : strerror(-r));
        return NULL;
}
