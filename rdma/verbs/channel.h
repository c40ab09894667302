/* What the library and the node exchange. package program (rdma/program/wire.go) has the same layouts and describes the fields;
 * TestLayouts compares them. */
#ifndef MILLRACE_VERBS_CHANNEL_H
#define MILLRACE_VERBS_CHANNEL_H

#include <stdint.h>

#define CHANNEL_VERSION 2
#define NONE UINT32_MAX /* the number of no object */

enum {
	OP_HELLO = 1, OP_ALLOC_PD, OP_DEALLOC_PD, OP_REG_MR, OP_DEREG_MR, OP_CREATE_CHANNEL, OP_DESTROY_CHANNEL, OP_CREATE_CQ, OP_DESTROY_CQ,
	OP_CREATE_SRQ, OP_MODIFY_SRQ, OP_DESTROY_SRQ, OP_CREATE_QP, OP_MODIFY_QP, OP_QUERY_QP, OP_DESTROY_QP, OP_CREATE_AH, OP_DESTROY_AH,
	OP_ALLOC_MW, OP_DEALLOC_MW,
};

struct request {
	uint32_t version, op, object, pd;
	uint64_t addr, length, va;
	uint32_t access, depth, recv_depth, service, channel, send_cq, recv_cq, srq;
	uint32_t state, mtu, dest_qp, recv_psn, send_psn, qkey;
	uint8_t max_dest_reads, max_reads, rnr_timer, timeout, retries, rnr_retries;
	uint16_t pkey;
	uint8_t gid[16];
	uint8_t unused[8];
};

struct reply {
	uint32_t version;
	int32_t error;
	uint32_t object, key, slots, staging, state, sends_done, recvs_done, max_mtu, max_qps, max_regions;
	uint8_t gid[16];
	uint64_t guid;
	uint32_t generation, unused;
};

/* requests of the connection manager, and their replies */

enum {
	OP_CM_CREATE_CHANNEL = 64, OP_CM_DESTROY_CHANNEL, OP_CM_GET_EVENT, OP_CM_CREATE_ID, OP_CM_DESTROY_ID, OP_CM_MIGRATE, OP_CM_BIND, OP_CM_RESOLVE,
	OP_CM_RESOLVE_ROUTE, OP_CM_LISTEN, OP_CM_CONNECT, OP_CM_ACCEPT, OP_CM_ESTABLISH, OP_CM_REJECT, OP_CM_DISCONNECT, OP_CM_NOTIFY, OP_CM_SET_OPTION,
	OP_CM_ATTR,
};

#define CM_PRIVATE 256

struct connection {
	uint32_t qpn, qkey;
	uint8_t resources, depth, flow_control, retries, rnr_retries, srq;
	uint16_t private_len;
	uint8_t private[CM_PRIVATE];
};

struct endpoint {
	uint8_t addr[16];
	uint16_t port, any;
};

struct cm_request {
	uint32_t version, op, object, channel, space, service, timeout, backlog, option, value, reason;
	struct endpoint local, remote;
	struct connection connection;
};

struct cm_reply {
	uint32_t version;
	int32_t error;
	uint32_t object, listener, kind;
	int32_t status;
	uint32_t removed, reported, mtu, recv_psn, send_psn, dest_qp, access;
	uint8_t max_dest_read, max_read, timeout, retries, rnr_retries, rnr_timer, tos, known;
	struct endpoint local, remote;
	struct connection connection;
};

/* operations and data of submission entries */

enum { SUBMIT_LIST = 1, SUBMIT_SEND, SUBMIT_RECV, SUBMIT_SHARED };

#define LIST_ELEMENTS 5
#define SEND_ELEMENTS 2
#define RECV_ELEMENTS 4
#define MAX_ELEMENTS 16
#define MAX_INLINE 1024
#define STAGING_UNIT 16

struct element {
	uint64_t addr;
	uint32_t length, lkey;
};

struct list {
	struct element elements[LIST_ELEMENTS];
};

enum { SEND_OP_SEND, SEND_OP_SEND_IMM, SEND_OP_SEND_INV, SEND_OP_WRITE, SEND_OP_WRITE_IMM, SEND_OP_READ, SEND_OP_CMP_SWAP, SEND_OP_FETCH_ADD,
	SEND_OP_BIND, SEND_OP_LOCAL_INV };
enum { SEND_FLAG_SIGNALED = 1, SEND_FLAG_FENCE = 2, SEND_FLAG_SOLICITED = 4 };

struct send {
	uint64_t id, remote, compare, swap;
	uint32_t rkey, imm;
	uint8_t op, flags, elements, inlined;
	uint32_t length;
	struct element list[SEND_ELEMENTS];
};

struct recv {
	uint64_t id;
	uint32_t elements, unused;
	struct element list[RECV_ELEMENTS];
};

/* data of an entry of a completion queue */

enum { COMPLETION_IMM = 1, COMPLETION_INV = 2, COMPLETION_GRH = 4, COMPLETION_RECV = 1 << 8 };

struct completion {
	uint64_t id;
	uint32_t status, op, bytes, qpn, src_qp, imm, flags, done;
};

/* what a pipe of events has */

enum { EVENT_COMPLETION, EVENT_FATAL, EVENT_LIMIT, EVENT_OVERRUN };

struct event {
	uint32_t kind, object, generation, unused;
};

#endif
