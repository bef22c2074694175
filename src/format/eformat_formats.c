/* The table of event formats, which sfi.format selects from. */
#include <string.h>

#include "format/eformat.h"

const struct eformat *eformat_by_name(const char *name)
{
        static const struct eformat *const formats[] = {&eformat_3, &eformat_5};

        for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
                if (strcmp(formats[i]->name, name) == 0)
                        return formats[i];
        return NULL;
}
