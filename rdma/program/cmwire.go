package program

import (
	"fmt"
	"unsafe"
)

// Requests of the connection manager (librdmacm) have operations from here on and a layout of their own, and so have their replies.
const (
	cmCreateChannel  op = iota + 64 // the reply has the descriptor that is readable while events wait
	cmDestroyChannel                // channel
	cmGetEvent                      // channel; object is none where no event waits
	cmCreateID                      // channel, space, service
	cmDestroyID                     // object; the reply has what is not reported any more
	cmMigrate                       // object, channel; the same of the old channel
	cmBind                          // object, local
	cmResolve                       // object, local, remote, timeout
	cmResolveRoute                  // object
	cmListen                        // object, backlog
	cmConnect                       // object, and the parameters of a connection
	cmAccept                        // the same
	cmEstablish                     // object
	cmReject                        // object, private
	cmDisconnect                    // object
	cmNotify                        // object: a packet has come before the message that confirms the connection
	cmSetOption                     // object, option, value
	cmAttr                          // object; the reply has the attributes of its queue pair
	cmOpsEnd
)

// isCM reports whether an operation is one of these.
func (o op) isCM() bool { return o >= cmCreateChannel && o < cmOpsEnd }

// cmPrivate is the room for private data in requests and replies: more than any message has.
const cmPrivate = 256

// connection holds what both sides of a connection tell each other, in requests, and in replies that are events.
type connection struct {
	qpn, qkey   uint32
	resources   uint8 // READs and atomics that the sender of the message answers
	depth       uint8 // and has outstanding
	flowControl uint8
	retries     uint8
	rnrRetries  uint8
	srq         uint8
	privateLen  uint16
	private     [cmPrivate]byte
}

// endpoint is an address and port. All zeros is any.
type endpoint struct {
	addr [16]byte
	port uint16
	any  uint16 // 1: addr is not given
}

// cmRequest is a request. Each operation reads the fields that its comment names.
type cmRequest struct {
	version, op uint32
	object      uint32
	channel     uint32
	space       uint32 // of ports: see spaces
	service     uint32 // as of CREATE_QP
	timeout     uint32 // milliseconds
	backlog     uint32
	option      uint32
	value       uint32
	reason      uint32 // of cmReject: 0 is the program's own
	local       endpoint
	remote      endpoint
	connection  connection
}

// cmReply answers it.
type cmReply struct {
	version  uint32
	errno    int32
	object   uint32 // of what was created, or that the event is about
	listener uint32 // of an event cmEventRequest
	kind     uint32 // of an event
	status   int32  // of an event: negative is an error number, positive the reason of a rejection
	removed  uint32 // events that are not reported any more: as many bytes are read from the channel's descriptor
	reported uint32 // events of a destroyed object that were reported

	mtu         uint32 // attributes of the queue pair
	recvPSN     uint32
	sendPSN     uint32
	destQP      uint32
	access      uint32 // verbs' access flags
	maxDestRead uint8
	maxRead     uint8
	timeout     uint8
	retries     uint8
	rnrRetries  uint8
	rnrTimer    uint8
	tos         uint8
	known       uint8 // 1: the peer is known, and all of the attributes are valid

	local      endpoint
	remote     endpoint
	connection connection // of the peer
}

const (
	cmRequestSize = int(unsafe.Sizeof(cmRequest{}))
	cmReplySize   = int(unsafe.Sizeof(cmReply{}))
)

// decodeCM copies a request.
func decodeCM(b []byte) (q cmRequest, err error) {
	if len(b) != cmRequestSize {
		return q, fmt.Errorf("rdma/program: a request of %d bytes to the connection manager", len(b))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&q)), cmRequestSize), b)
	if q.version != Version || !op(q.op).isCM() || q.connection.privateLen > cmPrivate {
		return q, fmt.Errorf("rdma/program: operation %d of version %d, %d bytes of private data", q.op, q.version, q.connection.privateLen)
	}
	return q, nil
}

func (r *cmReply) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(r)), cmReplySize) }

// The kinds of events: those of librdmacm.
const (
	cmEventAddrResolved = iota
	cmEventAddrError
	cmEventRouteResolved
	cmEventRouteError
	cmEventRequest
	cmEventResponse
	cmEventConnectError
	cmEventUnreachable
	cmEventRejected
	cmEventEstablished
	cmEventDisconnected
	_ // a device was removed
	_ // a multicast group was joined,
	_ // or not
	_ // an address has moved
	cmEventTimeWaitExit
)
