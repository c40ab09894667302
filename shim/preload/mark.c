/* mark.c - which sockets are the stack's. */

#include "library.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

static int option(int fd, int name)
{
	int value = 0;
	socklen_t len = sizeof value;
	return KERNEL(getsockopt, fd, SOL_SOCKET, name, &value, &len) == 0 ? value : -1;
}

/*
 * The priority comes first: a socket of the kernel that is not AF_UNIX has 0 there, as a rule, so that its calls cost
 * one system call more.
 */
struct mark read_mark(int fd)
{
	struct mark none = {NOT_OURS, 0, false};
	int saved = errno;
	int priority = option(fd, SO_PRIORITY);
	bool ours = priority >= SHIM_MARK_TCP4_CONNECTED && priority <= SHIM_MARK_INET6 && option(fd, SO_DOMAIN) == AF_UNIX;
	int type = ours ? option(fd, SO_TYPE) : 0;
	errno = saved;
	if (!ours)
		return none;
	bool v6 = priority % 2 == 0;
	if (priority >= SHIM_MARK_UDP4_CONNECTED)
		v6 = priority >= SHIM_MARK_UDP6_CONNECTED;
	struct mark m = {STREAM, v6 ? AF_INET6 : AF_INET, priority <= SHIM_MARK_TCP6_CONNECTED};
	if (type == SOCK_SEQPACKET)
		m.kind = priority == SHIM_MARK_INET || priority == SHIM_MARK_INET6 ? DATAGRAM : DATAGRAM_CONNECTED;
	return m;
}

struct mark data_mark(int fd, bool sure)
{
	struct mark none = {NOT_OURS, 0, false}, stream = {STREAM, 0, true};
	int saved = errno, priority = option(fd, SO_PRIORITY);
	errno = saved;
	if (priority < SHIM_MARK_TCP4_CONNECTED)
		return none;
	if (priority <= SHIM_MARK_TCP6_CONNECTED && !sure)
		return stream;
	return read_mark(fd);
}

int set_mark(int fd, int family)
{
	int priority = family == AF_INET6 ? SHIM_MARK_INET6 : SHIM_MARK_INET;
	return (int)KERNEL(setsockopt, fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority);
}

#define FREE_TRIES 16

void slow_down(void)
{
	static unsigned tries;
	const struct timespec pause = {0, 100 * 1000 * 1000};
	if (__atomic_add_fetch(&tries, 1, __ATOMIC_RELAXED) > FREE_TRIES)
		KERNEL(nanosleep, &pause, NULL);
}

bool restarts(void)
{
	int saved = errno;
	bool all = true;
	for (int sig = 1; sig < NSIG && all; sig++) {
		struct sigaction a;
		if (sigaction(sig, NULL, &a) == 0 && a.sa_handler != SIG_DFL && a.sa_handler != SIG_IGN)
			all = (a.sa_flags & SA_RESTART) != 0;
	}
	errno = saved;
	return all;
}

#define SHUT_PLACES 64

static _Atomic uint64_t shut[SHUT_PLACES]; /* cookies of sockets, which the kernel gives once */

static _Atomic uint64_t *shut_place(int fd, uint64_t *cookie)
{
	int saved = errno;
	*cookie = cookie_of(fd);
	errno = saved;
	return &shut[*cookie % SHUT_PLACES];
}

void note_shut(int fd)
{
	uint64_t cookie;
	_Atomic uint64_t *place = shut_place(fd, &cookie);
	atomic_store(place, cookie);
}

bool was_shut(int fd)
{
	uint64_t cookie;
	_Atomic uint64_t *place = shut_place(fd, &cookie);
	return cookie != 0 && atomic_load(place) == cookie;
}

/*
 * end_program is --on-node-loss=end: the process that millrace exec has become gets SIGTERM, and ends its workers as ever. Where that has
 * ended, as that of a daemon, the processes of the session do, and this one in any case.
 */
static void end_program(void)
{
	pid_t first = settings()->first;
	report_once("the node has ended: the program gets SIGTERM (--on-node-loss=end)");
	if (first > 1 && first != getpid() && getpgid(first) == getpgrp() && kill(first, SIGTERM) == 0)
		return;
	if (getpgrp() == getsid(0) && first != getpid())
		kill(0, SIGTERM);
	else
		kill(getpid(), SIGTERM);
}

#ifndef HINTS /* tests make it smaller */
#define HINTS 65536
#endif

static _Atomic uint64_t datagrams[HINTS / 64];
static _Atomic bool noted; /* of datagrams */

void note_datagram(int fd)
{
	atomic_store_explicit(&noted, true, memory_order_relaxed);
	if ((unsigned)fd < HINTS)
		atomic_fetch_or_explicit(&datagrams[fd / 64], 1ull << (fd % 64), memory_order_relaxed);
}

bool some_datagram(void)
{
	return atomic_load_explicit(&noted, memory_order_relaxed);
}

bool maybe_datagram(int fd)
{
	return fd >= HINTS || (fd >= 0 && (atomic_load_explicit(&datagrams[fd / 64], memory_order_relaxed) >> (fd % 64) & 1) != 0);
}

int node_ended(void)
{
	if (settings()->ends_with_node) {
		end_program();
		return ENETDOWN;
	}
	report_once("the node has ended, and with it the sockets of this program: start it again");
	slow_down();
	return ENETDOWN;
}

void report(const char *text)
{
	char line[256];
	size_t n = 0;
	for (const char *part = "millrace: "; *part; part++)
		line[n++] = *part;
	for (; *text && n < sizeof line - 1; text++)
		line[n++] = *text;
	line[n++] = '\n';
	int saved = errno;
	if (read_mark(STDERR_FILENO).kind == NOT_OURS) /* after a daemon has closed it, a connection may have its number */
		KERNEL(write, STDERR_FILENO, line, n);
	errno = saved;
}
