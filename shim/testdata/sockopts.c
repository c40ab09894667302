/*
 * sockopts.c - socket options: for each option and each kind of socket a line with the result of setsockopt, that of getsockopt and
 * what it has read. A test runs it on the kernel's stack and by the library, and makes docs/shim-sockopts.md of both.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO 104
#endif
#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif
#ifndef TCP_TX_DELAY
#define TCP_TX_DELAY 37
#endif

struct option {
	int level, name, value;
	const char *text;
};

#define S(n, v) {SOL_SOCKET, n, v, #n}
#define I(n, v) {IPPROTO_IP, n, v, #n}
#define X(n, v) {IPPROTO_IPV6, n, v, #n}
#define T(n, v) {IPPROTO_TCP, n, v, #n}
#define U(n, v) {IPPROTO_UDP, n, v, #n}

static const struct option options[] = {
	S(SO_REUSEADDR, 1), S(SO_REUSEPORT, 1), S(SO_BROADCAST, 1), S(SO_KEEPALIVE, 1), S(SO_OOBINLINE, 1), S(SO_DONTROUTE, 1),
	S(SO_SNDBUF, 50000), S(SO_RCVBUF, 50000), S(SO_RCVLOWAT, 1), S(SO_PRIORITY, 3), S(SO_TIMESTAMP, 1), S(SO_TIMESTAMPNS, 1),
	S(SO_TIMESTAMPING, 0x18),
	S(SO_NO_CHECK, 1), S(SO_BUSY_POLL, 0), S(SO_MAX_PACING_RATE, 1000000), S(SO_INCOMING_CPU, 0), S(SO_RXQ_OVFL, 1),
	S(SO_SELECT_ERR_QUEUE, 1), S(SO_LOCK_FILTER, 0), S(SO_ZEROCOPY, 1), S(SO_TYPE, -1), S(SO_ERROR, -1), S(SO_ACCEPTCONN, -1),
	S(SO_DOMAIN, -1), S(SO_PROTOCOL, -1),
	I(IP_TOS, 16), I(IP_TTL, 33), I(IP_RECVTTL, 1), I(IP_RECVTOS, 1), I(IP_PKTINFO, 1), I(IP_MTU_DISCOVER, 2), I(IP_MTU, -1),
	I(IP_RECVERR, 1), I(IP_FREEBIND, 1), I(IP_BIND_ADDRESS_NO_PORT, 1), I(IP_LOCAL_PORT_RANGE, 0xc358c350u), I(IP_MULTICAST_TTL, 3),
	I(IP_MULTICAST_LOOP, 0), I(IP_MULTICAST_ALL, 0), I(IP_RECVORIGDSTADDR, 1), I(IP_MINTTL, 5), I(IP_RECVOPTS, 1),
	X(IPV6_V6ONLY, 1), X(IPV6_TCLASS, 16), X(IPV6_UNICAST_HOPS, 33), X(IPV6_RECVPKTINFO, 1), X(IPV6_RECVHOPLIMIT, 1),
	X(IPV6_RECVTCLASS, 1), X(IPV6_MTU_DISCOVER, 2), X(IPV6_MTU, 1280), X(IPV6_DONTFRAG, 1), X(IPV6_RECVERR, 1),
	X(IPV6_MULTICAST_HOPS, 3), X(IPV6_MULTICAST_LOOP, 0), X(IPV6_MULTICAST_IF, 0), X(IPV6_MULTICAST_ALL, 0), X(IPV6_FREEBIND, 1),
	X(IPV6_AUTOFLOWLABEL, 1), X(IPV6_MINHOPCOUNT, 5),
	T(TCP_NODELAY, 1), T(TCP_CORK, 1), T(TCP_MAXSEG, 1000), T(TCP_KEEPIDLE, 60), T(TCP_KEEPINTVL, 10), T(TCP_KEEPCNT, 3),
	T(TCP_SYNCNT, 3), T(TCP_LINGER2, 10), T(TCP_DEFER_ACCEPT, 5), T(TCP_WINDOW_CLAMP, 100000), T(TCP_QUICKACK, 1),
	T(TCP_USER_TIMEOUT, 5000), T(TCP_FASTOPEN, 5), T(TCP_FASTOPEN_CONNECT, 1), T(TCP_NOTSENT_LOWAT, 16384), T(TCP_THIN_LINEAR_TIMEOUTS, 1),
	T(TCP_SAVE_SYN, 1), T(TCP_INQ, 1), T(TCP_TX_DELAY, 0), T(TCP_INFO, -1), T(TCP_CONGESTION, -1), T(TCP_ULP, -1),
	U(UDP_CORK, 0), U(UDP_SEGMENT, 1200), U(UDP_GRO, 1), U(UDP_NO_CHECK6_TX, 1), U(UDP_NO_CHECK6_RX, 1),
};

static void try_option(const char *kind, int family, int type, const struct option *o)
{
	int value = o->value, got = 0;
	char b[512];
	socklen_t len = sizeof b;
	int fd = socket(family, type, 0);
	printf("%s %s ", o->text, kind);
	if (o->value == -1)
		printf("-");
	else
		printf("%s", setsockopt(fd, o->level, o->name, &value, sizeof value) == 0 ? "yes" : strerrorname_np(errno));
	if (getsockopt(fd, o->level, o->name, b, &len) != 0)
		printf(" %s\n", strerrorname_np(errno));
	else if (len == sizeof got)
		printf(" %d\n", *(int *)memcpy(&got, b, sizeof got));
	else
		printf(" bytes\n");
	close(fd);
}

/* Memberships, whose values are structures. */
static void try_groups(void)
{
	struct ip_mreqn four = {.imr_multiaddr.s_addr = inet_addr("239.1.2.3")};
	struct ip_mreq_source source = {.imr_multiaddr = four.imr_multiaddr, .imr_sourceaddr.s_addr = inet_addr("198.18.0.9")};
	struct in_addr none = {0};
	struct group_req group = {0};
	struct group_source_req from = {0};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = four.imr_multiaddr}, sender = {.sin_family = AF_INET, .sin_addr = source.imr_sourceaddr};
	memcpy(&group.gr_group, &in, sizeof in);
	memcpy(&from.gsr_group, &in, sizeof in);
	memcpy(&from.gsr_source, &sender, sizeof sender);
	const struct {
		int name;
		const char *text;
		const void *value;
		socklen_t len;
	} steps[] = {
#define G(n, v) {n, #n, &v, sizeof v}
		G(IP_MULTICAST_IF, none), G(IP_ADD_MEMBERSHIP, four), G(IP_ADD_MEMBERSHIP, four), G(IP_BLOCK_SOURCE, source),
		G(IP_BLOCK_SOURCE, source), G(IP_UNBLOCK_SOURCE, source), G(IP_UNBLOCK_SOURCE, source), G(IP_ADD_SOURCE_MEMBERSHIP, source),
		G(IP_DROP_MEMBERSHIP, four), G(IP_DROP_MEMBERSHIP, four), G(IP_ADD_SOURCE_MEMBERSHIP, source),
		G(IP_ADD_SOURCE_MEMBERSHIP, source), G(IP_BLOCK_SOURCE, source), G(IP_DROP_SOURCE_MEMBERSHIP, source),
		G(IP_DROP_SOURCE_MEMBERSHIP, source), G(MCAST_JOIN_GROUP, group), G(MCAST_JOIN_GROUP, group), G(MCAST_BLOCK_SOURCE, from),
		G(MCAST_UNBLOCK_SOURCE, from), G(MCAST_LEAVE_GROUP, group), G(MCAST_LEAVE_GROUP, group), G(MCAST_JOIN_SOURCE_GROUP, from),
		G(MCAST_JOIN_SOURCE_GROUP, from), G(MCAST_LEAVE_SOURCE_GROUP, from), G(MCAST_LEAVE_SOURCE_GROUP, from),
	};
	for (int bound = 0; bound < 2; bound++) {
		struct sockaddr_in any = {.sin_family = AF_INET};
		int fd = socket(AF_INET, SOCK_DGRAM, 0);
		if (bound)
			bind(fd, (struct sockaddr *)&any, sizeof any);
		for (unsigned i = 0; i < sizeof steps / sizeof steps[0]; i++)
			printf("step%u/%s udp4%s %s -\n", i, steps[i].text, bound ? "-bound" : "", setsockopt(fd, IPPROTO_IP, steps[i].name, steps[i].value, steps[i].len) == 0 ? "yes" : strerrorname_np(errno));
		close(fd);
	}
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (unsigned i = 0; i < sizeof options / sizeof options[0]; i++) {
		try_option("tcp4", AF_INET, SOCK_STREAM, &options[i]);
		try_option("tcp6", AF_INET6, SOCK_STREAM, &options[i]);
		try_option("udp4", AF_INET, SOCK_DGRAM, &options[i]);
		try_option("udp6", AF_INET6, SOCK_DGRAM, &options[i]);
	}
	try_groups();
	return 0;
}
