/* The table of kinds. */
#include "shape/model/kind.h"

#include <string.h>

#include "base/util.h"

static const struct tc_kind *const kinds[] = {&tc_kind_htb,   &tc_kind_tbf,      &tc_kind_cbq, &tc_kind_bfifo,
                                              &tc_kind_pfifo, &tc_kind_fq_codel, &tc_kind_u32, &tc_kind_fq,
                                              &tc_kind_bpf,   &tc_kind_edt};

const struct tc_kind *tc_kind_find(const char *name)
{
        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
                if (strcmp(kinds[i]->name, name) == 0)
                        return kinds[i];
        }
        return NULL;
}
