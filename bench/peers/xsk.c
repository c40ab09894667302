// xsk: the yardstick for the AF_XDP driver. Raw rings, no library, one queue, copy mode on veth.
//
//	xsk [-s bytes] [-r ring] [-b batch] rx|tx|forward DEVICE
//
// rx counts, tx floods, forward swaps the MAC addresses and sends back where the packet came from.
#include "peer.h"
#include <linux/if_xdp.h>

#ifndef SOL_XDP
#define SOL_XDP 283
#endif

enum { FRAME = 2048 };

// A ring that this program produces into or consumes from. own is our index, seen is our copy of
// the other side's: shared words are read only when the copy says full or empty.
struct ring {
	u32 *producer, *consumer, *flags;
	void *desc;
	u32 mask, own, seen;
};

static struct {
	int fd;
	u32 size;
	u8 *umem;
	struct ring rx, tx, fill, done;
} x;

static u32 load(u32 *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static void store(u32 *p, u32 v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }

// room returns how many entries of a ring that we produce into are free, at least want if it can.
static u32 room(struct ring *r, u32 want) {
	u32 n = r->mask + 1 - (r->own - r->seen);
	if (n < want) {
		r->seen = load(r->consumer);
		n = r->mask + 1 - (r->own - r->seen);
	}
	return n;
}

// ripe returns how many entries of a ring that we consume from are there, at most want.
static u32 ripe(struct ring *r, u32 want) {
	u32 n = r->seen - r->own;
	if (n < want) {
		r->seen = load(r->producer);
		n = r->seen - r->own;
	}
	return n < want ? n : want;
}

static void wake_tx(void) {
	if (!(*x.tx.flags & XDP_RING_NEED_WAKEUP))
		return;
	count.wakeups++;
	if (sendto(x.fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && errno != EAGAIN && errno != EBUSY &&
	    errno != ENOBUFS && errno != EINTR)
		die("sendto");
}

static void wake_fill(void) {
	if (!(*x.fill.flags & XDP_RING_NEED_WAKEUP))
		return;
	count.wakeups++;
	recvfrom(x.fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

static void map_ring(struct ring *r, const struct xdp_ring_offset *o, u64 at, u32 entry) {
	u8 *p = mmap(NULL, o->desc + (u64)x.size * entry, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_POPULATE, x.fd, at);
	if (p == MAP_FAILED)
		die("mmap a ring");
	*r = (struct ring){(u32 *)(p + o->producer), (u32 *)(p + o->consumer), (u32 *)(p + o->flags),
			   p + o->desc, x.size - 1, 0, 0};
}

static void map_rings(void) {
	static const int opt[] = {XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING};
	struct xdp_mmap_offsets o;
	socklen_t n = sizeof o;
	for (int i = 0; i < 4; i++)
		if (setsockopt(x.fd, SOL_XDP, opt[i], &x.size, sizeof x.size))
			die("set the ring size");
	if (getsockopt(x.fd, SOL_XDP, XDP_MMAP_OFFSETS, &o, &n))
		die("XDP_MMAP_OFFSETS");
	map_ring(&x.fill, &o.fr, XDP_UMEM_PGOFF_FILL_RING, 8);
	map_ring(&x.done, &o.cr, XDP_UMEM_PGOFF_COMPLETION_RING, 8);
	map_ring(&x.rx, &o.rx, XDP_PGOFF_RX_RING, sizeof(struct xdp_desc));
	map_ring(&x.tx, &o.tx, XDP_PGOFF_TX_RING, sizeof(struct xdp_desc));
}

// steer sends everything that arrives on the queue of the socket to it.
static void steer(int ifindex) {
	union bpf_attr m = {.map_type = BPF_MAP_TYPE_XSKMAP, .key_size = 4, .value_size = 4, .max_entries = 1};
	int map = sys_bpf(BPF_MAP_CREATE, &m);
	if (map < 0)
		die("create the socket map");
	u32 key = 0, value = x.fd;
	union bpf_attr u = {.map_fd = map, .key = (u64)&key, .value = (u64)&value};
	if (sys_bpf(BPF_MAP_UPDATE_ELEM, &u))
		die("put the socket into its map");
	const struct bpf_insn prog[] = {
		// r2 = ctx->rx_queue_index
		{.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = 16},
		// r1 = map
		{.code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = map},
		{0},
		// return bpf_redirect_map(map, queue, XDP_PASS)
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = XDP_PASS},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map},
		{.code = BPF_JMP | BPF_EXIT},
	};
	attach_xdp(prog, sizeof prog / sizeof *prog, ifindex);
}

static void open_socket(struct options *o) {
	u64 bytes = 2ull * o->ring * FRAME;
	x.size = o->ring;
	x.umem = mmap(NULL, bytes + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (x.umem == MAP_FAILED)
		die("mmap the frames");
	x.umem = (u8 *)(((u64)x.umem + (2 << 20) - 1) & ~(u64)((2 << 20) - 1));
	madvise(x.umem, bytes, MADV_HUGEPAGE);
	memset(x.umem, 0, bytes);
	if ((x.fd = socket(AF_XDP, SOCK_RAW, 0)) < 0)
		die("socket");
	struct xdp_umem_reg reg = {.addr = (u64)x.umem, .len = bytes, .chunk_size = FRAME};
	if (setsockopt(x.fd, SOL_XDP, XDP_UMEM_REG, &reg, sizeof reg))
		die("XDP_UMEM_REG");
	map_rings();
	struct sockaddr_xdp a = {.sxdp_family = AF_XDP, .sxdp_ifindex = o->ifindex,
				 .sxdp_flags = XDP_USE_NEED_WAKEUP};
	if (bind(x.fd, (void *)&a, sizeof a))
		die("bind");
}

// fill_first gives the first half of the frames to the kernel; the rest is for sending.
static void fill_first(void) {
	for (u32 i = 0; i < x.size; i++)
		((u64 *)x.fill.desc)[i] = (u64)i * FRAME;
	x.fill.own = x.size;
	store(x.fill.producer, x.fill.own);
}

static void rx(u32 batch) {
	struct xdp_desc *in = x.rx.desc;
	u64 *back = x.fill.desc;
	while (!stopped) {
		u32 n = ripe(&x.rx, batch);
		if (!n) {
			wake_fill();
			idle();
			continue;
		}
		// Frames in the receive ring are not in the fill ring, which is as large: there is room.
		for (u32 i = 0; i < n; i++) {
			struct xdp_desc *d = &in[x.rx.own++ & x.rx.mask];
			saw(x.umem + d->addr, d->len);
			back[x.fill.own++ & x.fill.mask] = d->addr & ~(u64)(FRAME - 1);
		}
		store(x.rx.consumer, x.rx.own);
		store(x.fill.producer, x.fill.own);
		wake_fill();
	}
}

// reap takes finished frames back and returns how many.
static u32 reap(void) {
	u32 n = ripe(&x.done, x.size);
	x.done.own += n;
	store(x.done.consumer, x.done.own);
	return n;
}

static void tx(struct options *o) {
	struct xdp_desc *out = x.tx.desc;
	u32 inflight = 0, frame = 0;
	for (u32 i = 0; i < x.size; i++)
		probe(x.umem + (u64)i * FRAME, o->size);
	while (!stopped) {
		u32 n = room(&x.tx, o->batch), left = x.size - inflight;
		n = n < left ? n : left;
		n = n < o->batch ? n : o->batch;
		// Completions come back in order, so frames are used round robin.
		for (u32 i = 0; i < n; i++, frame = (frame + 1) & x.tx.mask) {
			stamp(x.umem + (u64)frame * FRAME, count.packets + i);
			out[x.tx.own++ & x.tx.mask] = (struct xdp_desc){(u64)frame * FRAME, o->size, 0};
		}
		store(x.tx.producer, x.tx.own);
		inflight += n;
		count.packets += n;
		wake_tx();
		inflight -= reap();
	}
	for (int tries = 0; inflight && tries < 100000; tries++) {
		wake_tx();
		inflight -= reap();
	}
	count.dropped = inflight; // claimed but never finished
}

// give_back returns sent frames to the fill ring.
static u32 give_back(void) {
	u64 *from = x.done.desc, *to = x.fill.desc;
	u32 n = ripe(&x.done, x.size);
	for (u32 i = 0; i < n; i++)
		to[x.fill.own++ & x.fill.mask] = from[x.done.own++ & x.done.mask];
	store(x.done.consumer, x.done.own);
	store(x.fill.producer, x.fill.own);
	return n;
}

static void forward(u32 batch) {
	struct xdp_desc *in = x.rx.desc, *out = x.tx.desc;
	u32 inflight = 0;
	while (!stopped) {
		if (inflight) {
			wake_tx();
			inflight -= give_back();
		}
		u32 want = room(&x.tx, batch);
		u32 n = ripe(&x.rx, want < batch ? want : batch);
		if (!n) {
			wake_fill();
			if (!inflight)
				idle();
			continue;
		}
		for (u32 i = 0; i < n; i++) {
			struct xdp_desc d = in[x.rx.own++ & x.rx.mask];
			saw(x.umem + d.addr, d.len);
			swap_mac(x.umem + d.addr);
			out[x.tx.own++ & x.tx.mask] = (struct xdp_desc){d.addr, d.len, 0};
		}
		store(x.rx.consumer, x.rx.own);
		store(x.tx.producer, x.tx.own);
		inflight += n;
	}
	for (int tries = 0; inflight && tries < 100000; tries++) {
		wake_tx();
		inflight -= give_back();
	}
}

int main(int argc, char **argv) {
	struct options o = options(argc, argv);
	open_socket(&o);
	int sends = !strcmp(o.role, "tx");
	if (!sends) {
		fill_first();
		steer(o.ifindex);
	}
	ready("raw rings, gcc " __VERSION__);
	if (!strcmp(o.role, "rx"))
		rx(o.batch);
	else if (!strcmp(o.role, "forward"))
		forward(o.batch);
	else if (sends)
		tx(&o);
	struct xdp_statistics s;
	socklen_t n = sizeof s;
	if (!sends && !getsockopt(x.fd, SOL_XDP, XDP_STATISTICS, &s, &n))
		count.dropped = s.rx_dropped + s.rx_ring_full + s.rx_fill_ring_empty_descs;
	print_counters(1);
	return 0;
}
