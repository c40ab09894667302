/* batch.c - several datagrams with one call. */

#include "datagram.h"

#include <time.h>

#define BATCH 16  /* datagrams of one system call. Threads may have stacks of 16 KiB */

static void unframe_all(struct framed *f, unsigned n)
{
	int saved = errno;
	for (unsigned i = 0; i < n; i++)
		unframe(&f[i]);
	errno = saved;
}

/* prepare makes the message that the node gets. It returns 0 or an errno; unframe follows in any case. */
static int prepare(int fd, enum kind kind, const struct msghdr *m, struct framed *f, struct msghdr *to)
{
	f->part = f->few;
	int wrong = wrong_message(m);
	if (wrong != 0)
		return wrong;
	if (kind == DATAGRAM)
		return outgoing(fd, m, f, to);
	*to = (struct msghdr){.msg_iov = m->msg_iov, .msg_iovlen = m->msg_iovlen};
	return too_long(m->msg_iov, m->msg_iovlen) ? EMSGSIZE : 0;
}

/* send_batch sends up to BATCH datagrams by one system call, and none behind a wrong one. It returns how many went, or -1. */
static int send_batch(int fd, enum kind kind, struct mmsghdr *m, unsigned n, int flags)
{
	struct framed f[BATCH];
	struct mmsghdr to[BATCH] = {0};
	unsigned ready = 0, begun = 0, header = kind == DATAGRAM ? (unsigned)sizeof f->header : 0;
	int cause = 0, done = -1;
	while (begun < n && cause == 0) {
		cause = prepare(fd, kind, &m[begun].msg_hdr, &f[begun], &to[begun].msg_hdr);
		begun++;
		ready += cause == 0;
	}
	errno = cause;
	if (ready > 0)
		done = (int)KERNEL(sendmmsg, fd, to, ready, flags | MSG_NOSIGNAL);
	unframe_all(f, begun);
	for (int i = 0; i < done; i++)
		m[i].msg_len = to[i].msg_len - header;
	return done < 0 ? (int)sent(-1) : done;
}

/* send_each sends messages one by one: of a stream, sendmsg takes from them what TCP does not look at, and datagrams may join others. */
static int send_each(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	for (unsigned i = 0; i < n; i++) {
		ssize_t put = sendmsg(fd, &m[i].msg_hdr, flags);
		if (put < 0)
			return i > 0 ? (int)i : -1;
		m[i].msg_len = (unsigned)put;
	}
	return (int)n;
}

INTERPOSED int sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	rings_leave(fd);
	n = n < MOST_PARTS ? n : MOST_PARTS;
	if (no_memory(m, n * sizeof *m))
		return bad_address();
	for (unsigned i = 0; i < n && wrong_message(&m[i].msg_hdr) == 0; i++)
		rings_leave_passed(&m[i].msg_hdr);
	struct mark mark = data_mark(fd, (flags & MSG_OOB) != 0);
	if (!may_send(&mark, &flags))
		return -1;
	if (mark.kind == STREAM || (mark.kind != NOT_OURS && may_join(fd, flags)))
		return send_each(fd, m, n, flags);
	if (mark.kind != DATAGRAM && mark.kind != DATAGRAM_CONNECTED)
		return (int)KERNEL(sendmmsg, fd, m, n, flags);
	unsigned total = 0;
	for (unsigned i = 0; i < n && mark.kind == DATAGRAM_CONNECTED && wrong_message(&m[i].msg_hdr) == 0; i++)
		if ((m[i].msg_hdr.msg_name != NULL || has_control(&m[i].msg_hdr)) && !with_headers(fd, &mark))
			return -1;
	while (total < n) {
		unsigned want = n - total < BATCH ? n - total : BATCH;
		int done = send_batch(fd, mark.kind, m + total, want, flags);
		if (done < 0)
			return total > 0 ? (int)total : -1;
		total += (unsigned)done;
		if ((unsigned)done < want)
			break;
	}
	return (int)total;
}

/* deliver fills what the program has asked for from what came. It returns how many datagrams, or -1. */
static int deliver(int fd, struct mmsghdr *m, const struct mmsghdr *got, const struct framed *f, int n, int family)
{
	for (int i = 0; i < n; i++) {
		ssize_t len = received(fd, &m[i].msg_hdr, got[i].msg_len, &f[i], &got[i].msg_hdr, family);
		if (len < 0)
			return i > 0 ? i : -1;
		m[i].msg_len = (unsigned)len;
	}
	return n;
}

/* receive_batch receives up to n datagrams, and none behind a wrong buffer. */
static int receive_batch(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *limit, int family)
{
	struct framed f[BATCH];
	struct mmsghdr got[BATCH] = {0};
	unsigned ready = 0, begun = 0;
	int cause = 0, done = -1;
	while (begun < n && cause == 0) {
		const struct msghdr *h = &m[begun].msg_hdr;
		f[begun].part = f[begun].few;
		cause = wrong_message(h);
		if (cause == 0)
			cause = frame(&f[begun], h->msg_iov, h->msg_iovlen);
		got[begun].msg_hdr = (struct msghdr){.msg_iov = f[begun].part, .msg_iovlen = f[begun].parts};
		begun++;
		ready += cause == 0;
	}
	errno = cause;
	if (ready > 0) {
		done = (int)KERNEL(recvmmsg, fd, got, ready, flags, limit);
		done = done < 0 ? (int)received(fd, &m->msg_hdr, -1, f, NULL, family) : deliver(fd, m, got, f, done, family);
	}
	unframe_all(f, begun);
	return done;
}

/* receive_one is receive_batch for a stream, and for a connected socket: the peer's address is added to each. */
static int receive_one(int fd, struct mmsghdr *m, int flags)
{
	ssize_t len = recvmsg(fd, &m->msg_hdr, flags & ~MSG_WAITFORONE);
	if (len < 0)
		return -1;
	m->msg_len = (unsigned)len;
	return 1;
}

static int64_t nanoseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* receive_all receives until there are n, or the time is over once one has come: recvmmsg(2) looks at it then alone. */
static int receive_all(int fd, const struct mark *mark, struct mmsghdr *m, unsigned n, int flags, struct timespec *limit)
{
	unsigned total = 0;
	int64_t most = limit != NULL ? (int64_t)limit->tv_sec * 1000000000 + limit->tv_nsec : 0, begin = limit != NULL ? nanoseconds() : 0;
	struct timespec left = limit != NULL ? *limit : (struct timespec){0};
	while (total < n) {
		unsigned want = mark->kind == DATAGRAM ? n - total : 1;
		want = want < BATCH ? want : BATCH;
		int done;
		do
			done = mark->kind == DATAGRAM ? receive_batch(fd, m + total, want, flags, limit != NULL ? &left : NULL, mark->family)
						      : receive_one(fd, m + total, flags);
		while (receives_again(fd, mark, done, flags));
		if (done < 0 && total == 0)
			return -1;
		total += done > 0 ? (unsigned)done : 0;
		if (limit != NULL) {
			int64_t rest = most - (nanoseconds() - begin);
			rest = rest > 0 ? rest : 0;
			left = (struct timespec){(time_t)(rest / 1000000000), (long)(rest % 1000000000)};
		}
		if (done < (int)want || (limit != NULL && left.tv_sec == 0 && left.tv_nsec == 0))
			break;
		if ((flags & MSG_WAITFORONE) != 0)
			flags |= MSG_DONTWAIT;
	}
	if (limit != NULL)
		*limit = left;
	return (int)total;
}

INTERPOSED int recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *limit)
{
	rings_leave(fd);
	n = n < MOST_PARTS ? n : MOST_PARTS;
	if (no_memory(m, n * sizeof *m) || (limit != NULL && no_memory(limit, sizeof *limit)))
		return bad_address();
	struct mark mark = data_mark(fd, false);
	if ((mark.kind == NOT_OURS || (flags & MSG_ERRQUEUE) == 0) && !may_receive(&mark))
		return -1;
	if (mark.kind == NOT_OURS)
		return (int)KERNEL(recvmmsg, fd, m, n, flags, limit);
	if (limit != NULL && (limit->tv_sec < 0 || limit->tv_nsec < 0 || limit->tv_nsec >= 1000000000)) {
		errno = EINVAL;
		return -1;
	}
	if (limit != NULL && limit->tv_sec > INT32_MAX)
		limit = NULL; /* for ever, and no overflow */
	if (mark.kind == DATAGRAM && ((flags & MSG_ERRQUEUE) != 0 || (form_of(fd) & SHIM_FORM_ERRORS) != 0))
		mark.kind = DATAGRAM_CONNECTED; /* one by one: errors may come between */
	return receive_all(fd, &mark, m, n, flags, limit);
}
