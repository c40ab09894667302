/*
 * rings.c - which descriptors of the process have rings, and how they lose them.
 *
 * The table is by number. Calls that close a descriptor, or make its number another file, are intercepted, and a socket
 * gets rings only where the process has made it: by connect or accept. fork copies the table with the mappings.
 * Descriptors that leave the process in another way (exec, SCM_RIGHTS) or get a second number (dup) go back to tier 0
 * before. So no call has to ask the kernel what a descriptor is.
 */

#include "ringend.h"

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

/*
 * users counts in steps of two, so that bit 0 is free for "the descriptor is open" and one compare-and-swap covers both. The last user
 * to leave after the bit has gone unmaps: a thread may close a descriptor while another one reads from its ring. UNMAPPING keeps
 * the entry from a new socket with the same number until the memory is gone.
 */
void rings_release(struct rings *r)
{
	uint32_t users = atomic_load_explicit(&r->users, memory_order_relaxed);
	for (;;) {
		uint32_t next = users == 2 ? UNMAPPING : users - 2;
		if (!atomic_compare_exchange_weak_explicit(&r->users, &users, next, memory_order_acq_rel, memory_order_relaxed))
			continue;
		if (next == UNMAPPING) {
			r->tier->unmap(r);
			atomic_store_explicit(&r->users, 0, memory_order_release);
		}
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

void rings_closing(int fd)
{
	struct rings *r = rings_hold(fd);
	if (r != NULL && r->tier->closing != NULL)
		r->tier->closing(r, fd);
	if (r != NULL)
		rings_release(r);
	rings_forget(fd);
}

/*
 * map checks that the memory is what the node has said, and that its size cannot change. Without the seals the other end could shrink the
 * file, and each access behind its end would be SIGBUS in a program that knows nothing of rings. Nothing of the page decides what it is:
 * the other end may have written there. Its ends decide where the locks and indexes of this end are, and for another program that is
 * never the page.
 */
static struct ring_page *map(int memory, const struct shim_memory *of)
{
	size_t bytes = RING_HEADER + 2 * (size_t)of->size;
	bool known = of->ends <= RING_ENDS_PROGRAMS && of->size >= 4096 && (of->size & (of->size - 1)) == 0 && of->size <= 1u << 30;
	struct stat st;
	if (memory < 0 || !known || (KERNEL(fcntl, memory, F_GET_SEALS) & SEALS) != SEALS || fstat(memory, &st) != 0 ||
	    (uint64_t)st.st_size != bytes)
		return NULL;
	long p = KERNEL(mmap, NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	return p == -1 ? NULL : (struct ring_page *)p;
}

/* find_data sets where the bytes of the rings are. */
static void find_data(struct rings *r, uint32_t size)
{
	r->size = size;
	r->data[0] = (uint8_t *)r->page + RING_HEADER;
	r->data[1] = r->data[0] + size;
}

/*
 * take_slot gets the entry of a number for a socket, NULL if it may have no rings. The state UNMAPPING is no user and not open: calls of
 * other threads find no rings while they are being set up.
 */
static struct rings *take_slot(int fd)
{
	uint32_t none = 0;
	/* The first three become streams of libc, whose calls cannot be intercepted. */
	if ((unsigned)fd >= RINGS_DESCRIPTORS || fd <= STDERR_FILENO || atomic_load(&unwanted) ||
	    !atomic_compare_exchange_strong(&rings_of[fd].users, &none, UNMAPPING))
		return NULL;
	note_number(fd);
	return &rings_of[fd];
}

/* begin sets up rings. False: there is no memory for it, and r is as before. */
static bool begin(struct rings *r, struct ring_page *page, const struct shim_memory *of, int fd, bool connects)
{
	r->tier = of->ends == RING_ENDS_NODE ? &node_tier : &peer_tier;
	r->page = page;
	find_data(r, of->size);
	atomic_store(&r->spin, 0);
	if (!r->tier->attach(r, fd, connects))
		return false;
	lock_make(&r->side->send);
	lock_make(&r->side->receive);
	if ((KERNEL(fcntl, fd, F_GETFL) & O_NONBLOCK) != 0)
		atomic_store(&r->side->flags, SIDE_NONBLOCKING);
	return true;
}

int rings_attach(int fd, int memory, const struct shim_memory *of, bool connects)
{
	struct rings own = {0}, *slot = take_slot(fd), *r = slot != NULL ? slot : &own;
	struct ring_page *page = map(memory, of);
	bool ready = page != NULL && begin(r, page, of, fd, connects);
	KERNEL(close, memory);
	if (ready && slot != NULL) {
		atomic_store_explicit(&r->users, 1, memory_order_release);
		return fd;
	}
	if (ready) {
		fd = r->tier->refuse(r, fd, connects);
		r->tier->unmap(r);
		return fd;
	}
	if (page != NULL) { /* no memory for the end of another program, who may use the rings: bytes may be where none can read them */
		KERNEL(munmap, page, RING_HEADER + 2 * (size_t)of->size);
		KERNEL(shutdown, fd, SHUT_RDWR);
	} else {
		fd = node_tier.refuse(r, fd, connects);
	}
	if (slot != NULL)
		atomic_store(&r->users, 0);
	return fd;
}

bool rings_shareable(int fd)
{
	struct rings *r = rings_hold(fd);
	bool shareable = r == NULL || r->tier->share != NULL;
	if (r != NULL)
		rings_release(r);
	return shareable;
}

void rings_copy(int fd, int other)
{
	struct rings *r = rings_hold(fd), *o = r != NULL && r->tier->share != NULL ? take_slot(other) : NULL;
	bool shared = o != NULL && r->tier->share(r, o);
	if (shared) {
		o->tier = r->tier;
		find_data(o, r->size);
	}
	if (o != NULL)
		atomic_store_explicit(&o->users, shared ? 1 : 0, memory_order_release);
	if (r == NULL)
		return;
	rings_release(r);
	if (!shared) /* other may have no entry: the two would read one stream from two places */
		rings_leave(fd);
}

/* errno is the caller's: programs compare it after calls of which they do not know that they leave rings. */
void rings_leave(int fd)
{
	struct rings *r = rings_hold(fd);
	if (r == NULL)
		return;
	int saved = errno;
	bool left = r->tier->leave(r, fd);
	rings_release(r);
	if (left)
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

int rings_shut(struct rings *r, int fd, int how)
{
	return r->tier->shut(r, fd, how);
}

/* end_call ends the use of rings by a call. It reports whether that has its result, which is the socket's otherwise. */
static bool end_call(struct rings *r, int fd, ssize_t result)
{
	bool moved = result == RINGS_MOVED && r->tier->moved(r);
	rings_release(r);
	if (moved)
		rings_forget(fd);
	return result != RINGS_MOVED;
}

/* bad_parts is no_memory for the buffers of a call. */
static bool bad_parts(const struct iovec *parts, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (no_memory(parts[i].iov_base, parts[i].iov_len))
			return true;
	return false;
}

bool stream_receive(int fd, const struct iovec *parts, size_t n, int flags, ssize_t *result)
{
	struct rings *r = rings_hold(fd);
	if (r == NULL)
		return false;
	*result = RINGS_MOVED;
	if (bad_parts(parts, n))
		*result = bad_address();
	else if ((flags & (MSG_OOB | MSG_ERRQUEUE)) == 0)
		*result = rings_receive(r, fd, parts, n, flags);
	return end_call(r, fd, *result);
}

bool stream_send(int fd, const struct iovec *parts, size_t n, int flags, ssize_t *result)
{
	struct rings *r = rings_hold(fd);
	if (r == NULL)
		return false;
	*result = bad_parts(parts, n) ? bad_address() : rings_send(r, fd, parts, n, flags);
	return end_call(r, fd, *result);
}

bool stream_sendfile(int to, int from, off_t *at, size_t n, ssize_t *result)
{
	struct rings *r = rings_hold(to);
	if (r == NULL)
		return false;
	*result = rings_sendfile(r, to, from, at, n);
	return end_call(r, to, *result);
}

static void set_flag(int fd, uint32_t flag, bool on)
{
	struct rings *r = rings_hold(fd);
	if (r == NULL)
		return;
	if (on)
		atomic_fetch_or(&r->side->flags, flag);
	else
		atomic_fetch_and(&r->side->flags, ~flag);
	rings_release(r);
}

void rings_nonblocking(int fd, bool on)
{
	set_flag(fd, SIDE_NONBLOCKING, on);
}

void rings_timed(int fd)
{
	set_flag(fd, SIDE_TIMED, true);
}
