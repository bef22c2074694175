/* The record of a run: its name beside the event files, its content, and that it is never over another file.
 */
#include "../test.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "data/run_file.h"

TEST(the_core_is_that_of_the_event_files)
{
        static const char *const wrong[] = {
                "", ".data", "_1.data", "/x/CORE.data", "/x/CORE._12.writing", "/x/CORE.12.data"};
        char core[64];

        assert_true(run_file_core("/x/CORE._SFI-1._0012.data", core, sizeof core));
        assert_string_equal(core, "/x/CORE._SFI-1");
        assert_true(run_file_core("/x/CORE._12345.data", core, sizeof core));
        assert_string_equal(core, "/x/CORE");
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                assert_false(run_file_core(wrong[i], core, sizeof core));
        assert_false(run_file_core("/x/CORE._0001.data", core, 7));
        assert_true(run_file_core("/x/CORE._0001.data", core, 8));
}

static const char *name(const char *pattern, uint64_t sfis, bool any)
{
        static struct scenario s;
        static const struct scenario_node node = {.name = "sfi2", .index = 1};
        static char text[EVENT_FILE_TEXT_MAX + 16], core[sizeof text], path[2 * sizeof text];

        s.sfi.count = sfis;
        snprintf(s.sfi.file_name, sizeof s.sfi.file_name, "%s", pattern);
        run_file_core_name(&s, any ? NULL : &node, 42, 1775621020, text, sizeof text);
        snprintf(path, sizeof path, "%s%s0007.data", text, run_file_separator(&s));
        assert_true(run_file_core(path, core, sizeof core));
        assert_string_equal(core, text);
        return text;
}

TEST(the_core_follows_the_pattern)
{
        assert_string_equal(name("run{run}_{sequence}", 1, false), "run000042");
        assert_string_equal(name("run{run}_{sequence}", 2, false), "run000042_sfi2");
        assert_string_equal(name("run{run}_{sequence}", 2, true), "run000042");
        assert_string_equal(name("{sfi}.{run}x_{sequence}", 2, false), "sfi2.000042x");
        assert_string_equal(name("{sfi}-{run}_{sequence}", 1, true), "*-000042");
        assert_string_equal(name("atlas", 2, false),
                            "data26_evb.00000042.physics_Main.daq.RAW._lb0000._SFI-2");
        assert_string_equal(name("atlas", 1, true), "data26_evb.00000042.physics_Main.daq.RAW._lb0000._*");
}

static json_t *load(const char *path)
{
        json_t *o = json_load_file(path, 0, NULL);

        assert_non_null(o);
        return o;
}

static void check_begun(const char *path)
{
        json_auto_t *o = load(path);

        assert_int_equal(json_integer_value(json_object_get(o, "run")), 7);
        assert_non_null(json_object_get(json_object_get(o, "scenario"), "nodes"));
        assert_null(json_object_get(o, "accounts"));
}

static int files_in(const char *folder)
{
        struct dirent **names;
        int n = scandir(folder, &names, NULL, NULL);

        for (int i = 0; i < n; i++)
                free(names[i]);
        free(names);
        return n - 2;
}

TEST(a_record_replaces_no_file)
{
        static struct scenario s;
        static const char *const names[] = {"CORE.run.json", "CORE.run.2.json", "CORE.run.3.json"};
        char folder[] = "/tmp/evb-record-XXXXXX", core[64], wanted[96], writing[96], path[RUN_FILE_PATH_MAX],
             begun[RUN_FILE_PATH_MAX];
        struct run_file f = {.scenario = &s, .run = 7, .core = core};
        const struct event_writer_file file = {"/x/CORE._0001.data", 3, 1000, 0x12ab, 60, 61};
        json_auto_t *files = run_file_list_files(&file, 1),
                    *wanted_files = json_pack("[{s:s, s:i, s:i, s:s, s:s, s:s}]", "name", "CORE._0001.data",
                                              "events", 3, "size_bytes", 1000, "adler32", "000012ab", "begun",
                                              "1970-01-01T00:01:00Z", "ended", "1970-01-01T00:01:01Z");

        assert_true(json_equal(files, wanted_files));
        assert_non_null(mkdtemp(folder));
        snprintf(core, sizeof core, "%s/CORE", folder);
        snprintf(writing, sizeof writing, "%s.run.json.writing", core);
        close(creat(writing, 0600)); /* another process writes its record */
        strcpy(s.metadata[0].name, "Beam");
        strcpy(s.metadata[0].value, "muons");
        s.n_metadata = 1;
        for (int i = 0; i < 3; i++) {
                json_auto_t *accounts = json_pack("{s:i, s:f}", "triggers", i, "seconds", 0.123456789012), *o;

                f.accounts = NULL;
                assert_int_equal(run_file_begin(&f, begun), 0);
                check_begun(begun);
                f.accounts = accounts;
                f.files = i > 0 ? files : NULL;
                assert_int_equal(run_file_write(&f, path), 0);
                assert_int_equal(access(begun, F_OK), -1);
                snprintf(wanted, sizeof wanted, "%s/%s", folder, names[i]);
                assert_string_equal(path, wanted);
                o = load(path);
                assert_int_equal(json_integer_value(json_object_get(o, "run")), 7);
                assert_true(json_equal(json_object_get(o, "accounts"), accounts));
                assert_int_equal(json_equal(json_object_get(o, "files"), files), i > 0);
                assert_string_equal(
                        json_string_value(json_object_get(json_object_get(o, "metadata"), "Beam")), "muons");
                assert_non_null(json_object_get(json_object_get(o, "versions"), "evb"));
                assert_non_null(json_object_get(json_object_get(o, "scenario"), "sfi"));
        }
        assert_int_equal(files_in(folder), 4); /* with what the other process writes */
        assert_int_equal(unlink(writing), 0);
        for (int i = 0; i < 3; i++) {
                snprintf(wanted, sizeof wanted, "%s/%s", folder, names[i]);
                assert_int_equal(unlink(wanted), 0);
        }
        assert_int_equal(rmdir(folder), 0);
        f.accounts = json_true();
        assert_int_equal(run_file_write(&f, path), -ENOENT);
        snprintf(wanted, sizeof wanted, "%s.run.json", core);
        assert_string_equal(path, wanted);
        f.accounts = NULL;
        assert_int_equal(run_file_begin(&f, path), -ENOENT);
}
