/* The section [metadata]: free names and values, what they may be, and how they are written again. */
#include "conf_sample.h"

TEST(names_and_values_are_free)
{
        assert_int_equal(sample_load(COUNTS
                                     "[metadata]\nBeam = electrons, 5 GeV ; not this\nRun.Type-2 = a=b:c\n"
                                     "Shifter = J\xc3\xbcrgen\nEmpty =\n"),
                         0);
        assert_int_equal(sample.n_metadata, 4);
        assert_string_equal(sample.metadata[0].name, "Beam");
        assert_string_equal(sample.metadata[0].value, "electrons, 5 GeV");
        assert_string_equal(sample.metadata[1].name, "Run.Type-2");
        assert_string_equal(sample.metadata[1].value, "a=b:c");
        assert_string_equal(sample.metadata[2].value, "J\xc3\xbcrgen");
        assert_string_equal(sample.metadata[3].value, "");
}

TEST(settings_replace_and_add)
{
        const char *const settings[] = {"metadata.Beam=muons", "metadata.More=1", "metadata.Run.Type=x"};

        assert_int_equal(sample_load_with(COUNTS "[metadata]\nBeam = electrons\n", settings, 2), 0);
        assert_int_equal(sample.n_metadata, 2);
        assert_string_equal(sample.metadata[0].value, "muons");
        assert_string_equal(sample.metadata[1].name, "More");
        /* The last dot ends the section, as for nodes. */
        sample_load_with(COUNTS, settings + 2, 1);
        assert_one_error("--set metadata.Run.Type=x: metadata.Run.Type: ", "unknown key");
}

TEST(a_written_scenario_is_the_same)
{
        static struct scenario before;
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);

        assert_non_null(f);
        assert_int_equal(sample_load(COUNTS "[metadata]\nA = 1 2\nB = x;y#z\n"), 0);
        before = sample;
        scenario_write(&sample, f);
        fclose(f);
        assert_int_equal(sample_load(text), 0);
        assert_int_equal(before.n_metadata, sample.n_metadata);
        assert_memory_equal(before.metadata, sample.metadata, sizeof before.metadata);
        free(text);
}

TEST(errors_name_their_lines)
{
        static const struct {
                const char *text, *at, *what;
        } cases[] = {
                {"Seed = 5\n", ":6: metadata.Seed: ", "evb writes this name itself"},
                {"a b = 5\n", ":6: metadata.a b: ", "invalid name"},
                {"A = 1\nA = 2\n", ":7: metadata.A: ", "duplicate key"},
                {"A = \xff\n", ":6: metadata.A: ", "UTF-8"},
                {"A = \xed\xa0\x80\n", ":6: metadata.A: ", "UTF-8"},
                {"A = \xc3\n", ":6: metadata.A: ", "UTF-8"},
                {"A = \xf4\x90\x80\x80\n", ":6: metadata.A: ", "UTF-8"},
                {"A=\nB=\nC=\nD=\nE=\nF=\nG=\nH=\nI=\nJ=\nK=\nL=\nM=\n", ":18: metadata.M: ", "at most 12"},
        };
        char text[600];

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                snprintf(text, sizeof text, "%s[metadata]\n%s", COUNTS, cases[i].text);
                assert_int_equal(sample_load(text), -EINVAL);
                assert_one_error(cases[i].at, cases[i].what);
        }
        snprintf(text, sizeof text, "%s[metadata]\nA = %0192d\n", COUNTS, 1);
        assert_int_equal(sample_load(text), -EINVAL);
        assert_one_error(":6: metadata.A: ", "at most 191 bytes");
        snprintf(text, sizeof text, "%s[metadata]\nA = %0191d\n", COUNTS, 1);
        assert_int_equal(sample_load(text), 0);
}
