package rdmaperf

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Op is the operation that is measured.
type Op uint8

// The operations.
const (
	Write Op = iota
	Read
	Send
	ops
)

var opNames = [ops]string{"write", "read", "send"}

// String returns the name.
func (o Op) String() string { return opNames[min(o, ops-1)] }

// ParseOp returns the operation with a name.
func ParseOp(s string) (Op, error) {
	for i, name := range opNames {
		if name == s {
			return Op(i), nil
		}
	}
	return 0, fmt.Errorf("operation %q; want write, read or send", s)
}

// mode selects the action of the server.
type mode uint8

const (
	memory mode = iota // nothing: the client reads and writes its region
	sink               // takes messages
	echo               // answers each message with one of the same size
	modes
)

// request is the private data of a client's connection request; reply that of the answer.
type request struct {
	mode mode
	size uint32 // bytes of a message
	va   uint64 // the client's region, for answers by WRITE
	rkey uint32
}

type reply struct {
	va   uint64
	rkey uint32
}

const (
	magic      = "mrpf"
	requestLen = 24
	replyLen   = 16

	// MaxSize is the size of the longest message, in bytes.
	MaxSize = 8 << 20
)

var errProtocol = errors.New("the peer is no `millrace rdma serve`: it speaks another protocol over RDMA-CM")

func (r *request) append(b []byte) []byte {
	be := binary.BigEndian
	b = append(append(b, magic...), 1, byte(r.mode), 0, 0)
	return be.AppendUint32(be.AppendUint64(be.AppendUint32(b, r.size), r.va), r.rkey)
}

func parseRequest(b []byte) (r request, ok bool) {
	be := binary.BigEndian
	if len(b) < requestLen || string(b[:4]) != magic || b[4] != 1 || b[5] >= byte(modes) {
		return r, false
	}
	r = request{mode(b[5]), be.Uint32(b[8:]), be.Uint64(b[12:]), be.Uint32(b[20:])}
	return r, r.size >= 1 && r.size <= MaxSize
}

func (r *reply) append(b []byte) []byte {
	be := binary.BigEndian
	return be.AppendUint32(be.AppendUint64(append(b, magic...), r.va), r.rkey)
}

func parseReply(b []byte) (r reply, err error) {
	if len(b) < replyLen || string(b[:4]) != magic {
		return r, errProtocol
	}
	return reply{binary.BigEndian.Uint64(b[4:]), binary.BigEndian.Uint32(b[12:])}, nil
}
