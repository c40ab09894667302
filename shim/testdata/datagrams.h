/* datagrams.h - sockets of datagrams of 127.0.0.1 or ::1, and a line for each call and each control message. */
#ifndef MILLRACE_TEST_DATAGRAMS_H
#define MILLRACE_TEST_DATAGRAMS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
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

#define CLOSED 1 /* a port that no socket has: the stack closes a socket some time after close(2) */
#define SOON 20000 /* ms, for what has to happen */

static bool v6;

static inline long show(const char *what, long result)
{
	printf("%s: %ld%s%s\n", what, result < 0 ? -1 : result, result < 0 ? " " : "", result < 0 ? strerrorname_np(errno) : "");
	return result;
}

static inline struct sockaddr_storage at(int port, socklen_t *len)
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

static inline int port_of(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof a;
	if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
		exit(3);
	return ntohs(((struct sockaddr_in *)&a)->sin_port);
}

static inline int udp(void)
{
	socklen_t len;
	struct sockaddr_storage a = at(0, &len);
	int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) != 0)
		exit(2);
	return fd;
}

static inline long aim(int fd, int port)
{
	socklen_t len;
	struct sockaddr_storage a = at(port, &len);
	return connect(fd, (struct sockaddr *)&a, len);
}

static inline long set(int fd, int level, int name, int value) { return setsockopt(fd, level, name, &value, sizeof value); }

static inline const char *text_of(int family, const void *addr)
{
	static char text[INET6_ADDRSTRLEN];
	return inet_ntop(family, addr, text, sizeof text);
}

static inline void show_error(const struct cmsghdr *c)
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

static inline void show_time(const struct cmsghdr *c)
{
	struct timespec t, now;
	memcpy(&t, CMSG_DATA(c), sizeof t);
	clock_gettime(CLOCK_REALTIME, &now);
	printf("  %s, %zu bytes, %s\n", c->cmsg_type == SCM_TIMESTAMPING ? "SCM_TIMESTAMPING" : "time", (size_t)c->cmsg_len - CMSG_LEN(0),
	       t.tv_sec > now.tv_sec - 60 && t.tv_sec <= now.tv_sec ? "now" : "another");
}

static inline void show_control(struct msghdr *m)
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
static inline long receive(int fd, int flags, int sender)
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

static inline long send_with(int fd, int port, int level, int type, const void *value, size_t n, size_t bytes)
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

static inline int error_of(int fd)
{
	int e = -1;
	socklen_t len = sizeof e;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len);
	return e;
}

#endif
