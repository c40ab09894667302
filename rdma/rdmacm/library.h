/* The objects behind the handles of librdmacm, and the parts of the library. */
#ifndef MILLRACE_RDMACM_LIBRARY_H
#define MILLRACE_RDMACM_LIBRARY_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "../verbs/channel.h"

#define EXPORT __attribute__((visibility("default")))
#define CONTAINER(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))

#define MAX_IDS 4096
#define MAX_READS 16 /* READs and atomics of a queue pair, each way */

/* of libibverbs */
struct ibv_device **ibv_get_device_list(int *);
void ibv_free_device_list(struct ibv_device **);
struct ibv_context *ibv_open_device(struct ibv_device *);
int ibv_close_device(struct ibv_context *);
struct ibv_pd *ibv_alloc_pd(struct ibv_context *);
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *);
int ibv_destroy_comp_channel(struct ibv_comp_channel *);
struct ibv_cq *ibv_create_cq(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
int ibv_destroy_cq(struct ibv_cq *);
int ibv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int);
int ibv_destroy_qp(struct ibv_qp *);
int ibv_destroy_srq(struct ibv_srq *);
int ibv_query_port(struct ibv_context *, uint8_t, struct ibv_port_attr *);
int millrace_exchange(struct ibv_context *, const void *, size_t, void *, size_t, int *fds, int count);

struct event_channel {
	struct rdma_event_channel abi;
	uint32_t number;
};

struct cm_id {
	struct rdma_cm_id abi;
	uint32_t number;
	bool sync; /* calls wait for their events; the channel is the identifier's own */
	struct ibv_sa_path_rec path;

	pthread_mutex_t lock;
	pthread_cond_t acknowledged;
	uint32_t acks;

	bool accepts;                          /* a request of a peer; */
	uint8_t resources, depth;              /* what it names, and then what the program accepts */
	struct ibv_qp_init_attr *passive_attr; /* of rdma_create_ep: for the queue pairs of rdma_get_request */
	bool own_send_cq, own_recv_cq;         /* rdma_create_qp has made them */
};

static inline struct cm_id *id_of(struct rdma_cm_id *id) { return (struct cm_id *)id; }

static inline int fail(int e)
{
	errno = e;
	return -1;
}

/* device.c */
struct ibv_context *device(void);
struct ibv_pd *default_pd(void);
int cm_call(struct cm_request *, struct cm_reply *, int *fds, int count);

/* id.c */
struct cm_id *new_id(struct rdma_event_channel *, void *context, int ps, int qp_type);
void free_id(struct cm_id *);
int create_id(struct rdma_event_channel *, struct rdma_cm_id **, void *context, int ps, int qp_type);
void enter_id(struct cm_id *);
struct cm_id *find_id(uint32_t number);
int simple_call(struct cm_id *, uint32_t op, struct cm_reply *);
void take_addresses(struct cm_id *, const struct cm_reply *);
void bind_device(struct cm_id *);
bool is_ud(const struct cm_id *);

/* channel.c */
int complete(struct cm_id *);
void forget_events(struct rdma_event_channel *, uint32_t count);

/* connect.c */
int modify_error(struct cm_id *);
int modify_connected(struct cm_id *);

/* qp.c */
int lead_to(struct cm_id *, int state);

/* exported functions that others call */
struct rdma_event_channel *rdma_create_event_channel(void);
void rdma_destroy_event_channel(struct rdma_event_channel *);
int rdma_create_id(struct rdma_event_channel *, struct rdma_cm_id **, void *, int ps);
int rdma_destroy_id(struct rdma_cm_id *);
int rdma_bind_addr(struct rdma_cm_id *, struct sockaddr *);
int rdma_resolve_addr(struct rdma_cm_id *, struct sockaddr *, struct sockaddr *, int);
int rdma_resolve_route(struct rdma_cm_id *, int);
int rdma_listen(struct rdma_cm_id *, int backlog);
int rdma_connect(struct rdma_cm_id *, struct rdma_conn_param *);
int rdma_accept(struct rdma_cm_id *, struct rdma_conn_param *);
int rdma_get_request(struct rdma_cm_id *, struct rdma_cm_id **);
int rdma_set_option(struct rdma_cm_id *, int level, int option, void *, size_t);
int rdma_create_qp(struct rdma_cm_id *, struct ibv_pd *, struct ibv_qp_init_attr *);
void rdma_destroy_qp(struct rdma_cm_id *);
void rdma_destroy_srq(struct rdma_cm_id *);
int rdma_get_cm_event(struct rdma_event_channel *, struct rdma_cm_event **);
int rdma_ack_cm_event(struct rdma_cm_event *);
int rdma_migrate_id(struct rdma_cm_id *, struct rdma_event_channel *);
int rdma_establish(struct rdma_cm_id *);
int rdma_reject(struct rdma_cm_id *, const void *, uint8_t);
int rdma_init_qp_attr(struct rdma_cm_id *, struct ibv_qp_attr *, int *mask);

#endif
