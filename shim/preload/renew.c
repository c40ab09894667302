/* renew.c - sockets that programs use again after their connection has failed, or was ended by connect(2) to AF_UNSPEC. */

#include "rebind.h"
#include "rings.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/time.h>

static void copy_option(int from, int to, int name)
{
	struct timeval value; /* the longest */
	socklen_t len = sizeof value;
	if (KERNEL(getsockopt, from, SOL_SOCKET, name, &value, &len) == 0)
		KERNEL(setsockopt, to, SOL_SOCKET, name, &value, len);
}

#define MOST_WATCHES 16 /* epoll instances of the process that a socket may be in */

/* An epoll instance that has the socket. */
struct watch {
	int epoll;
	struct epoll_event event;
};

/* entry_of finds fd in the description of an epoll instance (proc_pid_fdinfo(5)). */
bool entry_of(int epoll, int fd, struct epoll_event *event)
{
	char path[64], text[4096];
	size_t have = 0;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epoll);
	int info = (int)KERNEL(openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	bool found = false;
	long n;
	while (info >= 0 && !found && (n = KERNEL(read, info, text + have, sizeof text - 1 - have)) > 0) {
		have += (size_t)n;
		text[have] = 0;
		char *line = text;
		for (char *end; !found && (end = strchr(line, '\n')) != NULL; line = end + 1) {
			int number;
			unsigned events;
			unsigned long long data;
			*end = 0;
			found = sscanf(line, "tfd: %d events: %x data: %llx", &number, &events, &data) == 3 && number == fd;
			if (found)
				*event = (struct epoll_event){.events = events, .data.u64 = data};
		}
		have = strlen(line);
		memmove(text, line, have + 1);
		if (have == sizeof text - 1)
			have = 0;
	}
	if (info >= 0)
		KERNEL(close, info);
	return found;
}

/* is_epoll reports whether an open file of the process is an epoll instance. */
static bool is_epoll(int fd)
{
	char path[64], to[64] = "";
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return KERNEL(readlinkat, AT_FDCWD, path, to, sizeof to - 1) > 0 && strcmp(to, "anon_inode:[eventpoll]") == 0;
}

/*
 * watches_of finds the epoll instances of the process that have fd: what takes the place of a socket is in none of them, and a program that
 * waits there would wait for ever. It reads /proc, for a call that follows a failure costs nothing that counts.
 */
static size_t watches_of(int fd, struct watch *all)
{
	struct entry {
		uint64_t inode, offset;
		unsigned short length;
		unsigned char type;
		char name[];
	};
	_Alignas(8) char list[4096];
	size_t count = 0;
	int dir = (int)KERNEL(openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long n;
	while (dir >= 0 && (n = KERNEL(getdents64, dir, list, sizeof list)) > 0) {
		for (long at = 0; at < n && count < MOST_WATCHES;) {
			struct entry *e = (struct entry *)(list + at);
			int number = atoi(e->name);
			at += e->length;
			if (e->name[0] != '.' && is_epoll(number) && entry_of(number, fd, &all[count].event))
				all[count++].epoll = number;
		}
	}
	if (dir >= 0)
		KERNEL(close, dir);
	return count;
}

void copy_times(int from, int to)
{
	copy_option(from, to, SO_RCVTIMEO);
	copy_option(from, to, SO_SNDTIMEO);
	copy_option(from, to, SO_RCVLOWAT);
}

/* Epoll instances forget the old socket before: other processes may have it, and then it would be reported as ended for ever. */
bool replace(int fd, int next)
{
	struct watch watches[MOST_WATCHES];
	size_t n = watches_of(fd, watches);
	int flags = (KERNEL(fcntl, fd, F_GETFD) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0;
	KERNEL(fcntl, next, F_SETFL, KERNEL(fcntl, fd, F_GETFL));
	for (size_t i = 0; i < n; i++)
		KERNEL(epoll_ctl, watches[i].epoll, EPOLL_CTL_DEL, fd, NULL);
	rings_renew(fd);
	bool done = KERNEL(dup3, next, fd, flags) == fd;
	for (size_t i = 0; i < n; i++)
		KERNEL(epoll_ctl, watches[i].epoll, EPOLL_CTL_ADD, fd, &watches[i].event);
	return done;
}

/* What is added is reported if it is ready: EPOLL_CTL_MOD does not work with EPOLLEXCLUSIVE. */
void rearm(int fd)
{
	struct watch watches[MOST_WATCHES];
	size_t n = watches_of(fd, watches);
	for (size_t i = 0; i < n; i++)
		if ((watches[i].event.events & EPOLLET) != 0 && KERNEL(epoll_ctl, watches[i].epoll, EPOLL_CTL_DEL, fd, NULL) == 0)
			KERNEL(epoll_ctl, watches[i].epoll, EPOLL_CTL_ADD, fd, &watches[i].event);
}

/* succeed lets the node make next what fd was. */
static bool succeed(int fd, int next, int arg)
{
	struct shim_request q = {.op = SHIM_RENEW, .arg = arg, .len = sizeof(uint64_t)};
	struct shim_reply reply;
	uint64_t cookie = cookie_of(fd);
	memcpy(q.value, &cookie, sizeof cookie);
	return ask(&q, next, &reply) == 0;
}

bool renew(int fd, const struct mark *m, int arg)
{
	int saved = errno, next = (int)KERNEL(socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool done = false;
	if (next < 0) {
		errno = saved;
		return false;
	}
	rings_renew(next);
	copy_times(fd, next);
	if (set_mark(next, m->family) == 0 && succeed(fd, next, arg))
		done = replace(fd, next);
	KERNEL(close, next);
	errno = saved;
	return done;
}
