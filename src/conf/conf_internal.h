/* Shared by the files of the conf layer while they read a scenario. */
#pragma once

#include "conf/keys.h"

#define CONF_KEYS_MAX 128
#define CONF_PARTS_MAX 10
#define CONF_WITHIN " within " /* comes before the window in trigger.source */
#define CONF_LINE_MAX 1024

enum conf_node_key {
        NODE_ROLE,
        NODE_ADDRESS,
        NODE_DEVICE,
        NODE_CPUS,
        NODE_SOURCE,
        NODE_SOURCE_ID,
        NODE_REQUIRED,
        NODE_WAIT,
        /* Keys of the node's board. */
        NODE_FRAME,
        NODE_BOARD_FIRST = NODE_FRAME,
        NODE_EVENT_NUMBER,
        NODE_NUMBER_FROM,
        NODE_EVENT_TIME,
        NODE_TICK,
        NODE_FRAGMENTS,
        NODE_BOARD_LAST = NODE_FRAGMENTS,
        CONF_NODE_KEYS
};

/* Where a key is set. */
struct conf_place {
        unsigned line;       /* 0: not in the file */
        const char *setting; /* the --set that overrides the key, or NULL */
};

struct loading {
        struct scenario *scenario;
        const char *path;
        FILE *file;
        unsigned line;                 /* the current line of the file */
        const char *setting;           /* the current --set, or NULL */
        unsigned lines[CONF_KEYS_MAX]; /* where a key is set; 0: not in the file */
        bool by_old_name[CONF_KEYS_MAX];
        const char *from_setting[CONF_KEYS_MAX];
        /* Removed keys that are part of another key, at the index of the first name of each. */
        struct conf_part {
                const struct removed_key *key; /* by its last name; NULL: not set */
                char value[SCENARIO_TEXT_MAX];
                unsigned line;
                const char *setting;
        } parts[CONF_PARTS_MAX];
        uint32_t letters[CONF_KEYS_MAX][2]; /* letters in the names of each key, for suggestions */
        bool has_letters;
        struct conf_place (*node_places)[CONF_NODE_KEYS]; /* the keys of each node */
        struct scenario_errors *errors;
};

/* errors.c: reports an error, which makes the load fail. */
void conf_error(struct loading *l, unsigned line, const char *what, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
/* Reports a warning, which does not make the load fail. */
void conf_warn(struct loading *l, unsigned line, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
/* Reports an error in a key, at the line or setting that set it. */
void conf_key_error(struct loading *l, const char *section, const char *name, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

/* Reports an error in a key of a node, or at the head of the section if the node does not set the key. */
void conf_node_error(struct loading *l, const struct scenario_node *n, enum conf_node_key key,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

const char *conf_node_key_name(enum conf_node_key key);
bool conf_node_has(const struct loading *l, const struct scenario_node *n, enum conf_node_key key);

/* read.c: reads the lines of the file and the settings of the command line. Negative errno: the file cannot
 * be read. */
int conf_read_file(struct loading *l);
void conf_read_setting(struct loading *l, const char *text);
/* After all lines and settings: adds the values of removed keys to the keys that they are part of now, or
 * reports an error if those have another value of this part. */
void conf_join_parts(struct loading *l);

/* scenario.c: writes the section of a node in the syntax of the file. */
void conf_write_node(const struct scenario_node *n, FILE *to);

/* nodes.c: a head `[node NAME]`, then each line below it. */
void conf_begin_node(struct loading *l, const char *node);
void conf_set_node(struct loading *l, const char *node, const char *name, const char *value);
void conf_resolve_nodes(struct loading *l);

/* sources.c: fragment sources, from [ros] and from single nodes. */
void conf_resolve_source(struct loading *l);
void conf_set_node_source(struct loading *l, const char *what, struct scenario_node *n, const char *value);
void conf_set_node_source_id(struct loading *l, const char *what, struct scenario_node *n, const char *value);
void conf_set_node_required(struct loading *l, const char *what, struct scenario_node *n, const char *value);
void conf_set_node_wait(struct loading *l, const char *what, struct scenario_node *n, const char *value);
/* Sets the source of each ROS, and rejects keys of a ROS in other nodes. */
void conf_resolve_node_sources(struct loading *l);
void conf_check_sources(struct loading *l);

/* board_keys.c: the keys that describe a board's frames. conf_inherit_board() fills in the keys from [ros]
 * that the node does not set. */
void conf_resolve_board(struct loading *l);
void conf_set_node_board(struct loading *l, const char *what, struct scenario_node *n, enum conf_node_key key,
                         const char *value);
void conf_inherit_board(const struct scenario *s, struct scenario_node *n);
bool conf_node_owns(const struct scenario_node *n, enum conf_node_key key);
void conf_check_boards(struct loading *l);
/* Formats the value of a board's key in the syntax of the file; returns `text`. */
char *conf_board_text(const struct scenario_board *b, enum conf_node_key key,
                      char text[static SCENARIO_TEXT_MAX]);
char *conf_time_text(uint64_t ns, char text[static SCENARIO_TEXT_MAX]);

/* path.c: makes a path absolute. A relative path starts at the directory of the scenario file if `from_file`
 * is set, otherwise at the current directory. False: `why` explains the error. */
bool conf_absolute_path(const struct loading *l, bool from_file, const char *path, char *to, size_t to_bytes,
                        char *why, size_t why_bytes);
/* Makes the path in the value of a key absolute. False: the error is reported. */
bool conf_key_path(struct loading *l, const char *section, const char *name, const char *path, char *whole,
                   size_t whole_bytes);

/* resolve.c: parses text values, then checks keys against each other. */
void conf_resolve_texts(struct loading *l);
void conf_check_fit(struct loading *l);

/* level2_keys.c: parses the text values in [level2], then checks its keys against others. */
void conf_resolve_level2(struct loading *l);
void conf_check_level2(struct loading *l);

/* trigger_keys.c: parses and checks [trigger] in the same way. */
void conf_resolve_trigger(struct loading *l);
void conf_check_trigger(struct loading *l);

/* listen_keys.c: parses the places where nodes listen, in [control], [metrics] and [live], then checks the
 * keys of these sections against each other and the rest of the scenario. */
void conf_resolve_control(struct loading *l);
void conf_check_control(struct loading *l);
void conf_resolve_metrics(struct loading *l);
void conf_check_metrics(struct loading *l);
void conf_resolve_live(struct loading *l);
void conf_check_live(struct loading *l);

/* Whether a part of trigger.source is valid, by what it follows: a slice (TIME or TIME+OVERLAP) if this is
 * NULL, an overlap after "+", otherwise a window. The slice limits the overlap. */
bool conf_source_time_is_valid(const char *after, const char *value);

/* keys.c: the index of a word in "a|b|c", or -1. */
int conf_choice_index(const char *words, const char *word);
/* Parses a number without checking its bounds; negative errno: it is not a number of this kind. */
int conf_parse_number(const struct scenario_key *key, const char *value, uint64_t *ret);
/* Appends a number in the largest unit that is exact. */
struct strbuf;
void conf_add_number(struct strbuf *b, enum key_kind kind, uint64_t v);

/* Whether a file can contain the text: one line, without a comment or blanks at its ends. */
bool conf_is_line(const char *text);

/* metadata_section.c: sets a line of [metadata]. */
void conf_set_metadata(struct loading *l, const char *name, const char *value);

/* address_list.c: checks a list of addresses. */
void conf_check_addresses(struct loading *l, const char *section, const char *name, const char *list);

/* address_list.c: parses a numeric address, IPv6 with or without %device. */
struct conf_address {
        int family; /* AF_INET, AF_INET6 */
        uint8_t bytes[16];
};

bool conf_address_parse(struct conf_address *ret, const char *text);
bool conf_port_parse(uint16_t *ret, const char *text);
/* Parses HOST:PORT, with an IPv6 host in brackets. */
bool conf_endpoint_parse(struct conf_address *ret, uint16_t *ret_port, const char *text);
bool conf_address_is_multicast(const struct conf_address *a);
bool conf_address_is_unset(const struct conf_address *a); /* 0.0.0.0, :: */
bool conf_address_is_broadcast(const struct conf_address *a);
bool conf_is_loopback(int family, const uint8_t *address);
bool conf_is_port(const char *text); /* 1 to 65535 */
