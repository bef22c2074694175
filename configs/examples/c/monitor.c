/* Prints the mean byte of each source, of one event in a hundred: monitor unix:/run/evb/sfi1.events */
#include <evb/live.h>
#include <stdio.h>

int main(int argc, char **argv)
{
        const struct evb_live_event *event;
        struct evb_live *live;
        char error[256];
        int r;

        if (evb_live_connect(&live, argc > 1 ? argv[1] : "", "stride=100", error, sizeof error) < 0) {
                fprintf(stderr, "%s\n", error);
                return 1;
        }
        while ((r = evb_live_next(live, -1, &event)) > 0) {
                const struct evb_live_fragment *f;

                for (size_t i = 0; (f = evb_live_fragment(live, i)); i++) {
                        double sum = 0;

                        for (size_t k = 0; k < f->bytes; k++)
                                sum += f->payload[k];
                        printf("event %llu source %#x mean %.1f\n", (unsigned long long)event->number,
                               f->source, f->bytes ? sum / (double)f->bytes : 0);
                }
        }
        if (r < 0)
                fprintf(stderr, "%s\n", evb_live_error(live));
        evb_live_close(live);
        return r < 0;
}
