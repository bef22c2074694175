/* Joins the tables of all publications into one catalogue. */
#include "lab/catalogue.h"

#include <assert.h>
#include <string.h>

#include "publications.h"

static const struct lab_publication *const publications[] = {
        &publication_a,    &publication_b, &publication_c, &extension_c,       &extension_incast,
        &extension_level2, &publication_d, &publication_e, &extension_scaling,
};

size_t lab_count(void)
{
        size_t n = 0;

        for (size_t i = 0; i < ARRAY_SIZE(publications); i++)
                n += publications[i]->n;
        return n;
}

const struct lab_measurement *lab_at(size_t i)
{
        size_t k = 0;

        assert(i < lab_count());
        for (; i >= publications[k]->n; k++)
                i -= publications[k]->n;
        return &publications[k]->measurements[i];
}

const struct lab_measurement *lab_find(const char *id)
{
        for (size_t i = 0; i < lab_count(); i++) {
                if (strcmp(lab_at(i)->id, id) == 0)
                        return lab_at(i);
        }
        return NULL;
}
