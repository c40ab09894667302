/*
 * protocol.h - what the preloaded library and the node say to each other.
 *
 * One layout for both sides: shim/protocol.go has the same constants, and a test compares every size and offset.
 * All integers are of the host's byte order: both ends run on one machine. Ports are numbers, not in network order.
 * docs/design/031-shim.md has the reasons.
 */
#ifndef MILLRACE_SHIM_PROTOCOL_H
#define MILLRACE_SHIM_PROTOCOL_H

#include <stdint.h>

#define SHIM_VERSION 5

/* The mark of a socket that the node serves: SO_PRIORITY of the AF_UNIX socket. */
enum {
	SHIM_MARK_TCP4_CONNECTED = 1, /* or connecting: calls that move data need not look further */
	SHIM_MARK_TCP6_CONNECTED = 2,
	SHIM_MARK_UDP4_CONNECTED = 3, /* datagrams without a header */
	SHIM_MARK_INET = 4,           /* TCP that is not connected, or UDP with a header before each datagram */
	SHIM_MARK_UDP6_CONNECTED = 5,
	SHIM_MARK_INET6 = 6,
};

/*
 * Options that a program has set before the first request of a TCP socket: SO_INCOMING_CPU of the AF_UNIX socket, which the node reads
 * when it registers the socket. Each option has two bits from its place on: that it was set, and to what.
 */
enum {
	SHIM_EARLY_MASK = 0x7fff0000,
	SHIM_EARLY = 0x4d520000, /* the upper half of the value */
	SHIM_EARLY_NODELAY = 0,  /* places */
	SHIM_EARLY_KEEPALIVE = 2,
};

/* What a request asks. All but HELLO and RESOLVE carry the socket's descriptor (SCM_RIGHTS). */
enum {
	SHIM_HELLO = 1,   /* name: 1 of a supervisor; arg: the size of a request; value: the program's name, 0, a token. Reply: value is the stack's name, 0, a token */
	SHIM_BIND = 2,    /* addr, arg, value: a permit or empty. Reply: local; on an error value is a line for standard error, or empty */
	SHIM_CONNECT = 3, /* addr (family 0: disconnect UDP). Reply: error 0 (complete) or EINPROGRESS; local, remote */
	SHIM_LISTEN = 4,  /* arg is the backlog. Reply: local */
	SHIM_NAMES = 5,   /* Reply: local, remote; family 0 where there is none. value is the number of the node's run, as in names */
	SHIM_SETOPT = 6,  /* level, name, value of len bytes */
	SHIM_GETOPT = 7,  /* level, name, len the most. Reply: value of len bytes */
	SHIM_RESOLVE = 8, /* value: host name; arg AF_INET, AF_INET6 or 0. Reply: value is len/24 addresses */
	SHIM_MOVE = 9,    /* from rings to the socket. Reply: value is the count of doorbell bytes that the node has written */
	SHIM_INTERFACES = 10, /* arg: the first entry. Reply: value is up to 4 struct shim_interface, none behind the last. Without a descriptor */
	SHIM_HEADERS = 12, /* A connected socket of datagrams: each has a header from now on */
	SHIM_PENDING = 14, /* The error of a socket of datagrams. arg: notices taken, and bits. Reply: value is struct shim_pending */
	SHIM_ERRORS = 13, /* arg: notices taken. The oldest entry of a socket's queue of errors, or EAGAIN. Reply: local is who has reported it, remote where the
	                     datagram was to go, and value struct shim_error with what is known of the datagram behind it */
	SHIM_MORE = 15, /* A datagram comes that may join others (UDP_CORK, MSG_MORE). arg: its size and bits. EMSGSIZE: too long with those that wait,
	                   which are dropped */
	SHIM_RELEASE = 16, /* The program has closed a socket: value is its cookie. The reply comes once the node has freed the port, or another descriptor
	                      keeps the socket open. Without a descriptor. A node that does not know it closes the channel */
	SHIM_RENEW = 11, /* The socket takes the place of one whose connection has failed or was ended: value is the cookie of that, arg bits */
};

/*
 * The low bits of PENDING's and ERRORS' arg are how many notices the library has taken out of the socket; the node sends another one if
 * none is left and an error stands. TAKE takes SO_ERROR. HOLD, where there is none, leaves out the notice: the call receives on, and
 * asks once more when it is over.
 */
#define SHIM_NOTICES 0xff
#define SHIM_TAKE 0x100
#define SHIM_HOLD 0x200

/*
 * MORE's arg: a piece is followed by others (MSG_MORE), and one that is none ends what waits, but for UDP_CORK. NAMELESS is without an
 * address: EDESTADDRREQ where nothing waits and the socket is not connected. FAILED is that the announced piece does not come.
 */
#define SHIM_MORE_SIZE 0xffff
#define SHIM_MORE_PIECE 0x10000
#define SHIM_MORE_NAMELESS 0x20000
#define SHIM_MORE_FAILED 0x40000

/* A bit of BIND's arg: value of the reply is a permit, with which processes of the same user bind that address and port again, after they
   have given up the right to, and with another node: value of their BIND. */
#define SHIM_WANT_PERMIT 1
#define SHIM_PERMIT 16 /* bytes */

/* A bit of CONNECT's arg and of LISTEN's name: the bytes shall travel by rings (ring.h), whose memory comes with the reply,
   or with the record of each accepted connection, if the node has some. */
#define SHIM_WANT_RINGS 1

/* What the memory is, which comes with that message alone: another program may write to the memory itself. It is the value of CONNECT's
   reply. */
struct shim_memory {
	uint32_t size; /* bytes of each ring */
	uint32_t ends; /* RING_ENDS_NODE or RING_ENDS_PROGRAMS */
};

/* Value of the reply to CONNECT or BIND that has failed, of one byte: the connection has failed or was ended before, and the program is to
   put a new socket in its place (RENEW). To CONNECT, that has reported the end; to BIND, it was not done. */
#define SHIM_RENEWABLE 1

/* Bits of RENEW's arg: SO_ERROR or connect(2) has reported the errno, and connect(2) has reported the end. */
#define SHIM_ERROR_REPORTED 1
#define SHIM_END_REPORTED 2

/* A bit of CONNECT's arg: the call waits for the end of the handshake, so that the next one has nothing to tell. The reply may
   wait for a millisecond, too, and its error is 0 if the handshake is complete by then. */
#define SHIM_BLOCKS 2

/* An address with its port. family is AF_INET, AF_INET6 or 0 for none; IPv4 has the first 4 bytes. */
struct shim_addr {
	uint16_t family;
	uint16_t port;
	uint32_t scope; /* IPv6 scope ID */
	uint8_t ip[16];
};

/* An interface of the stack, or one of its addresses: the entries of INTERFACES' reply. An entry with an address has the interface's
   other fields, too. */
struct shim_interface {
	char name[16];
	uint32_t index;
	uint32_t flags; /* IFF_UP and the like */
	uint32_t mtu;
	uint32_t prefix; /* bits */
	uint8_t mac[8];
	struct shim_addr addr; /* family 0: the interface itself */
};

#define SHIM_REQUEST_VALUE 264
#define SHIM_REPLY_VALUE 256

struct shim_request {
	uint16_t op;
	uint16_t version; /* SHIM_VERSION */
	uint32_t id;      /* repeated in the reply */
	struct shim_addr addr;
	int32_t level;
	int32_t name;
	int32_t arg;
	uint32_t len; /* of value */
	uint32_t process; /* thread for which a supervisor asks; 0: one of the sender's */
	uint8_t reserved[4];
	uint8_t value[SHIM_REQUEST_VALUE];
};

struct shim_reply {
	uint16_t op;
	uint16_t version;
	uint32_t id;
	int32_t error; /* errno, 0 for success */
	uint32_t len;  /* of value */
	struct shim_addr local;
	struct shim_addr remote;
	uint8_t value[SHIM_REPLY_VALUE];
};

/*
 * A record in the stream of a listener: one for each accepted connection, with its descriptor (SCM_RIGHTS).
 */
struct shim_accepted {
	struct shim_addr local;
	struct shim_addr remote;
	struct shim_memory memory; /* where memory comes with the record */
	uint8_t reserved[8];
};

/*
 * The header before each datagram of an unconnected UDP socket, both ways. To the node, remote is the destination,
 * and local the source where IP_PKTINFO gave one. From the node, remote is the sender, and local the destination.
 */
enum {
	/* From the node: the program has asked for these control messages. */
	SHIM_DATAGRAM_PKTINFO = 1,
	SHIM_DATAGRAM_TOS = 2,
	SHIM_DATAGRAM_HOP_LIMIT = 4,
	SHIM_DATAGRAM_MAPPED = 8, /* IPV6_PKTINFO with the address of an IPv4 datagram */
	SHIM_DATAGRAM_TIME = 16,  /* SO_TIMESTAMP */
	SHIM_DATAGRAM_TIME_NS = 32,
	SHIM_DATAGRAM_STAMPING = 64, /* SO_TIMESTAMPING */
	SHIM_DATAGRAM_ORIGINAL = 128, /* IP_RECVORIGDSTADDR */
	SHIM_DATAGRAM_OVERFLOW = 4096, /* SO_RXQ_OVFL: the scope of local is the count, where it is not 0 */
};

/*
 * What SO_INCOMING_CPU of a socket of datagrams with headers says, which AF_UNIX does not use. One that is connected has headers where
 * the program asks for what only they have: in each, remote has family 0 for the peer.
 */
enum {
	SHIM_FORM_MASK = 0x7fff0000,
	SHIM_FORM = 0x4d460000, /* the upper half of the value */
	SHIM_FORM_CONNECTED = 1,
	SHIM_FORM_ERRORS = 2, /* notices of errors may come between datagrams */
	SHIM_FORM_QUEUE = 4,  /* it has a queue of errors */
	SHIM_FORM_JOINS = 32, /* datagrams may join others: MORE comes before each */
};

/* What stands of errors: SO_ERROR, and whether that, or an entry of the queue, is left. */
struct shim_pending {
	uint32_t error;
	uint32_t stands;
};

/* An entry of a socket's queue of errors, as struct sock_extended_err has it. */
struct shim_error {
	uint32_t error;
	uint32_t info;
	uint8_t origin, type, code;
	uint8_t reserved;
	uint32_t data; /* of a time: which datagram */
	int64_t time;  /* of a datagram that was sent, ns of the wall clock; 0 is none */
};

struct shim_datagram {
	struct shim_addr remote;
	struct shim_addr local;
	uint32_t ifindex;
	uint8_t tos;       /* or traffic class */
	uint8_t hop_limit; /* 0: default */
	uint16_t flags; /* to the node: UDP_SEGMENT, bytes, 0 is none */
	int64_t time;   /* of arrival, ns of the wall clock; 0 where no flag asks for it */
};

/*
 * The abstract name of one end of a connection, or of a listener (remote.family is 0), after the zero byte.
 * Addresses are those of the end that has the name. unique differs between all names of a machine.
 */
#define SHIM_NAME_MAGIC "millrace"

struct shim_name {
	char magic[8];
	uint16_t version;
	uint16_t reserved;
	uint32_t process; /* the number of the node's run, which no other has had */
	uint64_t unique;
	struct shim_addr local;
	struct shim_addr remote;
};

#endif
