/* rebind.h - sockets that are made again with the next node: --on-node-loss=rebind. */
#ifndef MILLRACE_SHIM_REBIND_H
#define MILLRACE_SHIM_REBIND_H

#include "library.h"

/* What the program has set and bound is remembered, since the node that knew it is gone then. Without the option they do nothing. */
void remember_option(int fd, int level, int name, const void *value, socklen_t len);
void remember_bind(int fd, const struct shim_addr *addr, const struct shim_reply *reply);
void remember_listen(int fd, int backlog);

/* The errno of calls on a socket whose node may be gone: the caller asks make_again, and tries once more. The kernel never gives it. */
#define NODE_LOST ERESTART

enum again {
	AGAIN_NEVER, /* the node has not ended, or the program's sockets end with it */
	AGAIN_LATER, /* EAGAIN, EINTR: the node is not back */
	AGAIN_DONE,  /* another socket is in its place, or may be */
};

/*
 * make_again makes a listener or a bound socket of datagrams again. waits is that the call may block until the node is back.
 * One that does not block takes up to 100 ms, so that programs that try again at once do not spin.
 */
enum again make_again(int fd, const struct mark *m, bool waits);

/* entry_of finds fd in the description of an epoll instance (proc_pid_fdinfo(5)). */
struct epoll_event;
bool entry_of(int epoll, int fd, struct epoll_event *event);

/* Of renew.c. replace puts next in the place of fd, also in the epoll instances of the process, and rearm makes those that report edges
   report fd once more. */
bool replace(int fd, int next);
void rearm(int fd);
void copy_times(int from, int to);

#endif
