/*
 * cork.c - MSG_MORE of datagrams: the bytes of several calls are one datagram, which the first call without the flag sends (udp(7)).
 * They wait in the process, so that one that another process goes on with is lost.
 */

#include "datagram.h"

#include <stdatomic.h>
#include <stdlib.h>

#define CORKED 16 /* sockets with bytes that wait */
#define MOST 65507

struct cork {
	uint64_t cookie; /* of the socket; 0 is free */
	size_t n;
	socklen_t name_len;
	struct sockaddr_storage name; /* of the first call */
	char *data;                   /* MOST bytes */
};

static struct cork corks[CORKED];
static _Atomic int used; /* of corks */
static atomic_flag busy = ATOMIC_FLAG_INIT;

static void enter(void)
{
	while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire))
		KERNEL(sched_yield, 0);
}

static void leave(void)
{
	atomic_flag_clear_explicit(&busy, memory_order_release);
}

/* find returns the bytes of a socket, or a free place where it has none and make asks for one; NULL is that there is none. */
static struct cork *find(uint64_t cookie, bool make)
{
	struct cork *place = NULL;
	for (int i = 0; i < CORKED; i++) {
		if (corks[i].cookie == cookie)
			return &corks[i];
		if (corks[i].cookie == 0 && place == NULL)
			place = &corks[i];
	}
	if (!make || place == NULL || (place->data == NULL && (place->data = malloc(MOST)) == NULL))
		return NULL;
	place->cookie = cookie;
	place->n = place->name_len = 0;
	atomic_fetch_add(&used, 1);
	return place;
}

static void empty(struct cork *c)
{
	c->cookie = 0;
	atomic_fetch_sub(&used, 1);
}

/* append adds the parts of a message. It returns their size, or -1 with EMSGSIZE, which drops all as Linux does. */
static ssize_t append(struct cork *c, const struct msghdr *m)
{
	size_t before = c->n;
	if (before == 0 && m->msg_name != NULL && m->msg_namelen <= sizeof c->name) {
		memcpy(&c->name, m->msg_name, m->msg_namelen);
		c->name_len = m->msg_namelen;
	}
	for (size_t i = 0; i < m->msg_iovlen; i++) {
		if (m->msg_iov[i].iov_len > MOST - c->n) {
			empty(c);
			errno = EMSGSIZE;
			return -1;
		}
		memcpy(c->data + c->n, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
		c->n += m->msg_iov[i].iov_len;
	}
	return (ssize_t)(c->n - before);
}

bool corked_send(int fd, const struct msghdr *m, int flags, ssize_t *result)
{
	bool more = (flags & MSG_MORE) != 0;
	if (!more && atomic_load_explicit(&used, memory_order_relaxed) == 0)
		return false;
	uint64_t cookie = cookie_of(fd);
	if (cookie == 0)
		return false;
	enter();
	struct cork *c = find(cookie, more);
	if (c == NULL) {
		leave();
		return false;
	}
	*result = append(c, m);
	if (*result < 0 || more) {
		leave();
		return true;
	}
	struct cork whole = *c;
	c->data = NULL;
	empty(c);
	leave();
	struct iovec part = {whole.data, whole.n};
	struct msghdr all = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = m->msg_control, .msg_controllen = m->msg_controllen};
	if (whole.name_len != 0) {
		all.msg_name = &whole.name;
		all.msg_namelen = whole.name_len;
	}
	if (sendmsg(fd, &all, flags) < 0)
		*result = -1;
	int saved = errno;
	free(whole.data);
	errno = saved;
	return true;
}
