/*
 * sockopts.c - socket options: for each option and each kind of socket a line with the result of setsockopt, that of getsockopt and
 * what it has read. A test runs it on the kernel's stack and by the library, and makes docs/shim-sockopts.md of both.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/filter.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Names that older headers do not have, and those of linux/in.h, in6.h and tcp.h that libc's do not. */
#include "sockoptnames.h"

/* The value is an int, or where len is not 0 a structure. -1 is that setsockopt is not called. */
struct option {
	int level, name, value;
	const char *text;
	const void *of;
	socklen_t len;
};

#define S(n, v) {SOL_SOCKET, n, v, #n, 0, 0}
#define I(n, v) {IPPROTO_IP, n, v, #n, 0, 0}
#define X(n, v) {IPPROTO_IPV6, n, v, #n, 0, 0}
#define T(n, v) {IPPROTO_TCP, n, v, #n, 0, 0}
#define U(n, v) {IPPROTO_UDP, n, v, #n, 0, 0}
#define O(level, n, v) {level, n, 0, #n, &v, sizeof v}

static const struct linger lingers = {1, 5};
static const struct timeval limit = {1, 0};
static const struct sock_filter all = {6, 0, 0, 0xffff}; /* BPF_RET */
static const struct sock_fprog filter = {1, (struct sock_filter *)&all};
static const char nothing[] = "";
static const struct in_addr none = {0};
static const struct sock_txtime txtime = {CLOCK_MONOTONIC, 0};
static const struct in6_pktinfo pktinfo = {0};
static const struct ipv6_mreq anycast = {0};

#define GROUP 0x030201ef /* 239.1.2.3 */
#define SOURCE 0x090012c6 /* 198.18.0.9 */
static const struct ip_mreqn group4 = {{GROUP}, {0}, 0};
static const struct ip_mreq_source source4 = {{GROUP}, {0}, {SOURCE}};
static const struct ipv6_mreq group6 = {{{{0xff, 0x02, [15] = 0x77}}}, 0};
static struct group_req request4;
static struct group_source_req sources4;

/* make_groups fills structures whose addresses have no constants. */
static void make_groups(void)
{
	struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr.s_addr = GROUP}, source = {.sin_family = AF_INET, .sin_addr.s_addr = SOURCE};
	memcpy(&request4.gr_group, &group, sizeof group);
	memcpy(&sources4.gsr_group, &group, sizeof group);
	memcpy(&sources4.gsr_source, &source, sizeof source);
}

static const struct option options[] = {
	O(IPPROTO_IP, IP_ADD_MEMBERSHIP, group4), O(IPPROTO_IP, IP_DROP_MEMBERSHIP, group4), O(IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, source4),
	O(IPPROTO_IP, IP_DROP_SOURCE_MEMBERSHIP, source4), O(IPPROTO_IP, IP_BLOCK_SOURCE, source4), O(IPPROTO_IP, IP_UNBLOCK_SOURCE, source4),
	O(IPPROTO_IP, MCAST_JOIN_GROUP, request4), O(IPPROTO_IP, MCAST_LEAVE_GROUP, request4), O(IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP, sources4),
	O(IPPROTO_IP, MCAST_LEAVE_SOURCE_GROUP, sources4), O(IPPROTO_IP, MCAST_BLOCK_SOURCE, sources4), O(IPPROTO_IP, MCAST_UNBLOCK_SOURCE, sources4),
	O(IPPROTO_IPV6, IPV6_LEAVE_GROUP, group6),
	I(MCAST_MSFILTER, -1), I(IP_IPSEC_POLICY, -1), I(IP_XFRM_POLICY, -1), X(IPV6_IPSEC_POLICY, -1), X(IPV6_XFRM_POLICY, -1), X(IPV6_CHECKSUM, 0),
	X(IPV6_NEXTHOP, -1), X(IPV6_AUTHHDR, -1), X(IPV6_USE_MIN_MTU, -1), O(IPPROTO_IPV6, IPV6_LEAVE_ANYCAST, anycast), S(SO_BSDCOMPAT, 1),
	S(SO_DEBUG, 0), S(SO_REUSEADDR, 1), S(SO_REUSEPORT, 1), S(SO_BROADCAST, 1), S(SO_KEEPALIVE, 1), S(SO_OOBINLINE, 1), S(SO_DONTROUTE, 1),
	S(SO_SNDBUF, 50000), S(SO_RCVBUF, 50000), S(SO_RCVLOWAT, 1), S(SO_SNDLOWAT, 1), S(SO_PRIORITY, 3), S(SO_TIMESTAMP, 1), S(SO_TIMESTAMPNS, 1),
	S(SO_TIMESTAMPING, 0x18), S(SO_TIMESTAMP_NEW, 1), S(SO_TIMESTAMPNS_NEW, 1), S(SO_TIMESTAMPING_NEW, 0x18),
	S(SO_NO_CHECK, 1), S(SO_BUSY_POLL, 0), S(SO_PREFER_BUSY_POLL, 0), S(SO_BUSY_POLL_BUDGET, 8), S(SO_MAX_PACING_RATE, 1000000),
	S(SO_INCOMING_CPU, 0), S(SO_INCOMING_NAPI_ID, -1), S(SO_RXQ_OVFL, 1), S(SO_SELECT_ERR_QUEUE, 1), S(SO_LOCK_FILTER, 0), S(SO_ZEROCOPY, 1),
	S(SO_TYPE, -1), S(SO_ERROR, -1), S(SO_ACCEPTCONN, -1), S(SO_DOMAIN, -1), S(SO_PROTOCOL, -1), S(SO_COOKIE, -1), S(SO_NETNS_COOKIE, -1),
	S(SO_MEMINFO, -1), S(SO_PEERNAME, -1), S(SO_PEERCRED, -1), S(SO_PEERSEC, -1), S(SO_PEERGROUPS, -1), S(SO_PASSCRED, 1), S(SO_PASSSEC, 1),
	S(SO_MARK, 0), S(SO_RCVMARK, 1), S(SO_PEEK_OFF, 0), S(SO_NOFCS, 1), S(SO_WIFI_STATUS, 1), S(SO_BPF_EXTENSIONS, -1), S(SO_CNX_ADVICE, 1),
	S(SO_BUF_LOCK, 0), S(SO_RESERVE_MEM, 0), S(SO_TXREHASH, 1), S(SO_BINDTOIFINDEX, 0), S(SO_SNDBUFFORCE, 50000), S(SO_RCVBUFFORCE, 50000),
	S(SO_ATTACH_BPF, 0), S(SO_ATTACH_REUSEPORT_EBPF, 0), S(SO_DETACH_FILTER, 0), S(SO_DETACH_REUSEPORT_BPF, 0),
	O(SOL_SOCKET, SO_LINGER, lingers), O(SOL_SOCKET, SO_RCVTIMEO, limit), O(SOL_SOCKET, SO_SNDTIMEO, limit), O(SOL_SOCKET, SO_TXTIME, txtime),
	O(SOL_SOCKET, SO_ATTACH_FILTER, filter), O(SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, filter), O(SOL_SOCKET, SO_BINDTODEVICE, nothing),
	I(IP_TOS, 16), I(IP_TTL, 33), I(IP_HDRINCL, 1), I(IP_ROUTER_ALERT, 1), I(IP_RECVTTL, 1), I(IP_RECVTOS, 1), I(IP_PKTINFO, 1), I(IP_MTU_DISCOVER, 2),
	I(IP_MTU, -1), I(IP_RECVERR, 1), I(IP_RECVERR_RFC4884, 1), I(IP_FREEBIND, 1), I(IP_TRANSPARENT, 0), I(IP_BIND_ADDRESS_NO_PORT, 1),
	I(IP_LOCAL_PORT_RANGE, 0xc358c350u), I(IP_MULTICAST_TTL, 3), I(IP_MULTICAST_LOOP, 0), I(IP_MULTICAST_ALL, 0), O(IPPROTO_IP, IP_MULTICAST_IF, none),
	I(IP_UNICAST_IF, 0), I(IP_RECVORIGDSTADDR, 1), I(IP_MINTTL, 5), I(IP_NODEFRAG, 1), I(IP_CHECKSUM, 1), I(IP_RECVFRAGSIZE, 1), I(IP_PASSSEC, 1),
	I(IP_RECVOPTS, 1), I(IP_RETOPTS, 1), I(IP_OPTIONS, -1), I(IP_PKTOPTIONS, -1), I(IP_PROTOCOL, -1), I(IP_MSFILTER, -1),
	X(IPV6_V6ONLY, 1), X(IPV6_TCLASS, 16), X(IPV6_UNICAST_HOPS, 33), X(IPV6_RECVPKTINFO, 1), X(IPV6_RECVHOPLIMIT, 1),
	X(IPV6_RECVTCLASS, 1), X(IPV6_MTU_DISCOVER, 2), X(IPV6_MTU, 1280), X(IPV6_DONTFRAG, 1), X(IPV6_RECVERR, 1), X(IPV6_RECVERR_RFC4884, 1),
	X(IPV6_MULTICAST_HOPS, 3), X(IPV6_MULTICAST_LOOP, 0), X(IPV6_MULTICAST_IF, 0), X(IPV6_MULTICAST_ALL, 0), X(IPV6_FREEBIND, 1), X(IPV6_TRANSPARENT, 0),
	X(IPV6_AUTOFLOWLABEL, 1), X(IPV6_MINHOPCOUNT, 5), X(IPV6_UNICAST_IF, 0), X(IPV6_RECVORIGDSTADDR, 1), X(IPV6_RECVFRAGSIZE, 1),
	X(IPV6_RECVHOPOPTS, 1), X(IPV6_RECVRTHDR, 1), X(IPV6_RECVDSTOPTS, 1), X(IPV6_RECVPATHMTU, 1), X(IPV6_PATHMTU, -1), X(IPV6_ADDR_PREFERENCES, 2),
	X(IPV6_FLOWINFO, 1), X(IPV6_FLOWINFO_SEND, 1), X(IPV6_FLOWLABEL_MGR, -1), X(IPV6_ROUTER_ALERT, 1), X(IPV6_ROUTER_ALERT_ISOLATE, 1), X(IPV6_HDRINCL, 1),
	X(IPV6_ADDRFORM, AF_INET), X(IPV6_2292PKTINFO, 1), X(IPV6_2292HOPLIMIT, 1), X(IPV6_2292HOPOPTS, 1), X(IPV6_2292RTHDR, 1), X(IPV6_2292DSTOPTS, 1),
	X(IPV6_2292PKTOPTIONS, -1), O(IPPROTO_IPV6, IPV6_PKTINFO, pktinfo), X(IPV6_HOPLIMIT, -1), O(IPPROTO_IPV6, IPV6_HOPOPTS, nothing),
	O(IPPROTO_IPV6, IPV6_RTHDR, nothing), O(IPPROTO_IPV6, IPV6_RTHDRDSTOPTS, nothing), O(IPPROTO_IPV6, IPV6_DSTOPTS, nothing),
	O(IPPROTO_IPV6, IPV6_JOIN_ANYCAST, anycast),
	T(TCP_NODELAY, 1), T(TCP_CORK, 1), T(TCP_MAXSEG, 1000), T(TCP_KEEPIDLE, 60), T(TCP_KEEPINTVL, 10), T(TCP_KEEPCNT, 3),
	T(TCP_SYNCNT, 3), T(TCP_LINGER2, 10), T(TCP_DEFER_ACCEPT, 5), T(TCP_WINDOW_CLAMP, 100000), T(TCP_QUICKACK, 1),
	T(TCP_USER_TIMEOUT, 5000), T(TCP_FASTOPEN, 5), T(TCP_FASTOPEN_CONNECT, 1), T(TCP_FASTOPEN_KEY, -1), T(TCP_FASTOPEN_NO_COOKIE, 1),
	T(TCP_NOTSENT_LOWAT, 16384), T(TCP_THIN_LINEAR_TIMEOUTS, 1), T(TCP_THIN_DUPACK, 1), T(TCP_SAVE_SYN, 1), T(TCP_SAVED_SYN, -1), T(TCP_INQ, 1),
	T(TCP_TX_DELAY, 0), T(TCP_INFO, -1), T(TCP_CC_INFO, -1), T(TCP_CONGESTION, -1), T(TCP_ULP, -1), T(TCP_IS_MPTCP, -1), 
	T(TCP_REPAIR, 0), T(TCP_REPAIR_QUEUE, -1), T(TCP_QUEUE_SEQ, -1), T(TCP_REPAIR_OPTIONS, -1), T(TCP_REPAIR_WINDOW, -1), T(TCP_MD5SIG, -1),
	T(TCP_MD5SIG_EXT, -1), T(TCP_AO_INFO, -1), T(TCP_AO_GET_KEYS, -1), T(TCP_AO_REPAIR, -1), T(TCP_ZEROCOPY_RECEIVE, -1), T(TCP_COOKIE_TRANSACTIONS, -1),
	U(UDP_CORK, 0), U(UDP_SEGMENT, 1200), U(UDP_GRO, 1), U(UDP_NO_CHECK6_TX, 1), U(UDP_NO_CHECK6_RX, 1), U(UDP_ENCAP, 0),
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
		printf("%s", setsockopt(fd, o->level, o->name, o->len ? o->of : &value, o->len ? o->len : sizeof value) == 0 ? "yes" : strerrorname_np(errno));
	if (getsockopt(fd, o->level, o->name, b, &len) != 0)
		printf(" %s\n", strerrorname_np(errno));
	else if (len == 0)
		printf(" empty\n");
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
	make_groups();
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
