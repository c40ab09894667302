/* semantics.c - what calls return in states that a program should not call them in. Each part runs on the kernel's stack,
 * too. */

#include "life.h"

#include <net/if.h>
#include <netdb.h>
#include <sys/ioctl.h>

static void not_connected(int fd)
{
	char b[16];
	struct iovec part = {b, sizeof b};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
	struct mmsghdr mm = {.msg_hdr = m};
	FAILS(recv(fd, b, sizeof b, 0), ENOTCONN);
	FAILS(recv(fd, b, sizeof b, MSG_DONTWAIT), ENOTCONN);
	FAILS(recvfrom(fd, b, sizeof b, 0, NULL, NULL), ENOTCONN);
	FAILS(recvmsg(fd, &m, 0), ENOTCONN);
	FAILS(recvmmsg(fd, &mm, 1, 0, NULL), ENOTCONN);
	FAILS(send(fd, b, sizeof b, 0), EPIPE);
	FAILS(send(fd, b, sizeof b, MSG_NOSIGNAL), EPIPE);
	FAILS(sendto(fd, b, sizeof b, 0, NULL, 0), EPIPE);
	FAILS(sendmsg(fd, &m, 0), EPIPE);
	FAILS(sendmmsg(fd, &mm, 1, 0), EPIPE);
}

static volatile sig_atomic_t pipes;

static void on_pipe(int signal)
{
	(void)signal;
	pipes++;
}

/* recv is ENOTCONN and send EPIPE with a signal, whether the node knows the socket or not; also of a listener. */
static void unconnected(char **args)
{
	(void)args;
	int one = 1, fd = tcp();
	signal(SIGPIPE, on_pipe);
	not_connected(fd);
	CHECK(pipes == 4); /* send once is with MSG_NOSIGNAL */
	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
	not_connected(fd);
	struct sockaddr_in any = address("0.0.0.0", 0);
	CHECK(bind(fd, (struct sockaddr *)&any, sizeof any) == 0);
	not_connected(fd);
	CHECK(listen(fd, 5) == 0);
	not_connected(fd);
	CHECK(so_error(fd) == 0);
}

/* What the library does not see before connect(2) is no part of the connection. */
static void early_bytes(char **args)
{
	(void)args;
	struct sockaddr_in to = address(peer, 7);
	int one = 1, fd = tcp();
	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
	if (write(fd, "not for the peer", 16) < 0)
		CHECK(errno == EPIPE || errno == ENOTCONN);
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	echo(fd, "hello");
}

static int refused(void)
{
	struct sockaddr_in to = address(peer, 1);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK(fd >= 0);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno != EINPROGRESS)
		CHECK(errno == ECONNREFUSED);
	await(fd, POLLIN);
	return fd;
}

/* The errno of a failed connection is there once: in recv or in SO_ERROR, whichever comes first. */
static void connect_error(char **args)
{
	(void)args;
	char b[16];
	int fd = refused();
	FAILS(recv(fd, b, sizeof b, 0), ECONNREFUSED);
	CHECK(so_error(fd) == 0);
	CHECK(recv(fd, b, sizeof b, 0) == 0);
	close(fd);
	fd = refused();
	CHECK(so_error(fd) == ECONNREFUSED);
	CHECK(so_error(fd) == 0);
	CHECK(recv(fd, b, sizeof b, 0) == 0);
	close(fd);
}

/* A reset is there once, too. The argument is a port whose connections are reset after one byte. */
static void reset(char **args)
{
	char b[16];
	int fd = connected(atoi(args[0]));
	CHECK(write(fd, "x", 1) == 1);
	await(fd, POLLIN);
	FAILS(recv(fd, b, sizeof b, 0), ECONNRESET);
	CHECK(so_error(fd) == 0);
	CHECK(recv(fd, b, sizeof b, 0) == 0);
	close(fd);
	fd = connected(atoi(args[0]));
	CHECK(write(fd, "x", 1) == 1);
	await(fd, POLLIN);
	CHECK(so_error(fd) == ECONNRESET);
	CHECK(so_error(fd) == 0);
	CHECK(recv(fd, b, sizeof b, 0) == 0);
}

/* What was sent before a close with SO_LINGER 0 is there before the reset, after which the connection has no peer. */
static void linger(char **args)
{
	(void)args;
	char b[16];
	struct sockaddr_in to = address("127.0.0.1", 0);
	socklen_t len = sizeof to;
	struct linger now = {.l_onoff = 1};
	int l = tcp();
	CHECK(bind(l, (struct sockaddr *)&to, sizeof to) == 0 && listen(l, 5) == 0);
	CHECK(getsockname(l, (struct sockaddr *)&to, &len) == 0);
	for (int i = 0; i < 50; i++) {
		int client = tcp();
		CHECK(connect(client, (struct sockaddr *)&to, sizeof to) == 0);
		int fd = accept(l, NULL, NULL);
		CHECK(fd >= 0 && getpeername(fd, (struct sockaddr *)&to, &len) == 0);
		CHECK(getsockname(fd, (struct sockaddr *)&to, &len) == 0);
		CHECK(setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
		CHECK(send(client, "DELETE", 6, 0) == 6);
		close(client);
		await(fd, 0); /* POLLERR */
		FAILS(getpeername(fd, (struct sockaddr *)&to, &len), ENOTCONN);
		CHECK(recv(fd, b, sizeof b, 0) == 6 && memcmp(b, "DELETE", 6) == 0);
		FAILS(recv(fd, b, sizeof b, 0), ECONNRESET);
		close(fd);
	}
}

/* A port is free again when close(2) returns: that is how programs look for one. */
static void rebind(char **args)
{
	(void)args;
	for (int i = 0; i < 300; i++) {
		struct sockaddr_in at = address("127.0.0.1", 0);
		socklen_t len = sizeof at;
		int fd = i % 3 == 2 ? udp() : tcp();
		CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
		if (i % 3 == 1)
			CHECK(listen(fd, 5) == 0);
		CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
		close(fd);
		fd = i % 3 == 2 ? udp() : tcp();
		CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
		int again = i % 3 == 2 ? udp() : tcp();
		FAILS(bind(again, (struct sockaddr *)&at, sizeof at), EADDRINUSE);
		close(again);
		close(fd);
	}
}

/* A port of the node's own service cannot be had, and the library says so once. Of a program's port it says nothing. */
static void service_port(char **args)
{
	struct sockaddr_in at = address("0.0.0.0", atoi(args[0]));
	socklen_t len = sizeof at;
	for (int i = 0; i < 2; i++)
		FAILS(bind(tcp(), (struct sockaddr *)&at, sizeof at), EADDRINUSE);
	at.sin_port = 0;
	int fd = tcp();
	CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && getsockname(fd, (struct sockaddr *)&at, &len) == 0);
	FAILS(bind(tcp(), (struct sockaddr *)&at, sizeof at), EADDRINUSE);
}

/* A listener that has been closed refuses. */
static void closed_listener(char **args)
{
	(void)args;
	for (int i = 0; i < 100; i++) {
		struct sockaddr_in at = address("127.0.0.1", 0);
		socklen_t len = sizeof at;
		int l = tcp(), fd = tcp();
		CHECK(bind(l, (struct sockaddr *)&at, sizeof at) == 0 && listen(l, 5) == 0);
		CHECK(getsockname(l, (struct sockaddr *)&at, &len) == 0);
		if (i % 2 == 0)
			CHECK(bind(fd, (struct sockaddr *)&(struct sockaddr_in){.sin_family = AF_INET}, sizeof at) == 0);
		close(l);
		FAILS(connect(fd, (struct sockaddr *)&at, sizeof at), ECONNREFUSED);
		close(fd);
	}
}

/* A connect that does not block says EINPROGRESS, then writable, then 0 once, also to an address of this host. */
static void in_progress(char **args)
{
	(void)args;
	struct sockaddr_in at = address("127.0.0.1", 0);
	socklen_t len = sizeof at;
	int l = tcp(), fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK(fd >= 0 && bind(l, (struct sockaddr *)&at, sizeof at) == 0 && listen(l, 5) == 0);
	CHECK(getsockname(l, (struct sockaddr *)&at, &len) == 0);
	FAILS(connect(fd, (struct sockaddr *)&at, sizeof at), EINPROGRESS);
	await(fd, POLLOUT);
	CHECK(so_error(fd) == 0);
	CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
	FAILS(connect(fd, (struct sockaddr *)&at, sizeof at), EISCONN);
	CHECK(write(fd, "x", 1) == 1);
}

/* Interfaces are shown through any socket. */
static void interfaces(char **args)
{
	(void)args;
	struct ifreq q = {.ifr_name = "lo"};
	int stream = tcp(), datagram = udp();
	CHECK(ioctl(stream, SIOCGIFFLAGS, &q) == 0 && (q.ifr_flags & IFF_LOOPBACK) != 0);
	CHECK(ioctl(datagram, SIOCGIFADDR, &q) == 0);
	CHECK(((struct sockaddr_in *)&q.ifr_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	snprintf(q.ifr_name, sizeof q.ifr_name, "none");
	FAILS(ioctl(stream, SIOCGIFADDR, &q), ENODEV);
}

/* A reset ends writes at once, also those of a program that has yet to read what came before. */
static void unread(char **args)
{
	(void)args;
	static char b[1 << 16];
	struct sockaddr_in to = address("127.0.0.1", 0);
	socklen_t len = sizeof to;
	int l = tcp();
	CHECK(bind(l, (struct sockaddr *)&to, sizeof to) == 0 && listen(l, 5) == 0);
	CHECK(getsockname(l, (struct sockaddr *)&to, &len) == 0);
	for (int blocking = 0; blocking < 2; blocking++) {
		int client = tcp();
		CHECK(connect(client, (struct sockaddr *)&to, sizeof to) == 0);
		int fd = accept(l, NULL, NULL);
		CHECK(fd >= 0);
		struct pollfd both[2] = {{.fd = fd, .events = POLLOUT}, {.fd = client, .events = POLLOUT}};
		size_t sent = 0, got = 0;
		while (poll(both, 2, 1000) > 0) {
			if (both[0].revents == POLLOUT) {
				ssize_t n = send(fd, b, sizeof b, MSG_DONTWAIT);
				sent += n > 0 ? (size_t)n : 0;
			}
			if (both[1].revents == POLLOUT)
				send(client, b, sizeof b, MSG_DONTWAIT);
		}
		pid_t child = fork();
		if (child == 0) {
			close(client);
			usleep(200 * 1000);
			_exit(0); /* the last descriptor of fd, with data unread */
		}
		close(fd);
		do
			if (!blocking)
				await(client, POLLOUT);
		while (send(client, b, sizeof b, MSG_NOSIGNAL | (blocking ? 0 : MSG_DONTWAIT)) > 0 || errno == EAGAIN);
		CHECK(errno == EPIPE || errno == ECONNRESET);
		for (ssize_t n; (n = recv(client, b, sizeof b, 0)) > 0;)
			got += (size_t)n;
		CHECK(got > 0 && got <= sent);
		close(client);
		reap(child);
	}
}

/* A program that goes on writing to a peer that has closed fails in the end, whatever it writes meanwhile. */
static void writes_on(char **args)
{
	(void)args;
	struct sockaddr_in to = address("127.0.0.1", 0);
	socklen_t len = sizeof to;
	int l = tcp();
	CHECK(bind(l, (struct sockaddr *)&to, sizeof to) == 0 && listen(l, 5) == 0);
	CHECK(getsockname(l, (struct sockaddr *)&to, &len) == 0);
	for (int i = 0; i < 50; i++) {
		int client = tcp();
		CHECK(connect(client, (struct sockaddr *)&to, sizeof to) == 0);
		int fd = accept(l, NULL, NULL);
		CHECK(fd >= 0 && close(fd) == 0);
		do
			await(client, POLLOUT);
		while (send(client, "foo\n", 4, MSG_DONTWAIT) == 4);
		CHECK(errno == EPIPE || errno == ECONNRESET);
		close(client);
	}
}

/* ICMP wakes a connected UDP socket that waits, and recv has the errno, once. */
static void unreachable(char **args)
{
	(void)args;
	struct sockaddr_in to = address(peer, 1);
	char b[16];
	for (int how = 0; how < 3; how++) {
		int fd = udp();
		struct timeval limit = {.tv_sec = 20};
		CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
		CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
		CHECK(send(fd, "x", 1, 0) == 1);
		if (how == 1)
			await(fd, POLLIN);
		if (how == 2) {
			await(fd, POLLIN);
			CHECK(so_error(fd) == ECONNREFUSED);
		} else
			FAILS(recv(fd, b, sizeof b, 0), ECONNREFUSED);
		CHECK(so_error(fd) == 0);
		close(fd);
	}
}

/* Sockets that the stack does not have are refused, never the kernel's in silence. */
static void families(char **args)
{
	(void)args;
	FAILS(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), EPERM);
	FAILS(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP), EPROTONOSUPPORT);
	FAILS(socket(AF_INET6, SOCK_STREAM, 132 /* SCTP */), EPROTONOSUPPORT);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	close(fd);
	fd = socket(AF_NETLINK, SOCK_RAW, 0);
	CHECK(fd >= 0);
}

/* Urgent bytes are in their place. */
static void urgent(char **args)
{
	(void)args;
	char b[16];
	size_t got = 0;
	int fd = connected(7);
	CHECK(send(fd, "ab", 2, 0) == 2);
	CHECK(send(fd, "c", 1, MSG_OOB) == 1);
	CHECK(send(fd, "d", 1, 0) == 1);
	while (got < 4) {
		ssize_t n = recv(fd, b + got, sizeof b - got, 0);
		CHECK(n > 0);
		got += (size_t)n;
	}
	CHECK(got == 4 && memcmp(b, "abcd", 4) == 0);
	FAILS(recv(fd, b, 1, MSG_OOB), EINVAL);
}

/* Sends one datagram to a port that is closed, and another after SIGINT. */
static void two_datagrams(char **args)
{
	struct sockaddr_in to = address(peer, atoi(args[0]));
	sigset_t wait;
	int fd = udp(), got;
	sigemptyset(&wait);
	sigaddset(&wait, SIGINT);
	sigprocmask(SIG_BLOCK, &wait, NULL);
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	CHECK(send(fd, "first", 5, 0) == 5);
	await(fd, POLLIN);
	puts("refused");
	fflush(stdout);
	CHECK(sigwait(&wait, &got) == 0);
	/* A send has the error of the one before, unless that was less than a millisecond ago: that costs no datagram but this call. */
	if (send(fd, "second", 6, 0) < 0) {
		CHECK(errno == ECONNREFUSED);
		CHECK(send(fd, "second", 6, 0) == 6);
	}
}

/* wrong_messages passes addresses, lengths and counts that the kernel refuses, to a connected socket. */
static void wrong_messages(int fd)
{
	char b[16];
	struct sockaddr_in from;
	struct iovec part = {b, sizeof b};
	struct msghdr longname = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = &from, .msg_namelen = (socklen_t)-1};
	struct msghdr many = {.msg_iov = &part, .msg_iovlen = (size_t)-1};
	struct mmsghdr mm = {.msg_hdr = many};
	socklen_t negative = (socklen_t)-1;
	FAILS(recvmsg(fd, &longname, MSG_DONTWAIT), EINVAL);
	FAILS(sendmsg(fd, &longname, MSG_DONTWAIT), EINVAL);
	FAILS(recvmsg(fd, &many, MSG_DONTWAIT), EMSGSIZE);
	FAILS(sendmsg(fd, &many, MSG_DONTWAIT), EMSGSIZE);
	FAILS(sendmmsg(fd, &mm, 1, MSG_DONTWAIT), EMSGSIZE);
	FAILS(recvmmsg(fd, &mm, 1, MSG_DONTWAIT, NULL), EMSGSIZE);
	FAILS(getsockname(fd, (struct sockaddr *)&from, &negative), EINVAL);
	FAILS(getpeername(fd, (struct sockaddr *)&from, &negative), EINVAL);
}

static void wrong_arguments(char **args)
{
	(void)args;
	struct sockaddr_in any = address("0.0.0.0", 0);
	socklen_t len = sizeof any, negative = (socklen_t)-1;
	char b[2] = "";
	int fd = tcp(), u = udp(), l = tcp(), v = udp(), mark = -256;
	socklen_t four = sizeof mark;
	FAILS(accept(fd, (struct sockaddr *)3, &len), EINVAL); /* no listener: that comes first */
	FAILS(accept(u, (struct sockaddr *)3, &len), EOPNOTSUPP);
	CHECK(bind(l, (struct sockaddr *)&any, sizeof any) == 0 && listen(l, 5) == 0);
	CHECK(getsockname(l, (struct sockaddr *)&any, &len) == 0);
	inet_pton(AF_INET, "127.0.0.1", &any.sin_addr);
	CHECK(connect(fd, (struct sockaddr *)&any, sizeof any) == 0 && connect(u, (struct sockaddr *)&any, sizeof any) == 0);
	int got = accept(l, NULL, NULL);
	CHECK(got >= 0 && send(got, "x", 1, 0) == 1);
	CHECK(recv(fd, b, 1, MSG_PEEK) == 1);
	FAILS(recvfrom(fd, b, 1, MSG_PEEK, (struct sockaddr *)&any, &negative), EINVAL);
	CHECK(recvfrom(fd, b, 1, MSG_PEEK, (struct sockaddr *)-1, &len) == 1 && len == 0); /* no address is written */
	FAILS(ioctl(u, SIOCATMARK, &mark), ENOTTY);
	FAILS(socket(AF_INET, SOCK_STREAM | 64, 0), EINVAL);
	FAILS(socket(AF_INET, 11, 0), EINVAL);
	FAILS(socket(AF_INET, SOCK_RAW, 0), EPROTONOSUPPORT);
	CHECK(setsockopt(udp(), SOL_SOCKET, SO_SNDBUF, &mark, sizeof mark) == 0);
	CHECK(setsockopt(v, SOL_SOCKET, SO_SNDBUFFORCE, &mark, sizeof mark) == 0);
	CHECK(getsockopt(v, SOL_SOCKET, SO_SNDBUF, &mark, &four) == 0 && mark == 4608);
	wrong_messages(fd);
	wrong_messages(u);
}

/* TCP looks at no descriptors: they are of AF_UNIX, and its peer gets the bytes alone. */
static void passed_descriptors(char **args)
{
	(void)args;
	struct sockaddr_in any = address("127.0.0.1", 0);
	socklen_t len = sizeof any;
	char b[8], room[64];
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec part = {"abcd", 4}, in = {b, sizeof b};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct msghdr got = {.msg_iov = &in, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	struct mmsghdr mm = {.msg_hdr = m}, gotten = {.msg_hdr = got};
	int fd = tcp(), l = tcp(), one = 1;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof one), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(c), &one, sizeof one);
	CHECK(bind(l, (struct sockaddr *)&any, sizeof any) == 0 && listen(l, 5) == 0);
	CHECK(getsockname(l, (struct sockaddr *)&any, &len) == 0 && connect(fd, (struct sockaddr *)&any, sizeof any) == 0);
	int a = accept(l, NULL, NULL);
	CHECK(a >= 0 && sendmsg(fd, &m, 0) == 4);
	CHECK(recvmsg(a, &got, 0) == 4 && got.msg_controllen == 0 && got.msg_flags == 0);
	CHECK(sendmmsg(fd, &mm, 1, 0) == 1 && mm.msg_len == 4);
	CHECK(recvmmsg(a, &gotten, 1, 0, NULL) == 1 && gotten.msg_len == 4 && gotten.msg_hdr.msg_controllen == 0);
}

static void no_name(char **args)
{
	struct addrinfo *list;
	(void)args;
	CHECK(getaddrinfo("host.example", "80", NULL, &list) == EAI_AGAIN);
}

const struct part semantics[] = {
	{"two-datagrams", two_datagrams}, {"no-name", no_name},
	{"wrong-arguments", wrong_arguments}, {"passed-descriptors", passed_descriptors},
	{"unconnected", unconnected}, {"early-bytes", early_bytes}, {"connect-error", connect_error}, {"reset", reset},
	{"linger", linger},           {"writes-on", writes_on},     {"unread", unread},
	{"rebind", rebind},           {"service-port", service_port}, {"closed-listener", closed_listener},
	{"in-progress", in_progress}, {"interfaces", interfaces},
	{"unreachable", unreachable}, {"families", families},       {"urgent", urgent},               {NULL, NULL},
};
