/*
 * cmsgs.c - control messages and the queue of errors of datagrams: a line for each call and each message. TestControlMessagesAsOnTheKernel runs it on the
 * kernel's stack and by the library, and compares.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

#define SOON 20000 /* ms, for what has to happen */

static bool v6;

static long show(const char *what, long result)
{
	printf("%s: %ld%s%s\n", what, result < 0 ? -1 : result, result < 0 ? " " : "", result < 0 ? strerrorname_np(errno) : "");
	return result;
}

static struct sockaddr_storage at(int port, socklen_t *len)
{
	struct sockaddr_storage a = {0};
	struct sockaddr_in *four = (struct sockaddr_in *)&a;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&a;
	if (v6)
		*six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback, .sin6_port = htons((uint16_t)port)};
	else
		*four = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
	*len = v6 ? sizeof *six : sizeof *four;
	return a;
}

static int port_of(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof a;
	if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
		exit(3);
	return ntohs(((struct sockaddr_in *)&a)->sin_port);
}

static int udp(void)
{
	socklen_t len;
	struct sockaddr_storage a = at(0, &len);
	int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) != 0)
		exit(2);
	return fd;
}

static long aim(int fd, int port)
{
	socklen_t len;
	struct sockaddr_storage a = at(port, &len);
	return connect(fd, (struct sockaddr *)&a, len);
}

static long set(int fd, int level, int name, int value) { return setsockopt(fd, level, name, &value, sizeof value); }

static const char *text_of(int family, const void *addr)
{
	static char text[INET6_ADDRSTRLEN];
	return inet_ntop(family, addr, text, sizeof text);
}

static void show_error(const struct cmsghdr *c)
{
	struct sock_extended_err e;
	struct sockaddr_storage from;
	memcpy(&e, CMSG_DATA(c), sizeof e);
	size_t rest = c->cmsg_len - CMSG_LEN(sizeof e);
	memset(&from, 0, sizeof from);
	memcpy(&from, CMSG_DATA(c) + sizeof e, rest < sizeof from ? rest : sizeof from);
	printf("  error %s, origin %d, type %d, code %d, info %u, data %u, offender ", strerrorname_np((int)e.ee_errno), e.ee_origin, e.ee_type, e.ee_code, e.ee_info, e.ee_data);
	if (from.ss_family == AF_INET)
		puts(text_of(AF_INET, &((struct sockaddr_in *)&from)->sin_addr));
	else if (from.ss_family == AF_INET6)
		puts(text_of(AF_INET6, &((struct sockaddr_in6 *)&from)->sin6_addr));
	else
		puts("none");
}

static void show_time(const struct cmsghdr *c)
{
	struct timespec t, now;
	memcpy(&t, CMSG_DATA(c), sizeof t);
	clock_gettime(CLOCK_REALTIME, &now);
	printf("  %s, %zu bytes, %s\n", c->cmsg_type == SCM_TIMESTAMPING ? "SCM_TIMESTAMPING" : "time", (size_t)c->cmsg_len - CMSG_LEN(0),
	       t.tv_sec > now.tv_sec - 60 && t.tv_sec <= now.tv_sec ? "now" : "another");
}

static void show_control(struct msghdr *m)
{
	int value = 0;
	struct in_pktinfo info;
	struct in6_pktinfo info6;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
		size_t n = c->cmsg_len - CMSG_LEN(0);
		if (c->cmsg_level == SOL_SOCKET) {
			show_time(c);
		} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			memcpy(&info, CMSG_DATA(c), sizeof info);
			printf("  IP_PKTINFO %s, interface %s\n", text_of(AF_INET, &info.ipi_addr), info.ipi_ifindex != 0 ? "some" : "none");
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			memcpy(&info6, CMSG_DATA(c), sizeof info6);
			printf("  IPV6_PKTINFO %s, interface %s\n", text_of(AF_INET6, &info6.ipi6_addr), info6.ipi6_ifindex != 0 ? "some" : "none");
		} else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) || (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR)) {
			show_error(c);
		} else {
			value = 0;
			memcpy(&value, CMSG_DATA(c), n < sizeof value ? n : sizeof value);
			printf("  level %d, type %d, %zu bytes: %d\n", c->cmsg_level, c->cmsg_type, n, value);
		}
	}
}

/* receive shows what comes: the bytes, their sender where one is asked for, and the control messages. */
static long receive(int fd, int flags, int sender)
{
	char b[2000];
	_Alignas(struct cmsghdr) char control[512];
	struct sockaddr_storage from = {0};
	struct iovec part = {b, sizeof b};
	struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	if ((flags & MSG_ERRQUEUE) == 0 && poll(&p, 1, SOON) != 1) /* an event has announced the other */
		puts("nothing comes");
	long n = show((flags & MSG_ERRQUEUE) != 0 ? "error queue" : "recvmsg", recvmsg(fd, &m, flags));
	if (n < 0)
		return n;
	printf("  flags %#x, the port is %s, %.3s\n", (unsigned)m.msg_flags, ntohs(((struct sockaddr_in *)&from)->sin_port) == sender ? "the other's" : "wrong", n >= 3 ? b : "");
	show_control(&m);
	return n;
}

static long send_with(int fd, int port, int level, int type, const void *value, size_t n, size_t bytes)
{
	static char data[8000] = "abc";
	_Alignas(struct cmsghdr) char control[64] = {0};
	socklen_t len;
	struct sockaddr_storage to = at(port, &len);
	struct iovec part = {data, bytes};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
	if (port != 0)
		m.msg_name = &to, m.msg_namelen = len;
	if (n != 0) {
		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE(n);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = level;
		c->cmsg_type = type;
		c->cmsg_len = CMSG_LEN(n);
		memcpy(CMSG_DATA(c), value, n);
	}
	return show("sendmsg", sendmsg(fd, &m, 0));
}

static void ask_all(int fd)
{
	show("timestamps", set(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1));
	show("destination", v6 ? set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1) : set(fd, IPPROTO_IP, IP_PKTINFO, 1));
	show("class", v6 ? set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1) : set(fd, IPPROTO_IP, IP_RECVTOS, 1));
	show("hops", v6 ? set(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1) : set(fd, IPPROTO_IP, IP_RECVTTL, 1));
}

/* Control messages of a connected socket, which are asked for before it connects, or after it has got a datagram. */
static void connected(bool before)
{
	int fd = udp(), peer = udp(), value = 0x20;
	unsigned char tos = 0x40;
	char b[8];
	if (before)
		ask_all(fd);
	show("connect", aim(fd, port_of(peer)));
	show("connect the peer", aim(peer, port_of(fd)));
	show("send", send(peer, "one", 3, 0));
	struct pollfd p = {.fd = fd, .events = POLLIN};
	show("poll", poll(&p, 1, SOON));
	if (!before) {
		ask_all(fd);
		show("read", read(fd, b, sizeof b)); /* what came before has what it has */
		show("send", send(peer, "two", 3, 0));
	}
	receive(fd, 0, port_of(peer));
	show("class of one datagram", v6 ? send_with(peer, 0, IPPROTO_IPV6, IPV6_TCLASS, &value, sizeof value, 3) : send_with(peer, 0, IPPROTO_IP, IP_TOS, &value, sizeof value, 3));
	receive(fd, 0, port_of(peer));
	if (!v6)
		send_with(peer, 0, IPPROTO_IP, IP_TOS, &tos, sizeof tos, 3);
	value = 7;
	show("hops of one datagram", v6 ? send_with(peer, 0, IPPROTO_IPV6, IPV6_HOPLIMIT, &value, sizeof value, 3) : send_with(peer, 0, IPPROTO_IP, IP_TTL, &value, sizeof value, 3));
	if (!v6)
		receive(fd, 0, port_of(peer));
	receive(fd, 0, port_of(peer));
	show("write", write(peer, "plain", 5));
	show("read", read(fd, b, sizeof b));
	show("write back", write(fd, "back", 4));
	show("recv", recv(peer, b, sizeof b, 0));
	show("send", send(fd, "more", 4, 0));
	show("recv", recv(peer, b, sizeof b, 0));
	struct sockaddr_in none = {.sin_family = AF_UNSPEC};
	show("send", send(peer, "last", 4, 0));
	show("poll", poll(&p, 1, SOON));
	show("disconnect", connect(fd, (struct sockaddr *)&none, sizeof none));
	show("send to nobody", send(fd, "x", 1, 0));
	receive(fd, 0, port_of(peer));
}

/* UDP_SEGMENT as a control message: one call, many datagrams. */
static void segments(void)
{
	int fd = udp(), peer = udp();
	uint16_t size = 1000;
	for (int round = 0; round < 2; round++) {
		send_with(fd, round == 0 ? port_of(peer) : 0, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size, 2500);
		for (int i = 0; i < 3; i++)
			receive(peer, 0, port_of(fd));
		if (round == 0)
			show("connect", aim(fd, port_of(peer)));
	}
	send_with(fd, 0, 0, 0, NULL, 0, 1500);
	receive(peer, 0, port_of(fd));
}

/* A connected socket sends to others by the address of a message, and goes on with its peer. */
static void addressed(void)
{
	int fd = udp(), peer = udp(), third = udp();
	show("connect", aim(fd, port_of(peer)));
	send_with(fd, 0, 0, 0, NULL, 0, 3);
	receive(peer, 0, port_of(fd));
	send_with(fd, port_of(third), 0, 0, NULL, 0, 3);
	receive(third, 0, port_of(fd));
	send_with(fd, 0, 0, 0, NULL, 0, 3);
	receive(peer, 0, port_of(fd));
	socklen_t len;
	struct sockaddr_storage to = at(port_of(third), &len);
	show("sendto", sendto(fd, "xyz", 3, 0, (struct sockaddr *)&to, len));
	receive(third, 0, port_of(fd));
	show("send", send(fd, "uvw", 3, 0));
	receive(peer, 0, port_of(fd));
	int counts[2] = {0};
	char b[8];
	for (int i = 0; i < 40; i++) { /* what is sent before connect(2) goes to the peer of before */
		aim(fd, port_of(i % 2 ? peer : third));
		if (send(fd, i % 2 ? "p" : "t", 1, 0) != 1)
			puts("send fails");
	}
	for (int i = 0; i < 40; i++) {
		struct pollfd p = {.fd = i % 2 ? peer : third, .events = POLLIN};
		counts[i % 2] += poll(&p, 1, SOON) == 1 && recv(p.fd, b, sizeof b, MSG_DONTWAIT) == 1 && b[0] == (i % 2 ? 'p' : 't');
	}
	printf("%d to the peer, %d to the other\n", counts[1], counts[0]);
	send_with(third, port_of(fd), 0, 0, NULL, 0, 3); /* does not come: it is not the peer's */
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	receive(fd, 0, port_of(peer));
}

static int error_of(int fd)
{
	int e = -1;
	socklen_t len = sizeof e;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len);
	return e;
}

static void await_error(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	show("an event", poll(&p, 1, SOON));
	printf("  %#x\n", (unsigned)p.revents);
}

/* IP_RECVERR: what ICMP has reported of a datagram. */
static void errors(bool to_peer)
{
	int fd = udp(), closed = udp(), port = port_of(closed), one = 1;
	char b[8];
	close(closed);
	show("IP_RECVERR", v6 ? setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &one, sizeof one) : setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, sizeof one));
	show("empty", recv(fd, b, sizeof b, MSG_ERRQUEUE));
	if (to_peer)
		show("connect", aim(fd, port));
	send_with(fd, to_peer ? 0 : port, 0, 0, NULL, 0, 5);
	await_error(fd);
	receive(fd, MSG_ERRQUEUE, port);
	struct pollfd left = {.fd = fd, .events = POLLIN};
	show("events left", poll(&left, 1, 0));
	printf("SO_ERROR %d\n", error_of(fd));
	show("recv", recv(fd, b, sizeof b, MSG_DONTWAIT));
	show("empty", recv(fd, b, sizeof b, MSG_ERRQUEUE));
	send_with(fd, to_peer ? 0 : port, 0, 0, NULL, 0, 5);
	await_error(fd);
	show("recv", recv(fd, b, sizeof b, MSG_DONTWAIT));
	show("recv", recv(fd, b, sizeof b, MSG_DONTWAIT));
	receive(fd, MSG_ERRQUEUE, port);
	struct mmsghdr none = {0};
	show("recvmmsg", recvmmsg(fd, &none, 1, MSG_DONTWAIT, NULL));
	int peer = udp();
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	if (!to_peer) {
		receive(fd, 0, port_of(peer));
		send_with(fd, port, 0, 0, NULL, 0, 5);
		await_error(fd);
		printf("SO_ERROR %s\n", strerrorname_np(error_of(fd)));
		send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
		receive(fd, 0, port_of(peer));
	}
}

/* A datagram that no packet takes is the sender's own error. */
static void too_long(void)
{
	static char big[70000];
	int fd = udp(), one = 1, peer = udp();
	show("IP_RECVERR", v6 ? setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &one, sizeof one) : setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, sizeof one));
	show("connect", aim(fd, port_of(peer)));
	show("send", send(fd, big, sizeof big, 0));
}

/* await_times waits until the kernel takes times: it begins some time after the first socket that asks for them. */
static void await_times(void)
{
	int fd = udp(), peer = udp();
	char b[8], control[64];
	if (set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE) != 0 || aim(peer, port_of(fd)) != 0)
		exit(4);
	for (int i = 0; i < SOON; i++) {
		struct iovec part = {b, sizeof b};
		struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
		if (send(peer, "x", 1, 0) == 1 && recvmsg(fd, &m, 0) == 1 && m.msg_controllen != 0)
			return;
		usleep(1000);
	}
}

static void stamping(void)
{
	await_times(); /* its socket stays open */
	int fd = udp(), peer = udp(), value = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
	show("SO_TIMESTAMPING", set(fd, SOL_SOCKET, SO_TIMESTAMPING, value));
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	receive(fd, 0, port_of(peer));
	show("SO_TIMESTAMP", set(fd, SOL_SOCKET, SO_TIMESTAMP, 1));
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	receive(fd, 0, port_of(peer));
	show("SO_TIMESTAMPING", set(fd, SOL_SOCKET, SO_TIMESTAMPING, 0));
	show("connect", aim(fd, port_of(peer)));
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	receive(fd, 0, port_of(peer));
	show("SO_TIMESTAMPING", set(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE)); /* made, and not reported */
	show("SO_TIMESTAMP", set(fd, SOL_SOCKET, SO_TIMESTAMP, 0));
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	receive(fd, 0, port_of(peer));
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(60);
	const char *part = argc == 2 ? argv[1] : "";
	v6 = strstr(part, "-6") != NULL;
	if (strncmp(part, "before", 6) == 0)
		connected(true);
	else if (strncmp(part, "after", 5) == 0)
		connected(false);
	else if (strncmp(part, "addressed", 9) == 0)
		addressed();
	else if (strncmp(part, "segments", 8) == 0)
		segments();
	else if (strncmp(part, "errors-connected", 16) == 0)
		errors(true);
	else if (strncmp(part, "errors", 6) == 0)
		errors(false);
	else if (strncmp(part, "too-long", 8) == 0)
		too_long();
	else if (strncmp(part, "stamping", 8) == 0)
		stamping();
	else
		return 2;
	return 0;
}
