#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "rsocket.h"

enum { LOCAL_WRITE = 1, REMOTE_WRITE = 2 };
#define RECEIVE ((uint64_t)1 << 63) /* in the number of a request */

static void fail_stream(struct rsocket *s, int e)
{
	if (s->state == RS_CONNECTED)
		s->state = RS_FAILED, s->error = e;
}

/* open_stream makes the queue pair and the buffers, and posts the receives. */
int open_stream(struct rsocket *s)
{
	struct rdma_cm_id *id = s->id;
	id->recv_cq_channel = ibv_create_comp_channel(id->verbs);
	if (!id->recv_cq_channel || fcntl(id->recv_cq_channel->fd, F_SETFL, O_NONBLOCK))
		return -1;
	id->recv_cq = ibv_create_cq(id->verbs, (int)(s->send_depth + s->recv_depth), id, id->recv_cq_channel, 0);
	if (!id->recv_cq)
		return -1;
	id->send_cq_channel = id->recv_cq_channel, id->send_cq = id->recv_cq;
	struct ibv_qp_init_attr a = {
		.send_cq = id->send_cq, .recv_cq = id->recv_cq, .qp_type = QPT_RC, .sq_sig_all = 1,
		.cap = {.max_send_wr = s->send_depth, .max_recv_wr = s->recv_depth, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = s->inlined},
	};
	if (rdma_create_qp(id, NULL, &a))
		return -1;
	s->inlined = a.cap.max_inline_data;
	s->messages = calloc(s->recv_depth + 1, sizeof *s->messages);
	s->send_buffer = calloc(s->send_size, 1);
	s->recv_buffer = calloc(s->recv_size, 1);
	s->offers = calloc(OFFERS, sizeof *s->offers);
	if (!s->messages || !s->send_buffer || !s->recv_buffer || !s->offers)
		return fail(ENOMEM);
	s->send_mr = ibv_reg_mr(id->pd, s->send_buffer, s->send_size, LOCAL_WRITE);
	s->recv_mr = ibv_reg_mr(id->pd, s->recv_buffer, s->recv_size, LOCAL_WRITE | REMOTE_WRITE);
	s->offers_mr = ibv_reg_mr(id->pd, (void *)s->offers, OFFERS * sizeof *s->offers, LOCAL_WRITE | REMOTE_WRITE);
	if (!s->send_mr || !s->recv_mr || !s->offers_mr)
		return -1;
	s->send_free = s->send_size, s->send_places = s->send_depth - CONTROLS, s->controls = CONTROLS;
	s->offered = s->next_half = s->consumed = s->recv_size / 2; /* the other half is offered at once */
	s->told = (uint16_t)(s->recv_depth / 2);
	for (uint32_t i = 0; i < s->recv_depth; i++) {
		struct ibv_recv_wr wr = {.wr_id = RECEIVE}, *bad;
		int e = id->verbs->ops.post_recv(id->qp, &wr, &bad);
		if (e)
			return fail(e);
	}
	return 0;
}

void close_stream(struct rsocket *s)
{
	struct rdma_cm_id *id = s->id;
	if (id->qp)
		rdma_destroy_qp(id);
	if (id->recv_cq)
		ibv_destroy_cq(id->recv_cq);
	if (id->recv_cq_channel)
		ibv_destroy_comp_channel(id->recv_cq_channel);
	if (s->send_mr)
		ibv_dereg_mr(s->send_mr);
	if (s->recv_mr)
		ibv_dereg_mr(s->recv_mr);
	if (s->offers_mr)
		ibv_dereg_mr(s->offers_mr);
	free(s->messages);
	free(s->send_buffer);
	free(s->recv_buffer);
	free((void *)s->offers);
}

static bool big_endian(void) { return htonl(1) == 1; }

static struct offer network_order(const void *addr, uint32_t key, uint32_t length)
{
	return (struct offer){htobe64((uintptr_t)addr), htonl(key), htonl(length)};
}

/* describe_stream fills in the private data of a request or reply. */
void describe_stream(struct rsocket *s, struct stream_data *d)
{
	*d = (struct stream_data){
		.version = STREAM_VERSION, .flags = big_endian() ? FLAG_BIG_ENDIAN : 0, .credits = htons((uint16_t)s->recv_depth),
		.offers = network_order((void *)s->offers, s->offers_mr->rkey, OFFERS),
		.buffer = network_order(s->recv_buffer, s->recv_mr->rkey, s->recv_size / 2),
	};
}

static struct offer host_order(const struct offer *o) { return (struct offer){be64toh(o->addr), ntohl(o->key), ntohl(o->length)}; }

/* take_description reads the peer's. */
int take_description(struct rsocket *s, const struct stream_data *d)
{
	if (d->version != STREAM_VERSION || !(d->flags & FLAG_BIG_ENDIAN) != !big_endian())
		return fail(EPROTONOSUPPORT);
	struct offer first = host_order(&d->buffer);
	s->remote_offers = host_order(&d->offers);
	if (!s->remote_offers.length)
		return fail(EPROTO);
	s->remote_offer = s->remote_offers.length > 1; /* the first has come with this */
	s->offers[0].addr = first.addr, s->offers[0].key = first.key, s->offers[0].length = first.length;
	s->limit = ntohs(d->credits);
	return 0;
}

/* post_write WRITEs to the peer, with immediate data. */
static int post_write(struct rsocket *s, uint32_t message, struct ibv_sge *list, int n, int flags, uint64_t addr, uint32_t key, uint32_t released)
{
	struct ibv_send_wr wr = {
		.wr_id = (uint64_t)message << 32 >> 3 | released, .sg_list = list, .num_sge = n, .opcode = WR_WRITE_IMM, .send_flags = (unsigned)flags, .imm_data = htonl(message),
		.wr.rdma = {.remote_addr = addr, .rkey = key},
	}, *bad;
	int e = s->id->verbs->ops.post_send(s->id->qp, &wr, &bad);
	if (e)
		fail_stream(s, e);
	return e ? fail(e) : 0;
}

/* post_control sends a control message. The caller has seen that one may be in flight. */
int post_control(struct rsocket *s, uint32_t control)
{
	s->controls--;
	return post_write(s, MESSAGE(MESSAGE_CONTROL, control), NULL, 0, 0, 0, 0, 0);
}

/* offer_space raises the peer's limit of messages, and offers the next half of the buffer if it has been read. */
static void offer_space(struct rsocket *s)
{
	uint32_t half = s->recv_size / 2;
	if (s->state != RS_CONNECTED || !s->controls || (s->consumed < half && (int16_t)(s->taken - s->told) < 0))
		return;
	uint32_t message = MESSAGE(MESSAGE_OFFER, (uint16_t)(s->taken + s->recv_depth));
	s->controls--;
	s->told = (uint16_t)(s->taken + s->recv_depth / 2);
	if (s->consumed < half) {
		post_write(s, message, NULL, 0, 0, 0, 0, 0);
		return;
	}
	struct offer o = {(uintptr_t)(s->recv_buffer + s->next_half), s->recv_mr->rkey, half};
	struct ibv_sge sge = {(uintptr_t)&o, sizeof o, 0};
	uint64_t to = s->remote_offers.addr + s->remote_offer * sizeof o;
	s->consumed -= half, s->offered += half;
	s->next_half = s->next_half ? 0 : half;
	s->remote_offer = (s->remote_offer + 1) % s->remote_offers.length;
	post_write(s, message, &sge, 1, SEND_INLINE, to, s->remote_offers.key, 0);
}

/* take_data takes a message of the peer, that may say what it likes. */
static void take_data(struct rsocket *s, uint32_t bytes)
{
	uint32_t next = (s->message_tail + 1) % (s->recv_depth + 1);
	if (bytes > s->offered || next == s->message_head) {
		fail_stream(s, EPROTO);
		return;
	}
	s->offered -= bytes, s->unread += bytes;
	s->messages[s->message_tail] = bytes;
	s->message_tail = next;
}

static void take_control(struct rsocket *s, uint32_t control)
{
	if (control == CONTROL_DISCONNECT || (control == CONTROL_SHUTDOWN && !s->writable)) {
		if (s->state == RS_CONNECTED)
			s->state = RS_DISCONNECTED;
		s->readable = s->writable = false;
	} else if (control == CONTROL_SHUTDOWN) {
		s->readable = false;
	}
}

static void take_receive(struct rsocket *s, const struct ibv_wc *wc)
{
	uint32_t m = ntohl(wc->imm_data);
	if (wc->status)
		return;
	switch (MESSAGE_TYPE(m)) {
	case MESSAGE_DATA:
		take_data(s, MESSAGE_VALUE(m));
		break;
	case MESSAGE_OFFER:
		s->limit = (uint16_t)MESSAGE_VALUE(m);
		break;
	case MESSAGE_CONTROL:
		take_control(s, MESSAGE_VALUE(m));
		break;
	}
	struct ibv_recv_wr wr = {.wr_id = RECEIVE}, *bad;
	if (s->state < RS_DISCONNECTED && s->id->verbs->ops.post_recv(s->id->qp, &wr, &bad))
		fail_stream(s, EIO);
}

/* process takes the completions that there are, and offers what has been read. */
void process(struct rsocket *s)
{
	struct ibv_wc wc[16];
	int n;
	if (s->state < RS_ACCEPTING || !s->id->recv_cq)
		return;
	offer_space(s);
	while ((n = s->id->verbs->ops.poll_cq(s->id->recv_cq, 16, wc)) > 0) {
		for (int i = 0; i < n; i++) {
			if (wc[i].wr_id & RECEIVE) {
				take_receive(s, &wc[i]);
				continue;
			}
			if (wc[i].wr_id >> 58 == MESSAGE_DATA) {
				s->send_places++;
				s->send_free += (uint32_t)wc[i].wr_id & 0x1fffffff;
			} else {
				s->controls++;
			}
			if (wc[i].status)
				fail_stream(s, ECONNRESET);
		}
	}
	offer_space(s);
}

int arm(struct rsocket *s)
{
	if (s->armed)
		return 0;
	s->armed = true;
	return s->id->verbs->ops.req_notify_cq(s->id->recv_cq, 0);
}

/* take_cq_event takes an event of the completion queue, if there is one. */
void take_cq_event(struct rsocket *s)
{
	struct ibv_cq *cq;
	void *context;
	if (s->armed && !ibv_get_cq_event(s->id->recv_cq_channel, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		s->armed = false;
	}
}

/* take_cm_event takes the end of the connection, if it has come: the peer has closed its socket, or has ended without doing so. What
 * has come before is in the completion queue. */
void take_cm_event(struct rsocket *s)
{
	struct pollfd p = {.fd = s->id->channel->fd, .events = POLLIN};
	struct rdma_cm_event *e;
	if (s->state < RS_CONNECTED || poll(&p, 1, 0) != 1 || rdma_get_cm_event(s->id->channel, &e))
		return;
	bool over = e->event == CM_DISCONNECTED;
	rdma_ack_cm_event(e);
	if (!over)
		return;
	process(s);
	if (s->state == RS_CONNECTED)
		s->state = RS_DISCONNECTED;
	s->readable = s->writable = false;
}

/* wait_for takes completions until done is true. One thread waits for the completion queue, and tells the others. */
int wait_for(struct rsocket *s, bool nonblocking, bool (*done)(struct rsocket *))
{
	for (;;) {
		process(s);
		if (done(s))
			return 0;
		if (nonblocking)
			return fail(EAGAIN);
		if (s->waiting) {
			pthread_cond_wait(&s->progress, &s->lock);
			continue;
		}
		if (!s->armed) { /* what comes before is found by one more look */
			if (arm(s))
				return fail(EIO);
			continue;
		}
		struct pollfd p[2] = {{.fd = s->id->recv_cq_channel->fd, .events = POLLIN}, {.fd = s->id->channel->fd, .events = POLLIN}};
		s->waiting = true;
		pthread_mutex_unlock(&s->lock);
		int n = poll(p, 2, -1), e = errno;
		pthread_mutex_lock(&s->lock);
		s->waiting = false;
		take_cq_event(s);
		take_cm_event(s);
		pthread_cond_broadcast(&s->progress);
		if (n < 0)
			return fail(e);
	}
}

bool can_send(struct rsocket *s)
{
	return s->send_places && s->send_free >= LOW_WATER && s->sent != s->limit && s->offers[s->offer].length;
}

bool may_send(struct rsocket *s) { return !s->writable || s->state != RS_CONNECTED || can_send(s); }
bool may_receive(struct rsocket *s) { return s->message_head != s->message_tail || !s->readable || s->state != RS_CONNECTED; }

/* send_some sends as much as one message takes, and returns it. */
uint32_t send_some(struct rsocket *s, const uint8_t *from, size_t length)
{
	volatile struct offer *o = &s->offers[s->offer];
	uint32_t n = o->length < MAX_TRANSFER ? o->length : MAX_TRANSFER;
	if (n > length)
		n = (uint32_t)length;
	uint64_t to = o->addr;
	uint32_t key = o->key;
	struct ibv_sge list[2];
	int pieces = 1, flags = 0;
	if (n <= s->inlined) {
		list[0] = (struct ibv_sge){(uintptr_t)from, n, 0};
		flags = SEND_INLINE;
	} else {
		if (n > s->send_free)
			n = s->send_free;
		uint32_t first = n < s->send_size - s->send_at ? n : s->send_size - s->send_at;
		memcpy(s->send_buffer + s->send_at, from, first);
		memcpy(s->send_buffer, from + first, n - first);
		list[0] = (struct ibv_sge){(uintptr_t)(s->send_buffer + s->send_at), first, s->send_mr->lkey};
		list[1] = (struct ibv_sge){(uintptr_t)s->send_buffer, n - first, s->send_mr->lkey};
		pieces = n > first ? 2 : 1;
		s->send_at = (s->send_at + n) % s->send_size;
		s->send_free -= n;
	}
	o->addr = to + n;
	o->length -= n;
	if (!o->length)
		s->offer = (s->offer + 1) % OFFERS;
	s->sent++, s->send_places--;
	post_write(s, MESSAGE(MESSAGE_DATA, n), list, pieces, flags, to, key, flags ? 0 : n);
	return n;
}

/* receive_some copies what has come, or with peek leaves it. */
size_t receive_some(struct rsocket *s, uint8_t *to, size_t length, bool peek)
{
	uint32_t n = length < s->unread ? (uint32_t)length : s->unread;
	uint32_t first = n < s->recv_size - s->recv_at ? n : s->recv_size - s->recv_at;
	memcpy(to, s->recv_buffer + s->recv_at, first);
	memcpy(to + first, s->recv_buffer, n - first);
	if (peek)
		return n;
	s->recv_at = (s->recv_at + n) % s->recv_size;
	s->unread -= n, s->consumed += n;
	for (uint32_t left = n; s->message_head != s->message_tail;) {
		uint32_t *m = &s->messages[s->message_head];
		if (*m > left) {
			*m -= left;
			break;
		}
		left -= *m;
		s->message_head = (s->message_head + 1) % (s->recv_depth + 1);
		s->taken++;
	}
	return n;
}
