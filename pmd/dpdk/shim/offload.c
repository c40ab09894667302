/* offload.c - work on packets that is left to the device: checksums and segmentation (packet.Offload). */
#define _GNU_SOURCE
#include "shim.h"

#include <string.h>

#include <rte_ether.h>

/* Values of struct mrd_work (virtio 1.2, 5.1.6). */
#define NEEDS_CHECKSUM 1
#define GSO_NONE 0
#define GSO_TCP4 1
#define GSO_TCP6 4

#define PROTO_TCP 6
#define PROTO_UDP 17
#define TCP_CHECKSUM_AT 16
#define UDP_CHECKSUM_AT 6

_Static_assert(sizeof(struct mrd_work) == 10, "packet.OffloadLen");

static struct mrd_work *work_of(const struct mrd_queue *q, const struct mr_desc *d)
{
	return (struct mrd_work *)frame_at(q->memory, d->off >> q->memory->frame_shift);
}

/* link_len returns the length of the Ethernet header with its tags. */
static uint32_t link_len(const uint8_t *p, uint32_t n)
{
	uint32_t len = RTE_ETHER_HDR_LEN;
	for (; len + 4 <= n && len < RTE_ETHER_HDR_LEN + 8; len += 4) {
		uint16_t type = (uint16_t)(p[len - 2] << 8 | p[len - 1]);
		if (type != RTE_ETHER_TYPE_VLAN && type != RTE_ETHER_TYPE_QINQ)
			break;
	}
	return len;
}

/* transport_of returns the protocol whose header begins at l4 behind an IP header at l2, or 0: the offsets beside a packet are
 * its sender's claim. Packets with IPv6 extension headers are not for devices. */
static uint8_t transport_of(const uint8_t *p, uint32_t l2, uint32_t l4)
{
	uint8_t version = p[l2] >> 4;
	if (version == 4 && (p[l2] & 15u) * 4 == l4 - l2)
		return p[l2 + 9];
	return version == 6 && l4 - l2 == 40 ? p[l2 + 6] : 0;
}

/* cut_fits completes the mbuf of a packet that is to be cut into segments, whose headers end at end. */
static bool cut_fits(const struct mrd_queue *q, const struct mrd_work *w, struct rte_mbuf *b, uint32_t end)
{
	uint64_t want = RTE_ETH_TX_OFFLOAD_TCP_TSO;
	uint8_t kind = b->ol_flags & RTE_MBUF_F_TX_IPV4 ? GSO_TCP4 : GSO_TCP6;
	/* With GSO_ECN only the first segment may carry CWR (RFC 3168 6.1.2), which DPDK cannot ask for. */
	if ((q->tx_offloads & want) != want || w->gso != kind || w->segment_size == 0 || b->nb_segs > q->seg_most)
		return false;
	if (b->pkt_len <= end || end + w->segment_size > q->max_frame)
		return false;
	b->ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
	if (kind == GSO_TCP4 && (q->tx_offloads & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM))
		b->ol_flags |= RTE_MBUF_F_TX_IP_CKSUM;
	b->tso_segsz = w->segment_size;
	return true;
}

/* load_work makes the mbuf of the packet d say what the device has to do, and reports whether it can. */
bool load_work(struct mrd_queue *q, const struct mr_desc *d, struct rte_mbuf *b)
{
	const struct mrd_work *w = work_of(q, d);
	const uint8_t *p = (const uint8_t *)q->memory->base + d->off;
	uint32_t room = d->off & ((1u << q->memory->frame_shift) - 1), l2 = link_len(p, d->len);
	uint32_t l4 = (uint32_t)w->checksum_from - room, header = 8;
	if (w->flags != NEEDS_CHECKSUM || w->checksum_from < room + l2 + 20 || l4 + 8 > d->len)
		return false;
	bool tcp = w->checksum_at == TCP_CHECKSUM_AT;
	if (transport_of(p, l2, l4) != (tcp ? PROTO_TCP : PROTO_UDP) || (!tcp && w->checksum_at != UDP_CHECKSUM_AT))
		return false;
	uint64_t want = tcp ? RTE_ETH_TX_OFFLOAD_TCP_CKSUM : RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
	if (!(q->tx_offloads & want))
		return false;
	if (tcp && ((header = l4 + 20 <= d->len ? (p[l4 + 12] >> 4) * 4u : 0) < 20 || l4 + header > d->len))
		return false;
	b->tx_offload = 0;
	b->ol_flags = tcp ? RTE_MBUF_F_TX_TCP_CKSUM : RTE_MBUF_F_TX_UDP_CKSUM;
	b->ol_flags |= p[l2] >> 4 == 4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6;
	b->l2_len = l2;
	b->l3_len = l4 - l2;
	b->l4_len = header;
	if (w->gso == GSO_NONE ? b->pkt_len > q->max_frame + l2 - RTE_ETHER_HDR_LEN : !tcp || !cut_fits(q, w, b, l4 + header))
		return false;
	/* Drivers want other bytes in the checksum field (the length is not in the sum of a packet to be cut, for Intel's). */
	return rte_eth_tx_prepare(q->port, q->id, &b, 1) == 1;
}

/* note_work writes what the device has left to do on the received packet d, whose mbuf's marks are b's. Go completes it, and
 * finds the headers. */
void note_work(const struct mrd_queue *q, const struct rte_mbuf *b, struct mr_desc *d)
{
	struct mrd_work w = {.flags = NEEDS_CHECKSUM};
	if (b->ol_flags & RTE_MBUF_F_RX_LRO) {
		w.gso = GSO_TCP4;
		w.segment_size = b->tso_segsz;
	}
	memcpy(work_of(q, d), &w, sizeof(w));
	d->flags |= MR_FLAG_OFFLOAD;
}
