/* flow.c - rules of a device (rte_flow): it marks and distributes packets by addresses and ports itself. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_flow.h>

#define MOST_ITEMS 4   /* Ethernet, IP, transport, end */
#define MOST_ACTIONS 3 /* mark, destination, end */
#define MOST_QUEUES 64

#define PROTO_TCP 6

/* fail returns the error of a call, and writes the driver's explanation. */
static int64_t fail(int err, const struct rte_flow_error *e, char *text, uint32_t size)
{
	err = err < 0 ? -err : rte_errno ? rte_errno : EIO;
	snprintf(text, size, "%s", e->message ? e->message : strerror(err));
	return -err;
}

/* network fills in the item of the IP header, whose storage is at spec and mask. */
union network {
	struct rte_flow_item_ipv4 v4;
	struct rte_flow_item_ipv6 v6;
};

static struct rte_flow_item network(const struct mrd_flow *f, union network *spec, union network *mask)
{
	memset(spec, 0, sizeof(*spec));
	memset(mask, 0, sizeof(*mask));
	if (f->family == 4) {
		memcpy(f->source ? &spec->v4.hdr.src_addr : &spec->v4.hdr.dst_addr, f->addr, 4);
		memset(f->source ? &mask->v4.hdr.src_addr : &mask->v4.hdr.dst_addr, 0xff, 4);
		return (struct rte_flow_item){.type = RTE_FLOW_ITEM_TYPE_IPV4, .spec = &spec->v4, .mask = &mask->v4};
	}
	memcpy(f->source ? spec->v6.hdr.src_addr : spec->v6.hdr.dst_addr, f->addr, 16);
	memset(f->source ? mask->v6.hdr.src_addr : mask->v6.hdr.dst_addr, 0xff, 16);
	return (struct rte_flow_item){.type = RTE_FLOW_ITEM_TYPE_IPV6, .spec = &spec->v6, .mask = &mask->v6};
}

/* transport fills in the item of the TCP or UDP header. The headers of both begin with the ports. */
union transport {
	struct rte_flow_item_tcp tcp;
	struct rte_flow_item_udp udp;
	struct { rte_be16_t src, dst; } port;
};

static struct rte_flow_item transport(const struct mrd_flow *f, union transport *spec, union transport *mask)
{
	struct rte_flow_item i = {.type = f->proto == PROTO_TCP ? RTE_FLOW_ITEM_TYPE_TCP : RTE_FLOW_ITEM_TYPE_UDP};
	if (!f->l4_mask)
		return i; /* every packet of the protocol */
	memset(spec, 0, sizeof(*spec));
	memset(mask, 0, sizeof(*mask));
	*(f->source ? &spec->port.src : &spec->port.dst) = rte_cpu_to_be_16(f->l4_port);
	*(f->source ? &mask->port.src : &mask->port.dst) = rte_cpu_to_be_16(f->l4_mask);
	i.spec = spec;
	i.mask = mask;
	return i;
}

/* mrd_flow_create adds a rule that the device has validated. It returns the rule, or an error that text explains. */
int64_t mrd_flow_create(const struct mrd_flow *f, char *text, uint32_t size)
{
	union network ip_spec, ip_mask;
	union transport l4_spec, l4_mask;
	const struct rte_flow_item items[MOST_ITEMS] = {
		{.type = RTE_FLOW_ITEM_TYPE_ETH},
		network(f, &ip_spec, &ip_mask),
		f->proto ? transport(f, &l4_spec, &l4_mask) : (struct rte_flow_item){.type = RTE_FLOW_ITEM_TYPE_END},
		{.type = RTE_FLOW_ITEM_TYPE_END},
	};
	uint16_t list[MOST_QUEUES];
	uint32_t queues = RTE_MIN(f->queues, (uint32_t)MOST_QUEUES);
	for (uint32_t i = 0; i < queues; i++)
		list[i] = (uint16_t)i;
	const struct rte_flow_action_mark mark = {.id = MRD_CLAIMED};
	const struct rte_flow_action_queue queue = {.index = (uint16_t)f->queue};
	const struct rte_flow_action_rss rss = {
		.types = f->rss_types, .key_len = f->key_size, .key = f->key_size ? f->key : NULL, .queue_num = queues, .queue = list,
	};
	struct rte_flow_action actions[MOST_ACTIONS];
	uint32_t n = 0;
	if (f->action & MRD_FLOW_MARK)
		actions[n++] = (struct rte_flow_action){.type = RTE_FLOW_ACTION_TYPE_MARK, .conf = &mark};
	if (f->action & MRD_FLOW_QUEUE)
		actions[n++] = (struct rte_flow_action){.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &queue};
	else if (f->action & MRD_FLOW_RSS)
		actions[n++] = (struct rte_flow_action){.type = RTE_FLOW_ACTION_TYPE_RSS, .conf = &rss};
	else
		actions[n++] = (struct rte_flow_action){.type = RTE_FLOW_ACTION_TYPE_PASSTHRU};
	actions[n] = (struct rte_flow_action){.type = RTE_FLOW_ACTION_TYPE_END};
	const struct rte_flow_attr attr = {.ingress = 1};
	struct rte_flow_error e = {0};
	rte_errno = 0;
	int err = rte_flow_validate((uint16_t)f->port, &attr, items, actions, &e);
	if (err)
		return fail(err, &e, text, size);
	rte_errno = 0;
	struct rte_flow *flow = rte_flow_create((uint16_t)f->port, &attr, items, actions, &e);
	return flow ? (intptr_t)flow : fail(0, &e, text, size);
}

int64_t mrd_flow_destroy(uint32_t port, void *flow, char *text, uint32_t size)
{
	struct rte_flow_error e = {0};
	int err = rte_flow_destroy((uint16_t)port, flow, &e);
	return err ? fail(err, &e, text, size) : 0;
}

/* mrd_flow_flush removes all rules of a device. */
int64_t mrd_flow_flush(uint32_t port, char *text, uint32_t size)
{
	struct rte_flow_error e = {0};
	int err = rte_flow_flush((uint16_t)port, &e);
	return err ? fail(err, &e, text, size) : 0;
}
