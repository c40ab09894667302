/*
 * number.c - system calls that programs make by syscall(2), with a number. Those that the library serves by a function of libc
 * are served here, too: libuv closes so, and other runtimes read and write. Calls that are made by an instruction of the
 * program's own are not seen.
 */

#include "isolation.h"
#include "rings.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#define I(n) ((int)a[n])
#define P(n) ((void *)a[n])
#define N(n) ((size_t)a[n])

/* on_descriptor does a call that moves bytes, or changes what a number means. False is that it is none of these. */
static bool on_descriptor(long number, const long a[6], long *result)
{
	switch (number) {
	case SYS_close: *result = close(I(0)); return true;
#ifdef SYS_close_range
	case SYS_close_range: *result = close_range((unsigned)a[0], (unsigned)a[1], I(2)); return true;
#endif
	case SYS_dup: *result = dup(I(0)); return true;
#ifdef SYS_dup2
	case SYS_dup2: *result = dup2(I(0), I(1)); return true;
#endif
	case SYS_dup3: *result = dup3(I(0), I(1), I(2)); return true;
	case SYS_fcntl: *result = fcntl(I(0), I(1), P(2)); return true;
	case SYS_ioctl: *result = ioctl(I(0), (unsigned long)a[1], P(2)); return true;
	case SYS_read: *result = read(I(0), P(1), N(2)); return true;
	case SYS_write: *result = write(I(0), P(1), N(2)); return true;
	case SYS_readv: *result = readv(I(0), P(1), I(2)); return true;
	case SYS_writev: *result = writev(I(0), P(1), I(2)); return true;
#ifdef SYS_sendfile
	case SYS_sendfile: *result = sendfile(I(0), I(1), P(2), N(3)); return true;
#endif
	case SYS_splice: *result = splice(I(0), P(1), I(2), P(3), N(4), (unsigned)a[5]); return true;
	}
	return false;
}

/* on_socket does a call of sockets. */
static bool on_socket(long number, const long a[6], long *result)
{
	switch (number) {
	case SYS_socket: *result = socket(I(0), I(1), I(2)); return true;
	case SYS_bind: *result = bind(I(0), P(1), (socklen_t)a[2]); return true;
	case SYS_connect: *result = connect(I(0), P(1), (socklen_t)a[2]); return true;
	case SYS_listen: *result = listen(I(0), I(1)); return true;
	case SYS_accept: *result = accept(I(0), P(1), P(2)); return true;
	case SYS_accept4: *result = accept4(I(0), P(1), P(2), I(3)); return true;
	case SYS_getsockname: *result = getsockname(I(0), P(1), P(2)); return true;
	case SYS_getpeername: *result = getpeername(I(0), P(1), P(2)); return true;
	case SYS_setsockopt: *result = setsockopt(I(0), I(1), I(2), P(3), (socklen_t)a[4]); return true;
	case SYS_getsockopt: *result = getsockopt(I(0), I(1), I(2), P(3), P(4)); return true;
	case SYS_shutdown: *result = shutdown(I(0), I(1)); return true;
	case SYS_sendto: *result = sendto(I(0), P(1), N(2), I(3), P(4), (socklen_t)a[5]); return true;
	case SYS_recvfrom: *result = recvfrom(I(0), P(1), N(2), I(3), P(4), P(5)); return true;
	case SYS_sendmsg: *result = sendmsg(I(0), P(1), I(2)); return true;
	case SYS_recvmsg: *result = recvmsg(I(0), P(1), I(2)); return true;
	case SYS_sendmmsg: *result = sendmmsg(I(0), P(1), (unsigned)a[2], I(3)); return true;
	case SYS_recvmmsg: *result = recvmmsg(I(0), P(1), (unsigned)a[2], I(3), P(4)); return true;
	}
	return false;
}

INTERPOSED long syscall(long number, ...)
{
	long a[6], result;
	va_list list;
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (on_descriptor(number, a, &result) || on_socket(number, a, &result))
		return result;
	switch (number) {
	case SYS_prctl:
		return prctl(I(0), a[1], a[2], a[3], a[4]);
	case SYS_chroot:
		return chroot(P(0));
	case SYS_execve:
		return execve(P(0), P(1), P(2));
#ifdef SYS_execveat
	case SYS_execveat:
		return execveat(I(0), P(1), P(2), P(3), I(4));
#endif
	case SYS_seccomp:
		if (I(0) == SECCOMP_SET_MODE_STRICT || (I(0) == SECCOMP_SET_MODE_FILTER && P(2) != NULL))
			rings_sandbox();
		break;
#ifdef SYS_io_uring_setup
	case SYS_io_uring_setup: /* its requests name descriptors, and no library sees them */
		rings_end();
		break;
#endif
	}
	return system_call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* first_call finds libc's syscall. Before the constructors, too, the loader has all libraries. */
static long first_call(long number, ...)
{
	long a[6];
	va_list list;
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	void *found = dlsym(RTLD_NEXT, "syscall");
	memcpy(&system_call, &found, sizeof found);
	return system_call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

long (*system_call)(long number, ...) = first_call;

/* The functions of liburing make an instance by an instruction of their own. NULL is that no library has the function. */
static int uring(const char *name, void *one, void *two, void *three, void *four)
{
	int (*f)(void *, void *, void *, void *);
	void *found = dlsym(RTLD_NEXT, name);
	rings_end();
	if (found == NULL)
		return -ENOSYS;
	memcpy(&f, &found, sizeof f);
	return f(one, two, three, four);
}

INTERPOSED int io_uring_setup(unsigned entries, void *params)
{
	return uring("io_uring_setup", (void *)(uintptr_t)entries, params, NULL, NULL);
}

INTERPOSED int io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
	return uring("io_uring_queue_init", (void *)(uintptr_t)entries, ring, (void *)(uintptr_t)flags, NULL);
}

INTERPOSED int io_uring_queue_init_params(unsigned entries, void *ring, void *params)
{
	return uring("io_uring_queue_init_params", (void *)(uintptr_t)entries, ring, params, NULL);
}

INTERPOSED int io_uring_queue_init_mem(unsigned entries, void *ring, void *params, void *memory, size_t size)
{
	int (*f)(unsigned, void *, void *, void *, size_t);
	void *found = dlsym(RTLD_NEXT, "io_uring_queue_init_mem");
	rings_end();
	if (found == NULL)
		return -ENOSYS;
	memcpy(&f, &found, sizeof f);
	return f(entries, ring, params, memory, size);
}
