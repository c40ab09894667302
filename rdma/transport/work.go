package transport

import (
	"fmt"

	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
)

// Access are the rights of a region or a queue pair.
type Access = memory.Access

// SGE is one element of a scatter-gather list: bytes of a region of the caller.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// Op is the operation of a send request or a completion.
type Op uint8

// The operations.
const (
	OpSend Op = iota
	OpSendImm
	OpSendInv // and invalidates a key at the receiver
	OpWrite
	OpWriteImm
	OpRead
	OpCompareSwap
	OpFetchAdd
	OpBind            // binds a memory window
	OpLocalInvalidate // takes the remote rights of a region, or the bytes of a window of type 2B
	opsOfSends

	OpRecv    Op = 128 // completions of receives: of a SEND,
	OpRecvImm Op = 129 // of a WRITE with immediate data
)

// isRead reports whether a request has a response, of which the responder keeps a record.
func (o Op) isRead() bool { return o == OpRead || o.isAtomic() }

// isAtomic reports whether o is an atomic.
func (o Op) isAtomic() bool { return o == OpCompareSwap || o == OpFetchAdd }

// isLocal reports whether a request sends no packet.
func (o Op) isLocal() bool { return o == OpBind || o == OpLocalInvalidate }

// takesReceive reports whether the message consumes a receive of the peer.
func (o Op) takesReceive() bool { return o <= OpSendInv || o == OpWriteImm }

// String returns verbs' name.
func (o Op) String() string {
	switch {
	case o < opsOfSends:
		return [...]string{"SEND", "SEND_WITH_IMM", "SEND_WITH_INV", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ", "COMP_SWAP", "FETCH_ADD", "BIND_MW", "LOCAL_INV"}[o]
	case o == OpRecv:
		return "RECV"
	case o == OpRecvImm:
		return "RECV_RDMA_WITH_IMM"
	}
	return "unknown"
}

// SendFlags modify a send request.
type SendFlags uint8

// The flags.
const (
	Signaled  SendFlags = 1 << iota // completes with a Completion on success too
	Fence                           // waits until earlier READs and atomics have completed
	Solicited                       // asks for an event at the receiver
	Inline                          // the list is copied by PostSend: it needs no region, and Inlined holds the bytes
)

// SendWR is a request to send. The memory of its list belongs to the queue pair until it completes.
type SendWR struct {
	ID      uint64
	Op      Op
	Flags   SendFlags
	List    []SGE  // PostSend copies it
	Inlined []byte // payload with flag Inline, instead of List; copied

	RemoteAddr uint64 // WRITE, READ, atomics. OpBind: of the first byte
	RKey       uint32 // OpBind: the key that the window gets, which is its present one with another tag
	Imm        uint32
	InvKey     uint32 // SendInv, LocalInvalidate. OpBind: key of the region
	Compare    uint64 // CompareSwap. OpBind: number of bytes
	Swap       uint64 // CompareSwap: the new value; FetchAdd: what is added. OpBind: the rights, an Access

	Path   uint32 // UD: the address handle, which out of Poll gets
	DestQP uint32 // UD
	QKey   uint32 // UD
}

// RecvWR is a buffer for one message. The memory of its list belongs to the queue until it completes.
type RecvWR struct {
	ID   uint64
	List []SGE // PostRecv copies it
}

// Status is the result of a request (11.6.2), with the numbers of verbs.
type Status uint8

// The statuses.
const (
	Success          Status = 0
	LocalLength      Status = 1  // the message is longer than the buffer, or than the service carries
	LocalQPOperation Status = 2  // the queue pair has failed within
	LocalProtection  Status = 4  // no region of the list's key permits it
	Flushed          Status = 5  // the queue pair is in Error
	BindError        Status = 6  // the window, the region or its rights do not permit it
	BadResponse      Status = 7  // a response that no request has
	RemoteInvalid    Status = 9  // NAK: invalid request
	RemoteAccess     Status = 10 // NAK: the memory is not permitted
	RemoteOperation  Status = 11 // NAK: the responder has failed
	RetriesExceeded  Status = 12 // no acknowledgement came
	RNRExceeded      Status = 13 // the peer posted no receive
)

// String returns verbs' name.
func (s Status) String() string {
	if int(s) < len(statusNames) && statusNames[s] != "" {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint8(s))
}

var statusNames = [...]string{
	Success: "success", LocalLength: "local length error", LocalQPOperation: "local QP operation error",
	LocalProtection: "local protection error", Flushed: "Work Request Flushed Error", BindError: "memory bind operation error", BadResponse: "bad response error",
	RemoteInvalid: "remote invalid request error", RemoteAccess: "remote access error", RemoteOperation: "remote operation error",
	RetriesExceeded: "transport retry counter exceeded", RNRExceeded: "RNR retry counter exceeded",
}

// CompletionFlags mark which fields of a completion are valid.
type CompletionFlags uint8

// The flags.
const (
	WithImm       CompletionFlags = 1 << iota // Imm
	WithInv                                   // InvKey, which is invalid now
	WithGRH                                   // the buffer begins with 40 bytes of headers
	SolicitsEvent                             // the sender asked for an event
)

// Completion is the result of a request.
type Completion struct {
	ID     uint64
	Status Status
	Op     Op // valid with Success
	Flags  CompletionFlags
	Bytes  uint32 // of the message, with the 40 bytes of UD; of receives, READs and atomics
	QPN    uint32 // of the queue pair here
	SrcQP  uint32 // UD: of the sender
	Imm    uint32
	InvKey uint32
	Done   uint32 // requests of the queue pair, sends or receives, that have completed, with this one and those without a completion
}

// statusOf returns the status that a NAK ends a request with; false is a sequence error, which ends none.
func statusOf(s roce.Syndrome) (Status, bool) {
	switch s {
	case roce.NakSequence:
		return Success, false
	case roce.NakInvalidRequest, roce.NakInvalidRD:
		return RemoteInvalid, true
	case roce.NakRemoteAccess:
		return RemoteAccess, true
	}
	return RemoteOperation, true
}
