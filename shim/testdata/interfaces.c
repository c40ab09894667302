/*
 * interfaces.c - what a program sees of interfaces and addresses, a line each. A test runs it on the kernel's stack and by the library, where
 * both have an interface eth0 with the same addresses.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define SEEN (IFF_UP | IFF_BROADCAST | IFF_LOOPBACK | IFF_RUNNING | IFF_MULTICAST)

static const char *text(const struct sockaddr *a)
{
	static char ip[4][INET6_ADDRSTRLEN];
	static int next;
	char *to = ip[next++ % 4];
	if (a == NULL)
		return "-";
	if (a->sa_family == AF_INET)
		return inet_ntop(AF_INET, &((const struct sockaddr_in *)a)->sin_addr, to, INET6_ADDRSTRLEN);
	if (a->sa_family == AF_INET6)
		return inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)a)->sin6_addr, to, INET6_ADDRSTRLEN);
	snprintf(to, INET6_ADDRSTRLEN, "link of type %d", ((const struct sockaddr_ll *)a)->sll_hatype);
	return to;
}

static bool link_local(const struct sockaddr *a)
{
	return a != NULL && a->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static void addresses(void)
{
	struct ifaddrs *list;
	if (getifaddrs(&list) != 0) {
		printf("getifaddrs: %s\n", strerrorname_np(errno));
		return;
	}
	for (struct ifaddrs *a = list; a != NULL; a = a->ifa_next)
		if (!link_local(a->ifa_addr))
			printf("%s %x %s mask %s other %s\n", a->ifa_name, a->ifa_flags & SEEN, text(a->ifa_addr), text(a->ifa_netmask),
			       a->ifa_addr->sa_family == AF_PACKET ? "-" : text(a->ifa_broadaddr));
	freeifaddrs(list);
}

static void names(void)
{
	char name[IF_NAMESIZE] = "";
	struct if_nameindex *list = if_nameindex();
	for (struct if_nameindex *i = list; i != NULL && i->if_index != 0; i++)
		printf("interface %s, by name %d, by index %s\n", i->if_name, if_nametoindex(i->if_name) == i->if_index, if_indextoname(i->if_index, name));
	if_freenameindex(list);
	errno = 0;
	printf("lo is %u, none is %u %s\n", if_nametoindex("lo"), if_nametoindex("none"), strerrorname_np(errno));
	printf("index 9999 %s", if_indextoname(9999, name) == NULL ? "is none" : "is one");
	printf(" %s\n", strerrorname_np(errno));
}

static void request(int fd, const char *what, unsigned long number, const char *name)
{
	struct ifreq q = {0};
	snprintf(q.ifr_name, sizeof q.ifr_name, "%s", name);
	int result = ioctl(fd, number, &q);
	printf("%s of %s: %d", what, name, result);
	if (result != 0)
		printf(" %s\n", strerrorname_np(errno));
	else if (number == SIOCGIFFLAGS)
		printf(" %x\n", q.ifr_flags & SEEN);
	else if (number == SIOCGIFMTU)
		printf(" %d\n", q.ifr_mtu);
	else if (number == SIOCGIFHWADDR)
		printf(" type %d\n", q.ifr_hwaddr.sa_family);
	else if (number == SIOCGIFINDEX)
		printf(" %d\n", q.ifr_ifindex == (int)if_nametoindex(name));
	else
		printf(" %s\n", text(&q.ifr_addr));
}

static void requests(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct ifreq q[16];
	struct ifconf c = {.ifc_len = sizeof q, .ifc_req = q};
	static const char *const of[] = {"lo", "eth0", "none"};
	int result = ioctl(fd, SIOCGIFCONF, &c);
	printf("SIOCGIFCONF: %d\n", result);
	for (int i = 0; i < c.ifc_len / (int)sizeof q[0]; i++)
		printf("has %s %s\n", q[i].ifr_name, text(&q[i].ifr_addr));
	c.ifc_len = (int)sizeof q[0];
	result = ioctl(fd, SIOCGIFCONF, &c);
	printf("SIOCGIFCONF with space for one: %d %d\n", result, c.ifc_len / (int)sizeof q[0]);
	c.ifc_req = NULL;
	c.ifc_len = 0;
	result = ioctl(fd, SIOCGIFCONF, &c);
	printf("SIOCGIFCONF without space: %d %d\n", result, c.ifc_len / (int)sizeof q[0]);
	for (int i = 0; i < 3; i++) {
		request(fd, "SIOCGIFFLAGS", SIOCGIFFLAGS, of[i]);
		request(fd, "SIOCGIFADDR", SIOCGIFADDR, of[i]);
		request(fd, "SIOCGIFNETMASK", SIOCGIFNETMASK, of[i]);
		request(fd, "SIOCGIFBRDADDR", SIOCGIFBRDADDR, of[i]);
		request(fd, "SIOCGIFHWADDR", SIOCGIFHWADDR, of[i]);
		request(fd, "SIOCGIFMTU", SIOCGIFMTU, of[i]);
		request(fd, "SIOCGIFINDEX", SIOCGIFINDEX, of[i]);
	}
	close(fd);
}

static void resolve(const char *host, int family, int flags)
{
	struct addrinfo hints = {.ai_family = family, .ai_flags = flags, .ai_socktype = SOCK_STREAM}, *list = NULL;
	int result = getaddrinfo(host, "80", &hints, &list);
	printf("getaddrinfo %s family %d flags %x: %d", host != NULL ? host : "NULL", family, flags, result);
	for (struct addrinfo *a = list; a != NULL; a = a->ai_next)
		printf(" %s", text(a->ai_addr));
	printf("\n");
	if (list != NULL)
		freeaddrinfo(list);
}

static void resolves(void)
{
	static const char *const hosts[] = {NULL, "198.18.0.1", "2001:db8::1", "127.0.0.1", "::1"};
	static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6}, flags[] = {0, AI_ADDRCONFIG, AI_ADDRCONFIG | AI_PASSIVE};
	for (int h = 0; h < 5; h++)
		for (int f = 0; f < 3; f++)
			for (int l = 0; l < 3; l++)
				resolve(hosts[h], families[f], flags[l]);
}

/* A server answers by the control message of what it got. */
static void answers(const char *ip)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof at;
	int one = 1, server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
	struct timeval limit = {5, 0};
	bind(server, (struct sockaddr *)&at, sizeof at);
	getsockname(server, (struct sockaddr *)&at, &len);
	setsockopt(server, IPPROTO_IP, IP_PKTINFO, &one, sizeof one);
	setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	inet_pton(AF_INET, ip, &at.sin_addr);
	sendto(client, "question", 8, 0, (struct sockaddr *)&at, sizeof at);
	char b[64], control[256];
	struct sockaddr_in from;
	struct iovec part = {b, sizeof b};
	struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	ssize_t n = recvmsg(server, &m, 0);
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	printf("to %s: %zd", ip, n);
	if (n > 0 && c != NULL && c->cmsg_type == IP_PKTINFO) {
		struct in_pktinfo info;
		char name[IF_NAMESIZE];
		memcpy(&info, CMSG_DATA(c), sizeof info);
		struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = info.ipi_addr};
		printf(" by %s to %s", if_indextoname((unsigned)info.ipi_ifindex, name) != NULL ? name : "no interface", text((struct sockaddr *)&to));
	}
	part.iov_len = 6;
	memcpy(b, "answer", 6);
	printf(", answer %zd", sendmsg(server, &m, 0));
	printf(", which is got %zd\n", recv(client, b, sizeof b, 0));
	close(server);
	close(client);
}

/* show_attributes prints those of a message that both stacks have, in the order of their types. */
static void show_attributes(const struct rtattr *first, int len, bool link)
{
	static const int links[] = {IFLA_IFNAME, IFLA_MTU}, addrs[] = {IFA_ADDRESS, IFA_LOCAL, IFA_BROADCAST, IFA_LABEL};
	const int *want = link ? links : addrs;
	for (size_t i = 0; i < (link ? sizeof links : sizeof addrs) / sizeof *want; i++)
		for (const struct rtattr *a = first; RTA_OK(a, len - ((const char *)a - (const char *)first)); a = RTA_NEXT(a, (int){0})) {
			const unsigned char *b = RTA_DATA(a);
			if (a->rta_type != want[i])
				continue;
			printf(" %d:", a->rta_type);
			if (link ? a->rta_type == IFLA_IFNAME : a->rta_type == IFA_LABEL)
				printf("%s", (const char *)b);
			else
				for (size_t n = 0; n < RTA_PAYLOAD(a); n++)
					printf("%02x", b[n]);
		}
	printf("\n");
}

static void show_message(const struct nlmsghdr *h, unsigned seq, unsigned port)
{
	const struct ifinfomsg *link = NLMSG_DATA(h);
	const struct ifaddrmsg *addr = NLMSG_DATA(h);
	char name[IF_NAMESIZE] = "";
	if (h->nlmsg_seq != seq || h->nlmsg_pid != port || (h->nlmsg_flags & NLM_F_MULTI) == 0)
		printf("  a message of another dump\n");
	if (h->nlmsg_type == RTM_NEWLINK) {
		printf("  link %s type %d %x", if_indextoname((unsigned)link->ifi_index, name), link->ifi_type, link->ifi_flags & SEEN);
		show_attributes(IFLA_RTA(link), (int)IFLA_PAYLOAD(h), true);
	} else if (h->nlmsg_type == RTM_NEWADDR && addr->ifa_scope != RT_SCOPE_LINK) {
		printf("  address of %s family %d/%d scope %d", if_indextoname(addr->ifa_index, name), addr->ifa_family, addr->ifa_prefixlen, addr->ifa_scope);
		show_attributes(IFA_RTA(addr), (int)IFA_PAYLOAD(h), false);
	}
}

/* dump prints what a dump of rtnetlink(7) has. how is by which calls. */
static void dump(int type, int family, int how)
{
	static unsigned seq;
	static char b[65536];
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK}, self, from;
	socklen_t len = sizeof self;
	struct {
		struct nlmsghdr head;
		struct rtgenmsg body;
		char pad[3];
	} q = {.head = {.nlmsg_len = NLMSG_LENGTH(1), .nlmsg_type = (unsigned short)type, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP, .nlmsg_seq = ++seq},
	       .body = {(unsigned char)family}, .pad = {0}};
	struct iovec out = {&q, sizeof q}, in = {b, sizeof b};
	struct msghdr to = {.msg_name = &kernel, .msg_namelen = sizeof kernel, .msg_iov = &out, .msg_iovlen = 1};
	struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &in, .msg_iovlen = 1};
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	printf("dump %d of family %d\n", type, family);
	if (fd < 0 || bind(fd, (struct sockaddr *)&kernel, sizeof kernel) != 0 || getsockname(fd, (struct sockaddr *)&self, &len) != 0)
		exit(3);
	ssize_t n = how == 0 ? sendmsg(fd, &to, 0) : how == 1 ? sendto(fd, &q, sizeof q, 0, (struct sockaddr *)&kernel, sizeof kernel) : write(fd, &q, sizeof q);
	if (n != sizeof q)
		printf("  sent: %zd %s\n", n, strerrorname_np(errno));
	for (bool done = false; !done;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (poll(&p, 1, 20000) != 1)
			exit(4);
		ssize_t most = recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC);
		len = sizeof from;
		memset(&from, 0xff, sizeof from);
		n = how == 0 ? recvmsg(fd, &m, 0) : how == 1 ? recvfrom(fd, b, sizeof b, 0, (struct sockaddr *)&from, &len) : read(fd, b, sizeof b);
		if (n != most || (how != 2 && (from.nl_family != AF_NETLINK || from.nl_pid != 0)))
			printf("  received: %zd, and %zd before\n", n, most);
		if (n <= 0)
			break;
		int left = (int)n;
		for (struct nlmsghdr *h = (struct nlmsghdr *)b; NLMSG_OK(h, left) && !done; h = NLMSG_NEXT(h, left)) {
			done = h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR;
			if (h->nlmsg_type == NLMSG_ERROR)
				printf("  error\n");
			show_message(h, seq, self.nl_pid);
		}
	}
	printf("  behind: %zd\n", recv(fd, b, sizeof b, MSG_DONTWAIT));
	close(fd);
}

static void dumps(void)
{
	for (int how = 0; how < 3; how++) {
		dump(RTM_GETLINK, AF_UNSPEC, how);
		dump(RTM_GETADDR, AF_UNSPEC, how);
		dump(RTM_GETADDR, AF_INET, how);
		dump(RTM_GETADDR, AF_INET6, how);
	}
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	addresses();
	names();
	requests();
	dumps();
	resolves();
	answers("127.0.0.1");
	answers("198.18.0.2");
	return 0;
}
