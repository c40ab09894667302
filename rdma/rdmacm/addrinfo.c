#define _GNU_SOURCE
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

static int copy_address(struct sockaddr **to, socklen_t *size, const struct sockaddr *from, socklen_t n)
{
	*to = malloc(n);
	if (!*to)
		return EAI_MEMORY;
	memcpy(*to, from, n);
	*size = n;
	return 0;
}

EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *list)
{
	while (list) {
		struct rdma_addrinfo *next = list->ai_next;
		free(list->ai_src_addr);
		free(list->ai_dst_addr);
		free(list->ai_src_canonname);
		free(list->ai_dst_canonname);
		free(list->ai_route);
		free(list->ai_connect);
		free(list);
		list = next;
	}
}

/* take_result makes a result of one of getaddrinfo(3). */
static int take_result(struct rdma_addrinfo *to, const struct addrinfo *from, const struct rdma_addrinfo *hints)
{
	bool passive = hints->ai_flags & RAI_PASSIVE;
	to->ai_flags = hints->ai_flags & (RAI_PASSIVE | RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY);
	to->ai_family = from->ai_family;
	to->ai_port_space = hints->ai_port_space ? hints->ai_port_space : hints->ai_qp_type == QPT_UD ? PS_UDP : PS_TCP;
	to->ai_qp_type = hints->ai_qp_type ? hints->ai_qp_type : to->ai_port_space == PS_UDP || to->ai_port_space == PS_IPOIB ? QPT_UD : QPT_RC;
	int e = passive ? copy_address(&to->ai_src_addr, &to->ai_src_len, from->ai_addr, from->ai_addrlen)
			: copy_address(&to->ai_dst_addr, &to->ai_dst_len, from->ai_addr, from->ai_addrlen);
	if (!e && !passive && hints->ai_src_len)
		e = copy_address(&to->ai_src_addr, &to->ai_src_len, hints->ai_src_addr, hints->ai_src_len);
	char **name = passive ? &to->ai_src_canonname : &to->ai_dst_canonname;
	if (!e && from->ai_canonname && !(*name = strdup(from->ai_canonname)))
		e = EAI_MEMORY;
	return e;
}

EXPORT int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **to)
{
	static const struct rdma_addrinfo none;
	struct addrinfo *list = NULL, ask = {0};
	if (!hints)
		hints = &none;
	if (!node && !service) { /* what hints name */
		bool passive = hints->ai_flags & RAI_PASSIVE;
		struct sockaddr *a = passive ? hints->ai_src_addr : hints->ai_dst_addr;
		socklen_t n = passive ? hints->ai_src_len : hints->ai_dst_len;
		if (!a || !n)
			return fail(EINVAL);
		ask = (struct addrinfo){.ai_family = a->sa_family, .ai_addr = a, .ai_addrlen = n};
	} else {
		ask.ai_family = hints->ai_flags & RAI_FAMILY || hints->ai_family == AF_INET || hints->ai_family == AF_INET6 ? hints->ai_family : AF_UNSPEC;
		ask.ai_flags = (hints->ai_flags & RAI_PASSIVE ? AI_PASSIVE : 0) | (hints->ai_flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0);
		ask.ai_socktype = hints->ai_port_space == PS_UDP || hints->ai_qp_type == QPT_UD ? SOCK_DGRAM : SOCK_STREAM;
		int e = getaddrinfo(node, service, &ask, &list);
		if (e)
			return e;
	}
	struct rdma_addrinfo *r = calloc(1, sizeof *r);
	int e = r ? take_result(r, list ? list : &ask, hints) : EAI_MEMORY;
	if (list)
		freeaddrinfo(list);
	if (e)
		rdma_freeaddrinfo(r);
	else
		*to = r;
	return e;
}
