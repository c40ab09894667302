/* The objects behind the handles of programs, and the parts of the library. */
#ifndef MILLRACE_VERBS_LIBRARY_H
#define MILLRACE_VERBS_LIBRARY_H

#include <stdbool.h>
#include <stdatomic.h>

#include "abi.h"
#include "channel.h"
#include "../../shim/preload/ring.h"

#define EXPORT __attribute__((visibility("default")))
#define CONTAINER(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))

#define MAX_OBJECTS 8192 /* completion queues, queue pairs and shared queues have numbers below */
#define PLACES 65536     /* of regions: bits 8 to 23 of a key */

/* submission is the producer's end of the queue of requests. */
struct submission {
	pthread_mutex_t lock;
	struct ring_queue *queue;
	uint64_t position, consumed;
	uint32_t slots, answered;
	unsigned char *staging;
	size_t size;
	int doorbell;
};

struct context {
	struct verbs_context abi; /* programs have a pointer to its last field */
	int socket;
	pthread_mutex_t control;
	struct submission submission;
	union ibv_gid gid;
	uint64_t guid;
	uint32_t max_mtu;
	pthread_mutex_t tables; /* of the numbers below */
	struct cq *cqs[MAX_OBJECTS];
	struct qp *qps[MAX_OBJECTS];
	struct srq *srqs[MAX_OBJECTS];
	_Atomic(struct ibv_mr *) *regions; /* by place */
	bool lost; /* DEVICE_FATAL has been reported */
};

struct channel {
	struct ibv_comp_channel abi;
	uint32_t number;
};

struct cq {
	struct ibv_cq_ex abi;
	pthread_mutex_t lock; /* of the consumer's end */
	struct ring_queue *queue;
	uint64_t position;
	uint32_t slots, epoch, generation;
	uint32_t empty; /* polls since the last completion */
	size_t size;
	uint32_t events; /* that ibv_get_cq_event has returned; abi.mutex guards it */
	uint32_t async_events;
	uint64_t wc_flags;
	struct ibv_wc current; /* of ibv_start_poll and ibv_next_poll */
};

struct srq {
	struct ibv_srq abi;
	struct ibv_srq_attr attr;
	uint32_t generation, posted, async_events;
	_Atomic uint32_t done;
};

struct qp {
	struct ibv_qp_ex ex;
	uint32_t generation, async_events;
	struct ibv_qp_cap cap;
	int sq_sig_all;
	struct ibv_qp_attr attr;
	uint32_t sends, recvs; /* posted; the submission lock guards them */
	_Atomic uint32_t sends_done, recvs_done;

	/* requests that ibv_wr_start has begun */
	struct build {
		struct ibv_send_wr wr;
		struct ibv_sge list[MAX_ELEMENTS];
		unsigned char inlined[MAX_INLINE];
	} *builds;
	uint32_t built, capacity;
	int build_error;
};

static inline struct context *context_of(struct ibv_context *c) { return CONTAINER(c, struct context, abi.context); }
static inline struct cq *cq_of(struct ibv_cq *q) { return (struct cq *)q; }
static inline struct qp *qp_of(struct ibv_qp *q) { return (struct qp *)q; }
static inline struct srq *srq_of(struct ibv_srq *q) { return (struct srq *)q; }

/* channel.c */
struct context *connect_node(void);
void disconnect_node(struct context *);
int call(struct context *, struct request *, struct reply *, int *fds, int count);
int millrace_exchange(struct ibv_context *, const void *request, size_t, void *reply, size_t, int *fds, int count);
struct ring_queue *map_queue(int fd, uint32_t slots, size_t extra, size_t *size);
bool node_is_gone(struct context *);

/* entry.c */
int put_entries(struct context *, uint32_t object, int op, const void *data, size_t size, const struct ibv_sge *list, int own, int count,
	const struct ibv_sge *inlined, int pieces);
bool take_entry(struct cq *, uint32_t *object, void *data, size_t size);
void free_entries(struct cq *);

/* memory.c */
struct ibv_mw *alloc_mw(struct ibv_pd *, int type);
int bind_mw(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
int dealloc_mw(struct ibv_mw *);

/* post.c */
int post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
int post_srq_recv(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);

/* poll.c */
int poll_cq(struct ibv_cq *, int n, struct ibv_wc *);
int req_notify_cq(struct ibv_cq *, int solicited_only);
struct ibv_cq_ex *create_cq_ex(struct ibv_context *, struct ibv_cq_init_attr_ex *);

/* qp.c, srq.c */
struct ibv_qp *create_qp_ex(struct ibv_context *, struct ibv_qp_init_attr_ex *);
struct ibv_srq *create_srq_ex(struct ibv_context *, struct ibv_srq_init_attr_ex *);
int get_srq_num(struct ibv_srq *, uint32_t *);

/* build.c */
void begin_builds(struct qp *);

#endif
