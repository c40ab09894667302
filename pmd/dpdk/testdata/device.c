/* device.c - what a NIC has and no virtual device of DPDK: a callback between the driver and its caller changes received
 * packets as the NIC's driver would have. Built by tests. */
#define _GNU_SOURCE
#include <string.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>

static uint8_t claimed[4];

/* mark marks IPv4 packets to one address, as a rule of the device with the action MARK does. */
static uint16_t mark(uint16_t port, uint16_t queue, struct rte_mbuf *pkts[], uint16_t n, uint16_t most, void *arg)
{
	(void)port, (void)queue, (void)most, (void)arg;
	for (uint16_t i = 0; i < n; i++) {
		const char *p = rte_pktmbuf_mtod(pkts[i], const char *);
		if (p[12] == 8 && p[13] == 0 && memcmp(p + 30, claimed, 4) == 0)
			pkts[i]->ol_flags |= RTE_MBUF_F_RX_FDIR | RTE_MBUF_F_RX_FDIR_ID;
	}
	return n;
}

int64_t test_mark(uint32_t port, uint32_t queue, uint32_t addr)
{
	memcpy(claimed, &addr, sizeof(claimed));
	return rte_eth_add_rx_callback((uint16_t)port, (uint16_t)queue, mark, NULL) ? 0 : -1;
}
