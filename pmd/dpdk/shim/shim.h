/*
 * shim.h - what package pmd/dpdk calls. DPDK's receive and transmit functions are inline and its structures change each
 * year, so they are compiled here, against the DPDK that is installed: one library for each ABI number.
 *
 * Lifetime: mrd_eal, then for each device mrd_probe, mrd_configure, mrd_queue_new and mrd_lend for each queue,
 * mrd_queue_setup, mrd_start; mrd_rx and mrd_tx; mrd_stop; mrd_queue_free for each queue. Functions return a negative
 * errno where they fail. No pointer to memory of Go outlives the call that it was an argument of.
 */
#ifndef MILLRACE_DPDK_SHIM_H
#define MILLRACE_DPDK_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_spinlock.h>

#include "../../../packet/desc.h"

/* The number of this interface: shim.go has the same. It changes with every signature and structure below. */
#define MRD_INTERFACE 5

/* BURST is how many packets one call of a DPDK driver moves: more than 64 bring nothing (docs/design/072-dpdk.md). */
#define BURST 64

#define EXPORT __attribute__((visibility("default")))

/* mrd_counts is read by Go while a queue runs: one thread adds, others load. The layout is that of counts in shim.go. */
struct mrd_counts {
	uint64_t rx_packets, rx_bytes, rx_invalid;
	uint64_t tx_packets, tx_bytes, tx_invalid, tx_invalid_bytes;
	uint64_t rx_steered; /* received, by a rule of the device (flow.c) */
	uint32_t free; /* frames that the queue has and the device does not use */
	uint32_t gone; /* 1: the device was removed */
};

/* mrd_port describes a device. The layout is that of portInfo in shim.go. */
struct mrd_port {
	uint64_t rx_offloads, tx_offloads, rss_types;
	uint32_t max_rx_queues, max_tx_queues, max_rx_desc, min_rx_desc, max_tx_desc, min_tx_desc;
	uint32_t mtu, min_mtu, max_mtu, max_frame, key_size, if_index;
	uint8_t mac[8];
	char driver[32], name[64];
};

/* mrd_setup configures a device. The layout is that of setup in shim.go. */
struct mrd_setup {
	uint64_t rx_offloads, tx_offloads, rss_types;
	uint32_t port, queues, mtu, key_size;
	uint32_t promiscuous, multicast, rx_desc, tx_desc;
	uint8_t key[64];
};

/* mrd_losses counts what a device lost. The layout is that of losses in shim.go. */
struct mrd_losses {
	uint64_t missed, no_frame, rx_errors, tx_errors;
};

/* mrd_flow is a rule of the device (rte_flow): packets of one address, and perhaps a protocol and a block of ports. The layout
 * is that of flowSpec in flow.go. */
struct mrd_flow {
	uint64_t rss_types;
	uint32_t port, queues, queue, key_size;
	uint32_t action;           /* MRD_FLOW_... */
	uint16_t l4_port, l4_mask; /* mask 0: every port */
	uint8_t family, source;    /* 4 or 6; 1: the address and the port are those of the sender */
	uint8_t proto, unused[5];  /* 0, TCP or UDP */
	uint8_t addr[16], key[64];
};

/* Actions of a rule. MARK alone is none: where the packet goes is said by one of the others. */
enum {
	MRD_FLOW_MARK = 1,  /* the packet arrives with MRD_CLAIMED */
	MRD_FLOW_QUEUE = 2, /* to one queue */
	MRD_FLOW_RSS = 4,   /* to one of all queues, by its flow */
	MRD_FLOW_PASS = 8,  /* as without the rule */
};

#define MRD_CLAIMED 0xffff /* rule of a descriptor: packet.RuleClaimed */

/*
 * mrd_memory is an arena as mbufs see it. Each frame has one mbuf, at a fixed place, so that a frame's offset and its
 * mbuf follow from each other without a table.
 *
 * Apart from the frames (the usual form):     In the frames (the AF_XDP driver registers the memory of mbufs):
 *   headers  |mbuf 0|mbuf 1|mbuf 2| ...         |objhdr 64|mbuf 128| headroom 128 | data      | frame 0
 *   arena    |frame 0     |frame 1    | ...     |objhdr 64|mbuf 128| headroom 128 | data      | frame 1
 */
struct mrd_memory {
	char *base;          /* of the arena */
	char *headers;       /* mbuf of frame 0 */
	uint32_t frames;
	uint8_t frame_shift; /* a frame has 1 << frame_shift bytes */
	uint8_t mbuf_shift;  /* distance of two mbufs */
	bool inside;         /* mbufs lie in the frames */
};

/* stack holds the free mbufs of a queue. Its owner is the thread that polls the queue, and needs no lock; what other
 * threads free waits in remote. */
struct stack {
	void **slot;
	void *owner; /* thread pointer of the last poll */
	struct mrd_counts *counts;
	uint32_t size;
	uint32_t remote_n; /* written under lock, read without */
	void **remote;
	rte_spinlock_t lock;
};

struct mrd_queue {
	struct mrd_counts counts; /* first: Go reads it */
	struct mrd_memory *memory;
	struct rte_mempool *pool;
	struct stack stack;
	uint8_t *owned;    /* 1 for each frame that is this queue's */
	uint32_t owned_n;
	uint32_t resting;  /* owned frames that wait in the device for packets to receive */
	uint32_t depth;    /* free frames that the queue keeps; others are returned */
	uint32_t max_frame; /* bytes of the largest untagged packet, with its Ethernet header */
	uint16_t port, id;
	bool chains;       /* the device sends packets of several frames */
	uint16_t seg_most; /* frames of a packet that the device cuts, at most */
	uint64_t tx_offloads; /* enabled, RTE_ETH_TX_OFFLOAD_* */
	uint16_t held, held_at; /* packets received and not passed on yet */
	struct rte_mbuf *hold[BURST];
};

/* The work on a packet with MR_FLAG_OFFLOAD, in the first bytes of its frame: packet.Offload. */
struct mrd_work {
	uint8_t flags, gso;
	uint16_t headers_end, segment_size, checksum_from, checksum_at;
};

/* Bits of the results of mrd_rx and mrd_tx, beside the number of descriptors. */
#define MRD_WORK (1u << 31) /* received: some packets have work left to do. Sent: the next packet has, and the device cannot do it */

/* Bit of the count of mrd_tx, beside the number of descriptors: they are segments of packets that Go counts. */
#define MRD_UNCOUNTED (1u << 31)

static inline struct rte_mbuf *mbuf_of(const struct mrd_memory *m, uint32_t frame)
{
	return (struct rte_mbuf *)(m->headers + ((size_t)frame << m->mbuf_shift));
}

static inline uint32_t frame_of(const struct mrd_memory *m, const struct rte_mbuf *b)
{
	return (uint32_t)(((const char *)b - m->headers) >> m->mbuf_shift);
}

static inline char *frame_at(const struct mrd_memory *m, uint32_t frame)
{
	return m->base + ((size_t)frame << m->frame_shift);
}

/* add adds to a counter that other threads load. */
static inline void add(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/* eal.c */
EXPORT uint32_t mrd_interface(void);
EXPORT void mrd_sizes(uint32_t *to);
EXPORT uint32_t mrd_version(char *to, uint32_t size);
EXPORT int64_t mrd_eal(char *args);
EXPORT uint32_t mrd_log(char *to, uint32_t size);

/* port.c */
EXPORT int64_t mrd_probe(const char *devargs, const char *name);
EXPORT int64_t mrd_describe(uint32_t port, struct mrd_port *to);
EXPORT int64_t mrd_configure(const struct mrd_setup *s);
EXPORT int64_t mrd_start(const struct mrd_setup *s);
EXPORT int64_t mrd_stop(uint32_t port, uint32_t started, uint32_t events);
EXPORT int64_t mrd_link(uint32_t port);
EXPORT int64_t mrd_losses(uint32_t port, struct mrd_losses *to);
EXPORT int64_t mrd_extended(uint32_t port, char *to, uint32_t size);
EXPORT int64_t mrd_register(void *base, uint64_t size, uint64_t page, uint32_t port, uint32_t dma);
EXPORT int64_t mrd_unregister(void *base, uint64_t size);
EXPORT int64_t mrd_ring_wire(const char *name, uint32_t slots, uint32_t *ports);

/* flow.c */
EXPORT int64_t mrd_flow_create(const struct mrd_flow *f, char *text, uint32_t size);
EXPORT int64_t mrd_flow_destroy(uint32_t port, void *flow, char *text, uint32_t size);
EXPORT int64_t mrd_flow_flush(uint32_t port, char *text, uint32_t size);

/* memory.c */
EXPORT struct mrd_memory *mrd_memory_new(void *base, uint32_t frames, uint32_t frame_shift, uint32_t inside);
EXPORT void mrd_memory_free(struct mrd_memory *m);
EXPORT struct mrd_queue *mrd_queue_new(struct mrd_memory *m, uint32_t port, uint32_t id, uint32_t depth);
EXPORT int64_t mrd_queue_setup(struct mrd_queue *q, const struct mrd_setup *s, uint32_t max_frame, uint32_t chains);
EXPORT void mrd_queue_free(struct mrd_queue *q);
EXPORT void mrd_lend(struct mrd_queue *q, const uint32_t *offs, uint32_t n);
EXPORT uint32_t mrd_return(struct mrd_queue *q, uint32_t *to, uint32_t room, uint32_t all);
EXPORT void mrd_rest(struct mrd_queue *q);
EXPORT uint32_t mrd_owned(struct mrd_queue *q, uint32_t *to, uint32_t room);

void adopt(struct mrd_queue *q);
void push(struct mrd_queue *q, struct rte_mbuf *b);
uint32_t surplus(struct mrd_queue *q, uint32_t *to, uint32_t room);

/* offload.c */
bool load_work(struct mrd_queue *q, const struct mr_desc *d, struct rte_mbuf *b);
void note_work(const struct mrd_queue *q, const struct rte_mbuf *b, struct mr_desc *d);

/* mrd_burst is a call of mrd_rx or mrd_tx: a pointer to all arguments costs less to pass than each of them. The layout is that of burst in
 * queue.go. */
struct mrd_burst {
	struct mrd_queue *q;
	struct mr_desc *d;    /* to receive into, or to send */
	const uint32_t *lend; /* frames to receive into */
	uint32_t *back;       /* frames that are returned */
	uint32_t count;       /* received: descriptors that there is room for. Sent: descriptors, with MRD_UNCOUNTED */
	uint32_t most;        /* descriptors that the caller's batch has when it is empty: a packet of more is refused */
	uint32_t lent, room;  /* frames at lend, and room at back */
	uint32_t stamp;       /* of received packets */
	uint32_t moved;       /* result: descriptors received, or taken, with MRD_WORK */
	uint32_t returned;    /* result: frames at back */
	uint32_t unused;
};

/* move.c */
EXPORT void mrd_rx(struct mrd_burst *c);
EXPORT void mrd_tx(struct mrd_burst *c);

#endif
