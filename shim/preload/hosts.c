/*
 * hosts.c - gethostbyname and its relatives, by the node as getaddrinfo (resolve.c), and a line about those calls that stay libc's: its
 * resolver opens sockets by calls of its own, so that its queries leave by the kernel's stack.
 */

#include "library.h"
#include "resolve.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>

#define HOST_SPACE 1024 /* of the calls without a buffer of the caller's: a reply has 10 addresses at most */

/* next finds the function of libc. The pointers of both kinds have one size. */
#define FIND(f, name)                                        \
	do {                                                 \
		void *found = dlsym(RTLD_NEXT, name);        \
		memcpy(&f, &found, sizeof f);                \
	} while (0)

/* space takes n bytes of a buffer, aligned for pointers. NULL is that it has fewer. */
static void *space(char **at, size_t *left, size_t n)
{
	size_t skip = (size_t)(-(uintptr_t)*at % sizeof(void *));
	if (skip > *left || n > *left - skip)
		return NULL;
	void *p = *at + skip;
	*at += skip + n;
	*left -= skip + n;
	return p;
}

/* fill makes a struct hostent of a reply, in a buffer. It returns 0 or ERANGE. */
static int fill(const char *name, int family, const struct shim_reply *reply, struct hostent *host, char *at, size_t left)
{
	size_t n = reply->len / sizeof(struct shim_addr), len = family == AF_INET6 ? 16 : 4, chars = strlen(name) + 1;
	char **list = space(&at, &left, (n + 2) * sizeof *list); /* the addresses, and no aliases behind them */
	char *bytes = list != NULL ? space(&at, &left, n * len) : NULL;
	char *copy = bytes != NULL ? space(&at, &left, chars) : NULL;
	if (copy == NULL)
		return ERANGE;
	memcpy(copy, name, chars);
	for (size_t i = 0; i < n; i++) {
		struct shim_addr a;
		memcpy(&a, reply->value + i * sizeof a, sizeof a);
		list[i] = bytes + i * len;
		memcpy(list[i], a.ip, len);
	}
	list[n] = list[n + 1] = NULL;
	*host = (struct hostent){.h_name = copy, .h_aliases = list + n + 1, .h_addrtype = family, .h_length = (int)len, .h_addr_list = list};
	return 0;
}

/* host_error translates an error of EAI. */
static int host_error(int cause)
{
	switch (cause) {
	case EAI_NONAME: return HOST_NOT_FOUND;
	case EAI_NODATA: return NO_DATA;
	case EAI_AGAIN: return TRY_AGAIN;
	}
	return NO_RECOVERY;
}

INTERPOSED int gethostbyname2_r(const char *restrict name, int family, struct hostent *restrict host, char *restrict buffer, size_t size,
				struct hostent **restrict result, int *restrict error)
{
	struct shim_reply reply;
	if (!active() || numeric_host(name) || (family != AF_INET && family != AF_INET6)) {
		int (*libc)(const char *, int, struct hostent *, char *, size_t, struct hostent **, int *);
		FIND(libc, "gethostbyname2_r");
		return libc(name, family, host, buffer, size, result, error);
	}
	*result = NULL;
	int cause = resolve_host(name, family, &reply);
	if (cause != 0) {
		*error = host_error(cause);
		return cause == EAI_AGAIN ? EAGAIN : 0; /* as glibc: a name that is not there is no error of the call */
	}
	if (fill(name, family, &reply, host, buffer, size) != 0) {
		*error = NETDB_INTERNAL;
		return ERANGE;
	}
	*error = NETDB_SUCCESS;
	*result = host;
	return 0;
}

INTERPOSED int gethostbyname_r(const char *restrict name, struct hostent *restrict host, char *restrict buffer, size_t size,
			       struct hostent **restrict result, int *restrict error)
{
	return gethostbyname2_r(name, AF_INET, host, buffer, size, result, error);
}

/* These give memory of libc's, or here of the library's, until the next call. */
INTERPOSED struct hostent *gethostbyname2(const char *name, int family)
{
	static struct hostent host;
	static char buffer[HOST_SPACE];
	struct hostent *result = NULL;
	if (!active() || numeric_host(name)) {
		struct hostent *(*libc)(const char *, int);
		FIND(libc, "gethostbyname2");
		return libc(name, family);
	}
	int error = NETDB_INTERNAL;
	gethostbyname2_r(name, family, &host, buffer, sizeof buffer, &result, &error);
	if (result == NULL)
		h_errno = error;
	return result;
}

INTERPOSED struct hostent *gethostbyname(const char *name)
{
	return gethostbyname2(name, AF_INET);
}

static void report_resolver(void)
{
	if (active())
		report_once("this program asks the resolver of libc for the name of an address, or for a record: that may leave the stack");
}

INTERPOSED int getnameinfo(const struct sockaddr *restrict a, socklen_t len, char *restrict host, socklen_t host_len, char *restrict service,
			   socklen_t service_len, int flags)
{
	int (*libc)(const struct sockaddr *, socklen_t, char *, socklen_t, char *, socklen_t, int);
	if (host != NULL && host_len > 0 && (flags & NI_NUMERICHOST) == 0)
		report_resolver();
	FIND(libc, "getnameinfo");
	return libc(a, len, host, host_len, service, service_len, flags);
}

INTERPOSED struct hostent *gethostbyaddr(const void *a, socklen_t len, int family)
{
	struct hostent *(*libc)(const void *, socklen_t, int);
	report_resolver();
	FIND(libc, "gethostbyaddr");
	return libc(a, len, family);
}

INTERPOSED int gethostbyaddr_r(const void *restrict a, socklen_t len, int family, struct hostent *restrict host, char *restrict buffer, size_t size,
			       struct hostent **restrict result, int *restrict error)
{
	int (*libc)(const void *, socklen_t, int, struct hostent *, char *, size_t, struct hostent **, int *);
	report_resolver();
	FIND(libc, "gethostbyaddr_r");
	return libc(a, len, family, host, buffer, size, result, error);
}

/* The calls of resolv.h, by both names that glibc has given them. All arguments are integers or pointers, seven at most. */
#define RESOLVER(name)                                                           \
	INTERPOSED int name(long a, long b, long c, long d, long e, long f, long g); \
	INTERPOSED int name(long a, long b, long c, long d, long e, long f, long g)  \
	{                                                                        \
		int (*libc)(long, long, long, long, long, long, long);           \
		report_resolver();                                               \
		FIND(libc, #name);                                               \
		return libc(a, b, c, d, e, f, g);                                \
	}
RESOLVER(res_query)
RESOLVER(res_nquery)
RESOLVER(res_search)
RESOLVER(res_nsearch)
RESOLVER(res_querydomain)
RESOLVER(res_nquerydomain)
RESOLVER(res_send)
RESOLVER(res_nsend)
RESOLVER(__res_query)
RESOLVER(__res_nquery)
RESOLVER(__res_search)
RESOLVER(__res_nsearch)
RESOLVER(__res_querydomain)
RESOLVER(__res_nquerydomain)
RESOLVER(__res_send)
RESOLVER(__res_nsend)
