#define _GNU_SOURCE
#include <string.h>

#include "library.h"

static uint8_t at_most(uint8_t n, uint8_t most) { return n < most ? n : most; }

/* modify_error ends what is posted, as the end of a connection does. */
int modify_error(struct cm_id *id)
{
	struct ibv_qp_attr a = {.qp_state = QPS_ERR};
	if (!id->abi.qp || is_ud(id))
		return 0;
	int e = ibv_modify_qp(id->abi.qp, &a, ATTR_STATE);
	return e ? fail(e) : 0;
}

/* modify_connected leads the queue pair to ready to send, towards the peer. */
int modify_connected(struct cm_id *id)
{
	/* its rights are those that the parameters of the connection permit */
	return lead_to(id, QPS_INIT) || lead_to(id, QPS_RTR) || lead_to(id, QPS_RTS) ? -1 : 0;
}

/* fill copies the program's parameters to a request. NULL is none: as much as the device has. */
static int fill(struct cm_id *id, struct connection *c, const struct rdma_conn_param *p, uint8_t resources, uint8_t depth)
{
	static const struct rdma_conn_param all = {.responder_resources = MAX_RESOURCES, .initiator_depth = MAX_RESOURCES, .retry_count = 7, .rnr_retry_count = 7};
	if (!p)
		p = &all;
	if (p->private_data_len && !p->private_data)
		return fail(EINVAL);
	c->resources = p->responder_resources == MAX_RESOURCES ? at_most(resources, MAX_READS) : p->responder_resources;
	c->depth = p->initiator_depth == MAX_RESOURCES ? at_most(depth, MAX_READS) : p->initiator_depth;
	if (c->resources > MAX_READS || c->depth > MAX_READS)
		return fail(EINVAL);
	c->flow_control = p->flow_control, c->retries = p->retry_count, c->rnr_retries = p->rnr_retry_count;
	c->qpn = id->abi.qp ? id->abi.qp->qp_num : p->qp_num;
	c->srq = id->abi.qp ? id->abi.qp->srq != NULL : p->srq;
	c->private_len = p->private_data_len;
	if (c->private_len)
		memcpy(c->private, p->private_data, c->private_len);
	return 0;
}

EXPORT int rdma_connect(struct rdma_cm_id *abi, struct rdma_conn_param *p)
{
	struct cm_id *id = id_of(abi);
	struct cm_request q = {.op = OP_CM_CONNECT, .object = id->number};
	struct cm_reply r;
	if (fill(id, &q.connection, p, MAX_READS, MAX_READS) || cm_call(&q, &r, NULL, 0))
		return -1;
	return complete(id);
}

EXPORT int rdma_establish(struct rdma_cm_id *abi) { return simple_call(id_of(abi), OP_CM_ESTABLISH, NULL); }

EXPORT int rdma_accept(struct rdma_cm_id *abi, struct rdma_conn_param *p)
{
	struct cm_id *id = id_of(abi);
	struct cm_request q = {.op = OP_CM_ACCEPT, .object = id->number};
	struct cm_reply r;
	if (fill(id, &q.connection, p, id->resources, id->depth))
		return -1;
	if (is_ud(id)) {
		q.connection.qkey = UDP_QKEY;
		return cm_call(&q, &r, NULL, 0);
	}
	/* data of the peer may come before its confirmation, so the queue pair is ready before the reply leaves */
	id->resources = q.connection.resources, id->depth = q.connection.depth;
	if ((abi->qp && modify_connected(id)) || cm_call(&q, &r, NULL, 0)) {
		int e = errno;
		modify_error(id);
		return fail(e);
	}
	return complete(id);
}

static int reject(struct cm_id *id, uint32_t reason, const void *private, uint8_t size)
{
	struct cm_request q = {.op = OP_CM_REJECT, .object = id->number, .reason = reason, .connection = {.private_len = size}};
	struct cm_reply r;
	if (size)
		memcpy(q.connection.private, private, size);
	return cm_call(&q, &r, NULL, 0);
}

EXPORT int rdma_reject(struct rdma_cm_id *id, const void *private, uint8_t size) { return reject(id_of(id), 0, private, size); }

/* rdma_reject_ece refuses because of the peer's options of its vendor (reason 35 of table 109). */
EXPORT int rdma_reject_ece(struct rdma_cm_id *id, const void *private, uint8_t size) { return reject(id_of(id), 35, private, size); }

EXPORT int rdma_disconnect(struct rdma_cm_id *abi)
{
	struct cm_id *id = id_of(abi);
	if (modify_error(id) || simple_call(id, OP_CM_DISCONNECT, NULL))
		return -1;
	return complete(id);
}

/* rdma_notify reports an asynchronous event of the queue pair: what has come stands for the peer's confirmation. */
EXPORT int rdma_notify(struct rdma_cm_id *abi, int event)
{
	if (event != EVENT_COMM_EST)
		return fail(EINVAL);
	return simple_call(id_of(abi), OP_CM_NOTIFY, NULL);
}

EXPORT int rdma_init_qp_attr(struct rdma_cm_id *abi, struct ibv_qp_attr *a, int *mask)
{
	struct cm_id *id = id_of(abi);
	struct cm_reply r;
	if (simple_call(id, OP_CM_ATTR, &r))
		return -1;
	int to = a->qp_state;
	*mask = ATTR_STATE;
	switch (to) {
	case QPS_INIT:
		a->pkey_index = 0, a->port_num = 1;
		a->qp_access_flags = r.access;
		a->qkey = UDP_QKEY;
		*mask |= ATTR_PKEY | ATTR_PORT | (is_ud(id) ? ATTR_QKEY : ATTR_ACCESS);
		return 0;
	case QPS_RTR:
		if (is_ud(id))
			return 0;
		if (!r.known)
			return fail(EINVAL);
		a->ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .traffic_class = r.tos}};
		memcpy(a->ah_attr.grh.dgid.raw, r.remote.addr, sizeof r.remote.addr);
		for (a->path_mtu = 1; a->path_mtu < 5 && 256u << a->path_mtu <= r.mtu;)
			a->path_mtu++;
		a->dest_qp_num = r.dest_qp, a->rq_psn = r.recv_psn;
		*mask |= ATTR_AV | ATTR_MTU | ATTR_DEST_QPN | ATTR_RQ_PSN;
		if (abi->qp_type == QPT_RC) {
			a->max_dest_rd_atomic = r.max_dest_read, a->min_rnr_timer = r.rnr_timer;
			*mask |= ATTR_MAX_DEST_RD | ATTR_MIN_RNR;
		}
		return 0;
	case QPS_RTS:
		*mask |= ATTR_SQ_PSN;
		a->sq_psn = is_ud(id) ? r.recv_psn : r.send_psn;
		if (abi->qp_type == QPT_RC) {
			a->timeout = r.timeout, a->retry_cnt = r.retries, a->rnr_retry = r.rnr_retries, a->max_rd_atomic = r.max_read;
			*mask |= ATTR_TIMEOUT | ATTR_RETRY | ATTR_RNR_RETRY | ATTR_MAX_RD;
		}
		return 0;
	}
	return fail(EINVAL);
}
