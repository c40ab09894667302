/* results.c - single calls, right and wrong ones. */
#include "calls.h"

void descriptors(void)
{
	int fds[4] = {socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0),
		      socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP), socket(AF_INET6, SOCK_DGRAM, 0)};
	for (int i = 0; i < 4; i++) {
		int domain = -1, type = -1, proto = -1;
		socklen_t len = sizeof domain;
		getsockopt(fds[i], SOL_SOCKET, SO_DOMAIN, &domain, &len);
		getsockopt(fds[i], SOL_SOCKET, SO_TYPE, &type, &len);
		getsockopt(fds[i], SOL_SOCKET, SO_PROTOCOL, &proto, &len);
		printf("socket %d: cloexec %d nonblock %d domain %d type %d protocol %d length %d\n", fds[i], fcntl(fds[i], F_GETFD),
		       (fcntl(fds[i], F_GETFL) & O_NONBLOCK) != 0, domain, type, proto, (int)len);
		close(fds[i]);
	}
	SAY(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	SAY(socket(AF_INET, SOCK_STREAM | 0x100000, 0));
	SAY(socket(AF_INET, SOCK_SEQPACKET, IPPROTO_TCP));
}

void wrong_memory(void)
{
	struct sockaddr_in a = at(1);
	struct sockaddr *bad = (struct sockaddr *)8;
	socklen_t len = sizeof a, huge = 0x7fffffff, negative = -1, small = 3;
	int fd = socket(AF_INET, SOCK_STREAM, 0), value = 1, l = listener();
	SAY(bind(fd, bad, sizeof a));
	SAY(bind(fd, (struct sockaddr *)&a, 3));
	SAY(bind(fd, (struct sockaddr *)&a, -1));
	SAY(bind(fd, (struct sockaddr *)&a, 4096));
	SAY(connect(fd, bad, sizeof a));
	SAY(connect(fd, (struct sockaddr *)&a, 2));
	SAY(connect(fd, (struct sockaddr *)&a, 1));
	SAY(connect(fd, (struct sockaddr *)&a, -1));
	a.sin_family = AF_INET6;
	SAY(connect(fd, (struct sockaddr *)&a, sizeof a));
	a.sin_family = 77;
	SAY(connect(fd, (struct sockaddr *)&a, sizeof a));
	int six = socket(AF_INET6, SOCK_STREAM, 0);
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET};
	SAY(bind(six, (struct sockaddr *)&in6, sizeof in6));
	SAY(bind(six, (struct sockaddr *)&in6, 16));
	SAY(connect(six, (struct sockaddr *)&in6, sizeof in6));
	close(six);
	SAY(getsockname(fd, bad, &len));
	SAY(getsockname(fd, (struct sockaddr *)&a, NULL));
	SAY(getsockname(fd, (struct sockaddr *)&a, &negative));
	SAY(getsockname(fd, (struct sockaddr *)&a, &small));
	printf("length %d\n", (int)small);
	SAY(getsockname(fd, (struct sockaddr *)&a, &huge));
	printf("length %d, family %d\n", (int)huge, a.sin_family);
	SAY(getpeername(fd, (struct sockaddr *)&a, &len));
	SAY(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, NULL, sizeof value));
	SAY(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, bad, sizeof value));
	SAY(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, 1));
	SAY(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, -1));
	len = sizeof value;
	SAY(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, bad, &len));
	SAY(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, NULL));
	len = -1;
	SAY(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &len));
	len = 2;
	SAY(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &len));
	printf("length %d\n", (int)len);
	char few[5] = "abcd";
	SAY(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, few, &len));
	printf("length %d, the rest %s\n", (int)len, few + 2);
	SAY(accept(fd, NULL, NULL));
	fcntl(l, F_SETFL, O_NONBLOCK); /* musl makes another try, with accept */
	SAY(accept4(l, NULL, NULL, 0x40));
	SAY(listen(-1, 1));
	SAY(listen(99, 1));
	SAY(connect(STDOUT_FILENO, (struct sockaddr *)&a, sizeof a));
	SAY(accept(STDOUT_FILENO, NULL, NULL));
	SAY(getsockopt(STDOUT_FILENO, SOL_SOCKET, SO_ERROR, &value, &len));
	close(fd);
	close(l);
}

void streams(void)
{
	int l = listener(), value = 5;
	char text[8] = "";
	struct sockaddr_in a = {0};
	socklen_t len = sizeof a;
	int c = client(port_of(l)), own = port_of(c);
	int s = accept4(l, (struct sockaddr *)&a, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
	printf("accepted: the peer's port %d, length %d, cloexec %d, nonblock %d\n", ntohs(a.sin_port) == own, (int)len, fcntl(s, F_GETFD),
	       (fcntl(s, F_GETFL) & O_NONBLOCK) != 0);
	len = sizeof a;
	SAY(getpeername(s, (struct sockaddr *)&a, &len));
	printf("its name: %d\n", ntohs(a.sin_port) == own);
	SAY(write(c, "text", 4));
	struct pollfd p = {.fd = s, .events = POLLIN};
	SAY(poll(&p, 1, 10000));
	SAY(read(s, text, sizeof text));
	puts(text);
	SAY(read(s, text, sizeof text));
	SAY(setsockopt(s, IPPROTO_TCP, TCP_KEEPCNT, &value, sizeof value));
	value = 0;
	len = sizeof value;
	SAY(getsockopt(s, IPPROTO_TCP, TCP_KEEPCNT, &value, &len));
	printf("value %d\n", value);
	a = at(port_of(l));
	SAY(connect(c, (struct sockaddr *)&a, sizeof a));
	SAY(shutdown(c, SHUT_WR));
	SAY(poll(&p, 1, 10000));
	SAY(read(s, text, sizeof text) == 0 ? 0 : -1);
	close(s);
	close(c);
	fcntl(l, F_SETFL, O_NONBLOCK);
	SAY(accept(l, NULL, NULL));
	int port = port_of(l), fd = socket(AF_INET, SOCK_STREAM, 0);
	a = at(port);
	SAY(bind(fd, (struct sockaddr *)&a, sizeof a));
	close(l);
	usleep(300 * 1000); /* the node is another process */
	SAY(connect(fd, (struct sockaddr *)&a, sizeof a));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	long r = connect(fd, (struct sockaddr *)&a, sizeof a);
	p = (struct pollfd){.fd = fd, .events = POLLOUT};
	printf("refused at once or later: %d\n", (r < 0 && errno == ECONNREFUSED) || (errno == EINPROGRESS && poll(&p, 1, 10000) == 1));
	if (errno == EINPROGRESS) {
		len = sizeof value;
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &len);
		errno = value;
	}
	said("and the error", errno == 0 ? 0 : -1);
	close(fd);
}

void families(void)
{
	int pair[2], value = 0, n = socket(AF_NETLINK, SOCK_RAW, 0), l = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);
	socklen_t len = sizeof value;
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	socklen_t size = (socklen_t)(sizeof(sa_family_t) + 1 + (size_t)snprintf(un.sun_path + 1, 64, "millrace-notify-%d", getpid()));
	SAY(getsockopt(n, SOL_SOCKET, SO_TYPE, &value, &len));
	printf("type %d\n", value);
	SAY(bind(l, (struct sockaddr *)&un, size));
	SAY(listen(l, 1));
	SAY(connect(c, (struct sockaddr *)&un, size));
	SAY(accept(l, NULL, NULL));
	SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	SAY(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &(int){100000}, 4));
	SAY(getsockname(pair[0], (struct sockaddr *)&un, &(socklen_t){sizeof un}));
}

/* show_datagram prints what a receiving call has given. */
static void show_datagram(const struct msghdr *m, long n, const struct sockaddr_in *sender)
{
	const struct sockaddr_in *from = m->msg_name;
	printf("%ld bytes, %.3s, flags %#x, from the sender %d, name of %u\n", n, n >= 3 ? (char *)m->msg_iov->iov_base : "", (unsigned)m->msg_flags,
	       from != NULL && from->sin_port == sender->sin_port && from->sin_addr.s_addr == sender->sin_addr.s_addr, (unsigned)m->msg_namelen);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR((struct msghdr *)m, c))
		printf("  level %d, type %d, %zu bytes\n", c->cmsg_level, c->cmsg_type, (size_t)c->cmsg_len);
}

/* Datagrams without a connection, by every call that has addresses. */
void unconnected(void)
{
	struct sockaddr_in a = at(0), to, from, froms[3];
	socklen_t len = sizeof a;
	int u = socket(AF_INET, SOCK_DGRAM, 0), v = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
	char b[3][8];
	_Alignas(struct cmsghdr) char control[3][128];
	struct timeval limit = {.tv_usec = 50000};
	SAY(bind(u, (struct sockaddr *)&a, sizeof a));
	SAY(bind(v, (struct sockaddr *)&a, sizeof a));
	SAY(getsockname(u, (struct sockaddr *)&to, &len));
	SAY(getsockname(v, (struct sockaddr *)&from, &len));
	SAY(setsockopt(u, IPPROTO_IP, IP_PKTINFO, &on, sizeof on));
	SAY(setsockopt(u, IPPROTO_IP, IP_RECVTTL, &on, sizeof on));
	SAY(setsockopt(u, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	SAY(sendto(v, "one", 3, 0, (struct sockaddr *)&to, sizeof to));
	len = sizeof a;
	long n = SAY(recvfrom(u, b[0], sizeof b[0], 0, (struct sockaddr *)&a, &len));
	printf("%ld bytes %.3s from %d, length %u\n", n, b[0], a.sin_port == from.sin_port, (unsigned)len);
	len = 4;
	memset(&a, 0, sizeof a);
	SAY(sendto(v, "two", 3, 0, (struct sockaddr *)&to, sizeof to));
	SAY(recvfrom(u, b[0], 2, MSG_TRUNC, (struct sockaddr *)&a, &len));
	printf("cut off: port %d, address %#x, length %u\n", a.sin_port == from.sin_port, a.sin_addr.s_addr, (unsigned)len);
	len = sizeof a;
	SAY(recvfrom(u, b[0], sizeof b[0], 0, (struct sockaddr *)&a, &len)); /* the time is over */
	SAY(recvfrom(u, b[0], sizeof b[0], MSG_DONTWAIT, (struct sockaddr *)&a, &len));
	struct iovec parts[2] = {{"fo", 2}, {"ur", 2}};
	struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = parts, .msg_iovlen = 2};
	SAY(sendmsg(v, &m, 0));
	SAY(sendmsg(v, &m, 0));
	struct iovec in = {b[0], sizeof b[0]}, halves[2] = {{b[1], 3}, {b[2], 3}};
	SAY(sendmsg(v, &m, 0));
	m = (struct msghdr){.msg_iov = halves, .msg_iovlen = 2};
	SAY(recvmsg(u, &m, 0));
	printf("%.3s and %.1s\n", b[1], b[2]);
	m = (struct msghdr){.msg_name = &a, .msg_namelen = sizeof a, .msg_iov = &in, .msg_iovlen = 1, .msg_control = control[0], .msg_controllen = sizeof control[0]};
	show_datagram(&m, SAY(recvmsg(u, &m, MSG_PEEK)), &from);
	in.iov_len = 3;
	m.msg_namelen = sizeof a;
	m.msg_controllen = 40; /* for one of the two */
	show_datagram(&m, SAY(recvmsg(u, &m, 0)), &from);
	m = (struct msghdr){.msg_iov = &in, .msg_iovlen = 1};
	show_datagram(&m, SAY(recvmsg(u, &m, 0)), &from);
	struct in_pktinfo source = {.ipi_spec_dst.s_addr = htonl(0x7f000005)};
	m = (struct msghdr){.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = parts, .msg_iovlen = 2, .msg_control = control[0], .msg_controllen = CMSG_SPACE(sizeof source)};
	*CMSG_FIRSTHDR(&m) = (struct cmsghdr){.cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO, .cmsg_len = CMSG_LEN(sizeof source)};
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &source, sizeof source);
	int w = socket(AF_INET, SOCK_DGRAM, 0); /* bound to no address */
	SAY(sendmsg(w, &m, 0));
	len = sizeof a;
	SAY(recvfrom(u, b[0], sizeof b[0], 0, (struct sockaddr *)&a, &len));
	printf("from %#x\n", ntohl(a.sin_addr.s_addr));
	close(w);
	struct mmsghdr many[3];
	struct iovec each[3];
	for (int i = 0; i < 3; i++) {
		each[i] = (struct iovec){(char *[]){"alpha", "beta", "gamma"}[i], 4};
		many[i] = (struct mmsghdr){.msg_hdr = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &each[i], .msg_iovlen = 1}};
	}
	SAY(sendmmsg(v, many, 3, 0));
	printf("lengths %u %u %u\n", many[0].msg_len, many[1].msg_len, many[2].msg_len);
	for (int i = 0; i < 3; i++) {
		each[i] = (struct iovec){b[i], sizeof b[i]};
		many[i] = (struct mmsghdr){.msg_hdr = {.msg_name = &froms[i], .msg_namelen = sizeof froms[i], .msg_iov = &each[i], .msg_iovlen = 1, .msg_control = control[i], .msg_controllen = sizeof control[i]}};
	}
	for (int have = 0, some = 1; have < 3 && some > 0; have += some) /* on the stack they come one by one */
		if ((some = recvmmsg(u, many + have, (unsigned)(3 - have), MSG_WAITFORONE, NULL)) <= 0)
			SAY(some);
	for (int i = 0; i < 3; i++)
		show_datagram(&many[i].msg_hdr, many[i].msg_len, &from);
	SAY(sendto(v, "x", 1, 0, (struct sockaddr *)&to, 3));
	SAY(sendto(v, "x", 1, 0, (struct sockaddr *)16, sizeof to));
	SAY(sendmsg(v, (struct msghdr *)16, 0));
	SAY(recvmsg(u, (struct msghdr *)16, MSG_DONTWAIT));
	m = (struct msghdr){.msg_iov = &in, .msg_iovlen = 1};
	SAY(sendmsg(v, &m, 0)); /* to nobody */
	SAY(recvfrom(u, b[0], 0, MSG_DONTWAIT, (struct sockaddr *)&a, NULL));
	SAY(sendto(v, "", 0, 0, (struct sockaddr *)&to, sizeof to));
	len = sizeof a;
	SAY(recvfrom(u, b[0], sizeof b[0], 0, (struct sockaddr *)&a, &len));
	close(u);
	close(v);
}

void datagrams(void)
{
	struct sockaddr_in a = at(9);
	char b[4];
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	SAY(getpeername(fd, (struct sockaddr *)&a, &len));
	a = at(9);
	SAY(connect(fd, (struct sockaddr *)&a, sizeof a));
	SAY(getpeername(fd, (struct sockaddr *)&a, &len));
	printf("port %d\n", ntohs(a.sin_port));
	SAY(listen(fd, 1));
	SAY(accept(fd, NULL, NULL));
	SAY(recv(fd, b, sizeof b, MSG_DONTWAIT));
	a.sin_family = AF_UNSPEC;
	SAY(connect(fd, (struct sockaddr *)&a, sizeof a));
	SAY(getpeername(fd, (struct sockaddr *)&a, &len));
	close(fd);
}

/* A peer at address and port that answers, and a neighbor that does not. */
void network(const char *address, int port, const char *silent)
{
	struct sockaddr_in a = at(port), none = at(port);
	socklen_t len = sizeof a;
	inet_pton(AF_INET, address, &a.sin_addr);
	inet_pton(AF_INET, silent, &none.sin_addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	SAY(connect(fd, (struct sockaddr *)&a, sizeof a));
	SAY(connect(fd, (struct sockaddr *)&a, sizeof a));
	SAY(getpeername(fd, (struct sockaddr *)&a, &len));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	SAY(connect(fd, (struct sockaddr *)&none, sizeof none));
	SAY(getpeername(fd, (struct sockaddr *)&a, &len));
	SAY(connect(fd, (struct sockaddr *)&none, sizeof none));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	struct timeval limit = {.tv_usec = 100 * 1000};
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	SAY(connect(fd, (struct sockaddr *)&none, sizeof none));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	handle(SIGUSR1, 0);
	after(100, alarm_parent, 0);
	SAY(connect(fd, (struct sockaddr *)&none, sizeof none));
	close(fd);
}
