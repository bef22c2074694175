/* Wraps scenario_load() for callers that show a single error. */
#include "run/scenario_load.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

int scenario_load_one(struct scenario **ret, const char *path, const char *const *settings, size_t n,
                      struct error *error)
{
        _cleanup_free_ struct scenario *s = malloc(sizeof *s);
        _cleanup_free_ struct scenario_errors *errors = malloc(sizeof *errors);
        int r = s && errors ? scenario_load(s, path, settings, n, errors) : -ENOMEM;

        if (r < 0)
                return s && errors && errors->n > 0 ? error_set(error, r, "%s", errors->text[0])
                                                    : error_set(error, r, "%m");
        *ret = take_ptr(s);
        return 0;
}
