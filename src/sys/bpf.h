/* Loads BPF programs whose instructions are part of this program (scripts/bpf-programs.py). Any thread. */
#pragma once

#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>

/* A program refers to a map by this number, which bpf_load() replaces. */
struct bpf_mark {
        int32_t number;
        int map;      /* its descriptor */
        int32_t kind; /* BPF_PSEUDO_MAP_FD, or BPF_PSEUDO_MAP_VALUE: the value of a map that has one */
};

/* Returns what the system call returns, or a negative errno. */
int bpf_call(enum bpf_cmd command, union bpf_attr *attr);
/* An address as the members of union bpf_attr hold it. */
uint64_t bpf_address(const void *p);
/* Loads a program of traffic control. Returns its descriptor, or a negative errno: -EPERM, -ENOSYS or -EINVAL
 * if the kernel or the privileges do not suffice. */
int bpf_load(const char *name, const struct bpf_insn *program, size_t n, const struct bpf_mark *marks,
             size_t n_marks);
