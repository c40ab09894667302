package rdma

import (
	"errors"

	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/rdma/transport"
)

// The types of requests and results are transport's.
type (
	SGE        = transport.SGE
	SendWR     = transport.SendWR
	RecvWR     = transport.RecvWR
	Completion = transport.Completion
	Op         = transport.Op
	Status     = transport.Status
	State      = transport.State
	Attr       = transport.Attr
	Access     = memory.Access
	Transport  = roce.Transport
	SendFlags  = transport.SendFlags
)

// Services of queue pairs.
const (
	RC = roce.RC
	UC = roce.UC
	UD = roce.UD
)

// Rights of regions and queue pairs.
const (
	LocalWrite   = memory.LocalWrite
	RemoteWrite  = memory.RemoteWrite
	RemoteRead   = memory.RemoteRead
	RemoteAtomic = memory.RemoteAtomic
	WindowBind   = memory.WindowBind
)

// Operations.
const (
	OpSend        = transport.OpSend
	OpSendImm     = transport.OpSendImm
	OpSendInv     = transport.OpSendInv
	OpWrite       = transport.OpWrite
	OpWriteImm    = transport.OpWriteImm
	OpRead        = transport.OpRead
	OpCompareSwap = transport.OpCompareSwap
	OpFetchAdd    = transport.OpFetchAdd
	OpBind        = transport.OpBind
	OpLocalInv    = transport.OpLocalInvalidate
	OpRecv        = transport.OpRecv
	OpRecvImm     = transport.OpRecvImm
)

// Flags of send requests.
const (
	Signaled  = transport.Signaled
	Fence     = transport.Fence
	Solicited = transport.Solicited
	Inline    = transport.Inline
)

// States of queue pairs.
const (
	Reset          = transport.Reset
	Init           = transport.Init
	ReadyToReceive = transport.ReadyToReceive
	ReadyToSend    = transport.ReadyToSend
	Drained        = transport.Drained
	Error          = transport.Error
)

// Errors.
var (
	ErrClosed  = errors.New("rdma: the object has been destroyed")
	ErrBusy    = errors.New("rdma: the object is in use: destroy what uses it first")
	ErrLimit   = errors.New("rdma: the limit of objects of this kind is reached")
	ErrOverrun = errors.New("rdma: the completion queue overflowed: make it as large as the queues that use it together")
	ErrPath    = errors.New("rdma: the address cannot be reached by a path of the context")
)
