/* Reads the Accept header of a request. */
#include "accept.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The length of the text up to one of `ends`, without the blanks at its end. */
static size_t part(const char *text, const char *ends)
{
        size_t n = strcspn(text, ends);

        while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
                n--;
        return n;
}

static const char *skip_blanks(const char *text)
{
        return text + strspn(text, " \t");
}

static bool equals(const char *text, size_t n, const char *word)
{
        return n == strlen(word) && strncasecmp(text, word, n) == 0;
}

struct media_range {
        bool is_open_metrics, is_text;
        double quality;
};

/* Reads one element of the list, and returns where it ends. With a parameter of an unknown version, it counts
 * as another type. */
static const char *read_range(const char *text, struct media_range *ret)
{
        size_t n = part(text, ",;");

        *ret = (struct media_range){
                .is_open_metrics = equals(text, n, "application/openmetrics-text"),
                .is_text =
                        equals(text, n, "text/plain") || equals(text, n, "text/*") || equals(text, n, "*/*"),
                .quality = 1,
        };
        text += strcspn(text, ",;");
        while (*text == ';') {
                text = skip_blanks(text + 1);
                n = part(text, ",;");
                if (n > 2 && strncasecmp(text, "q=", 2) == 0)
                        ret->quality = strtod(text + 2, NULL);
                else if (n > 8 && strncasecmp(text, "version=", 8) == 0)
                        ret->is_open_metrics &= equals(text + 8, n - 8, "1.0.0");
                text += strcspn(text, ",;");
        }
        return text;
}

bool metrics_wants_open_metrics(const char *accept)
{
        double open_metrics = 0, plain = 0;
        struct media_range range;

        while (*(accept = skip_blanks(accept))) {
                accept = read_range(accept, &range);
                if (range.is_open_metrics && range.quality > open_metrics)
                        open_metrics = range.quality;
                if (range.is_text && range.quality > plain)
                        plain = range.quality;
                accept += *accept == ',';
        }
        return open_metrics > 0 && open_metrics >= plain;
}
