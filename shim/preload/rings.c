/*
 * rings.c - which descriptors of the process have rings, and how they lose them.
 *
 * The table is by number. Calls that close a descriptor, or make its number another file, are intercepted, and a socket
 * gets rings only where the process has made it: by connect or accept. fork copies the table with the mappings.
 * Descriptors that leave the process in another way (exec, SCM_RIGHTS) or get a second number (dup) go back to tier 0
 * before. So no call has to ask the kernel what a descriptor is.
 */

#include "direct.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* users while the last call unmaps the memory */
#define UNMAPPING 0x80000000u

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#endif
#define SEALS 7 /* F_SEAL_SEAL, SHRINK, GROW */

struct rings rings_of[RINGS_DESCRIPTORS];
_Atomic int rings_numbers;

/* note_number makes rings_numbers more than fd. */
static void note_number(int fd)
{
	int most = atomic_load_explicit(&rings_numbers, memory_order_relaxed);
	while (most <= fd && !atomic_compare_exchange_weak(&rings_numbers, &most, fd + 1))
		;
}

static _Atomic bool unwanted; /* see rings_end */

int rings_wanted(void)
{
	return settings()->rings && !atomic_load_explicit(&unwanted, memory_order_relaxed) ? SHIM_WANT_RINGS : 0;
}

uint64_t busy_poll(void)
{
	return settings()->busy_poll;
}

static void unmap(struct rings *r)
{
	if (r->direct != NULL)
		direct_unmap(r);
	else
		KERNEL(munmap, r->page, RING_HEADER + 2 * (size_t)r->page->size);
	atomic_store_explicit(&r->users, 0, memory_order_release);
}

void rings_release(struct rings *r)
{
	uint32_t users = atomic_load_explicit(&r->users, memory_order_relaxed);
	for (;;) {
		uint32_t next = users == 2 ? UNMAPPING : users - 2;
		if (!atomic_compare_exchange_weak_explicit(&r->users, &users, next, memory_order_acq_rel, memory_order_relaxed))
			continue;
		if (next == UNMAPPING)
			unmap(r);
		return;
	}
}

void rings_forget(int fd)
{
	struct rings *r = rings_hold(fd);
	if (r == NULL)
		return;
	atomic_fetch_and_explicit(&r->users, ~1u, memory_order_acq_rel);
	rings_release(r);
}

/* map checks what the node has sent: of the right size, which nobody can change. */
static struct ring_page *map(int memory)
{
	struct stat st;
	if ((KERNEL(fcntl, memory, F_GET_SEALS) & SEALS) != SEALS || fstat(memory, &st) != 0 || st.st_size < RING_HEADER)
		return NULL;
	long p = KERNEL(mmap, NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (p == -1)
		return NULL;
	struct ring_page *page = (struct ring_page *)p;
	uint32_t size = page->size;
	if (page->magic == RING_MAGIC && page->version == RING_VERSION && size != 0 && (size & (size - 1)) == 0 &&
	    (uint64_t)st.st_size == RING_HEADER + 2 * (uint64_t)size)
		return page;
	KERNEL(munmap, p, (size_t)st.st_size);
	return NULL;
}

/* Who is killed with the lock, or leaves the call by a jump, has published nothing: indexes are stored last. */
bool rings_lock(pthread_mutex_t *lock)
{
	int e = lock_take(lock, NULL, 0);
	return e == 0 || e == EOWNERDEAD;
}

void rings_unlock(pthread_mutex_t *lock)
{
	lock_give(lock);
}

/* move asks the node to use the socket, and takes out the doorbell bytes in front of what it writes then. */
static void move(int fd, uint32_t taken)
{
	struct shim_request q = {.op = SHIM_MOVE};
	struct shim_reply reply;
	uint32_t doorbells = 0;
	if (ask(&q, fd, &reply) != 0)
		return; /* it is closed, or was moved by another process */
	memcpy(&doorbells, reply.value, sizeof doorbells);
	for (uint32_t left = doorbells - taken; left > 0;) {
		char dropped[64];
		long n = KERNEL(recvfrom, fd, dropped, left < sizeof dropped ? left : sizeof dropped, MSG_DONTWAIT, NULL, NULL);
		if (n <= 0)
			return;
		left -= (uint32_t)n;
	}
}

/* is_direct reports whether memory is that of two programs. A sandbox that lets sockets be accepted may not let pread(2) be called. */
static bool is_direct(int memory)
{
	struct stat st;
	if ((KERNEL(fcntl, memory, F_GET_SEALS) & SEALS) != SEALS || fstat(memory, &st) != 0 || st.st_size <= DIRECT_HEADER)
		return false;
	long p = KERNEL(mmap, NULL, DIRECT_HEADER, PROT_READ, MAP_SHARED, memory, 0);
	if (p == -1)
		return false;
	bool direct = ((const struct direct_page *)p)->magic == DIRECT_MAGIC;
	KERNEL(munmap, p, DIRECT_HEADER);
	return direct;
}

/* attach_direct begins to use rings to another program, whose bytes may be there already. */
static int attach_direct(int fd, int memory, bool connects)
{
	struct rings own = {0}, *r = &own;
	uint32_t none = 0;
	bool usable = (unsigned)fd < RINGS_DESCRIPTORS && fd > STDERR_FILENO && !atomic_load(&unwanted) &&
		      atomic_compare_exchange_strong(&rings_of[fd].users, &none, UNMAPPING);
	if (usable) {
		r = &rings_of[fd];
		note_number(fd);
	}
	bool sealed = (KERNEL(fcntl, memory, F_GET_SEALS) & SEALS) == SEALS;
	if (!sealed || !direct_attach(r, fd, memory, connects)) {
		KERNEL(shutdown, fd, SHUT_RDWR); /* there is no memory: bytes may be where nobody can read them */
		if (usable)
			atomic_store(&r->users, 0);
	} else if (usable) {
		atomic_store_explicit(&r->users, 1, memory_order_release);
	} else if (connects) {
		direct_leave(r, fd);
		direct_unmap(r);
	} else {
		fd = direct_decline(r, fd);
		direct_unmap(r);
	}
	KERNEL(close, memory);
	return fd;
}

void rings_copy(int fd, int other)
{
	struct rings *r = rings_hold(fd);
	uint32_t none = 0;
	if (r == NULL)
		return;
	if (r->direct == NULL || (unsigned)other >= RINGS_DESCRIPTORS ||
	    !atomic_compare_exchange_strong(&rings_of[other].users, &none, UNMAPPING)) {
		rings_release(r);
		return;
	}
	struct rings *o = &rings_of[other];
	note_number(other);
	bool shared = direct_share(r, o);
	atomic_store_explicit(&o->users, shared ? 1 : 0, memory_order_release);
	rings_release(r);
	if (!shared)
		rings_leave(fd);
}

int rings_attach(int fd, int memory, bool connects)
{
	if (memory >= 0 && is_direct(memory))
		return attach_direct(fd, memory, connects);
	bool known = (unsigned)fd < RINGS_DESCRIPTORS;
	uint32_t none = 0;
	/* The first three become streams of libc, whose calls cannot be intercepted. */
	struct ring_page *page = known && fd > STDERR_FILENO && !atomic_load(&unwanted) ? map(memory) : NULL;
	KERNEL(close, memory);
	if (page != NULL && atomic_compare_exchange_strong(&rings_of[fd].users, &none, UNMAPPING)) {
		struct rings *r = &rings_of[fd];
		note_number(fd);
		r->page = page;
		r->data[TO_NODE] = (uint8_t *)page + RING_HEADER;
		r->data[TO_PROGRAM] = r->data[TO_NODE] + page->size;
		atomic_store(&r->error, 0);
		atomic_store(&r->look, 0);
		lock_make(&page->locks[0].send);
		lock_make(&page->locks[0].receive);
		atomic_store_explicit(&r->users, 1, memory_order_release);
		return fd;
	}
	if (page != NULL)
		KERNEL(munmap, page, RING_HEADER + 2 * (size_t)page->size);
	move(fd, 0);
	return fd;
}

void rings_leave(int fd)
{
	struct rings *r = rings_hold(fd);
	if (r == NULL)
		return;
	int saved = errno;
	if (r->direct != NULL) {
		direct_leave(r, fd);
		rings_release(r);
		rings_forget(fd);
		errno = saved;
		return;
	}
	struct ring_page *p = r->page;
	struct ring_locks *l = &p->locks[0];
	if (rings_lock(&l->send)) {
		if (rings_lock(&l->receive)) {
			if (atomic_load(&p->state) != RING_MOVED) {
				move(fd, atomic_load(&p->direction[TO_PROGRAM].taken));
				if (atomic_load(&p->shut) != 0)
					KERNEL(shutdown, fd, SHUT_WR);
			}
			rings_unlock(&l->receive);
		}
		rings_unlock(&l->send);
	}
	bool moved = atomic_load(&p->state) == RING_MOVED;
	rings_release(r);
	if (moved)
		rings_forget(fd);
	errno = saved;
}

void rings_leave_all(bool inherited)
{
	for (int fd = 0; fd < atomic_load(&rings_numbers); fd++)
		if ((atomic_load_explicit(&rings_of[fd].users, memory_order_relaxed) & 1) != 0 &&
		    (!inherited || (KERNEL(fcntl, fd, F_GETFD) & FD_CLOEXEC) == 0))
			rings_leave(fd);
}

void rings_end(void)
{
	atomic_store(&unwanted, true);
	rings_leave_all(false);
}
