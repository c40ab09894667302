/*
 * interfaces.c - what a program sees of interfaces and addresses, a line each. A test runs it on the kernel's stack and by the library, where
 * both have an interface eth0 with the same addresses.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
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

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	addresses();
	names();
	requests();
	resolves();
	answers("127.0.0.1");
	answers("198.18.0.2");
	return 0;
}
