/* resolve.h - names that the node resolves. */
#ifndef MILLRACE_SHIM_RESOLVE_H
#define MILLRACE_SHIM_RESOLVE_H

#include "library.h"

/* numeric_host reports whether a host is an address as text, which libc reads. */
bool numeric_host(const char *host);

/* resolve_host asks the node for the addresses of a host: AF_INET, AF_INET6 or 0 for both. It returns 0 or an error of EAI. */
int resolve_host(const char *host, int family, struct shim_reply *reply);

#endif
