#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "rsocket.h"

/* Sockets: their numbers, and how they connect.
 *
 *    NEW -> BOUND -> LISTENING
 *    NEW, BOUND -> RESOLVING -> ROUTING -> CONNECTING -> CONNECTED -> DISCONNECTED
 *                                          ACCEPTING  ->
 *    each -> FAILED
 */

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rsocket *table[MAX_RSOCKETS];

/* rsocket_of returns the socket with a number, NULL with EBADF for none. */
struct rsocket *rsocket_of(int fd)
{
	struct rsocket *s = NULL;
	pthread_mutex_lock(&table_lock);
	if (fd >= 0 && fd < MAX_RSOCKETS)
		s = table[fd];
	pthread_mutex_unlock(&table_lock);
	if (!s)
		errno = EBADF;
	return s;
}

static int enter(struct rsocket *s)
{
	s->fd = s->id->channel->fd;
	if (s->fd >= MAX_RSOCKETS)
		return fail(EMFILE);
	pthread_mutex_lock(&table_lock);
	table[s->fd] = s;
	pthread_mutex_unlock(&table_lock);
	return s->fd;
}

static struct rsocket *new_rsocket(const struct rsocket *like)
{
	struct rsocket *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->fd = -1;
	s->send_size = like ? like->send_size : 1 << 17, s->recv_size = like ? like->recv_size : 1 << 17;
	s->send_depth = like ? like->send_depth : 384, s->recv_depth = like ? like->recv_depth : 384;
	s->inlined = like ? like->inlined : 256;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->progress, NULL);
	return s;
}

static void free_rsocket(struct rsocket *s)
{
	if (s->fd >= 0) {
		pthread_mutex_lock(&table_lock);
		table[s->fd] = NULL;
		pthread_mutex_unlock(&table_lock);
	}
	if (s->id) {
		close_stream(s);
		rdma_destroy_id(s->id);
	}
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->progress);
	free(s);
}

EXPORT int rsocket(int domain, int type, int protocol)
{
	if ((domain != AF_INET && domain != AF_INET6) || type != SOCK_STREAM || (protocol && protocol != IPPROTO_TCP))
		return fail(EOPNOTSUPP);
	struct rsocket *s = new_rsocket(NULL);
	if (!s)
		return fail(ENOMEM);
	if (rdma_create_id(NULL, &s->id, s, PS_TCP) || enter(s) < 0) {
		int e = errno;
		free_rsocket(s);
		return fail(e);
	}
	s->id->route.addr.src_addr.sa_family = (sa_family_t)domain;
	return s->fd;
}

EXPORT int rbind(int fd, const struct sockaddr *a, socklen_t size)
{
	struct rsocket *s = rsocket_of(fd);
	(void)size;
	if (!s)
		return -1;
	if (s->state != RS_NEW)
		return fail(EINVAL);
	if (rdma_bind_addr(s->id, (struct sockaddr *)a))
		return -1;
	s->state = RS_BOUND;
	return 0;
}

EXPORT int rlisten(int fd, int backlog)
{
	struct rsocket *s = rsocket_of(fd);
	if (!s)
		return -1;
	if (s->state == RS_LISTENING)
		return 0;
	if (s->state > RS_BOUND)
		return fail(EINVAL);
	if (rdma_listen(s->id, backlog))
		return -1;
	s->state = RS_LISTENING;
	return 0;
}

static void connected(struct rsocket *s)
{
	s->state = RS_CONNECTED;
	s->readable = s->writable = true;
}

/* begin_accept answers the request of a new socket. */
static int begin_accept(struct rsocket *s)
{
	struct rdma_conn_param p = s->id->event->param.conn;
	struct stream_data d;
	if (p.private_data_len < sizeof d)
		return fail(EPROTO);
	memcpy(&d, p.private_data, sizeof d);
	if (open_stream(s) || take_description(s, &d))
		return -1;
	describe_stream(s, &d);
	p.private_data = &d, p.private_data_len = sizeof d;
	if (!rdma_accept(s->id, &p)) {
		connected(s);
		return 0;
	}
	if (errno != EAGAIN)
		return -1;
	s->state = RS_ACCEPTING;
	return 0;
}

EXPORT int raccept(int fd, struct sockaddr *a, socklen_t *size)
{
	struct rsocket *l = rsocket_of(fd), *s;
	if (!l)
		return -1;
	if (l->state != RS_LISTENING)
		return fail(EINVAL);
	if (!(s = new_rsocket(l)))
		return fail(ENOMEM);
	if (rdma_get_request(l->id, &s->id) || enter(s) < 0 || (l->flags & O_NONBLOCK && fcntl(s->fd, F_SETFL, O_NONBLOCK)) || begin_accept(s)) {
		int e = errno;
		free_rsocket(s);
		return fail(e);
	}
	if (a && size)
		rgetpeername(s->fd, a, size);
	return s->fd;
}

/* step does one step of a connection, and returns whether the next one may be done. */
static int step(struct rsocket *s)
{
	struct rdma_conn_param p = {.flow_control = 1, .retry_count = 7, .rnr_retry_count = 7};
	struct stream_data d;
	struct cm_id *id = id_of(s->id);
	switch (s->state) {
	case RS_NEW:
	case RS_BOUND:
		s->state = RS_RESOLVING;
		return rdma_resolve_addr(s->id, NULL, &s->id->route.addr.dst_addr, 2000);
	case RS_RESOLVING:
		s->state = RS_ROUTING;
		return rdma_resolve_route(s->id, 2000);
	case RS_ROUTING:
		s->state = RS_CONNECTING;
		if (open_stream(s))
			return -1;
		describe_stream(s, &d);
		p.private_data = &d, p.private_data_len = sizeof d;
		return rdma_connect(s->id, &p);
	case RS_CONNECTING:
		if (id->abi.event->param.conn.private_data_len < sizeof d)
			return fail(EPROTO);
		memcpy(&d, id->abi.event->param.conn.private_data, sizeof d);
		if (take_description(s, &d))
			return -1;
		/* falls through */
	case RS_ACCEPTING:
		connected(s);
		return 0;
	default:
		return fail(EINVAL);
	}
}

/* advance does the steps of a connection for which the events have come. EINPROGRESS is that one is missing. */
int advance(struct rsocket *s)
{
	int e = s->state > RS_BOUND ? complete(id_of(s->id)) : 0;
	while (!e && s->state != RS_CONNECTED)
		e = step(s);
	if (!e)
		return 0;
	if (errno == EAGAIN)
		return fail(EINPROGRESS);
	s->error = errno;
	s->state = RS_FAILED;
	return -1;
}

static bool is_opening(const struct rsocket *s) { return s->state >= RS_RESOLVING && s->state <= RS_ACCEPTING; }

EXPORT int rconnect(int fd, const struct sockaddr *a, socklen_t size)
{
	struct rsocket *s = rsocket_of(fd);
	if (!s)
		return -1;
	if (s->state == RS_CONNECTED)
		return fail(EISCONN);
	if (is_opening(s))
		return fail(EALREADY);
	if (s->state > RS_BOUND || size > sizeof s->id->route.addr.dst_storage)
		return fail(EINVAL);
	memcpy(&s->id->route.addr.dst_storage, a, size);
	return advance(s);
}

int pending_error(struct rsocket *s)
{
	if (s->state != RS_FAILED)
		return 0;
	int e = s->error ? s->error : ECONNRESET;
	return e;
}

/* ready completes a connection before data move. The socket is locked. */
static int ready(struct rsocket *s)
{
	if (is_opening(s) && advance(s))
		return fail(errno == EINPROGRESS ? EAGAIN : errno);
	if (s->state < RS_CONNECTED)
		return fail(ENOTCONN);
	return 0;
}

static bool blocks(const struct rsocket *s, int flags) { return !(s->flags & O_NONBLOCK) && !(flags & MSG_DONTWAIT); }

/* send_all is rsend with the lock held. */
static ssize_t send_all(struct rsocket *s, const uint8_t *from, size_t length, int flags)
{
	size_t done = 0;
	if (ready(s))
		return -1;
	while (done < length) {
		if (wait_for(s, !blocks(s, flags), may_send))
			break;
		if (!s->writable || s->state != RS_CONNECTED) {
			errno = pending_error(s) ? pending_error(s) : EPIPE;
			break;
		}
		done += send_some(s, from + done, length - done);
	}
	return done || !length ? (ssize_t)done : -1;
}

/* receive_all is rrecv with the lock held. */
static ssize_t receive_all(struct rsocket *s, uint8_t *to, size_t length, int flags)
{
	size_t done = 0;
	if (ready(s))
		return -1;
	do {
		if (wait_for(s, done || !blocks(s, flags), may_receive))
			return done ? (ssize_t)done : -1;
		if (!s->unread && s->message_head == s->message_tail) { /* the end, or an error */
			if (!done && s->state == RS_FAILED)
				return fail(pending_error(s));
			break;
		}
		done += receive_some(s, to + done, length - done, flags & MSG_PEEK);
	} while (flags & MSG_WAITALL && !(flags & MSG_PEEK) && done < length);
	process(s); /* offers what has been read */
	return (ssize_t)done;
}

EXPORT ssize_t rsend(int fd, const void *from, size_t length, int flags)
{
	struct rsocket *s = rsocket_of(fd);
	if (!s)
		return -1;
	pthread_mutex_lock(&s->lock);
	ssize_t n = send_all(s, from, length, flags);
	pthread_mutex_unlock(&s->lock);
	return n;
}

EXPORT ssize_t rrecv(int fd, void *to, size_t length, int flags)
{
	struct rsocket *s = rsocket_of(fd);
	if (!s)
		return -1;
	pthread_mutex_lock(&s->lock);
	ssize_t n = receive_all(s, to, length, flags);
	pthread_mutex_unlock(&s->lock);
	return n;
}

/* lists are moved element by element, under one lock */
static ssize_t move_list(int fd, const struct iovec *list, size_t count, int flags, ssize_t (*move)(struct rsocket *, uint8_t *, size_t, int))
{
	struct rsocket *s = rsocket_of(fd);
	ssize_t sum = 0;
	if (!s)
		return -1;
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < count; i++) {
		if (!list[i].iov_len)
			continue;
		ssize_t n = move(s, list[i].iov_base, list[i].iov_len, sum ? flags | MSG_DONTWAIT : flags);
		if (n <= 0) {
			if (!sum)
				sum = n;
			break;
		}
		sum += n;
		if ((size_t)n < list[i].iov_len)
			break;
	}
	pthread_mutex_unlock(&s->lock);
	return sum;
}

static ssize_t send_piece(struct rsocket *s, uint8_t *from, size_t n, int flags)
{
	return send_all(s, from, n, s->flags & O_NONBLOCK ? flags : flags & ~MSG_DONTWAIT); /* a blocking socket sends all */
}

EXPORT ssize_t rsendmsg(int fd, const struct msghdr *m, int flags)
{
	if (m->msg_control && m->msg_controllen)
		return fail(EOPNOTSUPP);
	return move_list(fd, m->msg_iov, m->msg_iovlen, flags, send_piece);
}

EXPORT ssize_t rrecvmsg(int fd, struct msghdr *m, int flags)
{
	if (m->msg_control && m->msg_controllen)
		return fail(EOPNOTSUPP);
	return move_list(fd, m->msg_iov, m->msg_iovlen, flags, receive_all);
}

EXPORT ssize_t rsendto(int fd, const void *from, size_t n, int flags, const struct sockaddr *to, socklen_t size)
{
	return to || size ? fail(EISCONN) : rsend(fd, from, n, flags);
}

EXPORT ssize_t rrecvfrom(int fd, void *to, size_t n, int flags, struct sockaddr *from, socklen_t *size)
{
	(void)from;
	if (size)
		*size = 0; /* as recvfrom(2) of a stream */
	return rrecv(fd, to, n, flags);
}

EXPORT ssize_t rread(int fd, void *to, size_t n) { return rrecv(fd, to, n, 0); }
EXPORT ssize_t rwrite(int fd, const void *from, size_t n) { return rsend(fd, from, n, 0); }
EXPORT ssize_t rreadv(int fd, const struct iovec *list, int n) { return move_list(fd, list, (size_t)n, 0, receive_all); }
EXPORT ssize_t rwritev(int fd, const struct iovec *list, int n) { return move_list(fd, list, (size_t)n, 0, send_piece); }

static bool may_control(struct rsocket *s) { return s->controls || s->state != RS_CONNECTED; }

static bool all_sent(struct rsocket *s)
{
	return s->state != RS_CONNECTED || (s->controls == CONTROLS && s->send_places == s->send_depth - CONTROLS);
}

EXPORT int rshutdown(int fd, int how)
{
	struct rsocket *s = rsocket_of(fd);
	if (!s)
		return -1;
	pthread_mutex_lock(&s->lock);
	if (s->state != RS_CONNECTED) {
		pthread_mutex_unlock(&s->lock);
		return s->state > RS_CONNECTED ? 0 : fail(ENOTCONN);
	}
	if (how != SHUT_WR)
		s->readable = false;
	if (how != SHUT_RD) {
		s->writable = false;
		bool over = how == SHUT_RDWR || !s->readable;
		if (!wait_for(s, false, may_control) && s->state == RS_CONNECTED)
			post_control(s, over ? CONTROL_DISCONNECT : CONTROL_SHUTDOWN);
		wait_for(s, false, all_sent);
		if (over && s->state == RS_CONNECTED)
			s->state = RS_DISCONNECTED;
	}
	pthread_cond_broadcast(&s->progress);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

EXPORT int rclose(int fd)
{
	struct rsocket *s = rsocket_of(fd);
	if (!s)
		return -1;
	if (s->state == RS_CONNECTED)
		rshutdown(fd, SHUT_RDWR);
	free_rsocket(s);
	return 0;
}
