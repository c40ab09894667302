/* Sockets for thread blocks. docs/design/090-gpunet.md has the protocol, queue/slab.h the memory.
 *
 * All threads of a block call each function together, with equal arguments, and all get its result: a count or a descriptor, or an
 * errno as a negative number. wait is how many nanoseconds a call may wait: 0 returns -EAGAIN at once, GPUNET_FOREVER waits until the
 * kernel is stopped. Descriptors belong to the block that accepted them. */
#ifndef MILLRACE_GPUNET_CUH
#define MILLRACE_GPUNET_CUH

#include "queue/slab.h"

#define GPUNET_FOREVER (~0ull)

/* errno values of Linux, which has no header for kernels */
enum {
	GPUNET_EBADF = 9, GPUNET_EAGAIN = 11, GPUNET_EINVAL = 22, GPUNET_EPIPE = 32, GPUNET_ENETDOWN = 100, GPUNET_ECANCELED = 125,
};

/* Events of gpoll, with the values of epoll(7). */
enum { GPUNET_IN = 1, GPUNET_OUT = 4, GPUNET_ERR = 8 };

struct gpunet_address {
	u8 ip[16]; /* IPv4 as ::ffff:a.b.c.d */
	u32 port;
};

/* A connection, in device memory. Positions count bytes of a stream, modulo 2^32. */
struct gpunet_conn {
	u32 in, read, credited; /* arrived, consumed, and consumed as the host knows it */
	u32 out, acked;         /* sent, and acknowledged by the host */
	u32 error;              /* errno of the reset */
	u16 generation;
	u8 state;
	u8 ready;    /* in the list of gpoll */
	u32 visible; /* gaccept has returned it */
	struct gpunet_address peer;
};

/* What a launch passes. memory is zeroed device memory of gpunet_memory_size for each block. */
struct gpunet {
	u8 *slab, *memory;
	u64 patience; /* ns after which a host that frees no slot counts as dead */
};

/* A list of connections in device memory, each in it at most once. */
struct gpunet_list {
	u32 *slots, head, tail;
};

enum gpunet_life { GPUNET_RUNS, GPUNET_STOPPED, GPUNET_LOST };

/* The block's end, in shared memory. Thread 0 alone writes it, between barriers. */
struct gpunet_block {
	struct gpunet_slab slab;
	struct gk_share_queue *down, *up;
	u64 taken, put, consumed, patience;
	u8 *rings, *buffers;
	struct gpunet_conn *conns;
	struct gpunet_list accepted, ready;
	struct gk_share_item item;
	u32 shift, life;
	i32 listening; /* 1: no answer yet */
	/* from thread 0 to the others */
	i32 result;
	u32 fill, from, found, inline_bytes; /* bytes to copy to the receive buffer of connection item.connection */
	u64 deadline;
};

GK_FN u64 gpunet_memory_size(const struct gpunet_slab *s)
{
	return (u64)s->connections * (sizeof(struct gpunet_conn) + 8 + s->ring);
}

GK_FN u32 gpunet_ring_mask(const struct gpunet_block *b) { return b->slab.ring - 1; }
GK_FN u8 *gpunet_buffer(const struct gpunet_block *b, u32 i) { return b->buffers + (u64)i * b->slab.ring; }
GK_FN u8 *gpunet_ring(const struct gpunet_block *b, u32 i, u32 up) { return b->rings + (2ull * i + up) * b->slab.ring; }
GK_FN i32 gpunet_descriptor(const struct gpunet_block *b, u32 i) { return (i32)((b->conns[i].generation & 0x7fffu) << 16 | i); }

/* gpunet_broadcast gives thread 0's result to all. */
GK_FN i32 gpunet_broadcast(struct gpunet_block *b)
{
	gk_block_sync();
	i32 r = b->result;
	gk_block_sync();
	return r;
}

GK_FN void gpunet_append(const struct gpunet_block *b, struct gpunet_list *l, u32 i)
{
	l->slots[l->tail++ % b->slab.connections] = i;
}

/* gpunet_mark has gpoll report a connection. */
GK_FN void gpunet_mark(struct gpunet_block *b, u32 i)
{
	if (b->conns[i].ready || !b->conns[i].visible)
		return;
	b->conns[i].ready = 1;
	gpunet_append(b, &b->ready, i);
}

/* gpunet_next takes the oldest connection of a list that is still open; -1: none. */
GK_FN i32 gpunet_next(const struct gpunet_block *b, struct gpunet_list *l)
{
	return l->head == l->tail ? -1 : (i32)l->slots[l->head++ % b->slab.connections];
}

/* gpunet_find returns the connection of a descriptor, or null. */
GK_FN struct gpunet_conn *gpunet_find(const struct gpunet_block *b, i32 fd)
{
	u32 i = (u32)fd & 0xffff;
	if (fd < 0 || i >= b->slab.connections)
		return nullptr;
	struct gpunet_conn *c = &b->conns[i];
	return c->state != GPUNET_FREE && c->visible && gpunet_descriptor(b, i) == fd ? c : nullptr;
}

GK_FN int gpunet_has_slot(struct gpunet_block *b)
{
	if ((b->put - b->consumed) >> b->shift != 0)
		b->consumed = gk_load_u64(&b->up->consumed);
	return (b->put - b->consumed) >> b->shift == 0;
}

/* gpunet_put writes an entry. It waits for a slot, which the host always frees, and for patience at most. Thread 0. */
GK_FN void gpunet_put(struct gpunet_block *b, u32 connection, u32 operation, u32 length)
{
	u32 generation = connection == GPUNET_NONE ? 0 : b->conns[connection].generation;
	b->item.connection = connection;
	b->item.meta = generation | operation << 16 | length << 24;
	b->item.offset = 0;
	gk_fence_system(); /* the ring's bytes, which other threads wrote before the barrier */
	for (u64 end = gk_clock() + b->patience; b->life != GPUNET_LOST; gk_pause(200)) {
		if (gk_share_put(b->up, &b->put, &b->consumed, b->shift, &b->item))
			return;
		if (gk_clock() >= end)
			b->life = GPUNET_LOST;
	}
}

/* gpunet_change makes a transition. 0: it is not allowed. */
GK_FN int gpunet_change(struct gpunet_conn *c, u32 by)
{
	u32 next = gpunet_transitions[c->state][by];
	if (next == GPUNET_INVALID)
		return 0;
	c->state = (u8)next;
	return 1;
}

GK_FN void gpunet_accepted(struct gpunet_block *b, struct gpunet_conn *c, u32 i)
{
	u8 state = c->state, ready = c->ready;
	*c = {};
	c->state = state;
	c->ready = ready; /* its place in the list stays */
	c->generation = (u16)b->item.meta;
	for (u32 j = 0; j < sizeof c->peer.ip; j++)
		c->peer.ip[j] = (u8)(b->item.data[j / 4] >> 8 * (j % 4));
	c->peer.port = b->item.data[4] & 0xffff;
	if (gpunet_change(c, GPUNET_ON_ACCEPT))
		gpunet_append(b, &b->accepted, i);
}

/* gpunet_handle does what an entry says. Thread 0; bytes are left to all threads (b->fill). */
GK_FN void gpunet_handle(struct gpunet_block *b)
{
	u32 i = b->item.connection, operation = b->item.meta >> 16 & 255;
	if (i == GPUNET_NONE) {
		if (operation == GPUNET_STOP)
			b->life = GPUNET_STOPPED;
		if (operation == GPUNET_LISTENING)
			b->listening = -(i32)b->item.data[0];
		return;
	}
	if (i >= b->slab.connections)
		return;
	struct gpunet_conn *c = &b->conns[i];
	if (operation == GPUNET_ACCEPT) {
		gpunet_accepted(b, c, i);
		return;
	}
	if (c->state == GPUNET_FREE || c->generation != (u16)b->item.meta)
		return; /* closed in the meantime */
	switch (operation) {
	case GPUNET_DATA:
	case GPUNET_RING:
		b->inline_bytes = operation == GPUNET_DATA;
		b->from = c->in;
		b->fill = gk_min(operation == GPUNET_DATA ? gk_share_length(&b->item) : b->item.data[1], b->slab.ring - (c->in - c->read));
		c->in += b->fill;
		break;
	case GPUNET_CREDIT:
		c->acked = b->item.data[0];
		break;
	case GPUNET_FIN:
		gpunet_change(c, GPUNET_ON_FIN);
		break;
	case GPUNET_RESET:
		c->error = b->item.data[0];
		gpunet_change(c, GPUNET_ON_RESET);
	}
	gpunet_mark(b, i);
}

/* gpunet_copy_in copies bytes that arrived to the receive buffer. Source and destination have the same offset: 16 bytes at a time. */
GK_FN void gpunet_copy_in(struct gpunet_block *b)
{
	u32 i = b->item.connection, mask = gpunet_ring_mask(b);
	u8 *to = gpunet_buffer(b, i);
	const u8 *from = gpunet_ring(b, i, 0);
	if (b->inline_bytes) {
		for (u32 k = gk_thread(); k < b->fill; k += gk_block_size())
			to[(b->from + k) & mask] = (u8)(b->item.data[k / 4] >> 8 * (k % 4));
		return;
	}
	u32 groups = ((b->from & 15) + b->fill + 15) / 16;
	for (u32 k = gk_thread(); k < groups; k += gk_block_size()) {
		u32 first = (b->from & ~15u) + 16 * k;
		struct gk_quad q = gk_load_quad(gk_fresh(from + (first & mask)));
		for (u32 j = 0; j < 16; j++)
			if (first + j - b->from < b->fill)
				to[(first + j) & mask] = (u8)(q.w[j / 4] >> 8 * (j % 4));
	}
}

/* gpunet_poll handles one entry of the host, if there is one, and returns whether there was. */
GK_FN u32 gpunet_poll(struct gpunet_block *b)
{
	if (gk_thread() == 0) {
		b->fill = 0;
		b->found = (u32)gk_share_take(b->down, &b->taken, b->shift, &b->item);
		if (b->found)
			gpunet_handle(b);
	}
	gk_block_sync();
	u32 found = b->found;
	if (b->fill > 0)
		gpunet_copy_in(b);
	gk_block_sync();
	return found;
}

/* gpunet_again is called where thread 0 has found that a call cannot succeed yet (result is -EAGAIN). It handles what the host
 * has written, and returns 1 to try again, else the result of the call. */
GK_FN i32 gpunet_again(struct gpunet_block *b, u64 wait, u32 *tries)
{
	if (gk_thread() == 0) {
		if (*tries == 0)
			b->deadline = wait == GPUNET_FOREVER ? wait : gk_clock() + wait;
		b->result = b->life == GPUNET_STOPPED ? -GPUNET_ECANCELED : b->life == GPUNET_LOST ? -GPUNET_ENETDOWN : -GPUNET_EAGAIN;
		if (b->result == -GPUNET_EAGAIN && *tries > 0 && (wait == 0 || gk_clock() >= b->deadline))
			b->result = 0; /* time is over */
	}
	++*tries;
	i32 r = gpunet_broadcast(b);
	if (r != -GPUNET_EAGAIN)
		return r == 0 ? -GPUNET_EAGAIN : r;
	if (!gpunet_poll(b) && wait != 0)
		gk_pause(200);
	return 1;
}

/* gpunet_begin makes b, in shared memory, the sockets of this block. It is the first call. */
GK_FN void gpunet_begin(struct gpunet_block *b, const struct gpunet *p)
{
	if (gk_thread() == 0) {
		*b = {};
		const struct gpunet_slab *s = (const struct gpunet_slab *)p->slab;
		b->slab = *s;
		b->patience = p->patience;
		b->shift = gk_ctz(s->slots);
		b->down = (struct gk_share_queue *)(p->slab + gpunet_down_at(s, gk_block()));
		b->up = (struct gk_share_queue *)(p->slab + gpunet_up_at(s, gk_block()));
		b->rings = p->slab + gpunet_ring_at(s, gk_block(), 0);
		u8 *memory = p->memory + gk_block() * gpunet_memory_size(s);
		b->buffers = memory;
		b->conns = (struct gpunet_conn *)(memory + (u64)s->connections * s->ring);
		b->accepted.slots = (u32 *)(b->conns + s->connections);
		b->ready.slots = b->accepted.slots + s->connections;
	}
	gk_block_sync();
}

/* gpunet_end ends the sockets of this block: its connections are reset. It is the last call. */
GK_FN void gpunet_end(struct gpunet_block *b)
{
	if (gk_thread() == 0)
		gpunet_put(b, GPUNET_NONE, GPUNET_EXIT, 0);
	gk_block_sync();
}

/* glisten has the host give connections to port to this block, beside others that listen. */
GK_FN i32 glisten(struct gpunet_block *b, u32 port, u64 wait)
{
	if (gk_thread() == 0) {
		b->listening = 1;
		b->item.data[0] = port;
		gpunet_put(b, GPUNET_NONE, GPUNET_LISTEN, 4);
	}
	for (u32 tries = 0;;) {
		if (gk_thread() == 0)
			b->result = b->listening;
		i32 r = gpunet_broadcast(b);
		if (r <= 0)
			return r;
		i32 again = gpunet_again(b, wait, &tries);
		if (again <= 0)
			return again;
	}
}

/* gaccept returns a descriptor of the next connection. */
GK_FN i32 gaccept(struct gpunet_block *b, u64 wait)
{
	for (u32 tries = 0;;) {
		if (gk_thread() == 0) {
			i32 i = gpunet_next(b, &b->accepted);
			b->result = i < 0 ? -1 : gpunet_descriptor(b, (u32)i);
			if (i >= 0) {
				b->conns[i].visible = 1;
				gpunet_mark(b, (u32)i);
			}
		}
		i32 fd = gpunet_broadcast(b);
		if (fd >= 0)
			return fd;
		i32 again = gpunet_again(b, wait, &tries);
		if (again <= 0)
			return again;
	}
}

/* gpoll returns a connection that something has happened to since it was returned last, as EPOLLET of epoll(7), and its events. A
 * connection is returned once gaccept has returned it. */
GK_FN i32 gpoll(struct gpunet_block *b, u32 *events, u64 wait)
{
	for (u32 tries = 0;;) {
		if (gk_thread() == 0) {
			i32 i = gpunet_next(b, &b->ready);
			b->result = i < 0 ? -1 : i;
			if (i >= 0)
				b->conns[i].ready = 0;
		}
		i32 i = gpunet_broadcast(b);
		if (i >= 0) {
			const struct gpunet_conn *c = &b->conns[i];
			if (c->state == GPUNET_FREE)
				continue;
			*events = (c->state == GPUNET_FAILED ? (u32)GPUNET_ERR : 0u) | (c->out - c->acked < b->slab.ring ? (u32)GPUNET_OUT : 0u) |
				  (c->in != c->read || c->state != GPUNET_OPEN ? (u32)GPUNET_IN : 0u);
			return gpunet_descriptor(b, (u32)i);
		}
		i32 again = gpunet_again(b, wait, &tries);
		if (again <= 0)
			return again;
	}
}

/* grecv_view returns how many bytes arrived that lie in one piece, and where: in device memory, until grelease. 0 is the end. */
GK_FN i32 grecv_view(struct gpunet_block *b, i32 fd, const u8 **p, u64 wait)
{
	for (u32 tries = 0;;) {
		if (gk_thread() == 0) {
			const struct gpunet_conn *c = gpunet_find(b, fd);
			if (!c)
				b->result = -GPUNET_EBADF;
			else if (c->state == GPUNET_FAILED)
				b->result = -(i32)c->error;
			else if (c->in != c->read)
				b->result = (i32)gk_min(c->in - c->read, b->slab.ring - (c->read & gpunet_ring_mask(b)));
			else
				b->result = c->state == GPUNET_PEER_SHUT || c->state == GPUNET_DONE ? 0 : -GPUNET_EAGAIN;
		}
		i32 r = gpunet_broadcast(b);
		if (r > 0)
			*p = gpunet_buffer(b, (u32)fd & 0xffff) + (b->conns[(u32)fd & 0xffff].read & gpunet_ring_mask(b));
		if (r != -GPUNET_EAGAIN)
			return r;
		i32 again = gpunet_again(b, wait, &tries);
		if (again <= 0)
			return again;
	}
}

/* grelease frees the first n bytes of what grecv_view returned. The host hears of each quarter of the ring. */
GK_FN i32 grelease(struct gpunet_block *b, i32 fd, u32 n)
{
	gk_block_sync(); /* all threads have read */
	if (gk_thread() == 0) {
		struct gpunet_conn *c = gpunet_find(b, fd);
		b->result = !c ? -GPUNET_EBADF : n > c->in - c->read ? -GPUNET_EINVAL : 0;
		if (b->result == 0) {
			c->read += n;
			if (c->read - c->credited >= b->slab.ring / 4 && c->state != GPUNET_FAILED) {
				c->credited = b->item.data[0] = c->read;
				gpunet_put(b, (u32)fd & 0xffff, GPUNET_CREDIT, 4);
			}
		}
	}
	return gpunet_broadcast(b);
}

/* grecv copies up to n bytes that arrived, at least one. 0 is the end. */
GK_FN i32 grecv(struct gpunet_block *b, i32 fd, void *to, u32 n, u64 wait)
{
	const u8 *p = nullptr;
	i32 r = grecv_view(b, fd, &p, wait);
	if (r <= 0)
		return r;
	n = gk_min(n, (u32)r);
	for (u32 i = gk_thread(); i < n; i += gk_block_size())
		((u8 *)to)[i] = p[i];
	r = grelease(b, fd, n);
	return r < 0 ? r : (i32)n;
}

/* gsend_space returns how many bytes gsend takes now. */
GK_FN i32 gsend_space(struct gpunet_block *b, i32 fd)
{
	if (gk_thread() == 0) {
		const struct gpunet_conn *c = gpunet_find(b, fd);
		if (!c)
			b->result = -GPUNET_EBADF;
		else if (c->state == GPUNET_FAILED)
			b->result = -(i32)c->error;
		else if (c->state != GPUNET_OPEN && c->state != GPUNET_PEER_SHUT)
			b->result = -GPUNET_EPIPE;
		else
			b->result = gpunet_has_slot(b) ? (i32)(b->slab.ring - (c->out - c->acked)) : 0;
	}
	return gpunet_broadcast(b);
}

/* gpunet_send writes n bytes, which fit: into the entry, or into the ring. */
GK_FN void gpunet_send(struct gpunet_block *b, u32 i, const u8 *from, u32 n)
{
	struct gpunet_conn *c = &b->conns[i];
	u32 at = c->out;
	if (n > GK_SHARE_QUEUE_INLINE)
		for (u32 k = gk_thread(); k < n; k += gk_block_size())
			gk_store_u8(gpunet_ring(b, i, 1) + ((at + k) & gpunet_ring_mask(b)), from[k]);
	gk_block_sync();
	if (gk_thread() == 0) {
		if (n > GK_SHARE_QUEUE_INLINE) {
			b->item.data[0] = at;
			b->item.data[1] = n;
		} else {
			for (u32 k = 0; k < n; k++) {
				u32 bits = 8 * (k % 4), rest = k % 4 == 0 ? 0 : b->item.data[k / 4];
				b->item.data[k / 4] = rest | (u32)from[k] << bits;
			}
		}
		c->out += n;
		gpunet_put(b, i, n > GK_SHARE_QUEUE_INLINE ? GPUNET_RING : GPUNET_DATA, n > GK_SHARE_QUEUE_INLINE ? 8 : n);
	}
	gk_block_sync();
}

/* gsend sends up to n bytes, at least one, and returns how many were taken. */
GK_FN i32 gsend(struct gpunet_block *b, i32 fd, const void *from, u32 n, u64 wait)
{
	for (u32 tries = 0;;) {
		i32 space = gsend_space(b, fd);
		if (space < 0 || n == 0)
			return space < 0 ? space : 0;
		if (space > 0) {
			n = gk_min(n, (u32)space);
			gpunet_send(b, (u32)fd & 0xffff, (const u8 *)from, n);
			return (i32)n;
		}
		i32 again = gpunet_again(b, wait, &tries);
		if (again <= 0)
			return again;
	}
}

/* gpunet_leave tells the host of a change that the block makes. */
GK_FN i32 gpunet_leave(struct gpunet_block *b, i32 fd, u32 by, u32 operation)
{
	gk_block_sync();
	if (gk_thread() == 0) {
		struct gpunet_conn *c = gpunet_find(b, fd);
		b->result = !c ? -GPUNET_EBADF : gpunet_change(c, by) ? 0 : -GPUNET_EPIPE;
		if (b->result == 0)
			gpunet_put(b, (u32)fd & 0xffff, operation, 0);
	}
	return gpunet_broadcast(b);
}

/* gshutdown ends the sending direction, after what was sent (SHUT_WR). */
GK_FN i32 gshutdown(struct gpunet_block *b, i32 fd) { return gpunet_leave(b, fd, GPUNET_ON_SHUTDOWN, GPUNET_SHUTDOWN); }

/* gclose closes a connection, after what was sent. */
GK_FN i32 gclose(struct gpunet_block *b, i32 fd) { return gpunet_leave(b, fd, GPUNET_ON_CLOSE, GPUNET_CLOSE); }

GK_FN i32 ggetpeername(struct gpunet_block *b, i32 fd, struct gpunet_address *to)
{
	if (gk_thread() == 0) {
		const struct gpunet_conn *c = gpunet_find(b, fd);
		b->result = c ? 0 : -GPUNET_EBADF;
	}
	i32 r = gpunet_broadcast(b);
	if (r == 0)
		*to = b->conns[(u32)fd & 0xffff].peer;
	return r;
}

#endif
