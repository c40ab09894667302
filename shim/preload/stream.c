/*
 * stream.c - read, write and their relatives, for sockets with rings. All other descriptors are served by libc: its
 * functions are points where a thread may be cancelled. The library has found them when it was loaded; calls before
 * that are made by system call.
 */

#include "interfaces.h"
#include "rings.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>

static struct {
	ssize_t (*read)(int, void *, size_t);
	ssize_t (*write)(int, const void *, size_t);
	ssize_t (*readv)(int, const struct iovec *, int);
	ssize_t (*writev)(int, const struct iovec *, int);
} next;

static void find(void *to, const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);
	memcpy(to, &f, sizeof f);
}

__attribute__((constructor)) static void find_all(void)
{
	find(&next.read, "read");
	find(&next.write, "write");
	find(&next.readv, "readv");
	find(&next.writev, "writev");
}

INTERPOSED ssize_t read(int fd, void *data, size_t n)
{
	struct iovec part = {data, n};
	ssize_t result;
	struct msghdr one = {.msg_iov = &part, .msg_iovlen = 1};
	if (stream_receive(fd, &part, 1, 0, &result))
		return result;
	if (maybe_datagram(fd) && (read_datagram(fd, &part, 1, &result) || netlink_receive(fd, &one, 0, &result)))
		return result;
	return next.read != NULL ? next.read(fd, data, n) : KERNEL(read, fd, data, n);
}

INTERPOSED ssize_t __read_chk(int fd, void *data, size_t n, size_t space)
{
	if (n > space)
		__builtin_trap(); /* libc ends the program, too */
	return read(fd, data, n);
}

INTERPOSED ssize_t write(int fd, const void *data, size_t n)
{
	struct iovec part = {(void *)data, n};
	ssize_t result;
	if (stream_send(fd, &part, 1, 0, &result))
		return result;
	if (maybe_datagram(fd) && (write_datagram(fd, &part, 1, &result) || netlink_send(fd, &part, 1, 0, &result)))
		return result;
	return next.write != NULL ? next.write(fd, data, n) : KERNEL(write, fd, data, n);
}

INTERPOSED ssize_t readv(int fd, const struct iovec *parts, int n)
{
	ssize_t result;
	if (n > 0 && n <= IOV_MAX && !no_memory(parts, (size_t)n * sizeof *parts) && stream_receive(fd, parts, (size_t)n, 0, &result))
		return result;
	if (n > 0 && maybe_datagram(fd) && read_datagram(fd, parts, (size_t)n, &result))
		return result;
	return next.readv != NULL ? next.readv(fd, parts, n) : KERNEL(readv, fd, parts, n);
}

INTERPOSED ssize_t writev(int fd, const struct iovec *parts, int n)
{
	ssize_t result;
	if (n > 0 && n <= IOV_MAX && !no_memory(parts, (size_t)n * sizeof *parts) && stream_send(fd, parts, (size_t)n, 0, &result))
		return result;
	if (n > 0 && maybe_datagram(fd) && write_datagram(fd, parts, (size_t)n, &result))
		return result;
	return next.writev != NULL ? next.writev(fd, parts, n) : KERNEL(writev, fd, parts, n);
}

INTERPOSED ssize_t sendfile(int to, int from, off_t *at, size_t n)
{
	ssize_t result;
	if (stream_sendfile(to, from, at, n, &result))
		return result;
	return KERNEL(sendfile, to, from, at, n);
}

INTERPOSED ssize_t sendfile64(int to, int from, off64_t *at, size_t n)
{
	return sendfile(to, from, (off_t *)at, n);
}

/*
 * shut_alone is shutdown of what is no connection. A stream that does not listen stays as it is: an AF_UNIX socket is shut down in any
 * state. UDP without a peer fails, too, but wakes those who wait, which programs use to end them. false: it is a connection.
 */
static bool shut_alone(int fd, int how, int *result)
{
	struct mark m = read_mark(fd);
	struct shim_name name;
	bool listens = m.kind == STREAM && !m.connected && own_name(fd, &name);
	if (m.kind == NOT_OURS || (m.kind == STREAM && m.connected))
		return false;
	if (m.kind != STREAM || listens) {
		if (how != SHUT_WR)
			note_shut(fd); /* before the others wake */
		*result = (int)KERNEL(shutdown, fd, how);
	}
	if (m.kind == DATAGRAM || (m.kind == STREAM && !listens)) {
		errno = ENOTCONN;
		*result = -1;
	}
	return true;
}

INTERPOSED int shutdown(int fd, int how)
{
	struct rings *r = how == SHUT_WR || how == SHUT_RDWR ? rings_hold(fd) : NULL;
	int alone;
	if (r == NULL && how >= SHUT_RD && how <= SHUT_RDWR && shut_alone(fd, how, &alone))
		return alone;
	if (r == NULL)
		return (int)KERNEL(shutdown, fd, how);
	int result = rings_shut(r, fd, how);
	rings_release(r);
	return result;
}

/* next_datagram is FIONREAD of UDP: the bytes of the first that waits, where AF_UNIX counts all and their headers. */
static int next_datagram(int fd, const struct mark *m, int *n)
{
	long got = KERNEL(recvfrom, fd, NULL, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT, NULL, NULL);
	long header = m->kind == DATAGRAM ? (long)sizeof(struct shim_datagram) : 0;
	*n = got > header ? (int)(got - header) : 0;
	return 0;
}

INTERPOSED int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	va_start(list, request);
	void *arg = va_arg(list, void *);
	va_end(list);
	if (is_interface_request(request) && read_mark(fd).kind != NOT_OURS)
		return interface_ioctl(request, arg);
	struct rings *r = request == FIONREAD ? rings_hold(fd) : NULL;
	struct mark m = r == NULL && (request == FIONREAD || request == SIOCATMARK) ? data_mark(fd, false) : (struct mark){NOT_OURS, 0, false};
	if ((m.kind == DATAGRAM || m.kind == DATAGRAM_CONNECTED) && request == SIOCATMARK) {
		errno = ENOTTY; /* UDP has no urgent bytes */
		return -1;
	}
	if ((m.kind == DATAGRAM || m.kind == DATAGRAM_CONNECTED) && !no_memory(arg, sizeof(int)))
		return next_datagram(fd, &m, arg);
	if (r == NULL) {
		int result = (int)KERNEL(ioctl, fd, request, arg);
		if (request == FIONBIO && result == 0)
			rings_nonblocking(fd, *(int *)arg != 0);
		return result;
	}
	if (no_memory(arg, sizeof(int))) {
		rings_release(r);
		return bad_address();
	}
	*(int *)arg = (int)rings_unread(r, fd);
	rings_release(r);
	return 0;
}
