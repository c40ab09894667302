/*
 * resolve.c - getaddrinfo. The resolver of libc opens its sockets by calls of its own that nothing can take the place
 * of, so its queries would leave by the kernel's stack. Names go to the node instead, which asks over the stack.
 * Numeric hosts and services are left to libc, but for AI_ADDRCONFIG, which libc judges by the kernel's interfaces.
 */

#include "interfaces.h"
#include "resolve.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);

/* The one symbol that is looked up in libc: only a program that runs calls getaddrinfo. */
static resolver *libc_resolver(void)
{
	static resolver *found;
	resolver *r = __atomic_load_n(&found, __ATOMIC_RELAXED);
	if (r == NULL) {
		*(void **)&r = dlsym(RTLD_NEXT, "getaddrinfo");
		__atomic_store_n(&found, r, __ATOMIC_RELAXED);
	}
	return r;
}

bool numeric_host(const char *host)
{
	unsigned char ip[16];
	char plain[INET6_ADDRSTRLEN];
	size_t n = strcspn(host, "%"); /* fe80::1%eth0 */
	if (n >= sizeof plain)
		return false;
	memcpy(plain, host, n);
	plain[n] = 0;
	struct in_addr v4; /* 127.1 and the like, too */
	return (strpbrk(host, " \t\n\v\f\r") == NULL && inet_aton(host, &v4) != 0) || inet_pton(AF_INET6, plain, ip) == 1;
}

int resolve_host(const char *host, int family, struct shim_reply *reply)
{
	struct shim_request q = {.op = SHIM_RESOLVE, .arg = family};
	size_t n = strlen(host);
	if (n == 0 || n > sizeof q.value)
		return EAI_NONAME;
	q.len = (uint32_t)n;
	memcpy(q.value, host, n);
	if (request(&q, -1, reply, NULL) != 0)
		return EAI_AGAIN;
	if (reply->error == ENOSYS)
		report_once("names cannot be resolved: the node was started without a resolver");
	if (reply->error == ENOENT)
		return EAI_NONAME;
	if (reply->error != 0 || reply->len > sizeof reply->value)
		return EAI_AGAIN;
	return reply->len == 0 ? EAI_NODATA : 0;
}

/* append adds what libc makes of one numeric address: it knows services, socket types and their order. */
static int append(const struct shim_addr *a, const char *service, const struct addrinfo *hints, struct addrinfo ***end)
{
	char text[INET6_ADDRSTRLEN + 16];
	struct addrinfo want = {0};
	if (hints != NULL)
		want = *hints;
	if (inet_ntop(a->family, a->ip, text, INET6_ADDRSTRLEN) == NULL)
		return EAI_FAIL;
	if (a->scope != 0)
		snprintf(text + strlen(text), 16, "%%%u", a->scope);
	want.ai_flags = (want.ai_flags | AI_NUMERICHOST) & ~AI_CANONNAME;
	int result = libc_resolver()(text, service, &want, *end);
	while (result == 0 && **end != NULL)
		*end = &(**end)->ai_next;
	return result;
}

/* chain makes the list of all addresses. libc frees the nodes of a list one by one, so that lists can be joined. */
static int chain(const struct shim_reply *reply, const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
	struct addrinfo **end = list;
	int result = EAI_NONAME;
	*list = NULL;
	for (size_t at = 0; at + sizeof(struct shim_addr) <= reply->len; at += sizeof(struct shim_addr)) {
		struct shim_addr a;
		memcpy(&a, reply->value + at, sizeof a);
		int one = append(&a, service, hints, &end);
		if (one == 0 || result != 0)
			result = one;
	}
	return *list != NULL ? 0 : result;
}

/*
 * configured is AI_ADDRCONFIG as glibc has it, by the addresses of the stack: it takes the flag off, and leaves the family that the stack
 * has where it has only one. It returns 0 or an EAI error.
 */
static int configured(struct addrinfo *hints)
{
	bool v4, v6;
	if ((hints->ai_flags & AI_ADDRCONFIG) == 0)
		return 0;
	hints->ai_flags &= ~AI_ADDRCONFIG;
	if (has_families(&v4, &v6) != 0)
		return EAI_SYSTEM;
	if ((hints->ai_family == AF_INET && !v4) || (hints->ai_family == AF_INET6 && !v6))
		return EAI_NONAME;
	if (hints->ai_family == AF_UNSPEC && v4 != v6)
		hints->ai_family = v4 ? AF_INET : AF_INET6;
	return 0;
}

INTERPOSED int getaddrinfo(const char *restrict host, const char *restrict service, const struct addrinfo *restrict hints,
			   struct addrinfo **restrict list)
{
	struct addrinfo own;
	struct shim_reply reply;
	if (active() && hints != NULL) {
		own = *hints;
		int cause = configured(&own);
		if (cause != 0)
			return cause;
		hints = &own;
	}
	if (!active() || host == NULL || numeric_host(host) || (hints != NULL && (hints->ai_flags & AI_NUMERICHOST) != 0))
		return libc_resolver()(host, service, hints, list);
	int family = hints != NULL ? hints->ai_family : AF_UNSPEC;
	int result = resolve_host(host, family, &reply);
	if (result == 0)
		result = chain(&reply, service, hints, list);
	if (result == 0 && hints != NULL && (hints->ai_flags & AI_CANONNAME) != 0)
		(*list)->ai_canonname = strdup(host);
	return result;
}
