/* socket.c - socket, bind, connect, listen, accept, and the names of sockets. */

#include "interfaces.h"
#include "rebind.h"
#include "rings.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>

#define NEAR_LIMIT 32 /* descriptors: see has_number */

static int last_accepted; /* the number of the last connection */

#define TYPE_MASK 0xf /* of socket(2)'s type, without SOCK_CLOEXEC and SOCK_NONBLOCK */

/* register_datagram gives the node the other end at once: an AF_UNIX socket without one is hung up for poll(2). */
static int register_datagram(int fd)
{
	struct shim_request q = {.op = SHIM_NAMES};
	struct shim_reply reply;
	return ask(&q, fd, &reply);
}

/*
 * A socket of the stack is one end of an AF_UNIX socket, which the kernel's poll(2), epoll(7), fork and close treat as any other. The
 * types follow what they have to keep: a stream has no boundaries, and SOCK_SEQPACKET has those of datagrams and, unlike SOCK_DGRAM,
 * an end that is seen when the other side closes.
 */
static int open_socket(int domain, int type, int unix_type)
{
	int fd = (int)KERNEL(socket, AF_UNIX, unix_type | (type & ~TYPE_MASK), 0);
	if (fd < 0) {
		if (errno == EAFNOSUPPORT || errno == EPERM || errno == EACCES)
			report_once("a sandbox forbids AF_UNIX sockets, which those of the stack are: permit them, or run it without exec");
		return -1;
	}
	rings_renew(fd);
	if (unix_type == SOCK_SEQPACKET) {
		note_datagram(fd);
		note_port(fd);
	}
	if (set_mark(fd, domain) == 0 && (unix_type == SOCK_STREAM || register_datagram(fd) == 0))
		return fd;
	int cause = errno;
	KERNEL(close, fd);
	errno = cause;
	return -1;
}

INTERPOSED int socket(int domain, int type, int protocol)
{
	if ((domain != AF_INET && domain != AF_INET6) || !active()) {
		int fd = (int)KERNEL(socket, domain, type, protocol);
		if (domain == AF_NETLINK)
			netlink_open(fd, protocol);
		return fd;
	}
	int base = type & TYPE_MASK;
	if (base > SOCK_PACKET || (type & ~(TYPE_MASK | SOCK_CLOEXEC | SOCK_NONBLOCK)) != 0) {
		errno = EINVAL;
		return -1;
	}
	if (base == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP))
		return open_socket(domain, type, SOCK_STREAM);
	if (base == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP))
		return open_socket(domain, type, SOCK_SEQPACKET);
	report_once("the stack has TCP and UDP sockets alone: a program that needs others (ping, SCTP) runs without exec");
	errno = base == SOCK_RAW && protocol != 0 ? EPERM : EPROTONOSUPPORT; /* never the kernel's stack in silence */
	return -1;
}

/* report_cause writes what the node has said about a port. */
static void report_cause(const struct shim_reply *reply)
{
	char text[SHIM_REPLY_VALUE + 1];
	size_t n = reply->len < SHIM_REPLY_VALUE ? reply->len : SHIM_REPLY_VALUE;
	if (n == 0)
		return;
	memcpy(text, reply->value, n);
	text[n] = 0;
	report_once(text);
}

INTERPOSED int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct mark m = read_mark(fd);
	if (m.kind == NOT_OURS)
		return (int)KERNEL(bind, fd, addr, len);
	struct shim_request q = {.op = SHIM_BIND, .arg = settings()->rebinds ? SHIM_WANT_PERMIT : 0};
	struct shim_reply reply = {0};
	int cause = decode_address(addr, len, &q.addr);
	if (cause == 0 && q.addr.family != m.family)
		cause = m.family == AF_INET ? EAFNOSUPPORT : EINVAL;
	if (cause != 0) {
		errno = cause;
		return -1;
	}
	int result = ask(&q, fd, &reply);
	if (result != 0 && renewable(&reply) && renew(fd, &m, 0)) {
		reply.len = 0;
		result = ask(&q, fd, &reply);
	}
	if (result == 0) {
		note_port(fd);
		remember_bind(fd, &q.addr, &reply);
	}
	else if (!renewable(&reply))
		report_cause(&reply);
	return result;
}

int wait_writable(int fd, bool partial)
{
	struct timeval limit = {0};
	socklen_t len = sizeof limit;
	KERNEL(getsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, &limit, &len);
	struct timespec time = {limit.tv_sec, limit.tv_usec * 1000};
	bool limited = limit.tv_sec != 0 || limit.tv_usec != 0;
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	long n;
	do
		n = KERNEL(ppoll, &p, 1, limited ? &time : NULL, NULL, 0);
	while (n < 0 && errno == EINTR && !partial && !limited && restarts());
	if (n == 0)
		errno = EAGAIN;
	return n > 0 ? p.revents : (int)n;
}

/* wait_connected is the second half of a blocking connect: the node makes fd writable when the handshake is complete. */
static int wait_connected(int fd, const struct mark *m)
{
	int events = wait_writable(fd, false);
	if (events < 0)
		return -1; /* EINTR: the connection goes on, as POSIX has it */
	if (events == 0) {
		errno = EINPROGRESS;
		return -1;
	}
	if ((events & (POLLERR | POLLHUP)) == 0)
		return 0;
	int cause = socket_error(fd);
	if (cause == 0)
		return 0; /* connected, and closed by the peer since */
	errno = cause;
	renew(fd, m, SHIM_ERROR_REPORTED | SHIM_END_REPORTED);
	return -1;
}

/* decode_peer is decode_address for connect: AF_UNSPEC ends the association of a datagram socket, and the connection of a stream. */
static int decode_peer(const struct mark *m, const struct sockaddr *addr, socklen_t len, struct shim_addr *to)
{
	if (!no_memory(addr, len) && len >= (socklen_t)sizeof addr->sa_family && addr->sa_family == AF_UNSPEC) {
		memset(to, 0, sizeof *to);
		return 0;
	}
	int cause = decode_address(addr, len, to);
	if (cause == 0 && to->family != m->family && !(m->family == AF_INET6 && m->kind != STREAM))
		cause = EAFNOSUPPORT;
	return cause;
}

/* is_known reports whether the node has the other end of a socket. */
static bool is_known(int fd)
{
	struct sockaddr_un un;
	socklen_t len = sizeof un;
	int saved = errno;
	bool known = KERNEL(getpeername, fd, &un, &len) == 0;
	errno = saved;
	return known;
}

/* reconnected does what follows a reply to CONNECT that says that a new socket is to be in the place of this one. */
static void reconnected(int fd, const struct mark *m, bool unspecified)
{
	if (unspecified)
		KERNEL(shutdown, fd, SHUT_RDWR); /* of a pair of programs: the node has no end of it */
	renew(fd, m, unspecified ? SHIM_END_REPORTED : SHIM_ERROR_REPORTED | SHIM_END_REPORTED);
}

INTERPOSED int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct mark m = read_mark(fd);
	if (m.kind == NOT_OURS)
		return (int)KERNEL(connect, fd, addr, len);
	struct shim_request q = {.op = SHIM_CONNECT, .arg = rings_wanted()};
	struct shim_reply reply = {0};
	int memory = -1;
	bool blocks = (KERNEL(fcntl, fd, F_GETFL) & O_NONBLOCK) == 0;
	int cause = decode_peer(&m, addr, len, &q.addr);
	bool unspecified = cause == 0 && q.addr.family == 0;
	if (unspecified && m.kind == STREAM && !is_known(fd) && !m.connected)
		return 0; /* to no peer, of a stream that has none: as Linux */
	q.arg |= blocks ? SHIM_BLOCKS : 0;
	if (cause != 0) {
		errno = cause;
		return -1;
	}
	int result = ask_memory(&q, fd, &reply, &memory);
	if (memory != -1) {
		int saved = errno;
		struct shim_memory of;
		memcpy(&of, reply.value, sizeof of);
		rings_attach(fd, memory, &of, true);
		errno = saved;
	}
	if (m.kind == STREAM && renewable(&reply))
		reconnected(fd, &m, unspecified);
	if (result == 0)
		return 0;
	if (errno != EINPROGRESS || !blocks)
		return -1;
	return wait_connected(fd, &m);
}

INTERPOSED int listen(int fd, int backlog)
{
	struct mark m = read_mark(fd);
	if (m.kind == NOT_OURS)
		return (int)KERNEL(listen, fd, backlog);
	struct shim_request q = {.op = SHIM_LISTEN, .arg = backlog, .name = rings_wanted()};
	struct shim_reply reply;
	if (m.kind != STREAM) {
		errno = EOPNOTSUPP;
		return -1;
	}
	int result = ask(&q, fd, &reply);
	if (result == 0) {
		note_port(fd);
		remember_listen(fd, backlog);
	}
	return result;
}

/*
 * end_of_listener says why a listener's stream has ended: shutdown(2), or the node is gone, which shows as ECONNRESET only
 * once. To one that was started again the listener is as any that has ended.
 */
static int end_of_listener(int fd)
{
	struct shim_request q = {.op = SHIM_NAMES};
	struct shim_reply reply;
	if (was_shut(fd))
		return EINVAL;
	if (request(&q, fd, &reply, NULL) != 0)
		return node_ended();
	slow_down();
	return EINVAL;
}

/*
 * has_number reports whether the process has a number for one more descriptor. What recvmsg cannot pass is lost, and a
 * connection must stay in the queue then. The check is made where the last number was close to the limit.
 */
static bool has_number(void)
{
	struct rlimit limit;
	int fd;
	if (KERNEL(prlimit64, 0, RLIMIT_NOFILE, NULL, &limit) == 0 &&
	    (rlim_t)__atomic_load_n(&last_accepted, __ATOMIC_RELAXED) + NEAR_LIMIT < limit.rlim_cur)
		return true;
	fd = (int)KERNEL(socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		KERNEL(close, fd);
	return fd >= 0;
}

/* receive_connection takes one record of a listener. It returns the descriptor. */
static int receive_connection(int fd, struct shim_accepted *record, int flags)
{
	struct iovec part = {record, sizeof *record};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	long n = KERNEL(recvmsg, fd, &m, (flags & SOCK_CLOEXEC) != 0 ? MSG_CMSG_CLOEXEC : 0);
	if ((n == 0 || (n < 0 && errno == ECONNRESET)) && settings()->rebinds && !was_shut(fd)) {
		errno = NODE_LOST;
		return -1;
	}
	if (n < 0) {
		if (errno == ECONNRESET)
			errno = was_shut(fd) ? EINVAL : node_ended();
		return -1;
	}
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (n == sizeof *record && c != NULL && c->cmsg_type == SCM_RIGHTS) {
		int got[2] = {-1, -1};
		memcpy(got, CMSG_DATA(c), c->cmsg_len >= CMSG_LEN(sizeof got) ? sizeof got : sizeof got[0]);
		if (got[1] < 0 && (m.msg_flags & MSG_CTRUNC) != 0)
			got[1] = NO_NUMBER;
		rings_renew(got[0]);
		if (got[1] != -1)
			got[0] = rings_attach(got[0], got[1], &record->memory, false);
		__atomic_store_n(&last_accepted, got[0], __ATOMIC_RELAXED);
		return got[0];
	}
	if (n == 0)
		errno = end_of_listener(fd);
	else
		errno = (m.msg_flags & MSG_CTRUNC) != 0 ? EMFILE : EPROTO; /* without a descriptor: no number is free */
	return -1;
}

/* next_connection is receive_connection, also of a listener that has to be made again first. */
static int next_connection(int fd, const struct mark *m, struct shim_accepted *record, int flags)
{
	for (;;) {
		int got = has_number() ? receive_connection(fd, record, flags) : -1;
		if (got >= 0 || errno != NODE_LOST)
			return got;
		enum again again = make_again(fd, m, (KERNEL(fcntl, fd, F_GETFL) & O_NONBLOCK) == 0);
		if (again == AGAIN_NEVER)
			errno = end_of_listener(fd);
		if (again != AGAIN_DONE)
			return -1;
	}
}

INTERPOSED int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	struct mark m = read_mark(fd);
	if (m.kind == NOT_OURS)
		return (int)KERNEL(accept4, fd, addr, len, flags);
	struct shim_name name;
	if (m.kind != STREAM || (flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)) != 0) {
		errno = m.kind != STREAM ? EOPNOTSUPP : EINVAL;
		return -1;
	}
	if (!own_name(fd, &name) || name.remote.family != 0) { /* no listener: its bytes are data */
		errno = EINVAL;
		return -1;
	}
	int wrong = addr != NULL ? wrong_space(addr, len) : 0;
	if (wrong != 0) { /* before a connection is taken, which would be lost */
		errno = wrong;
		return -1;
	}
	struct shim_accepted record;
	int got = next_connection(fd, &m, &record, flags);
	if (got < 0)
		return -1;
	if ((flags & SOCK_NONBLOCK) != 0) {
		KERNEL(fcntl, got, F_SETFL, O_RDWR | O_NONBLOCK);
		rings_nonblocking(got, true);
	}
	encode_address(&record.remote, m.family, addr, len);
	return got;
}

INTERPOSED int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
	return accept4(fd, addr, len, 0);
}

/*
 * request_names is for sockets that have no name yet. One that the node does not know has no address either, and it must
 * stay so: a stream that is registered waits for bytes, where recv(2) of an unconnected one is an error.
 */
static int request_names(int fd, struct shim_reply *reply)
{
	struct shim_request q = {.op = SHIM_NAMES};
	struct sockaddr_un un;
	socklen_t len = sizeof un;
	if (KERNEL(getpeername, fd, &un, &len) == 0)
		return ask(&q, fd, reply);
	memset(reply, 0, sizeof *reply);
	return 0;
}

INTERPOSED int getsockname(int fd, struct sockaddr *restrict addr, socklen_t *restrict len)
{
	struct mark m = read_mark(fd);
	if (m.kind == NOT_OURS)
		return (int)KERNEL(getsockname, fd, addr, len);
	int wrong = wrong_space(addr, len);
	if (wrong != 0) {
		errno = wrong;
		return -1;
	}
	struct shim_name name;
	struct shim_reply reply;
	if (m.kind == STREAM && own_name(fd, &name)) {
		encode_address(&name.local, m.family, addr, len);
	} else if (m.kind == STREAM && peer_name(fd, &name)) {
		encode_address(&name.remote, m.family, addr, len);
	} else {
		if (request_names(fd, &reply) != 0)
			return -1;
		encode_address(&reply.local, m.family, addr, len);
	}
	return 0;
}

/* writable reports whether the kernel would take bytes: what connects is not, nor is what failed to, or has ended. */
static bool writable(int fd)
{
	struct timespec now = {0, 0};
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	return KERNEL(ppoll, &p, 1, &now, NULL, 0) == 1 && (p.revents & (POLLOUT | POLLERR | POLLHUP)) == POLLOUT;
}

INTERPOSED int getpeername(int fd, struct sockaddr *restrict addr, socklen_t *restrict len)
{
	struct mark m = read_mark(fd);
	if (m.kind == NOT_OURS)
		return (int)KERNEL(getpeername, fd, addr, len);
	int wrong = wrong_space(addr, len);
	if (wrong != 0) {
		errno = wrong;
		return -1;
	}
	struct shim_name name;
	struct shim_reply reply;
	if (m.kind == STREAM && peer_name(fd, &name)) {
		encode_address(&name.local, m.family, addr, len);
		return 0;
	}
	if (m.kind == STREAM && own_name(fd, &name) && name.remote.family != 0 && writable(fd)) {
		encode_address(&name.remote, m.family, addr, len);
		return 0;
	}
	if (request_names(fd, &reply) != 0)
		return -1;
	if (reply.remote.family == 0) {
		errno = ENOTCONN;
		return -1;
	}
	encode_address(&reply.remote, m.family, addr, len);
	return 0;
}
