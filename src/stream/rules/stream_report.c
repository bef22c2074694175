/* Merges the figures of both ends of a stream, and attributes losses to places. */
#include "stream_report.h"

#include <stdio.h>

#include "base/json.h"
#include "base/util.h"

const struct stream_place stream_places[STREAM_PLACES] = {{"source", "source"},
                                                          {"network", "network"},
                                                          {"nic", "NIC"},
                                                          {"socket", "socket"},
                                                          {"receiver", "receiver"}};

json_t *report_processors(const struct processors *begin, const struct processors *end)
{
        json_t *list = json_array();

        for (size_t i = 0; i < MIN(begin->n, end->n); i++) {
                json_t *o = json_pack("{s:i}", "cpu", (int)end->each[i].number);
                double percent[PROCESSOR_USES];

                processor_shares(&begin->each[i], &end->each[i], percent);
                for (size_t k = 0; k < PROCESSOR_USES; k++)
                        json_object_set_new(o, processor_use_names[k], json_real(percent[k]));
                json_array_append_new(list, o);
        }
        return list;
}

const char *report_wake(const struct wake *w, char text[static REPORT_WAKE_MAX])
{
        static const char *const names[] = {"futex", "signal", "yield", "poll"};

        snprintf(text, REPORT_WAKE_MAX, w->kind == WAKE_SIGNAL ? "%s=%u" : "%s", names[w->kind], w->every);
        return text;
}

json_t *report_difference(bool known, uint64_t begin, uint64_t end)
{
        return json_count_if(known, end - MIN(begin, end));
}

/* A peer may report arbitrary values, but a number of packets is not negative. */
static json_int_t number(const json_t *part, const char *name)
{
        return MAX(json_integer_value(json_object_get(part, name)), (json_int_t)0);
}

static void copy(json_t *to, const char *name, const json_t *part, const char *theirs)
{
        json_t *value = part ? json_object_get(part, theirs) : NULL;

        json_object_set_new(to, name, value ? json_deep_copy(value) : json_null());
}

/* Returns a figure, limited to `rest`. A counter of a device may include packets of other programs. */
static json_t *share(const json_t *part, const char *name, json_int_t *rest)
{
        const json_t *value = part ? json_object_get(part, name) : NULL;
        json_int_t some = MIN(json_integer_value(value), *rest);

        if (!json_is_integer(value) || some < 0)
                return json_null();
        *rest -= some;
        return json_integer(some);
}

/* Attributes exact figures first; the remaining packets were lost between the ends. */
static void tell_losses_apart(json_t *o, const json_t *sender, const json_t *receiver, json_int_t lost)
{
        json_t *socket, *untaken, *source, *nic;
        json_int_t rest = lost - MIN(number(receiver, "late"), lost);

        socket = share(receiver, "socket_packets", &rest);
        untaken = share(receiver, "untaken_packets", &rest);
        source = share(sender, "source_packets", &rest);
        nic = share(receiver, "nic_packets", &rest);
        json_object_set_new(o, "lost_at",
                            json_pack("{s:o, s:I, s:o, s:o, s:o}", "source", source, "network", rest, "nic",
                                      nic, "socket", socket, "receiver", untaken));
}

json_t *report_merge(bool is_sender, const json_t *sender, const json_t *receiver)
{
        const json_t *own = is_sender ? sender : receiver, *peer = is_sender ? receiver : sender,
                     *from = receiver ?: sender;
        static const struct {
                const char *name, *theirs;
        } of_receiver[] = {{"packets_late", "late"},
                           {"packets_duplicate", "duplicate"},
                           {"packets_out_of_order", "out_of_order"},
                           {"frames_filled_in", "filled_in"},
                           {"frames_filled_unsure", "filled_unsure"},
                           {"packets_repaired", "repaired"},
                           {"frames_invalid", "invalid"},
                           {"corrupt", "corrupt"},
                           {"datagrams_foreign", "foreign"},
                           {"datagrams_short", "short"}},
          of_own[] = {{"inter_packet_us", "inter_packet_us"},
                      {"processing_us", "processing_us"},
                      {"intervals", "intervals"},
                      {"network_cpu_seconds", "network_cpu_seconds"},
                      {"file_cpu_seconds", "file_cpu_seconds"},
                      {"cpu_percent", "cpu_percent"},
                      {"reason", "reason"}};
        static const char *const optional[] = {"measured", "round_trip_us", "files"};
        double seconds = json_number_value(json_object_get(from, "seconds"));
        json_t *o = json_pack("{s:s}", "role", is_sender ? "send" : "recv");

        copy(o, "format", own, "format");
        copy(o, "wake", own, "wake");
        copy(o, "bytes", from, "bytes");
        copy(o, "seconds", from, "seconds");
        json_object_set_new(o, "throughput_bytes_per_second",
                            seconds > 0 ? json_real((double)number(from, "bytes") / seconds) : json_null());
        copy(o, "packets_sent", sender, "packets");
        copy(o, "packets_received", receiver, "packets");
        if (sender && receiver) {
                json_int_t lost = MAX(number(sender, "packets") - number(receiver, "packets"), (json_int_t)0);

                json_object_set_new(o, "packets_lost", json_integer(lost));
                tell_losses_apart(o, sender, receiver, lost);
        } else {
                copy(o, "packets_lost", receiver, json_object_get(receiver, "lost") ? "lost" : "filled_in");
                json_object_set_new(o, "lost_at", json_null());
        }
        for (size_t i = 0; i < ARRAY_SIZE(of_receiver); i++)
                copy(o, of_receiver[i].name, receiver, of_receiver[i].theirs);
        /* Members of raw streams, and of scans. */
        for (size_t i = 0; i < ARRAY_SIZE(optional); i++) {
                if (json_object_get(own, optional[i]))
                        copy(o, optional[i], own, optional[i]);
        }
        copy(o, "packets_sent_again", sender, "sent_again");
        copy(o, "repair_seconds", receiver, "repair_seconds");
        copy(o, "resumed_bytes", receiver, "resumed_bytes");
        copy(o, "frames_damaged", sender, "damaged");
        copy(o, "cut_bytes", sender, "cut_bytes");
        for (size_t i = 0; i < ARRAY_SIZE(of_own); i++)
                copy(o, of_own[i].name, own, of_own[i].theirs);
        json_object_set_new(o, "peer", peer ? json_deep_copy(peer) : json_null());
        return o;
}

/* Returns the sum of a member over all reports; null if any report does not contain it. */
static json_t *sum_of(const json_t *reports, const char *within, const char *name)
{
        json_int_t sum = 0;

        for (size_t i = 0; i < json_array_size(reports); i++) {
                const json_t *o = json_array_get(reports, i),
                             *value = json_object_get(within ? json_object_get(o, within) : o, name);

                if (!json_is_integer(value) || __builtin_add_overflow(sum, json_integer_value(value), &sum))
                        return json_null();
        }
        return json_integer(sum);
}

json_t *stream_join_reports(json_t *reports)
{
        static const char *const sums[] = {"bytes",
                                           "packets_sent",
                                           "packets_received",
                                           "packets_lost",
                                           "packets_late",
                                           "packets_duplicate",
                                           "packets_out_of_order",
                                           "frames_filled_in",
                                           "corrupt",
                                           "datagrams_foreign",
                                           "datagrams_short",
                                           "frames_filled_unsure",
                                           "packets_repaired",
                                           "frames_damaged",
                                           "frames_invalid",
                                           "cut_bytes"};
        json_t *o, *at = json_object();
        double seconds = 0;

        if (json_array_size(reports) == 0) {
                json_decref(reports);
                json_decref(at);
                return NULL;
        }
        o = json_object();
        copy(o, "role", json_array_get(reports, 0), "role");
        for (size_t i = 0; i < ARRAY_SIZE(sums); i++)
                json_object_set_new(o, sums[i], sum_of(reports, NULL, sums[i]));
        for (size_t i = 0; i < STREAM_PLACES; i++)
                json_object_set_new(at, stream_places[i].name,
                                    sum_of(reports, "lost_at", stream_places[i].name));
        json_object_set_new(o, "lost_at", at);
        /* The streams run at the same time. */
        for (size_t i = 0; i < json_array_size(reports); i++)
                seconds = MAX(seconds,
                              json_number_value(json_object_get(json_array_get(reports, i), "seconds")));
        json_object_set_new(o, "seconds", json_real(seconds));
        json_object_set_new(o, "throughput_bytes_per_second",
                            seconds > 0 ? json_real((double)number(o, "bytes") / seconds) : json_null());
        json_object_set_new(o, "streams", reports);
        return o;
}
