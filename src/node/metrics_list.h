/* Prints the list of all metrics of nodes, for users and for the manual page. */
#pragma once

#include <stdio.h>

/* Writes a line for each metric: name, type, roles, labels, meaning. -ENOMEM. */
int metrics_list_print(FILE *to);
/* The same as mdoc. */
int metrics_list_print_man(FILE *to);
