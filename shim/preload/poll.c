/*
 * poll.c - POLLERR of sockets of datagrams. The node's notice of an error is a message, which the kernel shows as POLLIN; programs take the
 * queue of errors for POLLERR alone (traceroute). epoll and select have the kernel's word.
 */

#include "datagram.h"

#include <dlfcn.h>
#include <poll.h>

/* errors_of shows the notices among what is ready. Only numbers that have been sockets of datagrams are looked at. */
static int errors_of(struct pollfd *p, nfds_t n, int ready)
{
	int left = ready, saved = errno;
	for (nfds_t i = 0; i < n && left > 0; i++) {
		struct msghdr none = {0};
		left -= p[i].revents != 0;
		if ((p[i].revents & (POLLIN | POLLRDNORM)) == 0 || (p[i].revents & POLLHUP) != 0 || !maybe_datagram(p[i].fd))
			continue;
		long got = KERNEL(recvmsg, p[i].fd, &none, MSG_PEEK | MSG_DONTWAIT);
		if (got == 0 && (none.msg_flags & MSG_CTRUNC) != 0 && data_mark(p[i].fd, true).kind >= DATAGRAM)
			p[i].revents = (short)((p[i].revents & ~(POLLIN | POLLRDNORM)) | POLLERR);
	}
	errno = saved;
	return ready;
}

static int (*libc_poll)(struct pollfd *, nfds_t, int);
static int (*libc_ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);

/* Signal handlers may call poll(2), and dlsym(3) is not for them. libc's functions end a thread that is cancelled, which system calls do not. */
__attribute__((constructor)) static void find(void)
{
	void *found = dlsym(RTLD_NEXT, "poll"), *other = dlsym(RTLD_NEXT, "ppoll");
	memcpy(&libc_poll, &found, sizeof libc_poll);
	memcpy(&libc_ppoll, &other, sizeof libc_ppoll);
}

INTERPOSED int poll(struct pollfd *p, nfds_t n, int ms)
{
	if (libc_poll == NULL)
		find();
	return errors_of(p, n, libc_poll(p, n, ms));
}

INTERPOSED int ppoll(struct pollfd *p, nfds_t n, const struct timespec *limit, const sigset_t *mask)
{
	if (libc_ppoll == NULL)
		find();
	return errors_of(p, n, libc_ppoll(p, n, limit, mask));
}

/* The forms of a program that was compiled with _FORTIFY_SOURCE. */
INTERPOSED int __poll_chk(struct pollfd *p, nfds_t n, int ms, size_t space)
{
	if (space / sizeof *p < n)
		__builtin_trap(); /* libc ends the program, too */
	return poll(p, n, ms);
}

INTERPOSED int __ppoll_chk(struct pollfd *p, nfds_t n, const struct timespec *limit, const sigset_t *mask, size_t space)
{
	if (space / sizeof *p < n)
		__builtin_trap();
	return ppoll(p, n, limit, mask);
}
