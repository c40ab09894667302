/* The binary interface of libibverbs, as far as programs see it: structures that they allocate or look into, and values. Its
 * fields' names, order and types are those of rdma-core's <infiniband/verbs.h>. TestABI compares offsets with that header where it is
 * installed. Structures have grown at their ends: fields that came later are written only where a length argument permits. */
#ifndef MILLRACE_VERBS_ABI_H
#define MILLRACE_VERBS_ABI_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct ibv_context;
struct ibv_pd;
struct ibv_qp;
struct ibv_cq;
struct ibv_srq;
struct ibv_mr;

union ibv_gid {
	uint8_t raw[16];
	struct {
		uint64_t subnet_prefix, interface_id;
	} global;
};

/* devices and contexts */

struct ibv_device {
	void *ops[2];
	int node_type, transport_type;
	char name[64], dev_name[64], dev_path[256], ibdev_path[256];
};

struct ibv_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

struct ibv_recv_wr {
	uint64_t wr_id;
	struct ibv_recv_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
};

struct ibv_mr;

struct ibv_mw {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t rkey, handle;
	int type;
};

struct ibv_mw_bind_info {
	struct ibv_mr *mr;
	uint64_t addr, length;
	unsigned mw_access_flags;
};

struct ibv_mw_bind {
	uint64_t wr_id;
	unsigned send_flags;
	struct ibv_mw_bind_info bind_info;
};

struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge, opcode;
	unsigned send_flags;
	uint32_t imm_data; /* big-endian, or the key to invalidate */
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr, compare_add, swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct ibv_ah *ah;
			uint32_t remote_qpn, remote_qkey;
		} ud;
	} wr;
	uint32_t remote_srqn;
	struct {
		struct ibv_mw *mw;
		uint32_t rkey;
		struct ibv_mw_bind_info bind_info;
	} bind_mw;
};

struct ibv_wc {
	uint64_t wr_id;
	int status, opcode;
	uint32_t vendor_err, byte_len;
	uint32_t imm_data; /* big-endian, or the key that was invalidated */
	uint32_t qp_num, src_qp;
	unsigned wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};

/* entries that this library does not name are those of old programs, or of parts that are absent */
struct ibv_context_ops {
	void *old_queries[2], *old_memory[5];
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *, int type);
	int (*bind_mw)(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
	int (*dealloc_mw)(struct ibv_mw *);
	void *old_create_cq;
	int (*poll_cq)(struct ibv_cq *, int n, struct ibv_wc *);
	int (*req_notify_cq)(struct ibv_cq *, int solicited_only);
	void *old_cq[3], *old_srq[4];
	int (*post_srq_recv)(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
	void *old_qp[4];
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **bad);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
	void *old_rest[5];
};

struct ibv_context {
	struct ibv_device *device;
	struct ibv_context_ops ops;
	int cmd_fd, async_fd, num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat;
};

struct ibv_port_attr;
struct ibv_device_attr_ex;
struct ibv_qp_init_attr_ex;
struct ibv_cq_init_attr_ex;
struct ibv_srq_init_attr_ex;
struct ibv_cq_ex;

/* It has grown at its front; sz counts from the end of what the library has. */
struct verbs_context {
	int (*query_port)(struct ibv_context *, uint8_t port, struct ibv_port_attr *, size_t size);
	void *absent1[24];
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *, struct ibv_cq_init_attr_ex *);
	void *priv;
	int (*query_device_ex)(struct ibv_context *, const void *input, struct ibv_device_attr_ex *, size_t size);
	void *absent2[5];
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *, struct ibv_qp_init_attr_ex *);
	int (*get_srq_num)(struct ibv_srq *, uint32_t *);
	struct ibv_srq *(*create_srq_ex)(struct ibv_context *, struct ibv_srq_init_attr_ex *);
	void *absent3[2];
	uint64_t placeholder;
	size_t sz;
	struct ibv_context context;
};

#define ABI_EXTENDED ((void *)UINTPTR_MAX)

struct ibv_device_attr {
	char fw_ver[64];
	uint64_t node_guid, sys_image_guid; /* big-endian */
	uint64_t max_mr_size, page_size_cap;
	uint32_t vendor_id, vendor_part_id, hw_ver;
	int max_qp, max_qp_wr;
	unsigned device_cap_flags;
	int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
	int max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom;
	int atomic_cap;
	int max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp;
	int max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach;
	int max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay, phys_port_cnt;
};

/* the rest of the extended attributes is 0 but for the number of ports, which is the last field */
struct ibv_device_attr_ex {
	struct ibv_device_attr orig_attr;
	uint32_t comp_mask;
	uint8_t rest[160];
	uint32_t phys_port_cnt_ex;
};

struct ibv_port_attr {
	int state, max_mtu, active_mtu, gid_tbl_len;
	uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
	uint16_t pkey_tbl_len, lid, sm_lid;
	uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state, link_layer, flags;
	uint16_t port_cap_flags2;
};

struct ibv_gid_entry {
	union ibv_gid gid;
	uint32_t gid_index, port_num, gid_type, ndev_ifindex;
};

/* objects */

struct ibv_pd {
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_mr {
	struct ibv_context *context;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};

struct ibv_global_route {
	union ibv_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class;
};

struct ibv_ah_attr {
	struct ibv_global_route grh;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct ibv_grh {
	uint32_t version_tclass_flow;
	uint16_t paylen;
	uint8_t next_hdr, hop_limit;
	union ibv_gid sgid, dgid;
};

struct ibv_ah {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t handle;
};

struct ibv_comp_channel {
	struct ibv_context *context;
	int fd, refcnt;
};

struct ibv_cq {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed;
};

struct ibv_poll_cq_attr {
	uint32_t comp_mask;
};

struct ibv_cq_ex {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed;

	uint32_t comp_mask;
	int status;
	uint64_t wr_id;
	int (*start_poll)(struct ibv_cq_ex *, struct ibv_poll_cq_attr *);
	int (*next_poll)(struct ibv_cq_ex *);
	void (*end_poll)(struct ibv_cq_ex *);
	int (*read_opcode)(struct ibv_cq_ex *);
	uint32_t (*read_vendor_err)(struct ibv_cq_ex *);
	uint32_t (*read_byte_len)(struct ibv_cq_ex *);
	uint32_t (*read_imm_data)(struct ibv_cq_ex *);
	uint32_t (*read_qp_num)(struct ibv_cq_ex *);
	uint32_t (*read_src_qp)(struct ibv_cq_ex *);
	unsigned (*read_wc_flags)(struct ibv_cq_ex *);
	uint32_t (*read_slid)(struct ibv_cq_ex *);
	uint8_t (*read_sl)(struct ibv_cq_ex *);
	uint8_t (*read_dlid_path_bits)(struct ibv_cq_ex *);
	uint64_t (*read_completion_ts)(struct ibv_cq_ex *);
	uint16_t (*read_cvlan)(struct ibv_cq_ex *);
	uint32_t (*read_flow_tag)(struct ibv_cq_ex *);
	void *read_tm_info;
	uint64_t (*read_completion_wallclock_ns)(struct ibv_cq_ex *);
};

struct ibv_cq_init_attr_ex {
	uint32_t cqe;
	void *cq_context;
	struct ibv_comp_channel *channel;
	uint32_t comp_vector;
	uint64_t wc_flags;
	uint32_t comp_mask, flags;
	struct ibv_pd *parent_domain;
};

struct ibv_srq_attr {
	uint32_t max_wr, max_sge, srq_limit;
};

struct ibv_srq_init_attr {
	void *srq_context;
	struct ibv_srq_attr attr;
};

struct ibv_srq_init_attr_ex {
	void *srq_context;
	struct ibv_srq_attr attr;
	uint32_t comp_mask;
	int srq_type;
	struct ibv_pd *pd;
};

struct ibv_srq {
	struct ibv_context *context;
	void *srq_context;
	struct ibv_pd *pd;
	uint32_t handle;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

struct ibv_qp_cap {
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct ibv_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	int qp_type, sq_sig_all;
};

struct ibv_qp_init_attr_ex {
	void *qp_context;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	int qp_type, sq_sig_all;
	uint32_t comp_mask;
	struct ibv_pd *pd;
	void *xrcd;
	uint32_t create_flags;
	uint16_t max_tso_header;
	void *rwq_ind_tbl;
	struct {
		uint8_t function, key_len;
		uint8_t *key;
		uint64_t fields_mask;
	} rx_hash_conf;
	uint32_t source_qpn;
	uint64_t send_ops_flags;
};

struct ibv_qp_attr {
	int qp_state, cur_qp_state, path_mtu, path_mig_state;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
	unsigned qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr, alt_ah_attr;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry;
	uint8_t alt_port_num, alt_timeout;
	uint32_t rate_limit;
};

struct ibv_qp {
	struct ibv_context *context;
	void *qp_context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	uint32_t handle, qp_num;
	int state, qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

struct ibv_data_buf {
	void *addr;
	size_t length;
};

struct ibv_qp_ex {
	struct ibv_qp qp_base;
	uint64_t comp_mask, wr_id;
	unsigned wr_flags;
	void (*wr_atomic_cmp_swp)(struct ibv_qp_ex *, uint32_t rkey, uint64_t remote, uint64_t compare, uint64_t swap);
	void (*wr_atomic_fetch_add)(struct ibv_qp_ex *, uint32_t rkey, uint64_t remote, uint64_t add);
	void (*wr_bind_mw)(struct ibv_qp_ex *, struct ibv_mw *, uint32_t rkey, const struct ibv_mw_bind_info *);
	void (*wr_local_inv)(struct ibv_qp_ex *, uint32_t rkey);
	void (*wr_rdma_read)(struct ibv_qp_ex *, uint32_t rkey, uint64_t remote);
	void (*wr_rdma_write)(struct ibv_qp_ex *, uint32_t rkey, uint64_t remote);
	void (*wr_rdma_write_imm)(struct ibv_qp_ex *, uint32_t rkey, uint64_t remote, uint32_t imm);
	void (*wr_send)(struct ibv_qp_ex *);
	void (*wr_send_imm)(struct ibv_qp_ex *, uint32_t imm);
	void (*wr_send_inv)(struct ibv_qp_ex *, uint32_t key);
	void *wr_send_tso;
	void (*wr_set_ud_addr)(struct ibv_qp_ex *, struct ibv_ah *, uint32_t qpn, uint32_t qkey);
	void *wr_set_xrc_srqn;
	void (*wr_set_inline_data)(struct ibv_qp_ex *, void *addr, size_t length);
	void (*wr_set_inline_data_list)(struct ibv_qp_ex *, size_t n, const struct ibv_data_buf *);
	void (*wr_set_sge)(struct ibv_qp_ex *, uint32_t lkey, uint64_t addr, uint32_t length);
	void (*wr_set_sge_list)(struct ibv_qp_ex *, size_t n, const struct ibv_sge *);
	void (*wr_start)(struct ibv_qp_ex *);
	int (*wr_complete)(struct ibv_qp_ex *);
	void (*wr_abort)(struct ibv_qp_ex *);
	void *wr_atomic_write;
};

struct ibv_async_event {
	union {
		struct ibv_cq *cq;
		struct ibv_qp *qp;
		struct ibv_srq *srq;
		int port_num;
	} element;
	int event_type;
};

struct ibv_ece {
	uint32_t vendor_id, options, comp_mask;
};

/* values */

enum { WR_WRITE, WR_WRITE_IMM, WR_SEND, WR_SEND_IMM, WR_READ, WR_CMP_SWAP, WR_FETCH_ADD, WR_LOCAL_INV, WR_BIND_MW, WR_SEND_INV, WR_KINDS };
enum { SEND_FENCE = 1, SEND_SIGNALED = 2, SEND_SOLICITED = 4, SEND_INLINE = 8 };
enum { QPT_RC = 2, QPT_UC = 3, QPT_UD = 4 };
enum { QPS_RESET, QPS_INIT, QPS_RTR, QPS_RTS, QPS_SQD, QPS_SQE, QPS_ERR, QPS_KINDS };
enum { WC_FLAG_GRH = 1, WC_FLAG_IMM = 2, WC_FLAG_INV = 8 };
enum { EVENT_CQ_ERR = 0, EVENT_QP_FATAL = 1, EVENT_COMM_EST = 4, EVENT_DEVICE_FATAL = 8, EVENT_SRQ_LIMIT = 15 };
enum { PORT_ACTIVE = 4, LINK_ETHERNET = 2, GID_TYPE_ROCE_V2 = 2, GID_SYSFS_ROCE_V2 = 1, ATOMIC_HCA = 1, NODE_CA = 1, TRANSPORT_IB = 0 };
enum { CREATE_PD = 1, CREATE_SEND_OPS = 64 }; /* comp_mask of ibv_qp_init_attr_ex */
enum { SRQ_TYPE = 1, SRQ_PD = 2, SRQ_BASIC = 0 };  /* and of ibv_srq_init_attr_ex */
enum {
	ATTR_STATE = 1 << 0, ATTR_CUR_STATE = 1 << 1, ATTR_EN_SQD = 1 << 2, ATTR_ACCESS = 1 << 3, ATTR_PKEY = 1 << 4, ATTR_PORT = 1 << 5,
	ATTR_QKEY = 1 << 6, ATTR_AV = 1 << 7, ATTR_MTU = 1 << 8, ATTR_TIMEOUT = 1 << 9, ATTR_RETRY = 1 << 10, ATTR_RNR_RETRY = 1 << 11,
	ATTR_RQ_PSN = 1 << 12, ATTR_MAX_RD = 1 << 13, ATTR_ALT_PATH = 1 << 14, ATTR_MIN_RNR = 1 << 15, ATTR_SQ_PSN = 1 << 16,
	ATTR_MAX_DEST_RD = 1 << 17, ATTR_MIG = 1 << 18, ATTR_CAP = 1 << 19, ATTR_DEST_QPN = 1 << 20,
};

#endif
