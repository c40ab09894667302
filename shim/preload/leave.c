/*
 * leave.c - calls after which a descriptor is something else, or belongs to something that knows no rings.
 */

#include "isolation.h"
#include "rings.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/*
 * The process that the table belongs to, in a page that fork gives to the child with zeros, and vfork as it is: a child of vfork
 * has the table of its parent, but descriptors of its own.
 */
static _Atomic pid_t *owner;

/*
 * own_memory reports whether the table is this process's to change. A child of vfork that closes a descriptor must leave it alone: its
 * parent has the descriptor still, and would lose the rings of an open socket. Comparing getpid(2) with a saved number alone would
 * take a child of fork for one of vfork; the page of zeros distinguishes them without a handler of pthread_atfork(3), which clone(2)
 * does not call. A kernel without MADV_WIPEONFORK (before 4.14) reports true: children of vfork are then as before.
 */
bool own_memory(void)
{
	pid_t self = getpid();
	if (owner == NULL) {
		long p = KERNEL(mmap, NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == -1 || KERNEL(madvise, p, 4096, MADV_WIPEONFORK) != 0)
			return true;
		owner = (_Atomic pid_t *)p;
	}
	pid_t none = 0;
	return atomic_compare_exchange_strong(owner, &none, self) || none == self;
}

__attribute__((constructor)) static void begin(void)
{
	own_memory();
}

static bool has_rings(int fd)
{
	return (unsigned)fd < RINGS_DESCRIPTORS && (atomic_load_explicit(&rings_of[fd].users, memory_order_relaxed) & 1) != 0;
}

/*
 * closing is that fd is about to be closed or replaced. It comes before the system call: after it another thread may have got the number
 * for a new socket, whose entry would be removed.
 */
static void closing(int fd)
{
	if (has_rings(fd) && own_memory())
		rings_closing(fd);
}

/*
 * duplicating is that fd gets a second number, which to is to be, at least, or -1. Rings to another program have that, too; those to the
 * node do not, nor the numbers that become streams of libc, nor those beyond the table.
 */
static void duplicating(int fd, int to)
{
	bool numbered = to < 0 || (to > STDERR_FILENO && to < RINGS_DESCRIPTORS);
	if (has_rings(fd) && (!rings_shareable(fd) || !numbered || !own_memory()))
		rings_leave(fd);
}

/*
 * duplicated is that it has got it. The old entry of the number goes first: the kernel has closed what it was, as dup2(2) does without a
 * call of close(2). Where the copy cannot share the memory the original leaves its rings, too, or the two numbers of one stream would
 * read from two places.
 */
static int duplicated(int fd, int got)
{
	if (got >= 0 && maybe_datagram(fd))
		note_datagram(got);
	if (got >= 0 && maybe_port(fd))
		note_port(got);
	if (got > STDERR_FILENO && has_rings(fd)) {
		rings_renew(got);
		rings_copy(fd, got);
	} else if (got >= 0) {
		rings_leave(fd);
	}
	return got;
}

void rings_renew(int fd)
{
	closing(fd);
}

INTERPOSED int close(int fd)
{
	closing(fd);
	uint64_t port = port_closing(fd);
	int result = (int)KERNEL(close, fd);
	port_closed(port);
	return result;
}

#define MOST_PORTS 64 /* that one close_range waits for */

INTERPOSED int close_range(unsigned first, unsigned last, int flags)
{
	uint64_t port[MOST_PORTS];
	size_t ports = 0;
	/* With CLOEXEC nothing is closed now, but by exec, which leaves all rings that stay open. */
	if ((flags & 4 /* CLOSE_RANGE_CLOEXEC */) == 0)
		for (unsigned fd = first; fd <= last && fd < RINGS_DESCRIPTORS; fd++) {
			closing((int)fd);
			if (ports < MOST_PORTS && (port[ports] = port_closing((int)fd)) != 0)
				ports++;
		}
#ifdef SYS_close_range
	int result = (int)KERNEL(close_range, first, last, flags);
#else
	int result = -1;
	errno = ENOSYS;
#endif
	for (size_t i = 0; i < ports; i++)
		port_closed(port[i]);
	return result;
}

INTERPOSED void closefrom(int first)
{
	unsigned from = first < 0 ? 0 : (unsigned)first;
	if (close_range(from, ~0u, 0) == 0)
		return;
	long last = sysconf(_SC_OPEN_MAX);
	for (long fd = from; fd < last; fd++)
		close((int)fd);
}

INTERPOSED int dup(int fd)
{
	duplicating(fd, -1);
	return duplicated(fd, (int)KERNEL(dup, fd));
}

INTERPOSED int dup3(int fd, int to, int flags)
{
	/* A call that fails changes nothing: to stays open, and so do its rings. */
	if (fd == to || KERNEL(fcntl, fd, F_GETFD) < 0)
		return (int)KERNEL(dup3, fd, to, flags);
	duplicating(fd, to);
	closing(to);
	uint64_t port = port_closing(to);
	int got = duplicated(fd, (int)KERNEL(dup3, fd, to, flags));
	port_closed(port);
	return got;
}

INTERPOSED int dup2(int fd, int to)
{
	if (fd == to) {
		if (KERNEL(fcntl, fd, F_GETFD) < 0)
			return -1;
		return to;
	}
	return dup3(fd, to, 0);
}

static int control(int fd, int command, void *arg)
{
	bool copies = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
	if (copies)
		duplicating(fd, (long)arg > STDERR_FILENO ? (int)(long)arg : -1); /* the number may be higher */
	int result = (int)KERNEL(fcntl, fd, command, arg);
	if (command == F_SETFL && result == 0)
		rings_nonblocking(fd, ((long)arg & O_NONBLOCK) != 0);
	return copies ? duplicated(fd, result) : result;
}

INTERPOSED int fcntl(int fd, int command, ...)
{
	va_list list;
	va_start(list, command);
	void *arg = va_arg(list, void *);
	va_end(list);
	return control(fd, command, arg);
}

INTERPOSED int fcntl64(int fd, int command, ...)
{
	va_list list;
	va_start(list, command);
	void *arg = va_arg(list, void *);
	va_end(list);
	return control(fd, command, arg);
}

/*
 * The receiver of SCM_RIGHTS may be any program, without the library. The bytes that are unread go to the socket before the message is
 * sent: afterwards both processes would read the stream, and each would get a part of it. Control data is the caller's and may be
 * malformed, so lengths are checked here as the kernel checks them.
 */
void rings_leave_passed(const struct msghdr *m)
{
	if (m->msg_control == NULL || m->msg_controllen < sizeof(struct cmsghdr))
		return;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR((struct msghdr *)m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0))
			continue;
		for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
			rings_leave(fd);
		}
	}
}

/* splice moves bytes in the kernel, which does not know of rings. */
INTERPOSED ssize_t splice(int from, off64_t *from_at, int to, off64_t *to_at, size_t n, unsigned flags)
{
	rings_leave(from);
	rings_leave(to);
	return KERNEL(splice, from, from_at, to, to_at, n, flags);
}

/* libc calls the function name of the next library, which takes what the caller has given. */
#define NEXT(name, ...)                                                   \
	do {                                                              \
		__typeof__(&name) f;                                      \
		void *found = dlsym(RTLD_NEXT, #name);                    \
		memcpy(&f, &found, sizeof f);                             \
		return f(__VA_ARGS__);                                    \
	} while (0)

/* Streams of libc read and write by calls that cannot be intercepted. */
INTERPOSED FILE *fdopen(int fd, const char *mode)
{
	rings_leave(fd);
	NEXT(fdopen, fd, mode);
}

INTERPOSED int vdprintf(int fd, const char *restrict format, va_list list)
{
	rings_leave(fd);
	NEXT(vdprintf, fd, format, list);
}

INTERPOSED int dprintf(int fd, const char *restrict format, ...)
{
	va_list list;
	va_start(list, format);
	int n = vdprintf(fd, format, list);
	va_end(list);
	return n;
}

/*
 * exec: the next program has the library perhaps, but not its memory. Only descriptors without FD_CLOEXEC leave their rings: the others
 * do not reach it. Where exec then fails the sockets go on by tier 0, slower but right. The check of isolation.c comes first, since a
 * refused exec must leave the process as it was.
 */
INTERPOSED int execve(const char *path, char *const argv[], char *const env[])
{
	if (!may_start(path, argv, env))
		return -1;
	rings_leave_all(true);
	return (int)KERNEL(execve, path, argv, env);
}

INTERPOSED int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

INTERPOSED int execvpe(const char *file, char *const argv[], char *const env[])
{
	if (!may_start_found(file, argv, env))
		return -1;
	rings_leave_all(true);
	NEXT(execvpe, file, argv, env);
}

INTERPOSED int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

INTERPOSED int fexecve(int fd, char *const argv[], char *const env[])
{
	if (!may_start_open(fd, argv, env))
		return -1;
	rings_leave_all(true);
	NEXT(fexecve, fd, argv, env);
}

/* The list forms of exec copy their arguments to the stack, as libc does: a child of vfork may not call malloc(3). */
#define LIST_TO_ARRAY(first)                                              \
	va_list list;                                                     \
	size_t n = 1;                                                     \
	va_start(list, first);                                            \
	while (va_arg(list, char *) != NULL)                              \
		n++;                                                      \
	va_end(list);                                                     \
	char *argv[n + 1];                                                \
	va_start(list, first);                                            \
	argv[0] = (char *)first;                                          \
	for (size_t i = 1; i <= n; i++)                                   \
		argv[i] = va_arg(list, char *)

INTERPOSED int execl(const char *path, const char *first, ...)
{
	LIST_TO_ARRAY(first);
	va_end(list);
	return execve(path, argv, environ);
}

INTERPOSED int execlp(const char *file, const char *first, ...)
{
	LIST_TO_ARRAY(first);
	va_end(list);
	return execvpe(file, argv, environ);
}

INTERPOSED int execle(const char *path, const char *first, ...)
{
	LIST_TO_ARRAY(first);
	char **env = va_arg(list, char **);
	va_end(list);
	return execve(path, argv, env);
}

#ifdef SYS_execveat
INTERPOSED int execveat(int folder, const char *path, char *const argv[], char *const env[], int flags)
{
	if (!may_start_in(folder, path, argv, env))
		return -1;
	rings_leave_all(true);
	return (int)KERNEL(execveat, folder, path, argv, env, flags);
}
#endif

INTERPOSED int posix_spawn(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *actions,
			   const posix_spawnattr_t *restrict attr, char *const argv[restrict], char *const env[restrict])
{
	if (!may_start(path, argv, env))
		return errno;
	rings_leave_all(true);
	NEXT(posix_spawn, pid, path, actions, attr, argv, env);
}

INTERPOSED int posix_spawnp(pid_t *restrict pid, const char *restrict file, const posix_spawn_file_actions_t *actions,
			    const posix_spawnattr_t *restrict attr, char *const argv[restrict], char *const env[restrict])
{
	if (!may_start_found(file, argv, env))
		return errno;
	rings_leave_all(true);
	NEXT(posix_spawnp, pid, file, actions, attr, argv, env);
}

INTERPOSED int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int fd, int to)
{
	rings_leave(fd);
	NEXT(posix_spawn_file_actions_adddup2, actions, fd, to);
}

/*
 * The calls that rings need (sendto, recvfrom, fcntl, ppoll, futex_waitv, sched_yield, dup3) may be none that a process permits
 * itself from now on. Read and write are enough for a socket that was moved, and those to come have no rings. The filter of a child of
 * vfork is not its parent's, whose memory it has.
 */
void rings_sandbox(void)
{
	if (own_memory()) {
		no_more_waits();
		rings_end();
		ring_sandbox(); /* a listener of before still accepts rings to other programs, and leaves them */
	} else {
		rings_leave_all(false);
	}
}

INTERPOSED int prctl(int option, ...)
{
	long a[4];
	va_list list;
	va_start(list, option);
	for (int i = 0; i < 4; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (option == PR_SET_SECCOMP && (a[0] == SECCOMP_MODE_STRICT || a[1] != 0)) /* NULL: a program asks whether there are filters */
		rings_sandbox();
	return (int)KERNEL(prctl, option, a[0], a[1], a[2], a[3]);
}

/* libc starts the shell of these by calls within itself, with the environment that the process has then. */
static bool may_start_shell(void)
{
	char *const argv[] = {"sh", "-c", NULL};
	return may_start("/bin/sh", argv, environ);
}

INTERPOSED int system(const char *command)
{
	if (command != NULL && !may_start_shell())
		return -1;
	rings_leave_all(true);
	NEXT(system, command);
}

INTERPOSED FILE *popen(const char *command, const char *mode)
{
	if (!may_start_shell())
		return NULL;
	rings_leave_all(true);
	NEXT(popen, command, mode);
}
