package rdma

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/rdma/cm"
	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/wire"
)

// Config describes a context. Addr and Hops are required.
type Config struct {
	Addr netip.Addr       // the GID: an address that something answers ARP or neighbour discovery for, such as the kernel
	Hops nexthop.Resolver // finds the link addresses of peers; the caller closes it after the node. Hop.Dev counts the node's devices

	Loop   int   // of the node, which the context belongs to
	MaxQPs int   // 0 is 65536
	TOS    uint8 // of packets: DSCP and ECN

	// Connections that peers begin by RDMA-CM and that are not established yet: in all, and from one address. 0 is 1024 and 128.
	MaxHalfOpen, MaxHalfOpenBySource int
}

// Context is an RDMA device: one address, and all objects that are made on it.
type Context struct {
	cfg  Config
	addr wire.Addr
	node *node.Node
	self int // place of the loop
	lock *stack.LoopLock
	out  *stack.Output

	// All below is guarded by the loop's lock.
	table *memory.Table
	pds   memory.PD
	qps   map[uint32]*QP
	slots []*QP // by timer
	free  []uint32
	wheel *clock.Wheel
	ready []*QP // that Tick polls
	spare []*QP // the other half of ready
	paths map[wire.Addr]*path
	ahs   []*AH // by number; 0 is none
	links []node.Link

	polled   *QP // whose packets emit sends,
	polledAt clock.Time
	frame    roce.Frame
	local    [][]byte // frames to the context itself
	buffers  [][]byte // free ones
	id       uint16   // IPv4 identification of the next packet
	count    counters
	emitter  transport.Output
	gsi      gsi
	inputDev uint8 // device of the frame that input handles

	messenger func(to *cm.Peer, mad []byte) bool

	watching sync.Mutex // one Hops.Watch at a time; taken before the loop's lock
	events   chan Event
}

// timerTick is the resolution of retransmission: as fine as the shortest RNR waits, and coarse beside round trips.
const timerTick = 20 * time.Microsecond

// mostEvents bounds events that wait; further ones are counted and lost.
const mostEvents = 256

// New returns a context on a node that is not started. The caller adds Service to the node.
func New(n *node.Node, cfg Config) (*Context, error) {
	loops := n.Loops()
	switch {
	case !cfg.Addr.IsValid() || cfg.Addr.IsUnspecified() || cfg.Addr.IsMulticast():
		return nil, fmt.Errorf("rdma: %q is no address of a host", cfg.Addr)
	case cfg.Hops == nil:
		return nil, fmt.Errorf("rdma: a resolver of next hops is required")
	case cfg.Loop < 0 || cfg.Loop >= len(loops):
		return nil, fmt.Errorf("rdma: loop %d of %d", cfg.Loop, len(loops))
	}
	if cfg.MaxQPs == 0 {
		cfg.MaxQPs = 1 << 16
	}
	l := loops[cfg.Loop]
	c := &Context{
		cfg: cfg, addr: wire.AddrFrom(cfg.Addr), node: n, self: cfg.Loop, lock: l.Lock(), out: l.Output(), links: n.Links(),
		table: memory.NewTable(random), qps: map[uint32]*QP{}, paths: map[wire.Addr]*path{}, ahs: make([]*AH, 1), events: make(chan Event, mostEvents),
	}
	now := c.lock.Enter()
	c.wheel = clock.NewWheel(0, timerTick, now)
	c.gsi.init(c, now)
	c.lock.Exit()
	c.emitter, c.messenger = c.emit, c.emitMessage
	return c, nil
}

// random returns 32 bits that cannot be guessed.
func random() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint32(b[:])
}

// Addr returns the address of the context.
func (c *Context) Addr() netip.Addr { return c.cfg.Addr }

// MaxMTU returns the largest payload of a packet that every device carries, in bytes: 256 to 4096.
func (c *Context) MaxMTU() uint32 {
	c.lock.Enter()
	defer c.lock.ExitUnchanged()
	return c.maxMTU()
}

func (c *Context) maxMTU() uint32 {
	room := c.out.Arena().FrameSize() - wire.EthernetLen - wire.VLANLen
	for _, l := range c.links {
		if l.MTU != 0 {
			room = min(room, l.MTU)
		}
	}
	mtu := uint32(4096)
	for mtu > 256 && int(mtu)+roce.Overhead-wire.EthernetLen-wire.VLANLen > room {
		mtu /= 2
	}
	return mtu
}

// EventKind is the kind of an asynchronous event.
type EventKind uint8

// The kinds.
const (
	QPFatal    EventKind = iota // the queue pair is in Error, by itself
	SRQLimit                    // fewer receives are left than the limit
	CQOverrun                   // completions were lost
	eventKinds                  // their number
)

// String returns verbs' name.
func (k EventKind) String() string {
	return [...]string{"QP_FATAL", "SRQ_LIMIT_REACHED", "CQ_ERR", "unknown"}[min(k, eventKinds)]
}

// Event is an asynchronous event about one object.
type Event struct {
	Kind EventKind
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
}

// Events returns the asynchronous events. They are lost where nothing receives them.
func (c *Context) Events() <-chan Event { return c.events }

func (c *Context) report(e Event) {
	select {
	case c.events <- e:
	default:
		c.count.lostEvents++
	}
}
