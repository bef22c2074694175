/* The system call bpf, and the loading of a program with its maps. */
#include "sys/bpf.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Maximum number of instructions of a program. */
#define PROGRAM_MOST 512
/* Signals seldom arrive during the few milliseconds of a load. */
#define LOADS_MOST 20

int bpf_call(enum bpf_cmd command, union bpf_attr *attr)
{
        int r = (int)syscall(SYS_bpf, command, attr, sizeof *attr);

        return r < 0 ? -errno : r;
}

uint64_t bpf_address(const void *p)
{
        return (uint64_t)(uintptr_t)p;
}

static void replace_mark(struct bpf_insn *i, const struct bpf_mark *marks, size_t n_marks)
{
        if (i->code != (BPF_LD | BPF_DW | BPF_IMM))
                return;
        for (size_t k = 0; k < n_marks; k++) {
                if (i->imm != marks[k].number)
                        continue;
                i->src_reg = (uint8_t)marks[k].kind & 15;
                i->imm = marks[k].map;
                return;
        }
}

int bpf_load(const char *name, const struct bpf_insn *program, size_t n, const struct bpf_mark *marks,
             size_t n_marks)
{
        struct bpf_insn code[PROGRAM_MOST] = {};
        union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_SCHED_CLS,
                               .insns = bpf_address(code),
                               .insn_cnt = (uint32_t)n,
                               .license = bpf_address("BSD")};

        assert(n <= PROGRAM_MOST && strlen(name) < sizeof attr.prog_name);
        strcpy(attr.prog_name, name);
        for (size_t i = 0; i < n; i++) {
                code[i] = program[i];
                replace_mark(&code[i], marks, n_marks);
        }
        /* A signal, even SIGSTOP, ends the kernel's check of a program (do_check() in kernel/bpf). */
        for (int attempt = 1;; attempt++) {
                int r = bpf_call(BPF_PROG_LOAD, &attr);

                if (r != -EAGAIN || attempt == LOADS_MOST)
                        return r;
        }
}
