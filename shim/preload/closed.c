/*
 * closed.c - on Linux the port of a socket is free when its last close(2) returns: programs bind it again at once, or expect that a peer is
 * refused. The node sees a close some time later, so the library waits for it: for sockets of datagrams, and for streams that have called
 * bind(2) or listen(2). The close of a connection waits for nothing.
 */

#include "library.h"

#include <stdatomic.h>

#define NUMBERS 65536 /* a socket with a higher number is freed without a wait */

static _Atomic uint64_t ports[NUMBERS / 64]; /* a bit for each descriptor that may have a port; close clears it */
static _Atomic bool never;

void note_port(int fd)
{
	if ((unsigned)fd < NUMBERS)
		atomic_fetch_or_explicit(&ports[fd / 64], 1ull << (fd % 64), memory_order_relaxed);
}

bool maybe_port(int fd)
{
	return (unsigned)fd < NUMBERS && (atomic_load_explicit(&ports[fd / 64], memory_order_relaxed) >> (fd % 64) & 1) != 0;
}

void no_more_waits(void)
{
	atomic_store(&never, true);
}

/* The bit goes before the close: after it another thread may have got the number for a new socket. */
uint64_t port_closing(int fd)
{
	if (!maybe_port(fd) || atomic_load(&never) || !own_memory())
		return 0;
	atomic_fetch_and_explicit(&ports[fd / 64], ~(1ull << (fd % 64)), memory_order_relaxed);
	if (read_mark(fd).kind == NOT_OURS)
		return 0;
	int saved = errno;
	uint64_t cookie = cookie_of(fd);
	errno = saved;
	return cookie;
}

/* A child of fork that has made no request of its own does not open a channel for this: its parent has the socket still, as a rule. */
void port_closed(uint64_t cookie)
{
	struct shim_request q = {.op = SHIM_RELEASE, .len = sizeof cookie};
	if (cookie == 0)
		return;
	memcpy(q.value, &cookie, sizeof cookie);
	request_quietly(&q);
}
