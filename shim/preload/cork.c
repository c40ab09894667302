/*
 * cork.c - UDP_CORK and MSG_MORE: the bytes of several calls are one datagram (udp(7)). The node joins them, because calls of other processes
 * and write(2) count, too. A call that may join others asks it first, so that errors are those of the call.
 */

#include "datagram.h"

#include <stdatomic.h>

/* The process has used one of both: other processes do not look at the form of a socket for it. */
static _Atomic bool used;

void cork_used(void)
{
	atomic_store_explicit(&used, true, memory_order_relaxed);
}

bool may_join(int fd, int flags)
{
	if ((flags & MSG_MORE) != 0)
		cork_used();
	return atomic_load_explicit(&used, memory_order_relaxed) && ((flags & MSG_MORE) != 0 || (form_of(fd) & SHIM_FORM_JOINS) != 0);
}

static bool announce(int fd, int arg)
{
	struct shim_request q = {.op = SHIM_MORE, .arg = arg};
	struct shim_reply reply;
	return ask(&q, fd, &reply) == 0;
}

ssize_t join_datagram(int fd, struct mark *mark, const struct msghdr *m, int flags)
{
	size_t n = 0;
	if (too_long(m->msg_iov, m->msg_iovlen)) {
		errno = EMSGSIZE;
		return -1;
	}
	if (mark->kind == DATAGRAM_CONNECTED && (m->msg_name != NULL || has_control(m)) && !with_headers(fd, mark))
		return -1;
	for (size_t i = 0; i < m->msg_iovlen; i++)
		n += m->msg_iov[i].iov_len;
	bool piece = (flags & MSG_MORE) != 0;
	if (!announce(fd, (int)n | (piece ? SHIM_MORE_PIECE : 0) | (m->msg_name == NULL ? SHIM_MORE_NAMELESS : 0)))
		return -1;
	ssize_t result = send_datagram(fd, mark, m, flags & ~MSG_MORE);
	if (result < 0 && piece) {
		int saved = errno;
		announce(fd, SHIM_MORE_FAILED);
		errno = saved;
	}
	return result;
}
