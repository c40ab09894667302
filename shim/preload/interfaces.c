/*
 * interfaces.c - getifaddrs, the names and indexes of interfaces, and the requests of netdevice(7): programs choose addresses to
 * listen at by them, which are to be those of the stack. --kernel-interfaces leaves them to libc.
 */

#include "interfaces.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#define MOST 4096 /* entries: a node has fewer */

bool interfaces_of_stack(void)
{
	return active() && !settings()->kernel_interfaces;
}

struct shim_interface *fetch_interfaces(size_t *n)
{
	struct shim_interface *all = NULL;
	struct shim_reply reply;
	for (*n = 0; *n < MOST; *n += reply.len / sizeof *all) {
		struct shim_request q = {.op = SHIM_INTERFACES, .arg = (int32_t)*n};
		if (ask(&q, -1, &reply) != 0 || reply.len > sizeof reply.value)
			break;
		if (reply.len < sizeof *all)
			return all;
		struct shim_interface *more = realloc(all, *n * sizeof *all + reply.len);
		if (more == NULL)
			break;
		all = more;
		memcpy(all + *n, reply.value, reply.len);
	}
	free(all);
	return NULL;
}

static void set_address(struct sockaddr_storage *to, int family, const uint8_t *ip, uint32_t scope)
{
	struct sockaddr_in *in = (struct sockaddr_in *)to;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)to;
	memset(to, 0, sizeof *to);
	to->ss_family = (sa_family_t)family;
	if (family == AF_INET)
		memcpy(&in->sin_addr, ip, sizeof in->sin_addr);
	else
		memcpy(&in6->sin6_addr, ip, sizeof in6->sin6_addr);
	if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
		in6->sin6_scope_id = scope;
}

/* mask_of makes the bits of a prefix's length. */
static void mask_of(uint32_t prefix, uint8_t mask[16])
{
	for (uint32_t i = 0; i < 16; i++) {
		uint32_t bits = prefix > 8 * i ? prefix - 8 * i : 0;
		mask[i] = (uint8_t)(bits >= 8 ? 0xff : 0xff << (8 - bits));
	}
}

bool broadcast_of(const struct shim_interface *e, uint8_t ip[16])
{
	uint8_t mask[16];
	mask_of(e->prefix, mask);
	for (int i = 0; i < 4; i++)
		ip[i] = (uint8_t)(e->addr.ip[i] | ~mask[i]);
	return e->addr.family == AF_INET && (e->flags & IFF_BROADCAST) != 0 && e->prefix < 31;
}

/* One entry of the list, in one piece with all others: freeifaddrs(3) of libc is free(3) of the first. */
struct entry {
	struct ifaddrs head;
	struct sockaddr_storage address, mask, broadcast;
	char name[IFNAMSIZ];
};

static void fill_link(struct entry *to, const struct shim_interface *e)
{
	struct sockaddr_ll *link = (struct sockaddr_ll *)&to->address, *all = (struct sockaddr_ll *)&to->broadcast;
	bool loopback = (e->flags & IFF_LOOPBACK) != 0;
	*link = (struct sockaddr_ll){.sll_family = AF_PACKET, .sll_ifindex = (int)e->index, .sll_halen = 6};
	link->sll_hatype = loopback ? ARPHRD_LOOPBACK : ARPHRD_ETHER;
	*all = *link;
	memcpy(link->sll_addr, e->mac, 6);
	memset(all->sll_addr, loopback ? 0 : 0xff, 6);
	to->head.ifa_broadaddr = (struct sockaddr *)all;
}

static void fill_address(struct entry *to, const struct shim_interface *e)
{
	uint8_t ip[16];
	set_address(&to->address, e->addr.family, e->addr.ip, e->index);
	mask_of(e->prefix, ip);
	set_address(&to->mask, e->addr.family, ip, 0);
	to->head.ifa_netmask = (struct sockaddr *)&to->mask;
	if (broadcast_of(e, ip)) {
		set_address(&to->broadcast, AF_INET, ip, 0);
		to->head.ifa_broadaddr = (struct sockaddr *)&to->broadcast;
	}
	if (e->addr.family == AF_INET && (e->flags & IFF_LOOPBACK) != 0) /* as Linux shows it */
		to->head.ifa_dstaddr = (struct sockaddr *)&to->address;
}

/* Linux lists the links, then the addresses of IPv4, and then those of IPv6. */
INTERPOSED int getifaddrs(struct ifaddrs **list)
{
	static const uint16_t families[] = {0, AF_INET, AF_INET6};
	size_t n, used = 0;
	if (!interfaces_of_stack()) {
		int (*libc)(struct ifaddrs **);
		void *found = dlsym(RTLD_NEXT, "getifaddrs");
		memcpy(&libc, &found, sizeof libc);
		return libc(list);
	}
	struct shim_interface *all = fetch_interfaces(&n);
	if (all == NULL)
		return -1;
	struct entry *to = calloc(n, sizeof *to);
	for (size_t f = 0; to != NULL && f < 3; f++) {
		for (size_t i = 0; i < n; i++) {
			if (all[i].addr.family != families[f])
				continue;
			struct entry *e = &to[used++];
			memcpy(e->name, all[i].name, sizeof e->name);
			e->head.ifa_name = e->name;
			e->head.ifa_flags = all[i].flags;
			e->head.ifa_addr = (struct sockaddr *)&e->address;
			if (families[f] == 0)
				fill_link(e, &all[i]);
			else
				fill_address(e, &all[i]);
			if (used > 1)
				to[used - 2].head.ifa_next = &e->head;
		}
	}
	free(all);
	*list = to != NULL ? &to->head : NULL;
	return to != NULL ? 0 : -1;
}

/* search returns the entry of an interface by name or, where that is NULL, by index. It sets errno. */
static bool search(const char *name, uint32_t index, int family, struct shim_interface *found)
{
	size_t n;
	struct shim_interface *all = fetch_interfaces(&n);
	bool known = false;
	if (all == NULL)
		return false;
	errno = ENODEV;
	for (size_t i = 0; i < n; i++) {
		if (name != NULL ? strncmp(name, all[i].name, IFNAMSIZ) != 0 : all[i].index != index)
			continue;
		errno = EADDRNOTAVAIL;
		if (all[i].addr.family != family)
			continue;
		*found = all[i];
		known = true;
		break;
	}
	free(all);
	return known;
}

INTERPOSED unsigned if_nametoindex(const char *name)
{
	struct shim_interface e;
	if (!interfaces_of_stack()) {
		unsigned (*libc)(const char *);
		void *found = dlsym(RTLD_NEXT, "if_nametoindex");
		memcpy(&libc, &found, sizeof libc);
		return libc(name);
	}
	return search(name, 0, 0, &e) ? e.index : 0;
}

INTERPOSED char *if_indextoname(unsigned index, char name[IF_NAMESIZE])
{
	struct shim_interface e;
	if (!interfaces_of_stack()) {
		char *(*libc)(unsigned, char *);
		void *found = dlsym(RTLD_NEXT, "if_indextoname");
		memcpy(&libc, &found, sizeof libc);
		return libc(index, name);
	}
	if (!search(NULL, index, 0, &e)) {
		errno = errno == ENODEV ? ENXIO : errno;
		return NULL;
	}
	return memcpy(name, e.name, sizeof e.name);
}

INTERPOSED struct if_nameindex *if_nameindex(void)
{
	size_t n, used = 0;
	if (!interfaces_of_stack()) {
		struct if_nameindex *(*libc)(void);
		void *found = dlsym(RTLD_NEXT, "if_nameindex");
		memcpy(&libc, &found, sizeof libc);
		return libc();
	}
	struct shim_interface *all = fetch_interfaces(&n);
	if (all == NULL)
		return NULL;
	struct if_nameindex *list = calloc(n + 1, sizeof *list);
	for (size_t i = 0; list != NULL && i < n; i++) {
		if (all[i].addr.family != 0)
			continue;
		list[used].if_index = all[i].index;
		list[used++].if_name = strndup(all[i].name, sizeof all[i].name);
	}
	free(all);
	return list;
}

int has_families(bool *v4, bool *v6)
{
	size_t n;
	struct shim_interface *all = fetch_interfaces(&n);
	*v4 = *v6 = false;
	if (all == NULL)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if ((all[i].flags & IFF_LOOPBACK) != 0)
			continue;
		*v4 = *v4 || all[i].addr.family == AF_INET;
		*v6 = *v6 || all[i].addr.family == AF_INET6;
	}
	free(all);
	return 0;
}

bool is_interface_request(unsigned long request)
{
	return (request >= SIOCGIFNAME && request <= SIOCSIFMAP) || request == SIOCGIFMTU;
}

static int on_kernel(unsigned long request, void *arg)
{
	int fd = (int)KERNEL(socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	int result = (int)KERNEL(ioctl, fd, request, arg), cause = errno;
	KERNEL(close, fd);
	errno = cause;
	return result;
}

/* list_addresses is SIOCGIFCONF: the addresses of IPv4, as many as there is space for; without space, what all would take. */
static int list_addresses(struct ifconf *to)
{
	size_t n, used = 0, space = to->ifc_buf != NULL && to->ifc_len > 0 ? (size_t)to->ifc_len : 0;
	struct shim_interface *all = fetch_interfaces(&n);
	if (all == NULL)
		return -1;
	for (size_t i = 0; i < n; i++) {
		struct ifreq q = {0};
		struct sockaddr_storage address;
		if (all[i].addr.family != AF_INET || (to->ifc_buf != NULL && used + sizeof q > space))
			continue;
		memcpy(q.ifr_name, all[i].name, sizeof q.ifr_name);
		set_address(&address, AF_INET, all[i].addr.ip, 0);
		memcpy(&q.ifr_addr, &address, sizeof q.ifr_addr);
		if (to->ifc_buf != NULL)
			memcpy(to->ifc_buf + used, &q, sizeof q);
		used += sizeof q;
	}
	to->ifc_len = (int)used;
	free(all);
	return 0;
}

/* answer fills in what a request asks of an interface. */
static int answer(unsigned long request, struct ifreq *q, const struct shim_interface *e)
{
	struct sockaddr_storage address;
	uint8_t ip[16];
	memcpy(ip, e->addr.ip, sizeof ip);
	switch (request) {
	case SIOCGIFINDEX: q->ifr_ifindex = (int)e->index; return 0;
	case SIOCGIFFLAGS: q->ifr_flags = (short)e->flags; return 0;
	case SIOCGIFMTU: q->ifr_mtu = (int)e->mtu; return 0;
	case SIOCGIFMETRIC: q->ifr_metric = 0; return 0;
	case SIOCGIFTXQLEN: q->ifr_qlen = 1000; return 0;
	case SIOCGIFHWADDR:
		memset(&q->ifr_hwaddr, 0, sizeof q->ifr_hwaddr);
		q->ifr_hwaddr.sa_family = (e->flags & IFF_LOOPBACK) != 0 ? ARPHRD_LOOPBACK : ARPHRD_ETHER;
		memcpy(q->ifr_hwaddr.sa_data, e->mac, 6);
		return 0;
	case SIOCGIFNETMASK:
		mask_of(e->prefix, ip);
		break;
	case SIOCGIFBRDADDR:
		if (!broadcast_of(e, ip))
			memset(ip, 0, sizeof ip);
		break;
	}
	set_address(&address, AF_INET, ip, 0);
	memcpy(&q->ifr_addr, &address, sizeof q->ifr_addr);
	return 0;
}

int interface_ioctl(unsigned long request, void *arg)
{
	struct shim_interface e;
	struct ifreq *q = arg;
	if (!interfaces_of_stack())
		return on_kernel(request, arg);
	if (no_memory(arg, sizeof(struct ifconf)))
		return bad_address();
	switch (request) {
	case SIOCGIFCONF:
		return list_addresses(arg);
	case SIOCGIFNAME:
		if (!search(NULL, (uint32_t)q->ifr_ifindex, 0, &e))
			return -1;
		memcpy(q->ifr_name, e.name, sizeof q->ifr_name);
		return 0;
	case SIOCGIFINDEX: case SIOCGIFFLAGS: case SIOCGIFMTU: case SIOCGIFMETRIC: case SIOCGIFTXQLEN: case SIOCGIFHWADDR:
		return search(q->ifr_name, 0, 0, &e) ? answer(request, q, &e) : -1;
	case SIOCGIFADDR: case SIOCGIFDSTADDR: case SIOCGIFNETMASK: case SIOCGIFBRDADDR:
		return search(q->ifr_name, 0, AF_INET, &e) ? answer(request, q, &e) : -1;
	}
	errno = EPERM; /* what changes an interface: the node's configuration does that */
	return -1;
}
