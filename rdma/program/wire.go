package program

import (
	"fmt"
	"unsafe"

	"github.com/millrace/millrace/rdma/transport"
)

// Version is the version of the protocol. Both sides compare it in each request and reply. rdma/verbs/channel.h has the same layouts, and
// TestLayouts compares them.
const Version = 2

// op is the operation of a request.
type op uint32

// The operations. CREATE ones return the number of the new object.
const (
	opHello          op = iota + 1 // with the descriptor of /proc/self/mem; the reply has those of submission, doorbell and events
	opAllocPD                      //
	opDeallocPD                    // object
	opRegMR                        // pd, addr, length, va, access
	opDeregMR                      // object
	opCreateChannel                // the reply has the descriptor of its events
	opDestroyChannel               // object
	opCreateCQ                     // depth, channel; the reply has the descriptor of its queue
	opDestroyCQ                    // object
	opCreateSRQ                    // pd, depth
	opModifySRQ                    // object, depth: the limit
	opDestroySRQ                   // object
	opCreateQP                     // pd, service, depth, recvDepth, sendCQ, recvCQ, srq
	opModifyQP                     // object, state, and the attributes that it reads
	opQueryQP                      // object
	opDestroyQP                    // object
	opCreateAH                     // pd, gid
	opDestroyAH                    // object
	opAllocMW                      // pd, service: the type
	opDeallocMW                    // object
	ops
)

// none is the number of no object.
const none = 1<<32 - 1

// request comes from a program. Each operation reads the fields that its comment names.
type request struct {
	version, op   uint32
	object, pd    uint32
	addr, length  uint64
	va            uint64
	access        uint32
	depth         uint32 // of a completion, shared receive or send queue
	recvDepth     uint32
	service       uint32
	channel       uint32
	sendCQ        uint32
	recvCQ        uint32
	srq           uint32
	state         uint32
	mtu           uint32
	destQP        uint32
	recvPSN       uint32
	sendPSN       uint32
	qkey          uint32
	maxDestReads  uint8
	maxReads      uint8
	rnrTimer      uint8
	timeout       uint8
	retries       uint8
	rnrRetries    uint8
	pkey          uint16
	gid           [16]byte
	selfDescribed [8]byte // of a later version
}

// reply answers it. errno is 0 where the operation is done.
type reply struct {
	version    uint32
	errno      int32
	object     uint32 // number of what was created
	key        uint32 // of a region; the number of a queue pair; the path of an address handle
	slots      uint32 // of a queue
	staging    uint32 // bytes behind the submission queue
	state      uint32 // of a queue pair
	sendsDone  uint32 // requests of a queue pair that have completed
	recvsDone  uint32
	maxMTU     uint32 // in bytes
	maxQPs     uint32
	maxRegions uint32
	gid        [16]byte
	guid       uint64
	generation uint32 // of the number
	unused     uint32
}

const (
	requestSize = int(unsafe.Sizeof(request{}))
	replySize   = int(unsafe.Sizeof(reply{}))
)

// decodeRequest copies a request.
func decodeRequest(b []byte) (q request, err error) {
	if len(b) != requestSize {
		return q, fmt.Errorf("rdma/program: a request of %d bytes", len(b))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&q)), requestSize), b)
	if q.version != Version || op(q.op) == 0 || op(q.op) >= ops {
		return q, fmt.Errorf("rdma/program: operation %d of version %d", q.op, q.version)
	}
	return q, nil
}

func (r *reply) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(r)), replySize) }

// The operations of submission entries. The number of the object is the entry's connection.
const (
	submitList   = iota + 1 // elements of the list of the entry that follows
	submitSend              // of a queue pair
	submitRecv              // of a queue pair
	submitShared            // a receive of a shared receive queue
)

// element is transport.SGE.
type element struct {
	addr         uint64
	length, lkey uint32
}

// elementsOf is the number of elements in the entries.
const (
	listElements = 5
	sendElements = 2
	recvElements = 4
)

// list is the data of submitList.
type list struct {
	elements [listElements]element
}

// send is the data of submitSend.
type send struct {
	id       uint64
	remote   uint64
	compare  uint64 // also UD: the path in its low half, the queue pair in its high half
	swap     uint64 // also UD: the queue key
	rkey     uint32
	imm      uint32 // or the key that is invalidated
	op       uint8
	flags    uint8
	elements uint8  // of list; the last entries hold those that the lists before have no space for
	inlined  uint8  // 1: the entry's offset and length are those of bytes in the staging memory
	length   uint32 // of these
	list     [sendElements]element
}

// recv is the data of submitRecv and submitShared.
type recv struct {
	id       uint64
	elements uint32
	unused   uint32
	list     [recvElements]element
}

// completion is the data of an entry of a completion queue. The entry's connection is the number of the queue pair's object.
type completion struct {
	id     uint64
	status uint32
	op     uint32
	bytes  uint32
	qpn    uint32
	srcQP  uint32
	imm    uint32 // or the key that is invalid now
	flags  uint32 // transport.CompletionFlags, and completionRecv
	done   uint32 // see transport.Completion
}

// completionRecv marks completions of receives.
const completionRecv = 1 << 8

// event is read by a program from the pipe of a channel or of asynchronous events.
type event struct {
	kind       uint32
	object     uint32
	generation uint32 // of the object's number
	unused     uint32
}

// The kinds of events.
const (
	eventCompletion = iota // to channels
	eventQPFatal
	eventSRQLimit
	eventCQError
)

// load copies the data of an entry, which is as large as any of the structures above.
func load[T any](data []byte) (v T) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v)), data)
	return v
}

// store is the reverse of load. It returns the number of bytes.
func store[T any](data []byte, v *T) int {
	return copy(data, unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)))
}

func (e element) sge() transport.SGE {
	return transport.SGE{Addr: e.addr, Length: e.length, LKey: e.lkey}
}
