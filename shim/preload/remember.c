/*
 * remember.c - what programs have made of their sockets. The library has no table of descriptors (library.h), and this is none: it is
 * by the kernel's number of a socket, which all descriptors of it share, and a child of fork has a copy. A program that
 * exec has started knows nothing of before.
 */

#include "remember.h"

#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#define PLACES 256
#define NEIGHBOURS 8 /* places that a socket may have */

static struct remembered table[PLACES];
static _Atomic uint64_t table_lock;

static uint64_t self(void)
{
	return (uint64_t)getpid() << 32 | (uint32_t)KERNEL(gettid, 0);
}

bool hold(_Atomic uint64_t *lock)
{
	uint64_t mine = self(), is = 0;
	if (atomic_compare_exchange_strong(lock, &is, mine))
		return true;
	bool held = is >> 32 == mine >> 32 && is != mine && KERNEL(tgkill, getpid(), (uint32_t)is, 0) == 0;
	return !held && atomic_compare_exchange_strong(lock, &is, mine);
}

void let_go(_Atomic uint64_t *lock)
{
	atomic_store(lock, 0);
}

/* enter takes the table. No signal handler may come meanwhile: it would take the table from its own thread. */
static void enter(sigset_t *old)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, old);
	while (!hold(&table_lock))
		sched_yield();
}

static void leave(const sigset_t *old)
{
	let_go(&table_lock);
	pthread_sigmask(SIG_SETMASK, old, NULL);
}

/* place_of finds the place of a socket or, where it has none and make is true, takes that of the one which is missed least. */
static struct remembered *place_of(uint64_t cookie, bool make)
{
	static uint64_t clock;
	struct remembered *least = NULL;
	for (unsigned i = 0; i < NEIGHBOURS; i++) {
		struct remembered *r = &table[(cookie + i) % PLACES];
		if (r->cookie == cookie)
			return r;
		bool bound = r->addr.family != 0 || r->backlog != 0;
		if (least == NULL || (!bound && (least->addr.family != 0 || least->backlog != 0)) || (!bound && r->age < least->age))
			least = r;
	}
	if (!make)
		return NULL;
	memset(least, 0, offsetof(struct remembered, option));
	least->cookie = cookie;
	least->age = ++clock;
	return least;
}

/* adds reports whether an option is one of a list, as the groups of a socket, so that the last one is not all there is. */
static bool adds(int level, int name)
{
	if (level != IPPROTO_IP && level != IPPROTO_IPV6)
		return false;
	return (name >= MCAST_JOIN_GROUP && name <= MCAST_LEAVE_SOURCE_GROUP) ||
	       (level == IPPROTO_IP ? name >= IP_ADD_MEMBERSHIP && name <= IP_DROP_SOURCE_MEMBERSHIP
				    : name == IPV6_JOIN_GROUP || name == IPV6_LEAVE_GROUP);
}

void remember_option(int fd, int level, int name, const void *value, socklen_t len)
{
	sigset_t old;
	uint64_t cookie = settings()->rebinds && own_memory() && len <= LONGEST_OPTION ? cookie_of(fd) : 0;
	if (cookie == 0)
		return;
	enter(&old);
	struct remembered *r = place_of(cookie, true);
	unsigned i = 0;
	while (i < r->options && (adds(level, name) || r->option[i].level != level || r->option[i].name != name))
		i++;
	if (i < MOST_OPTIONS) {
		r->option[i].level = level;
		r->option[i].name = name;
		r->option[i].len = len;
		memcpy(r->option[i].value, value, len);
		r->options += i == r->options;
	}
	leave(&old);
}

void remember_bind(int fd, const struct shim_addr *addr, const struct shim_reply *reply)
{
	sigset_t old;
	struct shim_request q = {.op = SHIM_NAMES};
	struct shim_reply names = {0};
	uint64_t cookie = settings()->rebinds && own_memory() ? cookie_of(fd) : 0;
	if (cookie == 0 || ask(&q, fd, &names) != 0 || names.len != sizeof(uint32_t))
		return;
	enter(&old);
	struct remembered *r = place_of(cookie, true);
	memcpy(&r->instance, names.value, sizeof r->instance);
	r->addr = *addr;
	r->addr.port = reply->local.port; /* the node has chosen it where addr has none */
	r->permitted = reply->len == sizeof r->permit;
	if (r->permitted)
		memcpy(r->permit, reply->value, sizeof r->permit);
	leave(&old);
}

void remember_listen(int fd, int backlog)
{
	sigset_t old;
	uint64_t cookie = settings()->rebinds && own_memory() ? cookie_of(fd) : 0;
	if (cookie == 0)
		return;
	enter(&old);
	place_of(cookie, true)->backlog = backlog > 0 ? backlog : 1;
	leave(&old);
}

bool recall(uint64_t cookie, struct remembered *to)
{
	sigset_t old;
	enter(&old);
	const struct remembered *r = place_of(cookie, false);
	if (r != NULL)
		*to = *r;
	leave(&old);
	return r != NULL;
}

void replaced(const struct remembered *r, int fd, uint32_t instance)
{
	sigset_t old;
	uint64_t cookie = cookie_of(fd);
	enter(&old);
	struct remembered *before = place_of(r->cookie, false);
	if (before != NULL)
		before->cookie = 0;
	struct remembered *to = place_of(cookie, true);
	uint64_t age = to->age;
	*to = *r;
	to->cookie = cookie;
	to->age = age;
	to->instance = instance;
	leave(&old);
}
