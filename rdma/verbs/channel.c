#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "library.h"

/* dial connects to the node's control socket, by path or, where the program has changed its root directory, not at all. */
static int dial(void)
{
	const char *path = getenv("MILLRACE_RDMA");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	if (!path || !*path || strlen(path) >= sizeof to.sun_path) {
		errno = ENOENT;
		return -1;
	}
	strcpy(to.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
		int e = errno;
		close(fd);
		errno = e;
		return -1;
	}
	return fd;
}

/* exchange sends a request, with a descriptor unless it is negative, and receives the reply with its descriptors. The missing ones of
 * fds are -1. */
static int exchange(int fd, const void *q, size_t size, int send_fd, void *r, size_t room, int *fds, int count)
{
	union {
		char bytes[CMSG_SPACE(4 * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {(void *)q, size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	if (send_fd >= 0) {
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &send_fd, sizeof send_fd);
	}
	ssize_t n;
	while ((n = sendmsg(fd, &m, MSG_NOSIGNAL)) < 0 && errno == EINTR)
		;
	if (n != (ssize_t)size)
		return EIO;
	iov = (struct iovec){r, room};
	m = (struct msghdr){.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	while ((n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
		;
	for (int i = 0; i < count; i++)
		fds[i] = -1;
	struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(&m) : NULL;
	if (c && c->cmsg_type == SCM_RIGHTS) {
		int got = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		for (int i = 0; i < got; i++) {
			int one;
			memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
			if (i < count)
				fds[i] = one;
			else
				close(one);
		}
	}
	const struct { /* the first fields of any reply */
		uint32_t version;
		int32_t error;
	} *head = r;
	if (n != (ssize_t)room || head->version != CHANNEL_VERSION)
		return EIO;
	return head->error;
}

/* call does a request, and returns an error number. */
int call(struct context *c, struct request *q, struct reply *r, int *fds, int count)
{
	q->version = CHANNEL_VERSION;
	return millrace_exchange(&c->abi.context, q, sizeof *q, r, sizeof *r, fds, count);
}

/* millrace_exchange is for librdmacm, whose requests go the same way. */
EXPORT int millrace_exchange(struct ibv_context *ctx, const void *q, size_t size, void *r, size_t room, int *fds, int count)
{
	struct context *c = context_of(ctx);
	pthread_mutex_lock(&c->control);
	int e = exchange(c->socket, q, size, -1, r, room, fds, count);
	pthread_mutex_unlock(&c->control);
	return e;
}

/* node_is_gone reports whether the node has closed its end, for good. */
bool node_is_gone(struct context *c)
{
	struct pollfd p = {.fd = c->socket, .events = POLLRDHUP};
	return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

/* map_queue maps a queue of the node's, and closes its descriptor. */
struct ring_queue *map_queue(int fd, uint32_t slots, size_t extra, size_t *size)
{
	*size = sizeof(struct ring_queue) + (size_t)slots * sizeof(struct ring_entry) + extra;
	struct ring_queue *q = fd < 0 ? MAP_FAILED : mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (q == MAP_FAILED)
		return NULL;
	madvise(q, *size, MADV_DONTFORK); /* a child has no end of it */
	if (q->magic != RING_QUEUE_MAGIC || q->version != RING_VERSION || q->slots != slots) {
		munmap(q, *size);
		return NULL;
	}
	return q;
}

/* connect_node makes a context: the node gets the descriptor of this process's memory. */
struct context *connect_node(void)
{
	struct request q = {.version = CHANNEL_VERSION, .op = OP_HELLO};
	struct reply r;
	int fds[3] = {-1, -1, -1}, e = EMFILE;
	struct context *c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	c->socket = dial();
	if (memory < 0 || c->socket < 0)
		e = errno;
	else
		e = exchange(c->socket, &q, sizeof q, memory, &r, sizeof r, fds, 3);
	if (memory >= 0)
		close(memory);
	struct submission *s = &c->submission;
	if (!e) {
		s->slots = r.slots;
		s->queue = map_queue(fds[0], r.slots, r.staging, &s->size);
		fds[0] = -1;
		c->regions = calloc(PLACES, sizeof *c->regions);
		if (!s->queue || !c->regions)
			e = ENOMEM;
	}
	s->doorbell = fds[1];
	c->abi.context.async_fd = fds[2];
	if (e) {
		disconnect_node(c);
		errno = e;
		return NULL;
	}
	s->staging = (unsigned char *)s->queue + sizeof(struct ring_queue) + (size_t)s->slots * sizeof(struct ring_entry);
	memcpy(c->gid.raw, r.gid, sizeof r.gid);
	c->guid = r.guid;
	c->max_mtu = r.max_mtu;
	pthread_mutex_init(&c->control, NULL);
	pthread_mutex_init(&c->tables, NULL);
	pthread_mutex_init(&s->lock, NULL);
	return c;
}

void disconnect_node(struct context *c)
{
	struct submission *s = &c->submission;
	if (c->socket >= 0)
		close(c->socket);
	if (s->doorbell >= 0)
		close(s->doorbell);
	if (c->abi.context.async_fd >= 0)
		close(c->abi.context.async_fd);
	if (s->queue)
		munmap(s->queue, s->size);
	free((void *)c->regions);
	free(c);
}
