/* Streams over RDMA by librdmacm's rsocket protocol, version 1: what its design guide and programs of rdma-core speak.
 *
 * Each side has a receive buffer in two halves. The sender WRITEs into the half that the receiver has offered, with the number of bytes as
 * immediate data. The receiver offers a half by a WRITE to the sender's table of two offers, with its limit of messages as immediate
 * data: the sender counts its data messages up to that limit.
 *
 *    31  29 28                            0
 *   +------+-------------------------------+
 *   | type |  bytes, limit, index, control |  immediate data
 *   +------+-------------------------------+
 */
#ifndef MILLRACE_RDMACM_RSOCKET_H
#define MILLRACE_RDMACM_RSOCKET_H

#include <poll.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "library.h"

enum { MESSAGE_DATA = 0, MESSAGE_DIRECT = 2 /* is not sent */, MESSAGE_OFFER = 4, MESSAGE_MAP = 6, MESSAGE_CONTROL = 7 };
enum { CONTROL_DISCONNECT, CONTROL_KEEPALIVE, CONTROL_SHUTDOWN };
#define MESSAGE(type, value) ((uint32_t)(type) << 29 | (uint32_t)(value))
#define MESSAGE_TYPE(m) ((m) >> 29)
#define MESSAGE_VALUE(m) ((m) & 0x1fffffff)

#define STREAM_VERSION 1
enum { FLAG_BIG_ENDIAN = 1, FLAG_MAPS = 2 };

/* offer is a place for data, in the byte order of the side that reads it; in private data it is big-endian */
struct offer {
	uint64_t addr;
	uint32_t key, length;
};

struct stream_data {
	uint8_t version, flags;
	uint16_t credits; /* big-endian */
	uint8_t reserved[3], maps;
	struct offer offers, buffer;
};

#define OFFERS 2
#define MAX_TRANSFER 65536
#define LOW_WATER 2048  /* bytes of the send buffer, below which a socket is not writable */
#define CONTROLS 4      /* control messages in flight */
#define MAX_RSOCKETS 65536

/* state of a socket: the table in rsocket.c has what leads from one to another */
enum rstate { RS_NEW, RS_BOUND, RS_LISTENING, RS_RESOLVING, RS_ROUTING, RS_CONNECTING, RS_ACCEPTING, RS_CONNECTED, RS_DISCONNECTED, RS_FAILED };

struct rsocket {
	int fd; /* the number that programs have: of the channel of the identifier */
	struct rdma_cm_id *id;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t progress;
	bool waiting; /* a thread waits for the completion queue; others wait for progress */
	enum rstate state;
	bool readable, writable; /* neither side has ended the direction */
	bool armed;
	int flags; /* O_NONBLOCK */
	int error;
	uint32_t send_size, recv_size; /* of the buffers */
	uint32_t send_depth, recv_depth, inlined;
	int nodelay;

	/* sending */
	uint8_t *send_buffer;
	struct ibv_mr *send_mr;
	uint32_t send_at, send_free;     /* place of the next byte, and bytes that are free */
	uint32_t send_places, controls;  /* of requests, and of control messages */
	uint16_t sent, limit;            /* data messages */
	volatile struct offer *offers;   /* the peer writes them; then the entries of its maps */
	struct ibv_mr *offers_mr;
	uint32_t offer;                  /* that is filled */
	struct offer remote_offers;      /* the peer's table: its length is the number of entries */
	uint32_t remote_offer;

	/* receiving */
	uint8_t *recv_buffer;
	struct ibv_mr *recv_mr;
	uint32_t recv_at, unread;        /* place of the next byte, and bytes that have come */
	uint32_t offered, consumed;      /* bytes that the peer may write, and that have been read and not offered again */
	uint32_t next_half;
	uint16_t taken, told;            /* data messages that have been read, and at which the limit is raised */
	uint32_t *messages;              /* lengths of those that have not; a ring of recv_depth + 1 */
	uint32_t message_head, message_tail;
};

/* rsocket.c */
struct rsocket *rsocket_of(int fd);
int advance(struct rsocket *);
int pending_error(struct rsocket *);

/* stream.c */
int open_stream(struct rsocket *);
void close_stream(struct rsocket *);
void describe_stream(struct rsocket *, struct stream_data *);
int take_description(struct rsocket *, const struct stream_data *);
void process(struct rsocket *);
int wait_for(struct rsocket *, bool nonblocking, bool (*done)(struct rsocket *));
bool can_send(struct rsocket *);
bool may_send(struct rsocket *);
bool may_receive(struct rsocket *);
int post_control(struct rsocket *, uint32_t control);
int arm(struct rsocket *);
void take_cq_event(struct rsocket *);
void take_cm_event(struct rsocket *);
uint32_t send_some(struct rsocket *, const uint8_t *, size_t);
size_t receive_some(struct rsocket *, uint8_t *, size_t, bool peek);

/* of libibverbs */
struct ibv_mr *ibv_reg_mr(struct ibv_pd *, void *, size_t, int access);
int ibv_dereg_mr(struct ibv_mr *);
int ibv_get_cq_event(struct ibv_comp_channel *, struct ibv_cq **, void **);
void ibv_ack_cq_events(struct ibv_cq *, unsigned);

/* rsocket.c */
int rshutdown(int, int);
int rclose(int);
int rpoll(struct pollfd *, nfds_t, int);
int rgetpeername(int, struct sockaddr *, socklen_t *);

#endif
