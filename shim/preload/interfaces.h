/* interfaces.h - the interfaces of the stack. */
#ifndef MILLRACE_SHIM_INTERFACES_H
#define MILLRACE_SHIM_INTERFACES_H

#include "library.h"

/* is_interface_request reports whether an ioctl is one of netdevice(7), and interface_ioctl does it. */
bool is_interface_request(unsigned long request);
int interface_ioctl(unsigned long request, void *arg);

/* has_families reports whether the stack has addresses of IPv4 and IPv6 beside those of lo. It returns 0 or -1 with errno. */
int has_families(bool *v4, bool *v6);

/* interfaces_of_stack reports whether programs see the interfaces of the stack: --kernel-interfaces denies it. */
bool interfaces_of_stack(void);

/* fetch_interfaces returns the entries of the node, which free(3) frees, and their count, or NULL with errno. */
struct shim_interface *fetch_interfaces(size_t *n);

/* broadcast_of returns whether an address has a broadcast address: as those that ip(8) adds with brd +. */
bool broadcast_of(const struct shim_interface *e, uint8_t ip[16]);

/*
 * Dumps of links and addresses by sockets of NETLINK_ROUTE (netlink.c). netlink_open is called with each such socket; the others do a call
 * if it is one of theirs, which false denies.
 */
void netlink_open(int fd, int protocol);
struct iovec;
bool netlink_send(int fd, const struct iovec *parts, size_t n, int flags, ssize_t *result);
bool netlink_receive(int fd, struct msghdr *m, int flags, ssize_t *result);

#endif
