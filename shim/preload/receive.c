/* receive.c - UDP: what is received, and the same calls for streams. */

#include "datagram.h"
#include "interfaces.h"
#include "rebind.h"

#include <fcntl.h>
#include <poll.h>

bool read_datagram(int fd, const struct iovec *parts, size_t n, ssize_t *result)
{
	struct msghdr m = {.msg_iov = (struct iovec *)parts, .msg_iovlen = n};
	enum kind kind = data_mark(fd, false).kind;
	if (kind != DATAGRAM && kind != DATAGRAM_CONNECTED)
		return false;
	*result = recvmsg(fd, &m, 0);
	return true;
}

/* ended is the result of recv at the end of a socket: none after shutdown, as on Linux, or the node is gone. */
static ssize_t ended(int fd, struct msghdr *m)
{
	if (was_shut(fd)) {
		m->msg_namelen = 0;
		m->msg_controllen = 0;
		m->msg_flags = 0;
		return 0;
	}
	errno = settings()->rebinds ? NODE_LOST : node_ended();
	return -1;
}

/*
 * Notices that a call has met and that were no error of its own: while entries of the queue stand there is one, and the call goes on behind it.
 * The node sends it again once the call is over, so that it does not meet it forever.
 */
#define NOTHING_FAILED ECHRNG /* of such a notice. The kernel never gives it */

/* failed is the result of a notice that a call with flags has received: the error of a datagram before. */
static ssize_t failed(int fd, int flags, bool *held)
{
	if ((flags & MSG_PEEK) != 0) /* it would be seen again */
		KERNEL(recvfrom, fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
	int cause = ask_pending(fd, SHIM_TAKE | SHIM_HOLD | 1, NULL);
	*held = *held || cause == 0;
	errno = cause != 0 ? cause : NOTHING_FAILED;
	return -1;
}

/* over ends a call that has met such notices. */
static void over(int fd, bool held)
{
	if (held)
		ask_pending(fd, 0, NULL);
}

bool receives_again(int fd, const struct mark *m, ssize_t n, int flags)
{
	if (n < 0 && errno == NOTHING_FAILED)
		return true;
	if (n >= 0 || errno != NODE_LOST)
		return false;
	bool waits = (flags & MSG_DONTWAIT) == 0 && (KERNEL(fcntl, fd, F_GETFL) & O_NONBLOCK) == 0;
	enum again again = m->kind == DATAGRAM ? make_again(fd, m, waits) : AGAIN_NEVER;
	if (again == AGAIN_NEVER)
		errno = node_ended();
	return again == AGAIN_DONE;
}

ssize_t received(int fd, struct msghdr *m, long n, const struct framed *f, const struct msghdr *got, int family)
{
	if (n < 0 && errno != ECONNRESET)
		return -1;
	if (n < (long)sizeof f->header) /* the end: a datagram without bytes has a header, too */
		return ended(fd, m);
	m->msg_flags = got->msg_flags & ~MSG_EOR; /* of SOCK_SEQPACKET, not of UDP */
	if (m->msg_name != NULL)
		encode_address(&f->header.remote, family, m->msg_name, &m->msg_namelen);
	write_control(m, &f->header);
	return n - (ssize_t)sizeof f->header;
}

/* from_stream is the result of n bytes received: the kernel says ECONNRESET for every end but FIN, the node knows which. */
static ssize_t from_stream(int fd, ssize_t n)
{
	if (n < 0 && errno == ECONNRESET && read_mark(fd).kind == STREAM) {
		int cause = socket_error(fd);
		errno = cause != 0 ? cause : ECONNRESET;
	}
	return n;
}

/*
 * from_sender is recvmsg of a stream: TCP shows no address, and the kernel would show the name of an AF_UNIX socket. What
 * another program of the stack passes by a call of its own, descriptors, does not arrive.
 */
static ssize_t from_sender(int fd, struct msghdr *m, int flags)
{
	struct msghdr nameless = {.msg_iov = m->msg_iov, .msg_iovlen = m->msg_iovlen};
	ssize_t n = from_stream(fd, KERNEL(recvmsg, fd, &nameless, flags));
	if (n < 0)
		return n;
	m->msg_namelen = 0;
	m->msg_controllen = 0;
	m->msg_flags = nameless.msg_flags & ~MSG_CTRUNC;
	return n;
}

bool may_receive(const struct mark *m)
{
	bool may = m->kind != STREAM || m->connected;
	if (!may)
		errno = ENOTCONN;
	return may;
}

/* hung_up reports whether nothing can follow what a socket has received. */
static bool hung_up(int fd)
{
	struct pollfd p = {.fd = fd};
	const struct timespec now = {0, 0};
	return KERNEL(ppoll, &p, 1, &now, NULL, 0) == 1 && (p.revents & POLLHUP) != 0;
}

/* from_peer adds the peer's address to what a connected socket has received. */
ssize_t from_peer(int fd, struct msghdr *m, ssize_t n)
{
	m->msg_flags &= ~MSG_EOR;
	if (n < 0 ? errno == ECONNRESET : n == 0 && hung_up(fd))
		return ended(fd, m);
	if (n >= 0 && m->msg_name != NULL && getpeername(fd, m->msg_name, &m->msg_namelen) != 0)
		m->msg_namelen = 0;
	return n;
}

/* receive_plain receives a datagram of a connected socket, or the error of one before. */
static ssize_t receive_plain(int fd, const struct mark *mark, struct msghdr *m, int flags)
{
	ssize_t n;
	bool held = false;
	do {
		struct msghdr plain = {.msg_iov = m->msg_iov, .msg_iovlen = m->msg_iovlen};
		n = KERNEL(recvmsg, fd, &plain, flags);
		if (is_notice(n, &plain)) {
			n = failed(fd, flags, &held);
			continue;
		}
		m->msg_flags = plain.msg_flags;
		m->msg_controllen = 0;
		n = from_peer(fd, m, n);
	} while (receives_again(fd, mark, n, flags));
	over(fd, held);
	return n;
}

INTERPOSED ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	ssize_t got_bytes;
	if (refused(fd, m))
		return -1;
	if (wrong_message(m) != 0)
		return KERNEL(recvmsg, fd, m, flags);
	if (stream_receive(fd, m->msg_iov, m->msg_iovlen, flags, &got_bytes)) {
		m->msg_namelen = 0;
		m->msg_controllen = 0;
		m->msg_flags = 0;
		return got_bytes;
	}
	struct mark mark = data_mark(fd, m->msg_name != NULL);
	if (mark.kind == NOT_OURS && netlink_receive(fd, m, flags, &got_bytes))
		return got_bytes;
	struct framed f;
	if (mark.kind == NOT_OURS)
		return KERNEL(recvmsg, fd, m, flags);
	if ((flags & MSG_ERRQUEUE) != 0)
		return receive_error(fd, &mark, m);
	if (!may_receive(&mark))
		return -1;
	if (mark.kind != DATAGRAM) {
		if (mark.kind == STREAM)
			return from_sender(fd, m, flags);
		return receive_plain(fd, &mark, m, flags);
	}
	int cause = frame(&f, m->msg_iov, m->msg_iovlen);
	if (cause != 0) {
		errno = cause;
		return -1;
	}
	ssize_t n;
	bool held = false;
	do {
		struct msghdr got = {.msg_iov = f.part, .msg_iovlen = f.parts};
		n = KERNEL(recvmsg, fd, &got, flags);
		n = is_notice(n, &got) ? failed(fd, flags, &held) : received(fd, m, n, &f, &got, mark.family);
	} while (receives_again(fd, &mark, n, flags));
	over(fd, held);
	unframe(&f);
	return n;
}

INTERPOSED ssize_t recvfrom(int fd, void *restrict data, size_t n, int flags, struct sockaddr *restrict from,
			    socklen_t *restrict len)
{
	struct iovec part = {data, n};
	ssize_t got;
	int wrong = from != NULL && len != NULL ? wrong_length(len) : 0; /* TCP writes no address */
	if (wrong != 0 && data_mark(fd, true).kind != NOT_OURS) {
		errno = wrong;
		return -1;
	}
	if (wrong == 0 && stream_receive(fd, &part, 1, flags, &got)) {
		if (len != NULL)
			*len = 0;
		return got;
	}
	struct msghdr one = {.msg_name = from, .msg_namelen = from != NULL && len != NULL ? *len : 0, .msg_iov = &part, .msg_iovlen = 1};
	struct mark mark = data_mark(fd, from != NULL);
	if (mark.kind == NOT_OURS && netlink_receive(fd, &one, flags, &got)) {
		if (got >= 0 && len != NULL)
			*len = one.msg_namelen;
		return got;
	}
	if (mark.kind == NOT_OURS)
		return KERNEL(recvfrom, fd, data, n, flags, from, len);
	if ((flags & MSG_ERRQUEUE) == 0 && !may_receive(&mark))
		return -1;
	if (mark.kind == STREAM && (flags & MSG_ERRQUEUE) == 0) {
		ssize_t taken = from_stream(fd, KERNEL(recvfrom, fd, data, n, flags, NULL, NULL));
		if (taken >= 0 && from != NULL && len != NULL)
			*len = 0; /* TCP shows no address */
		return taken;
	}
	struct msghdr m = {.msg_name = len != NULL ? from : NULL, .msg_iov = &part, .msg_iovlen = 1};
	if (m.msg_name != NULL)
		m.msg_namelen = *len;
	ssize_t result = recvmsg(fd, &m, flags);
	if (result >= 0 && m.msg_name != NULL)
		*len = m.msg_namelen;
	return result;
}

INTERPOSED ssize_t recv(int fd, void *data, size_t n, int flags)
{
	return recvfrom(fd, data, n, flags, NULL, NULL);
}

/* The forms of a program that was compiled with _FORTIFY_SOURCE. Its compiler has computed space. */
INTERPOSED ssize_t __recv_chk(int fd, void *data, size_t n, size_t space, int flags)
{
	if (n > space)
		__builtin_trap(); /* libc ends the program, too */
	return recv(fd, data, n, flags);
}

INTERPOSED ssize_t __recvfrom_chk(int fd, void *data, size_t n, size_t space, int flags, struct sockaddr *from,
				  socklen_t *len)
{
	if (n > space)
		__builtin_trap();
	return recvfrom(fd, data, n, flags, from, len);
}
