/* address.c - addresses of the BSD API and of the protocol, and the names that carry them. */

#include "library.h"

#include <arpa/inet.h>
#include <netinet/in.h>

int decode_address(const struct sockaddr *from, socklen_t len, struct shim_addr *to)
{
	memset(to, 0, sizeof *to);
	if (no_memory(from, len))
		return EFAULT;
	if (len < (socklen_t)sizeof from->sa_family)
		return EINVAL;
	if (from->sa_family == AF_INET) {
		struct sockaddr_in in;
		if (len < (socklen_t)sizeof in)
			return EINVAL;
		memcpy(&in, from, sizeof in);
		to->family = AF_INET;
		to->port = ntohs(in.sin_port);
		memcpy(to->ip, &in.sin_addr, sizeof in.sin_addr);
		return 0;
	}
	if (from->sa_family == AF_INET6) {
		struct sockaddr_in6 in6;
		if (len < 24) /* SIN6_LEN_RFC2133: without the scope */
			return EINVAL;
		memset(&in6, 0, sizeof in6);
		memcpy(&in6, from, len < (socklen_t)sizeof in6 ? len : sizeof in6);
		to->family = AF_INET6;
		to->port = ntohs(in6.sin6_port);
		to->scope = in6.sin6_scope_id;
		memcpy(to->ip, &in6.sin6_addr, sizeof in6.sin6_addr);
		return 0;
	}
	return EAFNOSUPPORT;
}

static socklen_t copy_out(const void *from, socklen_t have, struct sockaddr *to, socklen_t space)
{
	memcpy(to, from, have < space ? have : space);
	return have;
}

/* An IPv6 socket shows IPv4 addresses as mapped ones (RFC 4291, 2.5.5.2). */
static void map_ipv4(const struct shim_addr *from, struct in6_addr *to)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
	memcpy(to->s6_addr, prefix, sizeof prefix);
	memcpy(to->s6_addr + sizeof prefix, from->ip, 4);
}

void encode_address(const struct shim_addr *from, int family, struct sockaddr *to, socklen_t *len)
{
	if (to == NULL || len == NULL)
		return;
	if (family == AF_INET) {
		struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(from->port)};
		memcpy(&in.sin_addr, from->ip, sizeof in.sin_addr);
		*len = copy_out(&in, sizeof in, to, *len);
		return;
	}
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(from->port), .sin6_scope_id = from->scope};
	if (from->family == AF_INET)
		map_ipv4(from, &in6.sin6_addr);
	else
		memcpy(&in6.sin6_addr, from->ip, sizeof in6.sin6_addr);
	*len = copy_out(&in6, sizeof in6, to, *len);
}

static bool is_name(const struct sockaddr_un *un, socklen_t len, struct shim_name *n)
{
	if (un->sun_family != AF_UNIX || len != offsetof(struct sockaddr_un, sun_path) + 1 + sizeof *n || un->sun_path[0] != 0)
		return false;
	memcpy(n, un->sun_path + 1, sizeof *n);
	return memcmp(n->magic, SHIM_NAME_MAGIC, sizeof n->magic) == 0 && n->version == SHIM_VERSION;
}

bool own_name(int fd, struct shim_name *n)
{
	struct sockaddr_un un;
	socklen_t len = sizeof un;
	return KERNEL(getsockname, fd, &un, &len) == 0 && is_name(&un, len, n);
}

bool peer_name(int fd, struct shim_name *n)
{
	struct sockaddr_un un;
	socklen_t len = sizeof un;
	return KERNEL(getpeername, fd, &un, &len) == 0 && is_name(&un, len, n);
}
