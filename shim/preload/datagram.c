/*
 * datagram.c - UDP: what is sent. Each datagram of an unconnected socket has a header, which carries its addresses; those of a
 * connected one are plain, so that read(2) and write(2) work on it.
 */

#include "datagram.h"
#include "interfaces.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>

#define MAX_DATAGRAM 65507 /* bytes of the program in one: 65535 without the headers of IPv4 and UDP (RFC 768) */

bool too_long(const struct iovec *part, size_t n)
{
	size_t left = MAX_DATAGRAM;
	for (size_t i = 0; i < n; i++) {
		if (part[i].iov_len > left)
			return true;
		left -= part[i].iov_len;
	}
	return false;
}

int frame(struct framed *f, const struct iovec *from, size_t n)
{
	f->part = f->few;
	f->parts = 0;
	if (n > IOV_MAX)
		return EMSGSIZE;
	if (n > PARTS && (f->part = malloc((1 + n) * sizeof *from)) == NULL)
		return ENOMEM;
	memset(&f->header, 0, sizeof f->header);
	f->part[0] = (struct iovec){&f->header, sizeof f->header};
	if (n != 0)
		memcpy(f->part + 1, from, n * sizeof *from);
	f->parts = 1 + n;
	return 0;
}

void unframe(struct framed *f)
{
	if (f->part != f->few)
		free(f->part);
}

int form_of(int fd)
{
	int value = 0;
	socklen_t len = sizeof value;
	if (KERNEL(getsockopt, fd, SOL_SOCKET, SO_INCOMING_CPU, &value, &len) != 0 || (value & SHIM_FORM_MASK) != SHIM_FORM)
		return 0;
	return value & ~SHIM_FORM_MASK;
}

bool with_headers(int fd, struct mark *m)
{
	struct shim_request q = {.op = SHIM_HEADERS};
	struct shim_reply reply;
	if (ask(&q, fd, &reply) != 0)
		return false;
	*m = read_mark(fd);
	return true;
}

int outgoing(int fd, const struct msghdr *m, struct framed *f, struct msghdr *to)
{
	int cause = frame(f, m->msg_iov, m->msg_iovlen);
	int form = form_of(fd);
	bool to_peer = m->msg_name == NULL && (form & SHIM_FORM_CONNECTED) != 0;
	bool joins = m->msg_name == NULL && (form & SHIM_FORM_JOINS) != 0; /* the node has permitted it */
	if (cause == 0 && too_long(m->msg_iov, m->msg_iovlen))
		cause = EMSGSIZE;
	if (cause == 0 && !to_peer && !joins)
		cause = m->msg_name == NULL ? EDESTADDRREQ : decode_address(m->msg_name, m->msg_namelen, &f->header.remote);
	if (cause == 0 && !to_peer && !joins && f->header.remote.port == 0)
		cause = EINVAL;
	if (cause == 0 && (to_peer || (form & SHIM_FORM_QUEUE) != 0) && failed_before(fd))
		cause = errno;
	if (cause != 0)
		return cause;
	if (m->msg_control != NULL)
		read_control(m, &f->header);
	*to = (struct msghdr){.msg_iov = f->part, .msg_iovlen = f->parts};
	return 0;
}

bool may_send(const struct mark *m, int *flags)
{
	if (m->kind != STREAM)
		return true;
	*flags &= ~MSG_OOB;
	if (m->connected)
		return true;
	if ((*flags & MSG_FASTOPEN) != 0) {
		errno = EOPNOTSUPP;
		return false;
	}
	if ((*flags & MSG_NOSIGNAL) == 0)
		raise(SIGPIPE);
	errno = EPIPE;
	return false;
}

ssize_t sent(long n)
{
	if (n >= 0)
		return n - (ssize_t)sizeof(struct shim_datagram);
	if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
		errno = ENETDOWN;
	return -1;
}

/*
 * to_stream is the result of n bytes sent without a signal: the kernel says EPIPE for every end, and the node knows which.
 * One that a reset, a timeout or a refusal has caused is that error once, without a signal, as with TCP. The kernel has ECONNRESET for
 * these until a call has returned it, read(2) too, which the library does not see.
 */
static ssize_t to_stream(int fd, ssize_t n, int flags)
{
	if (n >= 0 || errno != EPIPE)
		return n;
	int pending = 0;
	socklen_t len = sizeof pending;
	KERNEL(getsockopt, fd, SOL_SOCKET, SO_ERROR, &pending, &len);
	int cause = pending != 0 ? socket_error(fd) : EPIPE;
	if (cause != EPIPE) {
		errno = cause != 0 ? cause : pending;
		return -1;
	}
	if ((flags & MSG_NOSIGNAL) == 0)
		raise(SIGPIPE);
	errno = EPIPE;
	return -1;
}

bool write_datagram(int fd, const struct iovec *parts, size_t n, ssize_t *result)
{
	struct msghdr m = {.msg_iov = (struct iovec *)parts, .msg_iovlen = n};
	enum kind kind = data_mark(fd, false).kind;
	if (kind != DATAGRAM && kind != DATAGRAM_CONNECTED)
		return false;
	*result = sendmsg(fd, &m, 0);
	return true;
}

bool refused(int fd, const struct msghdr *m)
{
	int wrong = wrong_message(m);
	if (wrong == 0 || data_mark(fd, false).kind == NOT_OURS)
		return false;
	errno = wrong;
	return true;
}

INTERPOSED ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	ssize_t put;
	if (refused(fd, m))
		return -1;
	if (wrong_message(m) != 0)
		return KERNEL(sendmsg, fd, m, flags);
	if (stream_send(fd, m->msg_iov, m->msg_iovlen, flags, &put))
		return put;
	rings_leave_passed(m);
	struct mark mark = data_mark(fd, m->msg_name != NULL || (flags & MSG_OOB) != 0);
	if (mark.kind == NOT_OURS && netlink_send(fd, m->msg_iov, m->msg_iovlen, flags, &put))
		return put;
	if (!may_send(&mark, &flags))
		return -1;
	if (mark.kind == NOT_OURS)
		return KERNEL(sendmsg, fd, m, flags);
	if (mark.kind == STREAM) { /* as TCP does */
		struct msghdr plain = {.msg_iov = m->msg_iov, .msg_iovlen = m->msg_iovlen}; /* descriptors and credentials are of AF_UNIX */
		return to_stream(fd, KERNEL(sendmsg, fd, &plain, flags | MSG_NOSIGNAL), flags);
	}
	if (may_join(fd, flags))
		return join_datagram(fd, &mark, m, flags);
	return send_datagram(fd, &mark, m, flags);
}

ssize_t send_datagram(int fd, struct mark *mark, const struct msghdr *m, int flags)
{
	if (mark->kind == DATAGRAM_CONNECTED && (m->msg_name != NULL || has_control(m)) && !with_headers(fd, mark))
		return -1;
	if (mark->kind == DATAGRAM_CONNECTED) {
		struct msghdr plain = {.msg_iov = m->msg_iov, .msg_iovlen = m->msg_iovlen};
		if (too_long(m->msg_iov, m->msg_iovlen)) {
			errno = EMSGSIZE;
			return -1;
		}
		if (failed_before(fd))
			return -1;
		return KERNEL(sendmsg, fd, &plain, flags | MSG_NOSIGNAL);
	}
	struct framed f;
	struct msghdr to;
	int cause = outgoing(fd, m, &f, &to);
	ssize_t n = -1;
	errno = cause;
	if (cause == 0)
		n = sent(KERNEL(sendmsg, fd, &to, flags | MSG_NOSIGNAL));
	unframe(&f);
	return n;
}

INTERPOSED ssize_t sendto(int fd, const void *data, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
	struct iovec stream = {(void *)data, n};
	ssize_t put;
	if (stream_send(fd, &stream, 1, flags, &put))
		return put;
	struct mark mark = data_mark(fd, to != NULL || (flags & MSG_OOB) != 0);
	if (mark.kind == NOT_OURS && netlink_send(fd, &stream, 1, flags, &put))
		return put;
	if (!may_send(&mark, &flags))
		return -1;
	if (mark.kind == STREAM) /* without the address, as TCP does */
		return to_stream(fd, KERNEL(sendto, fd, data, n, flags | MSG_NOSIGNAL, NULL, 0), flags);
	if (mark.kind == DATAGRAM_CONNECTED && may_join(fd, flags)) {
		struct msghdr one = {.msg_name = (void *)to, .msg_namelen = len, .msg_iov = &stream, .msg_iovlen = 1};
		return join_datagram(fd, &mark, &one, flags);
	}
	if (mark.kind == DATAGRAM_CONNECTED && n > MAX_DATAGRAM) {
		errno = EMSGSIZE;
		return -1;
	}
	if (mark.kind == DATAGRAM_CONNECTED && to == NULL && failed_before(fd))
		return -1;
	if (mark.kind == NOT_OURS || (mark.kind == DATAGRAM_CONNECTED && to == NULL))
		return KERNEL(sendto, fd, data, n, flags, to, len);
	struct iovec part = {(void *)data, n};
	struct msghdr m = {.msg_name = (void *)to, .msg_namelen = len, .msg_iov = &part, .msg_iovlen = 1};
	return sendmsg(fd, &m, flags);
}

INTERPOSED ssize_t send(int fd, const void *data, size_t n, int flags)
{
	return sendto(fd, data, n, flags, NULL, 0);
}

