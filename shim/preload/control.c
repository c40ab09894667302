/* control.c - control messages of datagrams: source address, TOS and hop limit, times, and entries of the queue of errors. */

#include "datagram.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/time.h>
#include <time.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

void read_control(const struct msghdr *from, struct shim_datagram *to)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(from); c != NULL; c = CMSG_NXTHDR((struct msghdr *)from, c)) {
		const unsigned char *data = CMSG_DATA(c);
		size_t len = c->cmsg_len - CMSG_LEN(0);
		int value;
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO && len >= sizeof(struct in_pktinfo)) {
			struct in_pktinfo info;
			memcpy(&info, data, sizeof info);
			to->local.family = AF_INET;
			memcpy(to->local.ip, &info.ipi_spec_dst, sizeof info.ipi_spec_dst);
			to->ifindex = (uint32_t)info.ipi_ifindex;
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO && len >= sizeof(struct in6_pktinfo)) {
			struct in6_pktinfo info;
			memcpy(&info, data, sizeof info);
			to->local.family = AF_INET6;
			memcpy(to->local.ip, &info.ipi6_addr, sizeof info.ipi6_addr);
			to->ifindex = info.ipi6_ifindex;
		} else if (len >= sizeof value) {
			memcpy(&value, data, sizeof value);
			if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
			    (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS))
				to->tos = (uint8_t)value;
			if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL) ||
			    (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT))
				to->hop_limit = (uint8_t)value;
		} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS && len == 1) {
			to->tos = data[0];
		} else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_SEGMENT && len >= sizeof to->flags) {
			memcpy(&to->flags, data, sizeof to->flags);
		}
	}
}

bool has_control(const struct msghdr *from)
{
	struct shim_datagram h = {0};
	if (from->msg_control == NULL || from->msg_controllen == 0)
		return false;
	read_control(from, &h);
	return h.local.family != 0 || h.ifindex != 0 || h.tos != 0 || h.hop_limit != 0 || h.flags != 0;
}

/* add_control appends one control message, and says in flags if there is no space for it. */
static void add_control(struct msghdr *m, size_t *used, int level, int type, const void *data, size_t len)
{
	if (m->msg_control == NULL || *used + CMSG_SPACE(len) > m->msg_controllen) {
		m->msg_flags |= MSG_CTRUNC;
		return;
	}
	struct cmsghdr c = {.cmsg_level = level, .cmsg_type = type, .cmsg_len = CMSG_LEN(len)};
	char *at = (char *)m->msg_control + *used;
	memcpy(at, &c, sizeof c);
	memcpy(at + CMSG_LEN(0), data, len);
	*used += CMSG_SPACE(len);
}

static void add_destination(struct msghdr *m, size_t *used, const struct shim_datagram *h)
{
	struct in_pktinfo four = {.ipi_ifindex = (int)h->ifindex};
	struct in6_pktinfo six = {.ipi6_ifindex = h->ifindex};
	memcpy(&four.ipi_addr, h->local.ip, sizeof four.ipi_addr);
	four.ipi_spec_dst = four.ipi_addr;
	if (h->local.family == AF_INET) { /* mapped: ::ffff:0:0/96 */
		memset(&six.ipi6_addr.s6_addr[10], 0xff, 2);
		memcpy(&six.ipi6_addr.s6_addr[12], h->local.ip, sizeof four.ipi_addr);
	} else {
		memcpy(&six.ipi6_addr, h->local.ip, sizeof six.ipi6_addr);
	}
	bool plain = (h->flags & SHIM_DATAGRAM_PKTINFO) != 0;
	if ((h->flags & SHIM_DATAGRAM_MAPPED) != 0 || (plain && h->local.family != AF_INET))
		add_control(m, used, IPPROTO_IPV6, IPV6_PKTINFO, &six, sizeof six);
	if (plain && h->local.family == AF_INET)
		add_control(m, used, IPPROTO_IP, IP_PKTINFO, &four, sizeof four);
}

/* add_original is where a datagram was sent to, with its port. */
static void add_original(struct msghdr *m, size_t *used, const struct shim_datagram *h)
{
	struct sockaddr_storage to = {0};
	bool v4 = h->local.family == AF_INET;
	socklen_t n = v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	struct shim_addr local = h->local;
	local.scope = 0;
	encode_address(&local, local.family, (struct sockaddr *)&to, &n);
	add_control(m, used, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_ORIGDSTADDR : 74 /* IPV6_ORIGDSTADDR */, &to, n);
}

/* add_time is SO_TIMESTAMP or SO_TIMESTAMPNS, and SO_TIMESTAMPING. */
static void add_time(struct msghdr *m, size_t *used, const struct shim_datagram *h)
{
	struct timespec ns = {h->time / 1000000000, h->time % 1000000000};
	struct timeval us = {ns.tv_sec, ns.tv_nsec / 1000};
	if ((h->flags & SHIM_DATAGRAM_TIME_NS) != 0)
		add_control(m, used, SOL_SOCKET, SCM_TIMESTAMPNS, &ns, sizeof ns);
	else if ((h->flags & SHIM_DATAGRAM_TIME) != 0)
		add_control(m, used, SOL_SOCKET, SCM_TIMESTAMP, &us, sizeof us);
	const struct timespec stamps[3] = {ns}; /* struct scm_timestamping: by software, and two by the device */
	if ((h->flags & SHIM_DATAGRAM_STAMPING) != 0)
		add_control(m, used, SOL_SOCKET, SCM_TIMESTAMPING, stamps, sizeof stamps);
}

/* The order is Linux's: a program with space for some of them gets those that it would get there. */
void write_control(struct msghdr *m, const struct shim_datagram *h)
{
	size_t used = 0;
	bool v4 = h->local.family == AF_INET;
	int value = h->hop_limit;
	add_time(m, &used, h);
	if ((h->flags & SHIM_DATAGRAM_OVERFLOW) != 0 && h->local.scope != 0)
		add_control(m, &used, SOL_SOCKET, SO_RXQ_OVFL, &h->local.scope, sizeof h->local.scope);
	add_destination(m, &used, h);
	if ((h->flags & SHIM_DATAGRAM_HOP_LIMIT) != 0)
		add_control(m, &used, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TTL : IPV6_HOPLIMIT, &value, sizeof value);
	value = h->tos;
	if ((h->flags & SHIM_DATAGRAM_TOS) != 0 && v4)
		add_control(m, &used, IPPROTO_IP, IP_TOS, &h->tos, sizeof h->tos);
	if ((h->flags & SHIM_DATAGRAM_TOS) != 0 && !v4)
		add_control(m, &used, IPPROTO_IPV6, IPV6_TCLASS, &value, sizeof value);
	if ((h->flags & SHIM_DATAGRAM_ORIGINAL) != 0)
		add_original(m, &used, h);
	m->msg_controllen = used;
}

void write_error(struct msghdr *m, const struct shim_error *e, const struct shim_addr *from, int family)
{
	struct {
		struct sock_extended_err error;
		struct sockaddr_in6 from; /* or that of IPv4 */
	} both = {.error = {.ee_errno = e->error, .ee_origin = e->origin, .ee_type = e->type, .ee_code = e->code, .ee_info = e->info, .ee_data = e->data}};
	const struct timespec stamps[3] = {{e->time / 1000000000, e->time % 1000000000}};
	bool v4 = family == AF_INET;
	size_t used = 0;
	socklen_t n = v4 ? sizeof(struct sockaddr_in) : sizeof both.from;
	if (from->family != 0)
		encode_address(from, family, (struct sockaddr *)&both.from, &n);
	if (e->time != 0)
		add_control(m, &used, SOL_SOCKET, SCM_TIMESTAMPING, stamps, sizeof stamps);
	add_control(m, &used, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_RECVERR : IPV6_RECVERR, &both, sizeof both.error + n);
	m->msg_controllen = used;
}
