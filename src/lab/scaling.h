/* What the files of S1 to S9 share. */
#pragma once

#include "query.h"

enum lab_verdict scaling_judge_shares(struct judging *j, char *why, size_t size);
enum lab_verdict scaling_judge_rates(struct judging *j, char *why, size_t size);
enum lab_verdict scaling_judge_buffers(struct judging *j, char *why, size_t size);
enum lab_verdict scaling_judge_timers(struct judging *j, char *why, size_t size);
enum lab_verdict scaling_judge_latency(struct judging *j, char *why, size_t size);
enum lab_verdict scaling_judge_credits(struct judging *j, char *why, size_t size);
