#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <endian.h>
#include <unistd.h>

#include "library.h"

/* the one device: the node's context */
static struct ibv_device device = {
	.node_type = NODE_CA,
	.transport_type = TRANSPORT_IB,
	.name = "millrace0",
	.dev_name = "uverbs0",
	.dev_path = "/sys/class/infiniband_verbs/uverbs0",
	.ibdev_path = "/sys/class/infiniband/millrace0",
};
static uint64_t device_guid;

EXPORT struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(2, sizeof *list);
	if (!list)
		return NULL;
	struct context *c = connect_node();
	if (c) {
		device_guid = htobe64(c->guid);
		list[0] = &device;
		disconnect_node(c);
	}
	if (n)
		*n = list[0] != NULL;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list) { free(list); }
EXPORT const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }
EXPORT uint64_t ibv_get_device_guid(struct ibv_device *d) { return (void)d, device_guid; }
EXPORT int ibv_get_device_index(struct ibv_device *d) { return (void)d, -1; }

/* an OUI of local administration; no vendor has it, so no program takes the device for theirs */
enum { VENDOR = 0x024d52 };

static unsigned mtu_code(uint32_t bytes)
{
	unsigned code = 1;
	while (code < 5 && 256u << code <= bytes)
		code++;
	return code;
}

enum { CAP_WINDOWS = 1 << 17, CAP_WINDOWS_2B = 1 << 24 };

EXPORT int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *a)
{
	struct context *c = context_of(ctx);
	*a = (struct ibv_device_attr){
		.fw_ver = "1.0", .node_guid = htobe64(c->guid), .sys_image_guid = htobe64(c->guid), .max_mr_size = INT64_MAX, .page_size_cap = 0xfffff000,
		.vendor_id = VENDOR, .vendor_part_id = 1,
		.max_qp = MAX_OBJECTS, .max_qp_wr = 1 << 15, .max_sge = MAX_ELEMENTS, .max_sge_rd = MAX_ELEMENTS, .max_cq = 4096, .max_cqe = 1 << 18, .max_mr = 8192, .max_mw = 8192,
		.device_cap_flags = CAP_WINDOWS | CAP_WINDOWS_2B,
		.max_pd = 4096, .max_qp_rd_atom = 16, .max_res_rd_atom = 16 * MAX_OBJECTS, .max_qp_init_rd_atom = 16, .atomic_cap = ATOMIC_HCA, .max_ah = 16384,
		.max_srq = 1024, .max_srq_wr = 1 << 15, .max_srq_sge = MAX_ELEMENTS, .max_pkeys = 1, .local_ca_ack_delay = 15, .phys_port_cnt = 1,
	};
	return 0;
}

static int query_device_ex(struct ibv_context *ctx, const void *input, struct ibv_device_attr_ex *a, size_t size)
{
	(void)input;
	if (size < sizeof a->orig_attr)
		return EINVAL;
	memset(a, 0, size);
	if (size >= sizeof *a)
		a->phys_port_cnt_ex = 1;
	return ibv_query_device(ctx, &a->orig_attr);
}

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *a, size_t size)
{
	struct context *c = context_of(ctx);
	if (port != 1)
		return EINVAL;
	struct ibv_port_attr v = {
		.state = PORT_ACTIVE, .max_mtu = 5, .active_mtu = (int)mtu_code(c->max_mtu), .gid_tbl_len = 1, .port_cap_flags = 1 << 16, .max_msg_sz = 1u << 31,
		.pkey_tbl_len = 1, .max_vl_num = 1, .active_width = 1, .active_speed = 1, .phys_state = 5, .link_layer = LINK_ETHERNET, .flags = 0,
	};
	memset(a, 0, size);
	memcpy(a, &v, size < sizeof v ? size : sizeof v);
	return 0;
}

/* ibv_query_port is what programs call whose structure ends before flags were appended */
EXPORT int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *a)
{
	return query_port(ctx, port, a, offsetof(struct ibv_port_attr, port_cap_flags2));
}

EXPORT int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
	if (port != 1 || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*gid = context_of(ctx)->gid;
	return 0;
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index, struct ibv_gid_entry *e, uint32_t flags, size_t size)
{
	if (port != 1 || index != 0 || flags)
		return EINVAL;
	struct ibv_gid_entry v = {.gid = context_of(ctx)->gid, .gid_index = 0, .port_num = 1, .gid_type = GID_TYPE_ROCE_V2};
	memcpy(e, &v, size < sizeof v ? size : sizeof v);
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *e, size_t most, uint32_t flags, size_t size)
{
	if (flags)
		return -EINVAL;
	if (most == 0)
		return -EINVAL;
	return _ibv_query_gid_ex(ctx, 1, 0, e, 0, size) == 0;
}

EXPORT int query_gid_type(struct ibv_context *ctx, uint8_t port, unsigned index, int *type)
{
	(void)ctx;
	if (port != 1 || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*type = GID_SYSFS_ROCE_V2;
	return 0;
}

/* Releases of rdma-core have private versions of their own, of which programs need this one function. */
#define PRIVATE(n, at) \
	EXPORT __typeof__(query_gid_type) query_gid_type_##n __attribute__((alias("query_gid_type"))); \
	__asm__(".symver query_gid_type_" #n ",ibv_query_gid_type" at "IBVERBS_PRIVATE_" #n)
PRIVATE(34, "@@");
PRIVATE(57, "@");
PRIVATE(59, "@");
PRIVATE(64, "@");
PRIVATE(65, "@");

EXPORT int ibv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, uint16_t *pkey)
{
	(void)ctx;
	if (port != 1 || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = 0xffff;
	return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *ctx, uint8_t port, uint16_t pkey)
{
	(void)ctx;
	return port == 1 && pkey == 0xffff ? 0 : -1;
}

/* programs look there for details of hardware, and there is none */
EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *to, size_t size)
{
	return (void)dir, (void)file, (void)to, (void)size, -1;
}

EXPORT const char *ibv_get_sysfs_path(void) { return "/sys"; }

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct context *c = connect_node();
	if (!c)
		return NULL;
	c->abi.sz = sizeof c->abi;
	c->abi.query_port = query_port;
	c->abi.query_device_ex = query_device_ex;
	c->abi.create_cq_ex = create_cq_ex;
	c->abi.create_qp_ex = create_qp_ex;
	c->abi.create_srq_ex = create_srq_ex;
	c->abi.get_srq_num = get_srq_num;
	struct ibv_context *x = &c->abi.context;
	x->device = d;
	x->abi_compat = ABI_EXTENDED;
	x->cmd_fd = c->socket;
	x->num_comp_vectors = 1;
	pthread_mutex_init(&x->mutex, NULL);
	x->ops.poll_cq = poll_cq;
	x->ops.req_notify_cq = req_notify_cq;
	x->ops.post_send = post_send;
	x->ops.post_recv = post_recv;
	x->ops.post_srq_recv = post_srq_recv;
	x->ops.alloc_mw = alloc_mw;
	x->ops.bind_mw = bind_mw;
	x->ops.dealloc_mw = dealloc_mw;
	return x;
}

EXPORT int ibv_close_device(struct ibv_context *ctx)
{
	disconnect_node(context_of(ctx));
	return 0;
}
