package datapath

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/fastpath"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// State sync: a loop leaves a copy of each connection that is confirmed, or whose state changes then, in a ring, from
// which the control side sends them to another gateway; see docs/design/015-state-sync.md and 050-sync-windows.md. Half-open connections are
// not sent, so a SYN flood costs the peer nothing.

const (
	// syncQueue bounds the changes that wait for the control side, which takes them every few milliseconds.
	syncQueue = 8192

	// Connections that had packets are sent again in this time, so that the peer's idle timeouts agree.
	longestRefresh, shortestRefresh = 30 * time.Second, time.Second
)

// syncState is the state of a handler for state sync.
type syncState struct {
	changes *ring.SPSC[ConnCopy] // nil: no peer
	dropped metrics.Counter      // changes that found the ring full
	at      int                  // place in the table of the refresh
	kernel  int                  // the same among the connections in the kernel, of readForPeer
	read    clock.Time           // of readForPeer
	last    clock.Time           // of the refresh
}

// syncChange leaves a copy of connection n for the peer.
func (h syncSide) syncChange(n int) {
	if h.sync.changes.Push([]ConnCopy{{h.table.conns[n], h.snap.Era, h.table.sequences[n]}}) == 0 {
		h.sync.dropped.Add(1)
	}
}

// syncProgress is the number of bytes that a side may send until the peer gets a record: 4 MiB, so that a connection with 10 Gbit/s
// costs some 300 records a second, and the peer's windows are near what is sent.
const syncProgress = 22 // bits

// reportProgress sends connection n again where what a side has sent has passed a multiple of 2^syncProgress.
func (h syncSide) reportProgress(n int, before, end uint32) {
	if h.sync.changes == nil || (before^end)>>syncProgress == 0 {
		return
	}
	if c := &h.table.conns[n]; !c.halfOpen() {
		h.syncChange(n)
	}
}

// SyncChanges makes the handler keep changes of connections for a peer. It is called before the first packet.
func (h *Handler) SyncChanges() { h.sync.changes = ring.NewSPSC[ConnCopy](syncQueue) }

// Changes takes up to len(buf) changed connections and returns how many. One goroutine at a time may call it.
func (h *Handler) Changes(buf []ConnCopy) int { return h.sync.changes.Pop(buf) }

// DroppedChanges returns how many changes found no room. Any goroutine may call it.
func (h *Handler) DroppedChanges() uint64 { return h.sync.dropped.Load() }

// refreshPeer sends connections again that had packets since the last time: as many as the time since then asks for,
// and no more than half of the ring holds, so that changes find room.
func (h syncSide) refreshPeer() {
	s, t := &h.sync, h.table
	round := min(longestRefresh, max(shortestRefresh, time.Duration(h.snap.Timeouts[stateUDP])<<24/4))
	passed := h.clock.Sub(s.last)
	s.last = h.clock
	n := min(t.high, int(float64(t.high)*float64(min(passed, round))/float64(round))+1)
	room := s.changes.Room() - syncQueue/2
	for ; n > 0 && room > 0; n-- {
		if s.at >= t.high {
			s.at = 0
		}
		c := &t.conns[s.at]
		s.at++
		if c.syncable() && c.origin != originPeer && !c.closed() && time.Duration(h.evictor().idle(c))<<24 <= round+sweepRound {
			h.syncChange(s.at - 1)
			room--
		}
	}
}

// What the kernel forwards is read this often for the peer: at 10 Gbit/s a side sends 125 MB meanwhile, less than syncSlack.
const (
	kernelReadEvery = 100 * time.Millisecond
	kernelReadMost  = 4096 // connections at once, some 100 us
)

// readForPeer reads how far connections in the kernel are, and so sends those that have moved on (merge).
func (h syncSide) readForPeer() {
	s, k := &h.sync, &h.kernel
	if len(k.entries) == 0 || h.clock.Sub(s.read) < kernelReadEvery {
		return
	}
	s.read = h.clock
	for range min(len(k.entries), kernelReadMost) {
		if s.kernel >= len(k.entries) {
			s.kernel = 0
		}
		h.kernelSide().read(&h.table.conns[k.entries[s.kernel].conn])
		s.kernel++
	}
}

// syncable reports whether a peer gets the connection: both sides have been seen.
func (c *Conn) syncable() bool {
	return !c.halfOpen() && (c.state == stateUDP || c.state >= stateEstablished)
}

// Record is a connection as another gateway understands it: by addresses, since numbers are those of a process.
type Record struct {
	Client netip.AddrPort
	VIP    netip.AddrPort // the service address
	Target netip.AddrPort // of the backend; port 0 in direct modes
	Source netip.AddrPort // what the backend sees; the zero value in direct modes
	Proto  uint8
	State  RecordState
	FINs   uint8 // 1: the client has sent its FIN, 2: the backend has
	Idle   time.Duration

	Windows Windows // of a TCP connection; the zero value where they are not known
}

// Windows are the sequence numbers and windows of a TCP connection, as pf's state table and its pfsync have them. In direct
// modes only those of the client are known.
type Windows struct {
	Known  bool
	Loose  bool  // segments have passed that were not followed
	Scales uint8 // window scales: of the client in the lower half, of the backend in the upper
	Sides  [2]Window
}

// Window holds the sequence numbers of one side: see sequence.
type Window struct{ End, Limit, Most, Acked uint32 }

// RecordState is the state of a Record. The numbers are part of the format.
type RecordState uint8

// The states of a Record.
const (
	RecordUDP RecordState = 1 + iota
	RecordEstablished
	RecordHalfClosed
	RecordClosing
	RecordTimeWait
	RecordReset
	recordStates
)

var (
	stateOfRecord = [recordStates]state{
		RecordUDP: stateUDP, RecordEstablished: stateEstablished, RecordHalfClosed: stateHalfClosed,
		RecordClosing: stateClosing, RecordTimeWait: stateTimeWait, RecordReset: stateReset,
	}
	recordOfState = func() (of [states]RecordState) {
		for r, s := range stateOfRecord {
			of[s] = RecordState(r)
		}
		return of
	}()
)

// Record returns a connection as a peer gets it; false if it is none that is sent, or has ended long since. The
// snapshot is not older than the connection.
func (s *Snapshot) Record(c *ConnCopy, now clock.Time) (Record, bool) {
	info, ok := s.Describe(c, now)
	if !ok || !c.syncable() {
		return Record{}, false
	}
	idle := int32(ticksAt(now) - (c.deadline - s.timeout(&c.Conn)))
	return Record{
		Client: info.Client, VIP: info.Service, Target: info.Target, Source: info.Source, Proto: info.Proto,
		State: recordOfState[c.state], FINs: c.flags & (connClientFIN | connBackendFIN) / connClientFIN,
		Idle: time.Duration(max(idle, 0)) << 24, Windows: c.windows(),
	}, true
}

// windows returns the windows of a copy.
func (c *ConnCopy) windows() (w Windows) {
	if c.state == stateUDP || !c.sequences.known(&c.Conn) {
		return w
	}
	w = Windows{Known: true, Loose: c.flags&connLoose != 0, Scales: c.scales}
	for i, q := range &c.sequences {
		w.Sides[i] = Window{q.end, q.limit, min(q.window, largestWindow), q.acked}
	}
	return w
}

// setWindows enters the windows of a record in a copy. Ones that no connection has count as unknown.
func (c *ConnCopy) setWindows(w *Windows) {
	if !w.Known || c.state == stateUDP {
		return
	}
	for i, q := range w.Sides {
		if q.Most > largestWindow {
			c.sequences = sequences{}
			return
		}
		c.sequences[i] = sequence{q.End, q.Limit, q.Most, q.Acked}
	}
	c.scales = w.Scales
	if w.Loose {
		c.flags |= connLoose
	}
}

// Directory finds the numbers of what records name. It is built from a snapshot and serves until another Round or Era.
type Directory struct {
	Round     int
	Era       uint32
	loops     int
	span      PortRange
	snap      *Snapshot
	endpoints map[transportKey]uint32
	backends  map[[2]uint32][]uint32 // by service and place of the endpoint
	snats     map[addr]uint16
}

type transportKey struct {
	addr  addr
	port  uint16
	proto uint8
}

// NewDirectory returns the directory of a snapshot for so many loops, with SNAT ports span.
func NewDirectory(s *Snapshot, loops int, span PortRange) *Directory {
	d := &Directory{
		Round: s.Round, Era: s.Era, loops: loops, span: span, snap: s, endpoints: map[transportKey]uint32{},
		backends: map[[2]uint32][]uint32{}, snats: map[addr]uint16{},
	}
	for i, e := range s.Endpoints {
		if !e.Range {
			d.endpoints[transportKey{e.addr, e.Port, e.Proto}] = uint32(i)
		}
	}
	for _, configured := range []bool{false, true} { // those of the configuration last: one that was renamed has two numbers
		for i, b := range s.Backends {
			if key := [2]uint32{b.Service, b.Endpoint}; !b.free && b.Configured == configured {
				d.backends[key] = append(d.backends[key], uint32(i))
			}
		}
	}
	for n, a := range s.SNATs() {
		d.snats[addrOf(a)] = uint16(n)
	}
	return d
}

// Conn returns the connection of a record and the loop that it belongs to; false where the configuration lacks what the
// record names, or where its two sides would belong to different loops.
func (d *Directory) Conn(r *Record) (c ConnCopy, loop int, ok bool) {
	vip, ok := d.snap.findVIP(addrOf(r.VIP.Addr()), r.VIP.Port(), r.Proto)
	if !ok || d.snap.serviceOf(vip) < 0 || r.State == 0 || r.State >= recordStates || (r.State == RecordUDP) != (r.Proto == wire.ProtoUDP) {
		return c, 0, false
	}
	backend, to, ok := d.backend(vip, addrOf(r.Target.Addr()), r.Target.Port(), r.Proto)
	if !ok {
		return c, 0, false
	}
	c = ConnCopy{era: d.Era, Conn: Conn{
		client: addrOf(r.Client.Addr()), clientPort: r.Client.Port(), vip: vip, backend: backend, endpoint: to,
		state: stateOfRecord[r.State], flags: connAnswered | r.FINs*connClientFIN&(connClientFIN|connBackendFIN), origin: originPeer,
		deadline: ticksIn(max(r.Idle, 0)), // until importConn
	}}
	loop = ownerLoop(c.client, c.clientPort, d.loops)
	c.setWindows(&r.Windows)
	if r.Target.Port() == 0 {
		c.flags |= connDirect
		return c, loop, d.snap.Backends[backend].Mode.Direct()
	}
	c.sourcePort = r.Source.Port()
	back := ownerLoop(c.client, c.sourcePort, d.loops)
	if src := addrOf(r.Source.Addr()); src != c.client {
		if c.snat = d.snats[src]; c.snat == 0 || !d.span.Contains(c.sourcePort) || src.is4() != c.client.is4() {
			return c, 0, false
		}
		back = d.span.loopOf(c.sourcePort, d.loops)
	}
	is4 := c.client.is4()
	if c.sourcePort == 0 || is4 != r.Target.Addr().Is4() || is4 != r.VIP.Addr().Is4() || d.snap.Backends[backend].Mode.Direct() {
		return c, 0, false
	}
	return c, loop, loop == back
}

// backend returns the backend of a service address that has a port of an address, and the number of that endpoint. Among
// several with that address it is the one that the service address leads to there, and of the configuration if one is.
func (d *Directory) backend(vip uint32, a addr, port uint16, proto uint8) (backend, endpoint uint32, ok bool) {
	s, service := d.snap, uint32(d.snap.serviceOf(vip))
	if to, ok := d.endpoints[transportKey{a, port, proto}]; ok {
		if list := d.backends[[2]uint32{service, to}]; len(list) > 0 {
			return list[len(list)-1], to, true
		}
	}
	place, ok := s.keys.find(a, tagOf(kindEndpointRange, 0, proto))
	if !ok || port == 0 {
		return 0, 0, false
	}
	list := d.backends[[2]uint32{service, s.EndpointRanges[place]}]
	if len(list) == 0 {
		return 0, 0, false
	}
	backend = list[len(list)-1]
	for _, id := range list {
		if s.backendPort(s.Backends[id], vip) == port {
			backend = id
		}
	}
	endpoint, ok = s.findEndpoint(a, port, proto)
	return backend, endpoint, ok
}

// What became of a record of a peer.
const (
	RecordEntered  = iota // a connection that was not known
	RecordUpdated         // one that was
	RecordStale           // its timeout is over
	RecordConflict        // packets of another connection with the same addresses and ports pass here
	RecordNoRoom          // the table is full
	RecordUnknown         // the configuration lacks what it names
	RecordOutcomes
)

// Import enters connections of a peer, which Directory.Conn returned for this loop, and counts in outcomes what became
// of them. Only the loop may call it.
func (h *Handler) Import(now clock.Time, list []ConnCopy, outcomes *[RecordOutcomes]uint64) {
	h.refresh()
	h.clock, h.now = now, ticksAt(now)
	for i := range list {
		if c := &list[i]; !h.snap.describes(c) || h.snap.Retired.refers(&c.Conn) {
			outcomes[RecordUnknown]++
		} else {
			outcomes[h.syncSide().importConn(c)]++
		}
	}
	h.publish()
}

// importConn enters one connection. What packets here have said of one counts more than what a peer says: such a
// connection only lives longer by a record, and its numbers move on.
func (h syncSide) importConn(r *ConnCopy) int {
	c := &r.Conn
	if h.snap.martian(c.client) { // the peer does not know this machine's addresses
		return RecordUnknown
	}
	timeout := ticks(h.snap.Timeouts[c.state])
	if int32(timeout-c.deadline) <= 0 {
		return RecordStale
	}
	c.deadline = h.now + timeout - c.deadline
	if outcome, decided := h.meetRecord(r); decided {
		return outcome
	}
	if h.table.full() || h.table.live-h.table.halfOpen.n >= h.table.confirmed {
		return RecordNoRoom
	}
	if c.snat != 0 && h.ports.span.Contains(c.sourcePort) { // of this gateway, before it was restarted
		m := h.ports.pair(c.portPair(c.snat))
		if bit := int(c.sourcePort - h.ports.span.First); m.used[bit>>6]&(1<<(bit&63)) != 0 {
			return RecordConflict // it rests
		}
		h.ports.claim(m, c.sourcePort)
		c.pair = m.number
	}
	h.enterRecord(r)
	return RecordEntered
}

// meetRecord compares a record with the connections that have its addresses on either side. It updates the same connection and
// forgets those that the record replaces; decided is false where the record is still to be entered.
func (h syncSide) meetRecord(r *ConnCopy) (outcome int, decided bool) {
	c := &r.Conn
	ck := c.clientKey()
	if n := h.table.byClient(&ck); n >= 0 {
		switch old := &h.table.conns[n]; {
		case old.sameAs(c) && (old.origin != originPeer || old.state == c.state):
			if int32(c.deadline-old.deadline) > 0 && old.state == c.state {
				old.deadline = c.deadline
			}
			h.raiseWindows(n, r)
			return RecordUpdated, true
		case !h.replaceable(old) && !old.sameAs(c):
			return RecordConflict, true
		}
		h.evictor().forget(n)
	}
	if c.direct() {
		return 0, false
	}
	bk := c.backendKey()
	if n := h.table.byBackend(&bk); n >= 0 {
		if !h.replaceable(&h.table.conns[n]) {
			return RecordConflict, true
		}
		h.evictor().forget(n)
	}
	return 0, false
}

// enterRecord enters the connection of a record, for which there is room.
func (h syncSide) enterRecord(r *ConnCopy) {
	c := &r.Conn
	if !c.direct() {
		c.setDeltas(h.snap)
	}
	n := h.table.add(c, h.table.hashesOf(c))
	if c.state != stateUDP {
		h.table.sequences[n] = r.sequences
	}
	h.tally(c.backend)[Opened]++
	if c.state.ending() {
		h.closing++
		h.tally(c.backend)[Closing]++
	}
	if c.closed() && c.pair != 0 {
		m := h.ports.list[c.pair]
		h.table.closed[n] = closedConn{}
		h.table.joinClosed(&m.closed, n)
		m.ended++
	}
}

// raiseWindows moves the numbers of connection n on to those of a record: packets that the peer has seen since. The kernel has
// its own of one that it forwards.
func (h syncSide) raiseWindows(n int, r *ConnCopy) {
	c, s := &h.table.conns[n], &h.table.sequences[n]
	switch {
	case c.state == stateUDP || c.halfOpen() || c.entered() || !r.sequences.known(&r.Conn):
	case !s.known(c):
		*s, c.scales = r.sequences, r.scales
	default:
		if after(r.sequences[sideClient].end, s[sideClient].end) || after(r.sequences[sideBackend].end, s[sideBackend].end) {
			c.origin, h.table.seen[n] = originPeer, candidates{} // its packets pass there, and its windows here are behind
		}
		for side := range s {
			s[side].raise(&fastpath.Sequence{
				End: r.sequences[side].end, Limit: r.sequences[side].limit, Window: r.sequences[side].window, Acked: r.sequences[side].acked,
			})
		}
	}
}

// replaceable reports whether a connection makes way for one of a peer: no packet here says that it is alive.
func (h syncSide) replaceable(c *Conn) bool {
	return c.origin == originPeer || c.closed() || h.kernelSide().expired(c) || c.halfOpen()
}

// sameAs reports whether two connections with the same client lead the same way.
func (c *Conn) sameAs(o *Conn) bool {
	return c.backend == o.backend && c.endpoint == o.endpoint && c.sourcePort == o.sourcePort && c.snat == o.snat
}
