package rdma

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/rdma/cm"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/wire"
)

// counters of a context, beside those of its queue pairs.
type counters struct {
	received   uint64
	sent       uint64
	refused    [roce.Reasons]uint64      // frames, by reason
	dropped    [transport.Reasons]uint64 // packets of queue pairs, by effect; Taken is those that were taken
	unknownQP  uint64
	otherAddr  uint64 // RoCEv2 to another address
	lostEvents uint64
	noPath     uint64 // packets whose address handle has been destroyed, or whose next hop is not known
}

// handler is the context on the loop that it belongs to.
type handler struct{ *Context }

var _ stack.Handler = handler{}

// Handle implements stack.Handler.
func (h handler) Handle(now clock.Time, b *packet.Batch) {
	for i := 0; i < len(b.D); i++ {
		d := &b.D[i]
		if d.Flags.Has(packet.FlagMore) { // a packet of several frames: the ICRC protects no such thing
			d.Verdict = packet.DropUnsupported
			for i+1 < len(b.D) && b.D[i].Flags.Has(packet.FlagMore) {
				i++
			}
			continue
		}
		h.inputDev = d.Port
		d.Verdict = h.input(now, b.Bytes(i))
		if d.Verdict == packet.Deliver {
			h.out.Pool().Put(d.Off)
		}
	}
	h.out.RequestTick()
}

// input handles one frame, which it borrows.
func (c *Context) input(now clock.Time, b []byte) packet.Verdict {
	f := &c.frame
	c.count.received++
	why := f.Parse(b)
	if why == roce.Accepted {
		why = f.Verify()
	}
	if why != roce.Accepted {
		c.count.refused[why]++
		return frameVerdicts[why]
	}
	if f.Dst != c.addr {
		c.count.otherAddr++
		return packet.DropNotOurs
	}
	if f.DestQP == cm.QPN {
		return c.inputGSI(now, f, c.inputDev)
	}
	q := c.qps[f.DestQP]
	if q == nil {
		c.count.unknownQP++
		return packet.DropNoSocket
	}
	c.makeReady(q)
	effect := q.qp.Input(now, f)
	c.count.dropped[effect]++
	return effectVerdicts[effect]
}

// frameVerdicts and effectVerdicts are the loop's words for the reasons.
var (
	frameVerdicts = [roce.Reasons]packet.Verdict{
		roce.NotRoCE: packet.DropUnsupported, roce.Truncated: packet.DropTruncated, roce.BadLength: packet.DropMalformed,
		roce.Fragmented: packet.DropFragment, roce.BadVersion: packet.DropUnsupported, roce.BadOpcode: packet.DropUnsupported,
		roce.BadAddress: packet.DropMartian, roce.BadICRC: packet.DropL4Checksum,
	}
	effectVerdicts = [transport.Reasons]packet.Verdict{
		transport.Taken: packet.Deliver, transport.WrongState: packet.DropState, transport.WrongService: packet.DropState,
		transport.WrongPKey: packet.DropDenied, transport.WrongQKey: packet.DropDenied, transport.WrongSource: packet.DropDenied,
		transport.Duplicate: packet.DropSequence, transport.OutOfSequence: packet.DropSequence, transport.NoReceive: packet.DropSocketFull,
		transport.InvalidRequest: packet.DropState, transport.NoAccess: packet.DropDenied, transport.LocalFailure: packet.DropMemory,
		transport.TooLong: packet.DropTooBig, transport.GhostAck: packet.DropSequence, transport.WrongResponse: packet.DropState,
		transport.AnswersFull: packet.DropSocketFull, transport.OtherOpcode: packet.DropUnsupported,
	}
)

// Tick implements stack.Handler: it runs the queue pairs that have something to send, or whose time has come.
func (h handler) Tick(now clock.Time) clock.Time {
	c := h.Context
	c.wheel.Advance(now, func(slot uint32) {
		if q := c.slots[slot]; q != nil {
			c.makeReady(q)
		}
	})
	local := len(c.local)
	for i := range local {
		c.input(now, c.local[i])
		c.buffers = append(c.buffers, c.local[i])
	}
	c.local = append(c.local[:0], c.local[local:]...)
	list := c.ready
	c.ready = c.spare[:0]
	for _, q := range list {
		if q.isReady = false; !q.closed {
			c.poll(now, q)
		}
	}
	clear(list)
	c.spare = list[:0]
	next := c.pollGSI(now)
	if len(c.ready) > 0 || len(c.local) > 0 {
		return now
	}
	return min(next, c.wheel.Next())
}

// patience bounds the wait of packets for the link address of a peer; then they are lost like others, and the transport
// repeats them or gives up. pathCheck is how often a queue pair that waits is polled.
const (
	patience  = time.Second
	pathCheck = 100 * time.Millisecond
)

// emitNowhere handles a packet whose next hop is not known. It reports whether the packet is lost; if not, it waits.
func (c *Context) emitNowhere(way *path) bool {
	q := c.polled
	if q.waitsSince == 0 {
		q.waitsSince = c.polledAt
	}
	if way.hop.State != nexthop.NoRoute && c.polledAt.Sub(q.waitsSince) < patience {
		q.waits = true
		return false
	}
	c.count.noPath++
	return true
}

// mostLocal bounds the frames that a context has sent to itself and not handled.
const mostLocal = 1024

// emit is the transport.Output of the queue pair that is polled.
func (c *Context) emit(number uint32, p *roce.Packet, pieces [][]byte) bool {
	way := c.polled.path
	if c.polled.cfg.Service == UD {
		h := c.handle(c.polled.pd, number)
		if h == nil {
			c.count.noPath++
			return true
		}
		way = h.path
	}
	if !way.usable() {
		return c.emitNowhere(way)
	}
	c.polled.waitsSince = 0
	e := roce.Envelope{
		DstMAC: way.hop.MAC, VLAN: way.hop.VLAN, Src: c.addr, Dst: way.addr, TOS: c.polled.cfg.TOS, TTL: 64, ID: c.id,
		SrcPort: sourcePort(c.polled.qp.QPN()),
	}
	if c.polled.cfg.LineRate > 0 && p.Opcode != roce.CNP {
		e.TOS |= uint8(wire.ECT0)
	}
	c.id++
	if way.own {
		return c.emitLocal(&e, p, pieces)
	}
	return c.originate(way.hop.Dev, &e, p, pieces)
}

// originate sends a packet to a device. It reports false where there is no room now.
func (c *Context) originate(dev uint8, e *roce.Envelope, p *roce.Packet, pieces [][]byte) bool {
	if int(dev) < len(c.links) {
		e.SrcMAC = wire.MAC(c.links[dev].MAC)
	}
	frames := c.out.Reserve(dev, 1)
	if frames == nil {
		return false
	}
	arena := c.out.Arena()
	d := [1]packet.Desc{{Off: frames[0], Len: uint16(arena.FrameSize())}}
	d[0].Len = uint16(roce.Build(arena.Bytes(&d[0]), e, p, pieces...))
	c.out.Originate(dev, d[:])
	c.count.sent++
	return true
}

// emitLocal queues a packet to the context itself, for the next Tick.
func (c *Context) emitLocal(e *roce.Envelope, p *roce.Packet, pieces [][]byte) bool {
	if len(c.local) == mostLocal {
		return false
	}
	var b []byte
	if n := len(c.buffers); n > 0 {
		b = c.buffers[n-1]
		c.buffers = c.buffers[:n-1]
	} else {
		b = make([]byte, c.out.Arena().FrameSize())
	}
	b = b[:cap(b)]
	c.local = append(c.local, b[:roce.Build(b, e, p, pieces...)])
	c.count.sent++
	return true
}

// sourcePort spreads queue pairs over paths and receive queues; it stays the same for one, which keeps its packets in order
// (A17.4.3).
func sourcePort(qpn uint32) uint16 { return 0xc000 | uint16((qpn^qpn>>14)*0x9e37>>2)&0x3fff }

// passer hands packets over to the loop that the context belongs to.
type passer struct{ to uint32 }

// Handle implements stack.Handler.
func (p passer) Handle(_ clock.Time, b *packet.Batch) {
	for i := range b.D {
		b.D[i].Verdict, b.D[i].Flow = packet.Handover, p.to
	}
}

// Tick implements stack.Handler.
func (passer) Tick(clock.Time) clock.Time { return clock.Never }
