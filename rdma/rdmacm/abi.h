/* The binary interface of librdmacm, as far as programs see it. Fields' names, order and types are those of rdma-core's
 * <rdma/rdma_cma.h> and <infiniband/sa.h>; TestABI compares sizes and offsets. */
#ifndef MILLRACE_RDMACM_ABI_H
#define MILLRACE_RDMACM_ABI_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "../verbs/abi.h"

struct ibv_sa_path_rec {
	union ibv_gid dgid, sgid;
	uint16_t dlid, slid;
	int raw_traffic;
	uint32_t flow_label;
	uint8_t hop_limit, traffic_class;
	int reversible;
	uint8_t numb_path;
	uint16_t pkey; /* big-endian */
	uint8_t sl, mtu_selector, mtu, rate_selector, rate, packet_life_time_selector, packet_life_time, preference;
};

struct rdma_addr {
	union {
		struct sockaddr src_addr;
		struct sockaddr_in src_sin;
		struct sockaddr_in6 src_sin6;
		struct sockaddr_storage src_storage;
	};
	union {
		struct sockaddr dst_addr;
		struct sockaddr_in dst_sin;
		struct sockaddr_in6 dst_sin6;
		struct sockaddr_storage dst_storage;
	};
	struct {
		union ibv_gid sgid, dgid;
		uint16_t pkey; /* big-endian */
	} addr;
};

struct rdma_route {
	struct rdma_addr addr;
	struct ibv_sa_path_rec *path_rec;
	int num_paths;
};

struct rdma_event_channel {
	int fd;
};

struct rdma_cm_event;

struct rdma_cm_id {
	struct ibv_context *verbs;
	struct rdma_event_channel *channel;
	void *context;
	struct ibv_qp *qp;
	struct rdma_route route;
	int ps;
	uint8_t port_num;
	struct rdma_cm_event *event;
	struct ibv_comp_channel *send_cq_channel;
	struct ibv_cq *send_cq;
	struct ibv_comp_channel *recv_cq_channel;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	int qp_type;
};

struct rdma_conn_param {
	const void *private_data;
	uint8_t private_data_len, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
	uint32_t qp_num;
};

struct rdma_ud_param {
	const void *private_data;
	uint8_t private_data_len;
	struct ibv_ah_attr ah_attr;
	uint32_t qp_num, qkey;
};

struct rdma_cm_event {
	struct rdma_cm_id *id, *listen_id;
	int event, status;
	union {
		struct rdma_conn_param conn;
		struct rdma_ud_param ud;
	} param;
};

struct rdma_addrinfo {
	int ai_flags, ai_family, ai_qp_type, ai_port_space;
	socklen_t ai_src_len, ai_dst_len;
	struct sockaddr *ai_src_addr, *ai_dst_addr;
	char *ai_src_canonname, *ai_dst_canonname;
	size_t ai_route_len;
	void *ai_route;
	size_t ai_connect_len;
	void *ai_connect;
	struct rdma_addrinfo *ai_next;
};

/* values */

enum {
	CM_ADDR_RESOLVED, CM_ADDR_ERROR, CM_ROUTE_RESOLVED, CM_ROUTE_ERROR, CM_CONNECT_REQUEST, CM_CONNECT_RESPONSE, CM_CONNECT_ERROR, CM_UNREACHABLE,
	CM_REJECTED, CM_ESTABLISHED, CM_DISCONNECTED, CM_DEVICE_REMOVAL, CM_MULTICAST_JOIN, CM_MULTICAST_ERROR, CM_ADDR_CHANGE, CM_TIMEWAIT_EXIT, CM_EVENTS,
};

enum { PS_IPOIB = 0x0002, PS_TCP = 0x0106, PS_UDP = 0x0111, PS_IB = 0x013f };
enum { RAI_PASSIVE = 1, RAI_NUMERICHOST = 2, RAI_NOROUTE = 4, RAI_FAMILY = 8 };
enum { OPTION_ID = 0, OPTION_IB = 1 };
enum { OPTION_ID_TOS, OPTION_ID_REUSEADDR, OPTION_ID_AFONLY, OPTION_ID_ACK_TIMEOUT };

#define MAX_RESOURCES 0xff /* as many as the device has */
#define UDP_QKEY 0x01234567

#endif
