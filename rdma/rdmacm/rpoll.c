#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <time.h>

#include "rsocket.h"

/* check returns the events of a socket that are there now. The socket is not locked. */
static short check(struct rsocket *s, short events)
{
	struct pollfd p = {.fd = s->id->channel->fd, .events = POLLIN};
	short got = 0;
	pthread_mutex_lock(&s->lock);
	if (s->state >= RS_RESOLVING && s->state <= RS_ACCEPTING && poll(&p, 1, 0) == 1)
		advance(s);
	switch (s->state) {
	case RS_LISTENING:
		got = poll(&p, 1, 0) == 1 ? POLLIN : 0;
		break;
	case RS_CONNECTED:
	case RS_DISCONNECTED:
		take_cq_event(s);
		take_cm_event(s);
		process(s);
		got = (short)((may_receive(s) ? POLLIN : 0) | (may_send(s) ? POLLOUT : 0));
		if (s->state == RS_DISCONNECTED && s->message_head == s->message_tail) /* what has come is read first */
			got |= POLLHUP;
		if (s->state == RS_FAILED)
			got |= POLLERR | POLLHUP;
		break;
	case RS_FAILED:
		got = POLLIN | POLLOUT | POLLERR | POLLHUP;
		break;
	default:
		break;
	}
	pthread_mutex_unlock(&s->lock);
	return got & (events | POLLHUP | POLLERR);
}

/* check_all fills in what is there now, and returns the number of entries that have something. */
static int check_all(struct pollfd *fds, nfds_t n)
{
	int count = 0;
	for (nfds_t i = 0; i < n; i++) {
		struct rsocket *s = rsocket_of(fds[i].fd);
		fds[i].revents = 0;
		if (s)
			fds[i].revents = check(s, fds[i].events);
		else if (fds[i].fd >= 0)
			poll(&fds[i], 1, 0);
		count += fds[i].revents != 0;
	}
	return count;
}

/* fill lists the descriptors to wait for: two for each socket that is connected. */
static nfds_t fill(struct pollfd *to, const struct pollfd *fds, nfds_t n)
{
	nfds_t m = 0;
	for (nfds_t i = 0; i < n; i++) {
		struct rsocket *s = rsocket_of(fds[i].fd);
		to[m] = fds[i];
		if (!s) {
			m++;
			continue;
		}
		to[m++] = (struct pollfd){.fd = s->id->channel->fd, .events = POLLIN};
		if (s->state == RS_CONNECTED)
			to[m++] = (struct pollfd){.fd = s->id->recv_cq_channel->fd, .events = POLLIN};
	}
	return m;
}

static void arm_all(struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++) {
		struct rsocket *s = rsocket_of(fds[i].fd);
		if (!s)
			continue;
		pthread_mutex_lock(&s->lock);
		if (s->state == RS_CONNECTED)
			arm(s);
		pthread_mutex_unlock(&s->lock);
	}
}

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * (int64_t)1000 + t.tv_nsec / 1000000;
}

EXPORT int rpoll(struct pollfd *fds, nfds_t n, int timeout)
{
	int64_t end = now_ms() + timeout;
	int count = check_all(fds, n);
	if (count || !timeout)
		return count;
	struct pollfd *list = calloc(2 * n + 1, sizeof *list);
	if (!list)
		return fail(ENOMEM);
	for (;;) {
		arm_all(fds, n);
		if ((count = check_all(fds, n))) /* what came before it was armed */
			break;
		arm_all(fds, n); /* the check may have taken an event */
		int64_t left = timeout < 0 ? -1 : end - now_ms();
		if (timeout >= 0 && left < 0)
			left = 0;
		int got = poll(list, fill(list, fds, n), (int)left);
		count = got < 0 ? got : check_all(fds, n);
		if (count || !got)
			break;
	}
	int e = errno;
	free(list);
	errno = e;
	return count;
}

static int to_set(fd_set *set, int fd, bool on)
{
	if (!set || !on)
		return 0;
	FD_SET(fd, set);
	return 1;
}

EXPORT int rselect(int n, fd_set *reads, fd_set *writes, fd_set *errors, struct timeval *timeout)
{
	struct pollfd *list = calloc((size_t)n + 1, sizeof *list);
	nfds_t m = 0;
	if (!list)
		return fail(ENOMEM);
	for (int fd = 0; fd < n; fd++) {
		bool r = reads && FD_ISSET(fd, reads), w = writes && FD_ISSET(fd, writes), e = errors && FD_ISSET(fd, errors);
		if (r || w || e)
			list[m++] = (struct pollfd){.fd = fd, .events = (short)((r ? POLLIN : 0) | (w ? POLLOUT : 0) | (e ? POLLPRI : 0))};
	}
	int count = rpoll(list, m, timeout ? (int)(timeout->tv_sec * 1000 + timeout->tv_usec / 1000) : -1);
	if (reads && count >= 0)
		FD_ZERO(reads);
	if (writes && count >= 0)
		FD_ZERO(writes);
	if (errors && count >= 0)
		FD_ZERO(errors);
	if (count > 0) {
		count = 0;
		for (nfds_t i = 0; i < m; i++) {
			short got = list[i].revents, want = list[i].events;
			count += to_set(reads, list[i].fd, want & POLLIN && got & (POLLIN | POLLHUP | POLLERR));
			count += to_set(writes, list[i].fd, want & POLLOUT && got & (POLLOUT | POLLERR));
			count += to_set(errors, list[i].fd, want & POLLPRI && got & (POLLPRI | POLLERR));
		}
	}
	free(list);
	return count;
}
