/*
 * netlink.c - dumps of links and addresses by rtnetlink(7), which show the interfaces of the stack.
 *
 * The socket is the kernel's, so that poll(2) and all other requests are. In the place of a dump (RTM_GETLINK, RTM_GETADDR) the library sends
 * requests that do nothing (NLMSG_NOOP), one for each datagram of the answer: the kernel acknowledges each with its header, in which the
 * library has noted the part that it stands for. What receives such an acknowledgement gets that part. So there is no state, and threads,
 * fork and MSG_PEEK need nothing.
 */

#include "interfaces.h"

#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/uio.h>

#ifndef IFF_LOOPBACK
#define IFF_LOOPBACK 0x8
#endif

#define EACH 12           /* entries of a datagram, which has less than 2 KiB then */
#define PART_SHIFT 4      /* of the number of a part in nlmsg_flags, above NLM_F_REQUEST and NLM_F_ACK */
#define PARTS 1024
#define LAST 0x8000       /* bit of nlmsg_flags: the part ends the dump */
#define NOTE 0x4d520000u  /* nlmsg_pid: the type of the request in bits 8 to 15, and its family below */
#define NOTE_MASK 0xffff0000u

struct ack {
	struct nlmsghdr head;
	int32_t error;
	struct nlmsghdr of;
};

/* Bytes of a datagram that is being made. */
struct answer {
	size_t used;
	_Alignas(8) char bytes[4096];
};

void netlink_open(int fd, int protocol)
{
	if (fd >= 0 && protocol == NETLINK_ROUTE && active() && interfaces_of_stack())
		note_datagram(fd);
}

static bool is_route(int fd)
{
	int saved = errno, domain = 0, protocol = 0;
	socklen_t len = sizeof domain;
	bool is = maybe_datagram(fd) && KERNEL(getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_NETLINK &&
		  KERNEL(getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 && protocol == NETLINK_ROUTE;
	errno = saved;
	return is && active() && interfaces_of_stack();
}

/* is_listed reports whether an entry belongs to the answer to a request. */
static bool is_listed(const struct shim_interface *e, int type, int family)
{
	if (type == RTM_GETLINK)
		return e->addr.family == 0;
	return e->addr.family != 0 && (family == AF_UNSPEC || family == e->addr.family);
}

/* count returns how many entries the answer has. */
static size_t count(const struct shim_interface *all, size_t n, int type, int family)
{
	size_t listed = 0;
	for (size_t i = 0; i < n; i++)
		listed += is_listed(&all[i], type, family);
	return listed;
}

/* dump_of returns the type of a dump that the stack answers, and its family. 0: it is another request, or several. */
static int dump_of(const struct iovec *parts, size_t n, struct nlmsghdr *head, int *family)
{
	char bytes[sizeof *head + sizeof(struct rtgenmsg)];
	size_t have = 0, all = 0;
	for (size_t i = 0; i < n; i++) {
		size_t more = parts[i].iov_len < sizeof bytes - have ? parts[i].iov_len : sizeof bytes - have;
		if (more > 0)
			memcpy(bytes + have, parts[i].iov_base, more);
		have += more;
		all += parts[i].iov_len;
	}
	if (have < sizeof bytes)
		return 0;
	memcpy(head, bytes, sizeof *head);
	*family = (unsigned char)bytes[sizeof *head];
	bool dumps = (head->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP && NLMSG_ALIGN(head->nlmsg_len) >= NLMSG_ALIGN(all);
	return dumps && (head->nlmsg_type == RTM_GETLINK || head->nlmsg_type == RTM_GETADDR) ? head->nlmsg_type : 0;
}

bool netlink_send(int fd, const struct iovec *parts, size_t n, int flags, ssize_t *result)
{
	struct nlmsghdr head;
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	int family, type = is_route(fd) ? dump_of(parts, n, &head, &family) : 0;
	size_t have;
	if (type == 0)
		return false;
	struct shim_interface *all = fetch_interfaces(&have);
	*result = -1;
	if (all == NULL)
		return true;
	size_t listed = count(all, have, type, family), last = listed > 0 ? (listed - 1) / EACH : 0;
	free(all);
	for (size_t part = 0; part <= last && part < PARTS; part++) {
		struct nlmsghdr q = {.nlmsg_len = sizeof q, .nlmsg_type = NLMSG_NOOP, .nlmsg_seq = head.nlmsg_seq};
		q.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | part << PART_SHIFT | (part == last ? LAST : 0));
		q.nlmsg_pid = NOTE | (uint32_t)type << 8 | (uint32_t)family;
		if (KERNEL(sendto, fd, &q, sizeof q, flags, &kernel, sizeof kernel) != sizeof q)
			return true;
	}
	*result = 0;
	for (size_t i = 0; i < n; i++)
		*result += (ssize_t)parts[i].iov_len;
	return true;
}

/* begin appends a message with a body, and returns where it is. */
static size_t begin(struct answer *a, const struct nlmsghdr *head, int type, const void *body, size_t n)
{
	struct nlmsghdr h = {.nlmsg_type = (uint16_t)type, .nlmsg_flags = NLM_F_MULTI, .nlmsg_seq = head->nlmsg_seq, .nlmsg_pid = head->nlmsg_pid};
	size_t at = a->used;
	h.nlmsg_len = (uint32_t)(sizeof h + n);
	memcpy(a->bytes + at, &h, sizeof h);
	memcpy(a->bytes + at + sizeof h, body, n);
	a->used = at + NLMSG_ALIGN(sizeof h + n);
	return at;
}

/* add appends an attribute to the message at a place. */
static void add(struct answer *a, size_t at, int type, const void *value, size_t n)
{
	struct rtattr r = {.rta_len = (uint16_t)RTA_LENGTH(n), .rta_type = (uint16_t)type};
	memset(a->bytes + a->used, 0, RTA_SPACE(n));
	memcpy(a->bytes + a->used, &r, sizeof r);
	memcpy(a->bytes + a->used + RTA_LENGTH(0), value, n);
	a->used += RTA_SPACE(n);
	uint32_t len = (uint32_t)(a->used - at);
	memcpy(a->bytes + at, &len, sizeof len);
}

static void add_link(struct answer *a, const struct nlmsghdr *head, const struct shim_interface *e)
{
	bool loopback = (e->flags & IFF_LOOPBACK) != 0;
	struct ifinfomsg body = {.ifi_type = loopback ? ARPHRD_LOOPBACK : ARPHRD_ETHER, .ifi_index = (int)e->index, .ifi_flags = e->flags};
	uint32_t queue = 1000;
	uint8_t state = loopback ? 0 : 6 /* IF_OPER_UP */, mode = 0, broadcast[6];
	memset(broadcast, loopback ? 0 : 0xff, sizeof broadcast);
	size_t at = begin(a, head, RTM_NEWLINK, &body, sizeof body);
	add(a, at, IFLA_IFNAME, e->name, strnlen(e->name, sizeof e->name - 1) + 1);
	add(a, at, IFLA_TXQLEN, &queue, sizeof queue);
	add(a, at, IFLA_OPERSTATE, &state, sizeof state);
	add(a, at, IFLA_LINKMODE, &mode, sizeof mode);
	add(a, at, IFLA_MTU, &e->mtu, sizeof e->mtu);
	add(a, at, IFLA_ADDRESS, e->mac, 6);
	add(a, at, IFLA_BROADCAST, broadcast, sizeof broadcast);
}

static void add_address(struct answer *a, const struct nlmsghdr *head, const struct shim_interface *e)
{
	size_t n = e->addr.family == AF_INET ? 4 : 16;
	struct ifaddrmsg body = {.ifa_family = (uint8_t)e->addr.family, .ifa_prefixlen = (uint8_t)e->prefix, .ifa_flags = IFA_F_PERMANENT, .ifa_index = e->index};
	struct ifa_cacheinfo times = {.ifa_prefered = UINT32_MAX, .ifa_valid = UINT32_MAX};
	uint32_t flags = IFA_F_PERMANENT;
	uint8_t broadcast[16];
	if ((e->flags & IFF_LOOPBACK) != 0)
		body.ifa_scope = RT_SCOPE_HOST;
	else if (n == 16 && e->addr.ip[0] == 0xfe && (e->addr.ip[1] & 0xc0) == 0x80)
		body.ifa_scope = RT_SCOPE_LINK;
	size_t at = begin(a, head, RTM_NEWADDR, &body, sizeof body);
	add(a, at, IFA_ADDRESS, e->addr.ip, n);
	if (n == 4) {
		add(a, at, IFA_LOCAL, e->addr.ip, n);
		if (broadcast_of(e, broadcast))
			add(a, at, IFA_BROADCAST, broadcast, n);
		add(a, at, IFA_LABEL, e->name, strnlen(e->name, sizeof e->name - 1) + 1);
	}
	add(a, at, IFA_FLAGS, &flags, sizeof flags);
	add(a, at, IFA_CACHEINFO, &times, sizeof times);
}

/* is_of_pass reports whether an entry is in a pass: Linux lists the addresses of IPv4 before those of IPv6. */
static bool is_of_pass(const struct shim_interface *e, int pass)
{
	return pass == (e->addr.family == AF_INET6);
}

/* make makes the part that an acknowledgement stands for. False, with errno: the node does not answer. */
static bool make(const struct ack *k, struct answer *a)
{
	int type = k->of.nlmsg_pid >> 8 & 0xff, family = k->of.nlmsg_pid & 0xff, done = 0;
	size_t n, at = 0, first = (size_t)(k->of.nlmsg_flags >> PART_SHIFT) % PARTS * EACH;
	struct shim_interface *all = fetch_interfaces(&n);
	if (all == NULL)
		return false;
	a->used = 0;
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < n; i++) {
			if (!is_listed(&all[i], type, family) || !is_of_pass(&all[i], pass) || at++ < first || at > first + EACH)
				continue;
			if (type == RTM_GETLINK)
				add_link(a, &k->head, &all[i]);
			else
				add_address(a, &k->head, &all[i]);
		}
	}
	free(all);
	if ((k->of.nlmsg_flags & LAST) != 0)
		begin(a, &k->head, NLMSG_DONE, &done, sizeof done);
	return true;
}

/* copy_out puts the answer into the caller's message, as recvmsg(2) does. */
static ssize_t copy_out(const struct answer *a, struct msghdr *m, int flags)
{
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	size_t put = 0;
	for (size_t i = 0; i < m->msg_iovlen && put < a->used; i++) {
		size_t n = m->msg_iov[i].iov_len < a->used - put ? m->msg_iov[i].iov_len : a->used - put;
		if (n > 0)
			memcpy(m->msg_iov[i].iov_base, a->bytes + put, n);
		put += n;
	}
	if (m->msg_name != NULL)
		memcpy(m->msg_name, &kernel, m->msg_namelen < sizeof kernel ? m->msg_namelen : sizeof kernel);
	m->msg_namelen = sizeof kernel;
	m->msg_controllen = 0;
	m->msg_flags = put < a->used ? MSG_TRUNC : 0;
	return (ssize_t)((flags & MSG_TRUNC) != 0 ? a->used : put);
}

bool netlink_receive(int fd, struct msghdr *m, int flags, ssize_t *result)
{
	struct ack k;
	struct answer a;
	if ((flags & (MSG_ERRQUEUE | MSG_OOB)) != 0 || !is_route(fd))
		return false;
	*result = KERNEL(recvfrom, fd, &k, sizeof k, (flags & MSG_DONTWAIT) | MSG_PEEK | MSG_TRUNC, NULL, NULL);
	if (*result < 0)
		return true;
	if (*result != sizeof k || k.head.nlmsg_type != NLMSG_ERROR || k.error != 0 || k.of.nlmsg_type != NLMSG_NOOP ||
	    (k.of.nlmsg_pid & NOTE_MASK) != NOTE)
		return false;
	*result = make(&k, &a) ? copy_out(&a, m, flags) : -1;
	if ((flags & MSG_PEEK) == 0) {
		int saved = errno;
		KERNEL(recvfrom, fd, &k, sizeof k, MSG_DONTWAIT, NULL, NULL);
		errno = saved;
	}
	return true;
}
