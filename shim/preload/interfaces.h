/* interfaces.h - the interfaces of the stack. */
#ifndef MILLRACE_SHIM_INTERFACES_H
#define MILLRACE_SHIM_INTERFACES_H

#include "library.h"

/* is_interface_request reports whether an ioctl is one of netdevice(7), and interface_ioctl does it. */
bool is_interface_request(unsigned long request);
int interface_ioctl(unsigned long request, void *arg);

/* has_families reports whether the stack has addresses of IPv4 and IPv6 beside those of lo. It returns 0 or -1 with errno. */
int has_families(bool *v4, bool *v6);

#endif
