/*
 * datagram.c - UDP. Each datagram of an unconnected socket has a header, which carries its addresses; those of a
 * connected one are plain, so that read(2) and write(2) work on it.
 */

#include "datagram.h"
#include "interfaces.h"
#include "rebind.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

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

static bool failed_before(int fd);

int outgoing(int fd, const struct msghdr *m, struct framed *f, struct msghdr *to)
{
	int cause = frame(f, m->msg_iov, m->msg_iovlen);
	bool to_peer = m->msg_name == NULL && (form_of(fd) & SHIM_FORM_CONNECTED) != 0;
	if (cause == 0 && too_long(m->msg_iov, m->msg_iovlen))
		cause = EMSGSIZE;
	if (cause == 0 && !to_peer)
		cause = m->msg_name == NULL ? EDESTADDRREQ : decode_address(m->msg_name, m->msg_namelen, &f->header.remote);
	if (cause == 0 && !to_peer && f->header.remote.port == 0)
		cause = EINVAL;
	if (cause == 0 && to_peer && failed_before(fd))
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

#define ERROR_PAUSE 1000000 /* ns: how often a send looks whether one before has failed */

/*
 * is_notice reports whether what came without bytes is the node's report that a datagram of before has an error, so that poll shows it.
 * It has a descriptor, for which there is no space here. The error may be taken already.
 */
static bool is_notice(long n, const struct msghdr *got)
{
	return n == 0 && (got->msg_flags & MSG_CTRUNC) != 0;
}

bool take_notice(int fd)
{
	struct msghdr none = {0};
	int saved = errno;
	bool notice = is_notice(KERNEL(recvmsg, fd, &none, MSG_PEEK | MSG_DONTWAIT), &none);
	if (notice)
		KERNEL(recvfrom, fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
	errno = saved;
	return notice;
}

/*
 * failed_before takes the error that ICMP has reported of a datagram before, which is the result of the next send of a connected socket
 * (udp(7)). To look costs a system call, so that sends in quick succession do not.
 */
static bool failed_before(int fd)
{
	static _Atomic uint64_t last;
	struct timespec t;
	int saved = errno, cause = 0;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	uint64_t now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	if (now - atomic_exchange_explicit(&last, now, memory_order_relaxed) < ERROR_PAUSE)
		return false;
	if (take_notice(fd))
		cause = socket_error(fd);
	errno = cause != 0 ? cause : saved;
	return cause != 0;
}

bool read_datagram(int fd, const struct iovec *parts, size_t n, ssize_t *result)
{
	struct msghdr m = {.msg_iov = (struct iovec *)parts, .msg_iovlen = n};
	enum kind kind = data_mark(fd, false).kind;
	if (kind != DATAGRAM && kind != DATAGRAM_CONNECTED)
		return false;
	*result = recvmsg(fd, &m, 0);
	return true;
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

/* refused reports whether a message is wrong, for a socket of the stack: errno has the reason. The kernel looks at its own. */
static bool refused(int fd, const struct msghdr *m)
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
	if ((mark.kind == DATAGRAM || mark.kind == DATAGRAM_CONNECTED) && corked_send(fd, m, flags, &put))
		return put;
	if (mark.kind == DATAGRAM_CONNECTED && (m->msg_name != NULL || has_control(m)) && !with_headers(fd, &mark))
		return -1;
	if (mark.kind != DATAGRAM) {
		struct msghdr plain = *m;
		if (mark.kind == STREAM) { /* as TCP does */
			plain.msg_name = NULL;
			plain.msg_namelen = 0;
			plain.msg_control = NULL; /* descriptors and credentials are of AF_UNIX */
			plain.msg_controllen = 0;
			return to_stream(fd, KERNEL(sendmsg, fd, &plain, flags | MSG_NOSIGNAL), flags);
		}
		if (mark.kind == DATAGRAM_CONNECTED) {
			if (too_long(m->msg_iov, m->msg_iovlen)) {
				errno = EMSGSIZE;
				return -1;
			}
			if (failed_before(fd))
				return -1;
			plain.msg_control = NULL;
			plain.msg_controllen = 0;
			flags |= MSG_NOSIGNAL;
		}
		return KERNEL(sendmsg, fd, &plain, flags);
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
	if (mark.kind == DATAGRAM_CONNECTED) {
		struct msghdr one = {.msg_name = (void *)to, .msg_namelen = len, .msg_iov = &stream, .msg_iovlen = 1};
		if (corked_send(fd, &one, flags, &put))
			return put;
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

#define NOTHING_FAILED ECHRNG /* of a notice whose error is taken already. The kernel never gives it */

/* failed is the result of a notice: the error of a datagram before. */
static ssize_t failed(int fd, int flags)
{
	int cause = socket_error(fd);
	if ((flags & MSG_PEEK) != 0) /* it would be seen again */
		KERNEL(recvfrom, fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
	errno = cause != 0 ? cause : NOTHING_FAILED;
	return -1;
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
	do {
		struct msghdr plain = {.msg_iov = m->msg_iov, .msg_iovlen = m->msg_iovlen};
		n = KERNEL(recvmsg, fd, &plain, flags);
		if (is_notice(n, &plain)) {
			n = failed(fd, flags);
			continue;
		}
		m->msg_flags = plain.msg_flags;
		m->msg_controllen = 0;
		n = from_peer(fd, m, n);
	} while (receives_again(fd, mark, n, flags));
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
	do {
		struct msghdr got = {.msg_iov = f.part, .msg_iovlen = f.parts};
		n = KERNEL(recvmsg, fd, &got, flags);
		n = is_notice(n, &got) ? failed(fd, flags) : received(fd, m, n, &f, &got, mark.family);
	} while (receives_again(fd, &mark, n, flags));
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
