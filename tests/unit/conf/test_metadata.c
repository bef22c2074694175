/* The section [metadata]: free names and values, what they may be, and how they are written again. */
#include "conf_sample.h"

TEST(names_and_values_are_free)
{
        assert_loads(COUNTS "[metadata]\nBeam = electrons, 5 GeV ; not this\nRun.Type-2 = a=b:c\n"
                            "Shifter = J\xc3\xbcrgen\nEmpty =\n");
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
        _cleanup_free_ char *text = NULL;

        assert_loads(COUNTS "[metadata]\nA = 1 2\nB = x;y#z\n");
        before = sample;
        text = sample_written();
        assert_loads(text);
        assert_int_equal(before.n_metadata, sample.n_metadata);
        assert_memory_equal(before.metadata, sample.metadata, sizeof before.metadata);
}

TEST(errors_name_their_lines)
{
        char text[600];

        assert_wrong(COUNTS "[metadata]\nSeed = 5\n", ":6: metadata.Seed: ", "evb writes this name itself");
        assert_wrong(COUNTS "[metadata]\na b = 5\n", ":6: metadata.a b: ", "invalid name");
        assert_wrong(COUNTS "[metadata]\nA = 1\nA = 2\n", ":7: metadata.A: ", "duplicate key");
        assert_wrong(COUNTS "[metadata]\nA = \xff\n", ":6: metadata.A: ", "UTF-8");
        assert_wrong(COUNTS "[metadata]\nA = \xed\xa0\x80\n", ":6: metadata.A: ", "UTF-8");
        assert_wrong(COUNTS "[metadata]\nA = \xc3\n", ":6: metadata.A: ", "UTF-8");
        assert_wrong(COUNTS "[metadata]\nA = \xf4\x90\x80\x80\n", ":6: metadata.A: ", "UTF-8");
        assert_wrong(COUNTS "[metadata]\nA=\nB=\nC=\nD=\nE=\nF=\nG=\nH=\nI=\nJ=\nK=\nL=\nM=\n",
                     ":18: metadata.M: ", "at most 12");
        snprintf(text, sizeof text, "%s[metadata]\nA = %0192d\n", COUNTS, 1);
        assert_wrong(text, ":6: metadata.A: ", "at most 191 bytes");
        snprintf(text, sizeof text, "%s[metadata]\nA = %0191d\n", COUNTS, 1);
        assert_loads(text);
}
