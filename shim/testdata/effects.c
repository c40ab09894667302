/*
 * effects.c - what socket options do: a line for each call. TestOptionsHaveTheirEffect runs it on the kernel's stack and by the library, and
 * compares.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>

#include "datagrams.h"

#ifndef IPV6_RECVORIGDSTADDR
#define IPV6_RECVORIGDSTADDR 74
#endif

static void show_destination(int fd)
{
	char b[100];
	_Alignas(struct cmsghdr) char control[512];
	struct iovec part = {b, sizeof b};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	poll(&p, 1, SOON);
	show("recvmsg", recvmsg(fd, &m, 0));
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c)) {
		struct sockaddr_storage to = {0};
		size_t n = c->cmsg_len - CMSG_LEN(0);
		memcpy(&to, CMSG_DATA(c), n < sizeof to ? n : sizeof to);
		printf("  level %d, type %d, %zu bytes, family %d, %s port, %s\n", c->cmsg_level, c->cmsg_type, n, to.ss_family,
		       ntohs(((struct sockaddr_in *)&to)->sin_port) == port_of(fd) ? "its" : "another",
		       to.ss_family == AF_INET ? text_of(AF_INET, &((struct sockaddr_in *)&to)->sin_addr) : text_of(AF_INET6, &((struct sockaddr_in6 *)&to)->sin6_addr));
	}
}

static void original(void)
{
	int fd = udp(), peer = udp();
	show("original", v6 ? set(fd, IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 1) : set(fd, IPPROTO_IP, IP_RECVORIGDSTADDR, 1));
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	show_destination(fd);
	show("connect", aim(fd, port_of(peer)));
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	show_destination(fd);
	int late = udp(); /* the option comes behind the datagram */
	show("connect", aim(late, port_of(peer)));
	send_with(peer, port_of(late), 0, 0, NULL, 0, 3);
	struct pollfd p = {.fd = late, .events = POLLIN};
	show("poll", poll(&p, 1, SOON));
	show("original", v6 ? set(late, IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 1) : set(late, IPPROTO_IP, IP_RECVORIGDSTADDR, 1));
	show_destination(late);
	show("off", v6 ? set(fd, IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 0) : set(fd, IPPROTO_IP, IP_RECVORIGDSTADDR, 0));
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	show_destination(fd);
}

/* A datagram behind lost ones has their number. */
static void overflow(void)
{
	int fd = udp(), peer = udp(), size = 4608, lost = 0, sent = 0;
	static char data[4000];
	_Alignas(struct cmsghdr) char control[64];
	socklen_t len;
	struct sockaddr_storage to = at(port_of(fd), &len);
	show("small buffer", setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
	show("count", set(fd, SOL_SOCKET, SO_RXQ_OVFL, 1));
	send_with(peer, port_of(fd), 0, 0, NULL, 0, 3);
	receive(fd, 0, port_of(peer)); /* none is lost: no message */
	for (int i = 0; i < 400; i++)
		sent += sendto(peer, data, sizeof data, 0, (struct sockaddr *)&to, len) > 0;
	show("sent", sent);
	int got = 0;
	for (int i = 0; i < 400 && lost == 0; i++) {
		struct iovec part = {data, sizeof data};
		struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
		if (i % 4 == 3)
			sent += sendto(peer, data, sizeof data, 0, (struct sockaddr *)&to, len) > 0;
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (poll(&p, 1, 100) != 1 || recvmsg(fd, &m, 0) < 0)
			continue;
		got++;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL && c->cmsg_len == CMSG_LEN(sizeof lost))
			memcpy(&lost, CMSG_DATA(c), sizeof lost);
	}
	show("some were lost", lost > 0 && lost <= sent - got);
}

/* A listener, and a connection, that take segments of a high TTL only. */
static void min_ttl(void)
{
	socklen_t len;
	struct sockaddr_storage a = at(0, &len);
	int l = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0), family = v6 ? AF_INET6 : AF_INET;
	int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP, least = v6 ? 73 : IP_MINTTL, hops = v6 ? IPV6_UNICAST_HOPS : IP_TTL;
	show("too much", set(l, level, least, 256));
	show("least", set(l, level, least, 200));
	if (bind(l, (struct sockaddr *)&a, len) != 0 || listen(l, 5) != 0)
		exit(4);
	a = at(port_of(l), &len);
	int far = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0), near = socket(family, SOCK_STREAM, 0);
	show("far", connect(far, (struct sockaddr *)&a, len));
	struct pollfd p = {.fd = far, .events = POLLOUT};
	show("no connection", poll(&p, 1, 300));
	show("hops", set(near, level, hops, 210));
	show("near", connect(near, (struct sockaddr *)&a, len));
	int s = accept(l, NULL, NULL);
	char b[10];
	show("send", send(near, "one", 3, 0));
	show("recv", recv(s, b, sizeof b, 0));
	show("fewer hops", set(near, level, hops, 64));
	show("send", send(near, "two", 3, 0));
	p = (struct pollfd){.fd = s, .events = POLLIN};
	show("nothing", poll(&p, 1, 300));
	show("more hops", set(near, level, hops, 255));
	show("it comes", poll(&p, 1, SOON));
	show("recv", recv(s, b, sizeof b, 0));
}

/* A socket that has joined no group gets what comes to those of others, if it wants to. */
static void all_groups(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET}, to = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("239.1.2.3")};
	struct in_addr here = {.s_addr = htonl(INADDR_LOOPBACK)};
	struct ip_mreq group = {to.sin_addr, here};
	int sender = socket(AF_INET, SOCK_DGRAM, 0), member = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
	set(member, SOL_SOCKET, SO_REUSEADDR, 1);
	set(other, SOL_SOCKET, SO_REUSEADDR, 1);
	show("bind", bind(member, (struct sockaddr *)&any, sizeof any));
	any.sin_port = to.sin_port = htons((uint16_t)port_of(member));
	show("bind", bind(other, (struct sockaddr *)&any, sizeof any));
	show("join", setsockopt(member, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
	show("by", setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &here, sizeof here));
	for (int all = 2; all >= 0; all--) {
		char b[10];
		struct pollfd p = {.fd = member, .events = POLLIN}, q = {.fd = other, .events = POLLIN};
		if (all < 2)
			show("all", set(other, IPPROTO_IP, IP_MULTICAST_ALL, all));
		show("send", sendto(sender, "x", 1, 0, (struct sockaddr *)&to, sizeof to));
		show("the member", poll(&p, 1, SOON));
		show("recv", recv(member, b, sizeof b, 0));
		show("the other", poll(&q, 1, all ? SOON : 200));
		recv(other, b, sizeof b, MSG_DONTWAIT);
	}
	show("no such value", set(other, IPPROTO_IP, IP_MULTICAST_ALL, 2));
}

int main(int n, char **args)
{
	const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {{"original", original}, {"overflow", overflow}, {"min-ttl", min_ttl}, {"all-groups", all_groups}};
	setvbuf(stdout, NULL, _IOLBF, 0);
	size_t len = n == 2 ? strlen(args[1]) : 0;
	v6 = len > 2 && strcmp(args[1] + len - 2, "-6") == 0;
	for (size_t i = 0; n == 2 && i < sizeof parts / sizeof *parts; i++)
		if (strncmp(parts[i].name, args[1], len - (v6 ? 2 : 0)) == 0)
			parts[i].run();
	return 0;
}
