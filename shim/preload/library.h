/*
 * library.h - what the parts of the preloaded library share.
 *
 * The library has no table of descriptors: what a descriptor is, it asks of the kernel at each call (mark.c), so that
 * dup2, fork, exec, close_range and SCM_RIGHTS need no interception. Calls that it does not serve are made as they
 * came, by system call: so the first call may come before any constructor.
 */
#ifndef MILLRACE_SHIM_LIBRARY_H
#define MILLRACE_SHIM_LIBRARY_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol.h"

/* The function is one of those that the library defines in the place of libc. */
#define INTERPOSED __attribute__((visibility("default")))

/* The system call, with errno and -1 as libc has them. syscall(2) itself is intercepted (leave.c): this is libc's. */
#define KERNEL(call, ...) system_call(SYS_##call, __VA_ARGS__)
extern long (*system_call)(long number, ...);

enum kind {
	NOT_OURS, /* the kernel serves it alone */
	STREAM,
	DATAGRAM,           /* each datagram has a header */
	DATAGRAM_CONNECTED, /* datagrams are plain */
};

struct mark {
	enum kind kind;
	int family;     /* AF_INET or AF_INET6 */
	bool connected; /* of STREAM: it is connected, or on its way */
};

struct settings {
	char path[sizeof((struct sockaddr_un *)0)->sun_path]; /* of the node's socket; empty without a stack */
	char token[64];
	bool has_uid; /* of the node */
	uid_t uid;
	bool ends_with_node; /* the program ends when the node does */
	bool rebinds;        /* listeners are made again with the next node */
	pid_t first;         /* the process that millrace exec has become */
	bool kernel_interfaces; /* getifaddrs and the like show the kernel's */
	bool strict;        /* programs that would leave the stack are not started */
	dev_t self_device;  /* the file of millrace, whose exec may be started */
	ino_t self_inode;
	bool rings;         /* for the bytes of streams */
	uint64_t busy_poll; /* ns */
};

const struct settings *settings(void);

/* active reports whether the process has been started for a stack. */
bool active(void);

/*
 * own_memory reports whether the process has the memory of the library to itself. A child of vfork has not: it has that of its
 * parent, but descriptors of its own.
 */
bool own_memory(void);

/* read_mark says what fd is. It keeps errno. */
struct mark read_mark(int fd);

/*
 * data_mark is read_mark for calls that move data: a connected stream costs one system call, and so does a socket of the
 * kernel. It does not make sure of connected streams, unless sure asks for it.
 */
struct mark data_mark(int fd, bool sure);

/*
 * Descriptors that may be sockets of datagrams, so that read(2) and write(2) need not ask the kernel about all others. A number stays
 * noted when it is closed: that costs a system call for each call on its next file.
 */
void note_datagram(int fd);
bool maybe_datagram(int fd);
bool some_datagram(void); /* the process has had one */

/* read_datagram and write_datagram do read(2) and write(2) if fd is a socket of datagrams, which false denies. */
struct iovec;
bool read_datagram(int fd, const struct iovec *parts, size_t n, ssize_t *result);
bool write_datagram(int fd, const struct iovec *parts, size_t n, ssize_t *result);

/* cookie_of returns the kernel's number of a socket, which no other has had, or 0. */
#ifndef SO_COOKIE
#define SO_COOKIE 57
#endif
uint64_t cookie_of(int fd);

/*
 * Of closed.c. note_port is that fd may get a port that close(2) frees. port_closing comes before fd is closed or replaced, and returns
 * what port_closed takes after it: 0 where nothing is to be freed. port_closed waits until the node has freed the port, and keeps errno.
 * no_more_waits is for processes that may soon make no system calls but those that their filter permits.
 */
void note_port(int fd);
bool maybe_port(int fd);
uint64_t port_closing(int fd);
void port_closed(uint64_t cookie);
void no_more_waits(void);

/* set_mark makes an AF_UNIX socket one of the stack. */
int set_mark(int fd, int family);

/* What a descriptor is that came, and that the process had no number for. */
#define NO_NUMBER (-2)

/*
 * request sends a request and waits for its reply. fd goes with it, unless it is negative. It returns 0, or -1 with
 * errno if the node is not there. What the node answers is in reply->error. A descriptor that comes with the reply is in
 * memory, or closed where that is NULL.
 */
int request(struct shim_request *q, int fd, struct shim_reply *reply, int *memory);

/* request_quietly is request where the process has a channel to the node already. Without a reply it says nothing, and keeps errno. */
void request_quietly(struct shim_request *q);

/* ask is request for callers that have no other use of the reply's error: it is errno of the result -1. */
int ask(struct shim_request *q, int fd, struct shim_reply *reply);
int ask_memory(struct shim_request *q, int fd, struct shim_reply *reply, int *memory);

/*
 * Of folder.c. keep_folder opens the folder of the node's socket, before chroot(2). connect_in_folder connects a socket to the node there. It
 * returns 0, or -1 with errno. keep_off moves a descriptor of the library to a number that programs do not use.
 */
void keep_folder(void);
long connect_in_folder(int fd);
int keep_off(int fd);

/* Addresses, and those of the BSD API. decode returns 0 or an errno. */
int decode_address(const struct sockaddr *from, socklen_t len, struct shim_addr *to);
void encode_address(const struct shim_addr *from, int family, struct sockaddr *to, socklen_t *len);

/* socket_error takes SO_ERROR: what the node says or, if that is gone, the kernel. */
int socket_error(int fd);

/* node_ended returns the errno of a call on a socket whose node is gone. */
int node_ended(void);

/*
 * note_shut remembers that the program has shut down a listener or a socket of datagrams, and was_shut whether it has: the node ends such a
 * socket, and for the kernel that looks as if it had gone itself. What another process has shut down is not known.
 */
void note_shut(int fd);
bool was_shut(int fd);

/*
 * restarts reports whether a call that a signal has interrupted goes on, as the kernel's would: poll(2), by which the library
 * waits, never does. True is that every handler of the process has SA_RESTART.
 */
bool restarts(void);

/*
 * wait_writable waits until fd is writable, as long as SO_SNDTIMEO permits. The result is the events of poll(2); 0 is the timeout
 * (EAGAIN), -1 a signal. partial is that the call has written something: then any signal ends it, whatever its handler is.
 */
int wait_writable(int fd, bool partial);

/*
 * slow_down is for calls that will never succeed again. Programs that try again at once would take a processor for
 * nothing: after the first few such calls of a process each waits for 100 ms.
 */
void slow_down(void);

/*
 * no_memory reports whether n bytes at p are surely none of the process: the first page, where NULL and what is added to it
 * are, and the half of the kernel. The kernel says EFAULT for each address without memory. To ask it would cost a system call,
 * so that other such addresses end the program with SIGSEGV where the library copies.
 */
static inline bool no_memory(const void *p, size_t n)
{
	return n != 0 && ((uintptr_t)p < 4096 || (uintptr_t)p > UINTPTR_MAX / 2 || n > UINTPTR_MAX / 2 - (uintptr_t)p);
}

/* MOST_PARTS is UIO_MAXIOV of the kernel: how many parts a message has, and how many messages a call. */
#define MOST_PARTS 1024

/* wrong_message is the errno of a message that no socket takes, or 0. The order is that of the kernel. */
static inline int wrong_message(const struct msghdr *m)
{
	if (no_memory(m, sizeof *m))
		return EFAULT;
	if (m->msg_name != NULL && (int)m->msg_namelen < 0)
		return EINVAL;
	if (m->msg_iovlen > MOST_PARTS)
		return EMSGSIZE;
	bool none = no_memory(m->msg_iov, m->msg_iovlen * sizeof *m->msg_iov) || (m->msg_name != NULL && no_memory(m->msg_name, 1)) ||
		    (m->msg_control != NULL && no_memory(m->msg_control, m->msg_controllen));
	return none ? EFAULT : 0;
}

/* wrong_length is the errno of a length of an address, or 0. */
static inline int wrong_length(const socklen_t *len)
{
	if (no_memory(len, sizeof *len))
		return EFAULT;
	return (int)*len < 0 ? EINVAL : 0;
}

/* wrong_space is the errno of a place for an address that the kernel would not write to, or 0. */
static inline int wrong_space(const struct sockaddr *addr, const socklen_t *len)
{
	int wrong = wrong_length(len);
	return wrong == 0 && no_memory(addr, *len) ? EFAULT : wrong;
}

/* bad_address is the result of a call with such an address. */
static inline int bad_address(void)
{
	errno = EFAULT;
	return -1;
}

/* own_name reads the name of fd's own end, and peer_name that of its peer. They report whether it is one of the stack. */
bool own_name(int fd, struct shim_name *n);
bool peer_name(int fd, struct shim_name *n);

/*
 * renew puts a new socket in the place of a stream that has ended: the kernel connects an AF_UNIX socket once. The node gives it the options
 * and the port of the old one; arg has bits of RENEW. False: there is no descriptor for it, or no node.
 */
bool renew(int fd, const struct mark *m, int arg);

/* renewable reports whether a reply asks for that. */
static inline bool renewable(const struct shim_reply *reply)
{
	return reply->len == 1 && reply->value[0] == SHIM_RENEWABLE;
}

/* report writes a line to standard error, once for each place that calls it. */
#define report_once(text)                                            \
	do {                                                         \
		static _Bool reported;                               \
		if (!__atomic_exchange_n(&reported, 1, __ATOMIC_RELAXED)) \
			report(text);                                \
	} while (0)
void report(const char *text);

#endif
