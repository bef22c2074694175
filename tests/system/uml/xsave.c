/* Preloaded into user-mode Linux 5.10, which passes at most the processor state of early AVX-512 to
 * PTRACE_SETREGSET. If the processor has more state (AMX), the kernel rejects a partial one with EFAULT. This
 * wrapper then fills the rest with its current value. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef long ptrace_function(enum __ptrace_request request, ...);

long ptrace(enum __ptrace_request request, ...)
{
        static ptrace_function *next;
        static unsigned char state[1 << 16] __attribute__((aligned(64)));
        struct iovec whole = {state, sizeof state}, *part;
        void *address, *data;
        va_list arguments;
        pid_t pid;
        long r;

        va_start(arguments, request);
        pid = va_arg(arguments, pid_t);
        address = va_arg(arguments, void *);
        data = va_arg(arguments, void *);
        va_end(arguments);
        if (!next)
                next = (ptrace_function *)dlsym(RTLD_NEXT, "ptrace");
        r = next(request, pid, address, data);
        if (r == 0 || errno != EFAULT || request != PTRACE_SETREGSET ||
            (unsigned long)address != NT_X86_XSTATE)
                return r;
        part = data;
        if (next(PTRACE_GETREGSET, pid, address, &whole) < 0 || whole.iov_len <= part->iov_len) {
                errno = EFAULT;
                return -1;
        }
        memcpy(state, part->iov_base, part->iov_len);
        return next(PTRACE_SETREGSET, pid, address, &whole);
}
