/* Draws with ncurses, which supports many terminals, sends only what has changed, and restores the terminal
 * even around Ctrl-Z. Draws in colours unless NO_COLOR is set, and bars in ASCII unless the locale is
 * UTF-8. */
#include "top.h"

#include <curses.h>
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <term.h>
#include <unistd.h>

#include "base/util.h"

/* A header of ncurses makes it a macro. */
#undef lines

struct top_screen {
        SCREEN *screen;
        bool colours, utf8, has_keys;
        bool must_clear; /* the content of the terminal is unknown */
};

/* Set by SIGWINCH. */
static volatile sig_atomic_t was_resized;

enum { PAIR_ERROR = 1, PAIR_WARNING, PAIR_TITLE };

bool top_screen_is_possible(void)
{
        const char *term = getenv("TERM");
        bool possible;
        int unused;

        if (!isatty(STDOUT_FILENO) || !term || !term[0] || strcmp(term, "dumb") == 0 ||
            setupterm(term, STDOUT_FILENO, &unused) != OK)
                return false;
        possible = cursor_address != NULL;
        del_curterm(cur_term);
        return possible;
}

static void request_resize(int number)
{
        (void)number;
        was_resized = 1;
}

static void open_colours(struct top_screen *s)
{
        const char *no_colour = getenv("NO_COLOR");

        s->colours = (!no_colour || !no_colour[0]) && has_colors() && start_color() == OK;
        if (!s->colours)
                return;
        use_default_colors();
        init_pair(PAIR_ERROR, COLOR_RED, -1);
        init_pair(PAIR_WARNING, COLOR_YELLOW, -1);
        init_pair(PAIR_TITLE, COLOR_CYAN, -1);
}

int top_screen_open(struct top_screen **ret)
{
        struct top_screen *s = calloc(1, sizeof *s);

        if (!s)
                return -ENOMEM;
        setlocale(LC_CTYPE, "");
        s->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
        /* Uses the size that the terminal reports, not LINES and COLUMNS. */
        use_env(TRUE);
        use_tioctl(TRUE);
        s->screen = newterm(NULL, stdout, stdin);
        if (!s->screen) {
                free(s);
                return -ENOTTY;
        }
        /* Replaces the handler of ncurses, which ignores a return to the previous size. */
        sigaction(SIGWINCH, &(const struct sigaction){.sa_handler = request_resize}, NULL);
        open_colours(s);
        s->has_keys = isatty(STDIN_FILENO);
        cbreak();
        noecho();
        nonl();
        curs_set(0);
        keypad(stdscr, TRUE);
        nodelay(stdscr, TRUE);
        set_escdelay(25);
        *ret = s;
        return 0;
}

struct top_screen *top_screen_free(struct top_screen *s)
{
        if (!s)
                return NULL;
        endwin();
        delscreen(s->screen);
        free(s);
        return NULL;
}

void top_screen_get_size(struct top_screen *s, size_t *ret_width, size_t *ret_height)
{
        struct winsize now;
        bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &now) == 0 && now.ws_row > 0 && now.ws_col > 0,
             other = known && is_term_resized(now.ws_row, now.ws_col);

        if (other)
                resizeterm(now.ws_row, now.ws_col);
        /* A resized terminal may move or truncate its text, even if it returns to the previous size. */
        if (other || s->must_clear)
                clearok(curscr, TRUE);
        s->must_clear = false;
        *ret_width = (size_t)MAX(getmaxx(stdscr), 0);
        *ret_height = (size_t)MAX(getmaxy(stdscr), 0);
}

static attr_t attributes(const struct top_screen *s, enum top_style style)
{
        switch (style) {
        case TOP_TITLE:
                return s->colours ? A_BOLD | (attr_t)COLOR_PAIR(PAIR_TITLE) : A_BOLD;
        case TOP_HEAD:
                return A_REVERSE;
        case TOP_WARNING:
                return s->colours ? (attr_t)COLOR_PAIR(PAIR_WARNING) : A_BOLD;
        case TOP_ERROR:
                return s->colours ? A_BOLD | (attr_t)COLOR_PAIR(PAIR_ERROR) : A_BOLD;
        case TOP_DIM:
                return A_DIM;
        case TOP_PLAIN:
                break;
        }
        return A_NORMAL;
}

static void draw_text(const struct top_screen *s, const char *text)
{
        for (const char *c = text; *c; c++) {
                if (*c == TOP_BAR_FULL)
                        addstr(s->utf8 ? "\u2588" : "#");
                else if (*c == TOP_BAR_EMPTY)
                        addstr(s->utf8 ? "\u2591" : ".");
                else
                        addch((chtype)(unsigned char)*c);
        }
}

void top_screen_draw(struct top_screen *s, const struct top_line *lines, size_t n)
{
        erase();
        for (size_t i = 0; i < n; i++) {
                attrset(attributes(s, lines[i].style));
                move((int)i, 0);
                draw_text(s, lines[i].text);
                /* The head is shown as a bar over the whole width. */
                for (int x = (int)strlen(lines[i].text); lines[i].style == TOP_HEAD && x < getmaxx(stdscr);
                     x++)
                        mvaddch((int)i, x, ' ');
        }
        attrset(A_NORMAL);
        refresh();
}

enum top_key top_screen_read_key(struct top_screen *s)
{
        static const struct {
                int code;
                enum top_key key;
        } keys[] = {
                {'q', TOP_KEY_QUIT},          {'Q', TOP_KEY_QUIT},
                {'s', TOP_KEY_NEXT},          {'>', TOP_KEY_NEXT},
                {'<', TOP_KEY_PREVIOUS},      {'r', TOP_KEY_REVERSE},
                {KEY_UP, TOP_KEY_UP},         {KEY_DOWN, TOP_KEY_DOWN},
                {KEY_PPAGE, TOP_KEY_PAGE_UP}, {KEY_NPAGE, TOP_KEY_PAGE_DOWN},
                {KEY_HOME, TOP_KEY_HOME},     {KEY_END, TOP_KEY_END},
                {'h', TOP_KEY_HELP},          {'?', TOP_KEY_HELP},
                {' ', TOP_KEY_PAUSE},         {KEY_RESIZE, TOP_KEY_RESIZED},
        };
        int code;

        if (was_resized) {
                was_resized = 0;
                s->must_clear = true;
                return TOP_KEY_RESIZED;
        }
        code = s->has_keys ? getch() : ERR;
        if (code == ERR)
                return TOP_KEY_NONE;
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
                if (keys[i].code == code)
                        return keys[i].key;
        }
        return TOP_KEY_OTHER;
}
