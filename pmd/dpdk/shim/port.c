/* port.c - devices: found, configured, started, observed, removed. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_memory.h>
#include <rte_ring.h>

/* repair_signals adds an alternate stack to signal handlers that drivers have installed without one: they would run on
 * the small stack of whatever goroutine the signal meets. */
static void repair_signals(void)
{
	for (int s = SIGRTMIN; s <= SIGRTMAX; s++) {
		struct sigaction a;
		if (sigaction(s, NULL, &a) != 0 || (a.sa_flags & SA_ONSTACK) || a.sa_handler == SIG_DFL || a.sa_handler == SIG_IGN)
			continue;
		a.sa_flags |= SA_ONSTACK;
		sigaction(s, &a, NULL);
	}
}

/* The queues of devices whose removal is reported: their first counters are marked. */
static struct mrd_queue *watched[RTE_MAX_ETHPORTS][RTE_MAX_QUEUES_PER_PORT > 64 ? 64 : RTE_MAX_QUEUES_PER_PORT];
#define MOST_QUEUES (sizeof(watched[0]) / sizeof(watched[0][0]))

static int on_removal(uint16_t port, enum rte_eth_event_type event, void *arg, void *ret)
{
	(void)event, (void)arg, (void)ret;
	for (size_t i = 0; i < MOST_QUEUES; i++)
		if (watched[port][i])
			__atomic_store_n(&watched[port][i]->counts.gone, 1, __ATOMIC_RELAXED);
	return 0;
}

int64_t mrd_probe(const char *devargs, const char *name)
{
	uint16_t port;
	if (rte_eth_dev_get_port_by_name(name, &port) == 0)
		return -EEXIST;
	int err = rte_dev_probe(devargs);
	repair_signals();
	if (err < 0)
		return err;
	err = rte_eth_dev_get_port_by_name(name, &port);
	return err < 0 ? err : port;
}

int64_t mrd_describe(uint32_t port, struct mrd_port *to)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	uint16_t mtu = 0;
	int err = rte_eth_dev_info_get((uint16_t)port, &info);
	if (err < 0)
		return err;
	if ((err = rte_eth_macaddr_get((uint16_t)port, &mac)) < 0 || (err = rte_eth_dev_get_mtu((uint16_t)port, &mtu)) < 0)
		return err;
	*to = (struct mrd_port){
		.rx_offloads = info.rx_offload_capa, .tx_offloads = info.tx_offload_capa, .rss_types = info.flow_type_rss_offloads,
		.max_rx_queues = info.max_rx_queues, .max_tx_queues = info.max_tx_queues,
		.max_rx_desc = info.rx_desc_lim.nb_max, .min_rx_desc = info.rx_desc_lim.nb_min,
		.max_tx_desc = info.tx_desc_lim.nb_max, .min_tx_desc = info.tx_desc_lim.nb_min,
		.mtu = mtu, .min_mtu = info.min_mtu, .max_mtu = info.max_mtu, .max_frame = info.max_rx_pktlen,
		.key_size = info.hash_key_size, .if_index = info.if_index,
	};
	memcpy(to->mac, mac.addr_bytes, sizeof(mac.addr_bytes));
	snprintf(to->driver, sizeof(to->driver), "%s", info.driver_name ? info.driver_name : "");
	return rte_eth_dev_get_name_by_port((uint16_t)port, to->name);
}

int64_t mrd_configure(const struct mrd_setup *s)
{
	uint8_t key[sizeof(s->key)];
	memcpy(key, s->key, sizeof(key));
	struct rte_eth_dev_info info;
	int err = rte_eth_dev_info_get((uint16_t)s->port, &info);
	if (err < 0)
		return err;
	struct rte_eth_conf conf = {
		.rxmode = {.offloads = s->rx_offloads, .mq_mode = s->queues > 1 && s->rss_types ? RTE_ETH_MQ_RX_RSS : RTE_ETH_MQ_RX_NONE},
		.txmode = {.offloads = s->tx_offloads & info.tx_offload_capa}, /* tests ask for more (Config.txOffloads) */
		.intr_conf = {.rmv = info.dev_flags && (*info.dev_flags & RTE_ETH_DEV_INTR_RMV)},
	};
	if (s->mtu)
		conf.rxmode.mtu = s->mtu;
	if (conf.rxmode.mq_mode == RTE_ETH_MQ_RX_RSS)
		conf.rx_adv_conf.rss_conf = (struct rte_eth_rss_conf){
			.rss_key = s->key_size ? key : NULL, .rss_key_len = (uint8_t)s->key_size, .rss_hf = s->rss_types,
		};
	/* Some drivers (sfc, mlx5) deliver the marks of rules only where they were asked for before; others know no such request. */
	uint64_t marks = RTE_ETH_RX_METADATA_USER_MARK;
	rte_eth_rx_metadata_negotiate((uint16_t)s->port, &marks);
	return rte_eth_dev_configure((uint16_t)s->port, (uint16_t)s->queues, (uint16_t)s->queues, &conf);
}

/* cause returns the kernel's error where a driver has hidden one that has a remedy behind EINVAL or -1. */
static int cause(int err)
{
	switch (errno) {
	case EBUSY:
	case EPERM:
	case EACCES:
	case ENODEV:
		return err == -EINVAL || err == -1 ? -errno : err;
	}
	return err;
}

int64_t mrd_queue_setup(struct mrd_queue *q, const struct mrd_setup *s, uint32_t max_frame, uint32_t chains)
{
	struct rte_eth_dev_info info;
	int err = rte_eth_dev_info_get(q->port, &info);
	if (err < 0)
		return err;
	q->max_frame = max_frame;
	q->chains = chains;
	q->tx_offloads = s->tx_offloads;
	q->seg_most = info.tx_desc_lim.nb_seg_max ? info.tx_desc_lim.nb_seg_max : UINT16_MAX;
	adopt(q);
	info.default_rxconf.offloads = s->rx_offloads;
	info.default_txconf.offloads = s->tx_offloads & info.tx_offload_capa;
	errno = 0;
	err = rte_eth_rx_queue_setup(q->port, q->id, (uint16_t)s->rx_desc, SOCKET_ID_ANY, &info.default_rxconf, q->pool);
	if (err == 0)
		err = rte_eth_tx_queue_setup(q->port, q->id, (uint16_t)s->tx_desc, SOCKET_ID_ANY, &info.default_txconf);
	err = cause(err);
	repair_signals();
	if (err == 0 && q->id < MOST_QUEUES)
		watched[q->port][q->id] = q;
	return err;
}

/* mrd_start starts a device whose queues are set up. The thread has adopted them. */
int64_t mrd_start(const struct mrd_setup *s)
{
	uint16_t port = (uint16_t)s->port;
	for (size_t i = 0; i < MOST_QUEUES; i++)
		if (watched[port][i])
			adopt(watched[port][i]);
	int err = rte_eth_dev_start(port);
	if (err < 0)
		return err;
	rte_eth_dev_callback_register(port, RTE_ETH_EVENT_INTR_RMV, on_removal, NULL);
	/* Drivers whose device is an interface of the kernel ignore the MTU of the configuration. */
	if (s->mtu && (err = rte_eth_dev_set_mtu(port, (uint16_t)s->mtu)) < 0 && err != -ENOTSUP)
		return err;
	/* A device that cannot filter receives everything anyway. */
	if (s->promiscuous && (err = rte_eth_promiscuous_enable(port)) < 0 && err != -ENOTSUP)
		return err;
	if (s->multicast && (err = rte_eth_allmulticast_enable(port)) < 0 && err != -ENOTSUP)
		return err;
	return 0;
}

static int64_t stop(uint16_t p, bool started)
{
	struct rte_eth_dev_info info;
	int err = rte_eth_dev_info_get(p, &info), first = err;
	for (size_t i = 0; i < MOST_QUEUES; i++)
		if (watched[p][i])
			adopt(watched[p][i]);
	if (started && (err = rte_eth_dev_stop(p)) < 0 && first == 0)
		first = err;
	for (size_t i = 0; i < MOST_QUEUES; i++) {
		struct mrd_queue *q = watched[p][i];
		for (; q && q->held_at < q->held; q->held_at++)
			rte_pktmbuf_free(q->hold[q->held_at]);
		watched[p][i] = NULL;
	}
	rte_eth_dev_callback_unregister(p, RTE_ETH_EVENT_INTR_RMV, on_removal, NULL);
	if ((err = rte_eth_dev_close(p)) < 0 && first == 0)
		first = err;
	if (info.device && (err = rte_dev_remove(info.device)) < 0 && err != -ENOTSUP && first == 0)
		first = err;
	return first;
}

struct stopping {
	uint32_t port;
	bool started;
	int64_t result;
	sem_t done;
};

static void stop_later(void *arg)
{
	struct stopping *s = arg;
	s->result = stop((uint16_t)s->port, s->started);
	sem_post(&s->done);
}

/* mrd_stop stops and removes a device. Its queues keep their frames until mrd_return. No thread may be in mrd_rx or
 * mrd_tx. With events it runs on DPDK's interrupt thread: the memif driver frees a connection there when its peer closes
 * it, and has no lock against a close of the device on another thread. */
int64_t mrd_stop(uint32_t port, uint32_t started, uint32_t events)
{
	struct stopping s = {.port = port, .started = started};
	if (!events)
		return stop((uint16_t)port, started);
	sem_init(&s.done, 0, 0);
	int err = rte_eal_alarm_set(1, stop_later, &s);
	if (err < 0)
		return err;
	while (sem_wait(&s.done) != 0)
		; /* EINTR */
	sem_destroy(&s.done);
	return s.result;
}

int64_t mrd_link(uint32_t port)
{
	struct rte_eth_link link;
	int err = rte_eth_link_get_nowait((uint16_t)port, &link);
	return err < 0 ? err : link.link_status;
}

int64_t mrd_losses(uint32_t port, struct mrd_losses *to)
{
	struct rte_eth_stats s;
	int err = rte_eth_stats_get((uint16_t)port, &s);
	if (err < 0)
		return err;
	*to = (struct mrd_losses){.missed = s.imissed, .no_frame = s.rx_nombuf, .rx_errors = s.ierrors, .tx_errors = s.oerrors};
	return 0;
}

/* mrd_extended writes the statistics of the device that its driver names (xstats) as lines of a name and a number, as many as
 * there is room for, and returns their length. */
int64_t mrd_extended(uint32_t port, char *to, uint32_t size)
{
	int n = rte_eth_xstats_get((uint16_t)port, NULL, 0);
	if (n <= 0)
		return n;
	struct rte_eth_xstat *value = calloc((size_t)n, sizeof(*value));
	struct rte_eth_xstat_name *name = calloc((size_t)n, sizeof(*name));
	uint32_t at = 0;
	int err = value && name ? 0 : -ENOMEM;
	if (err == 0)
		err = rte_eth_xstats_get_names((uint16_t)port, name, (unsigned int)n);
	int have = err == n ? rte_eth_xstats_get((uint16_t)port, value, (unsigned int)n) : err;
	for (int i = 0; i < have && i < n; i++) {
		uint64_t id = value[i].id;
		if (id >= (uint64_t)n)
			continue;
		int k = snprintf(to + at, size - at, "%s %llu\n", name[id].name, (unsigned long long)value[i].value);
		if (k < 0 || (uint32_t)k >= size - at)
			break;
		at += (uint32_t)k;
	}
	free(value);
	free(name);
	return have < 0 ? have : (int64_t)at;
}

/* mrd_register makes memory known to DPDK, and with dma to the IOMMU of a device that vfio drives. */
int64_t mrd_register(void *base, uint64_t size, uint64_t page, uint32_t port, uint32_t dma)
{
	if (!dma)
		return rte_extmem_register(base, size, NULL, 0, page) < 0 ? -rte_errno : 0;
	struct rte_eth_dev_info info;
	int err = rte_eth_dev_info_get((uint16_t)port, &info);
	if (err < 0)
		return err;
	return rte_dev_dma_map(info.device, base, (uintptr_t)base, size) < 0 ? -rte_errno : 0;
}

int64_t mrd_unregister(void *base, uint64_t size)
{
	return rte_extmem_unregister(base, size) < 0 ? -rte_errno : 0;
}

typedef int from_rings(const char *, struct rte_ring *const[], unsigned int, struct rte_ring *const[], unsigned int, unsigned int);

/* mrd_ring_wire makes two devices of rings, name0 and name1: what one sends, the other receives. */
int64_t mrd_ring_wire(const char *name, uint32_t slots, uint32_t *ports)
{
	from_rings *make = (from_rings *)(uintptr_t)dlsym(RTLD_DEFAULT, "rte_eth_from_rings");
	if (!make) {
		void *lib = dlopen("librte_net_ring.so." MRD_ABI, RTLD_NOW | RTLD_NOLOAD);
		make = lib ? (from_rings *)(uintptr_t)dlsym(lib, "rte_eth_from_rings") : NULL;
	}
	if (!make)
		return -ENOSYS;
	struct rte_ring *r[2];
	char end[RTE_RING_NAMESIZE];
	for (int i = 0; i < 2; i++) {
		snprintf(end, sizeof(end), "%s%c", name, 'a' + i);
		r[i] = rte_ring_create(end, slots, SOCKET_ID_ANY, 0);
		if (!r[i])
			return -rte_errno;
	}
	for (int i = 0; i < 2; i++) {
		snprintf(end, sizeof(end), "%s%d", name, i);
		int port = make(end, &r[i], 1, &r[1 - i], 1, (unsigned int)SOCKET_ID_ANY);
		if (port < 0)
			return -rte_errno;
		ports[i] = (uint32_t)port;
	}
	return 0;
}
