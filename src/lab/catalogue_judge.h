/* What measurements came to, one function each; see struct lab_measurement. */
#pragma once

#include "evb/lab/catalogue.h"

#define JUDGE(name) enum lab_verdict judge_##name(struct judging *j, char *why, size_t size)

JUDGE(a1);
JUDGE(a2);
JUDGE(a3);
JUDGE(a4);
JUDGE(a5);
JUDGE(a6);
JUDGE(a7);
JUDGE(a8);
JUDGE(b1);
JUDGE(b2);
JUDGE(b3);
JUDGE(b4);
JUDGE(b5);
JUDGE(b6);
JUDGE(c1);
JUDGE(c2);
JUDGE(c3);
JUDGE(c4);
JUDGE(c5);
JUDGE(c6);
JUDGE(c7);
JUDGE(c8);
JUDGE(c9);
