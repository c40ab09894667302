package datapath

import (
	"math/bits"
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
)

// Conn is a connection: 64 bytes, one cache line, no pointer, so that the garbage collector never scans the
// table. With the immutable snapshot it holds all that rewriting a packet of either direction needs. Other
// packages treat it as opaque; Snapshot.Describe describes it.
type Conn struct {
	client     addr    // 0
	deadline   ticks   // 16: forgotten from then on
	vip        uint32  // 20: number of the service address, see ranges.go
	backend    uint32  // 24: number of the backend
	endpoint   uint32  // 28: number of the backend's address, port and protocol, see ranges.go
	clientPort uint16  // 32
	sourcePort uint16  // 34: the source port that the backend sees
	snat       uint16  // 36: number of the source address that the backend sees; 0 is the client's own
	l3Delta    uint16  // 38: what rewriting towards the backend adds to the IPv4 header checksum
	l4Delta    uint16  // 40: the same for the transport checksum
	mac        [6]byte // 42: link address that the client's packets come from
	dev        uint8   // 48: port of the loop that they come on
	state      state   // 49
	vlan       uint16  // 50: VLAN identifier that the client's packets are tagged with; 0 is none
	place      uint32  // 52: of a half-open connection among these; of a confirmed one on its way to the kernel, see kernel.go
	lists      uint8   // 56: mark of the source lists that let it in
	flags      uint8   // 57
	scales     uint8   // 58: window scales, see sequences
	origin     origin  // 59: who opened it here
	pair       uint32  // 60: number of the SNAT address and endpoint that the source port is of; 0 is none
}

// The flags of a connection.
const (
	connDirect     = 1 << iota // packets reach the backend unchanged: replies pass by, no slot for the backend's side
	connAnswered               // the backend has answered or refused
	connClientFIN              // the client has sent its FIN
	connBackendFIN             // the backend has
	connTimeWait               // the backend closed first: it ends in TIME-WAIT
	connOtherSYN               // the client has sent SYNs with different numbers
	connLoose                  // segments have passed that were not followed: picked up mid-flow, in fragments, or beyond the window
	connNewSYN                 // the client has sent a SYN since it was confirmed: see noteSYN
)

// origin names what opened a connection in this table.
type origin uint8

const (
	originClient  origin = iota // a packet of the client
	originBackend               // a packet of the backend: picked up mid-flow
	originPeer                  // a record of another gateway, and no packet since
)

// ticks is a coarse time: units of 2^24 ns, 16.8 ms. It wraps after 2.3 years; only differences
// below half of that mean anything.
type ticks uint32

func ticksAt(now clock.Time) ticks     { return ticks(now >> 24) }
func ticksIn(d time.Duration) ticks    { return ticks((d + 1<<24 - 1) >> 24) }
func (t ticks) expired(now ticks) bool { return int32(now-t) >= 0 }
func (c *Conn) expired(now ticks) bool { return c.deadline.expired(now) }
func (c *Conn) clientKey() clientKey   { return clientKey{c.client, c.vip, c.clientPort} }
func (c *Conn) backendKey() backendKey { return backendKey{c.seen(), c.endpoint, c.sourcePort, c.snat} }

// closed reports whether both ends have given the connection up: its source port may be used again.
func (c *Conn) closed() bool { return c.state.closed() }

// direct reports whether the backend answers the client itself.
func (c *Conn) direct() bool { return c.flags&connDirect != 0 }

func (c *Conn) isClient(k *clientKey) bool {
	return c.client == k.client && c.vip == k.vip && c.clientPort == k.port
}
func (c *Conn) isBackend(k *backendKey) bool { return c.backendKey() == *k }

// seen returns the client's address when the backend sees it, and zero when it sees an SNAT one.
func (c *Conn) seen() addr {
	if c.snat != 0 {
		return addr{}
	}
	return c.client
}

// clientKey finds a connection by a packet from its client.
type clientKey struct {
	client addr
	vip    uint32
	port   uint16 // the client's
}

// backendKey finds a connection by a packet from its backend.
type backendKey struct {
	client   addr // zero with an SNAT address
	endpoint uint32
	port     uint16 // the backend's peer
	snat     uint16
}

// table holds the connections of one loop. It never grows: conns is an array, and index an
// open-addressed hash table over it with linear probing, in which each connection has two slots,
// one for each side, and a direct one only the client's. A slot is
//
//	63          32 31      1  0
//	+-------------+---------+---+
//	| hash        | conn+1  |   |   bit 0: 0 client's side, 1 backend's side
//	+-------------+---------+---+
//
// and 0 when empty. Deletion moves later slots back, so there are no tombstones. A connection takes
// 64 bytes and 8/3 to 16/3 slots of 8 bytes, whatever power of two the size needs: 85 to 107 bytes,
// and a million connections 98 MB.
//
// Connections expire by a sweep over conns (a clock hand): a packet then costs one store of a deadline,
// where a timer wheel would cost a list operation for each packet and 16 bytes for each connection. The
// price is that an expired connection keeps its place for up to sweepRound.
type table struct {
	conns     []Conn
	sequences []sequences  // of TCP connections, in the same places
	seen      []candidates // of provisional ones, in the same places: see pickup.go
	index     []uint64
	key       hashKey
	mask      uint32
	live      int
	high      int // conns from here on are not in use, and the kernel need not back them
	free      freeSet
	hand      int
	rand      random.Source

	halfOpen  halfOpenTable
	confirmed int          // most confirmed connections
	closed    []closedConn // by connection

	memory memory // of the large ones of the slices
	trimmer
}

// newTable returns a table for at most size connections, of which at most half are half-open.
func newTable(size, half int, seed *random.Source) *table {
	slots := 1 << bits.Len(uint(2*size*4/3-1)) // at most three quarters full
	var m memory
	t := &table{
		conns:     slice[Conn](&m, size),
		sequences: slice[sequences](&m, size),
		seen:      slice[candidates](&m, size),
		index:     slice[uint64](&m, slots),
		key:       newHashKey(seed),
		mask:      uint32(slots - 1),
		free:      newFreeSet(size),
		rand:      random.Source(seed.Uint64()),

		halfOpen:  halfOpenTable{slots: slice[halfOpenSlot](&m, half+1), high: 1},
		confirmed: size - min(half, size/2),
		closed:    slice[closedConn](&m, size),
	}
	t.memory, t.trimmer.next = m, -1
	m.freeWith(t)
	return t
}

func (t *table) hashClient(k *clientKey) uint32 {
	return uint32(t.key.sum(k.client, uint64(k.vip)<<32|uint64(k.port)<<1) >> 32)
}

func (t *table) hashBackend(k *backendKey) uint32 {
	return uint32(t.key.sum(k.client, uint64(k.endpoint)<<32|uint64(k.snat)<<17|uint64(k.port)<<1|1) >> 32)
}

// byClient returns the connection that k belongs to, -1 when there is none.
func (t *table) byClient(k *clientKey) int { return t.findClient(k, t.hashClient(k)) }

// findClient is byClient with the hash of k.
func (t *table) findClient(k *clientKey, h uint32) int {
	for i := h & t.mask; t.index[i] != 0; i = (i + 1) & t.mask {
		if s := t.index[i]; uint32(s>>32) == h && s&1 == 0 && t.conns[slotConn(s)].isClient(k) {
			return slotConn(s)
		}
	}
	return -1
}

// byBackend returns the connection that k belongs to, -1 when there is none.
func (t *table) byBackend(k *backendKey) int { return t.findBackend(k, t.hashBackend(k)) }

// findBackend is byBackend with the hash of k.
func (t *table) findBackend(k *backendKey, h uint32) int {
	for i := h & t.mask; t.index[i] != 0; i = (i + 1) & t.mask {
		if s := t.index[i]; uint32(s>>32) == h && s&1 == 1 && t.conns[slotConn(s)].isBackend(k) {
			return slotConn(s)
		}
	}
	return -1
}

func slotConn(s uint64) int { return int(uint32(s)>>1) - 1 }

// full reports whether there is no room for another connection.
func (t *table) full() bool { return t.live == len(t.conns) }

// hashes are those of both sides of a connection. A direct one has none on the backend's.
type hashes [2]uint32

// hashesOf returns the hashes of a connection. Half-open ones keep them: the next flood evicts them soon.
func (t *table) hashesOf(c *Conn) hashes {
	if c.halfOpen() {
		return t.halfOpen.slots[c.place].hashes
	}
	ck := c.clientKey()
	return t.hashesFrom(c, t.hashClient(&ck))
}

// hashesFrom returns the hashes of a connection whose client's side has the given one.
func (t *table) hashesFrom(c *Conn, client uint32) hashes {
	if c.direct() {
		return hashes{client}
	}
	bk := c.backendKey()
	return hashes{client, t.hashBackend(&bk)}
}

// add stores c, which neither side finds yet, and returns its number. The table is not full.
func (t *table) add(c *Conn, h hashes) int {
	n := t.free.take()
	t.high = max(t.high, n+1)
	t.conns[n] = *c
	if c.state != stateUDP {
		t.sequences[n] = sequences{}
		if c.provisional() {
			t.seen[n] = candidates{}
		}
	}
	t.live++
	t.link(h[0], uint64(n+1)<<1)
	if !c.direct() {
		t.link(h[1], uint64(n+1)<<1|1)
	}
	return n
}

func (t *table) link(h uint32, ref uint64) {
	i := h & t.mask
	for t.index[i] != 0 {
		i = (i + 1) & t.mask
	}
	t.index[i] = uint64(h)<<32 | ref
}

// remove forgets connection n, which has these hashes.
func (t *table) remove(n int, h hashes) {
	c := &t.conns[n]
	t.unlink(h[0], uint64(n+1)<<1)
	if !c.direct() {
		t.unlink(h[1], uint64(n+1)<<1|1)
	}
	*c = Conn{}
	t.free.put(n)
	t.live--
}

// unlink empties the slot with h and ref, and closes the gap: a later slot of the same run moves
// into it unless its home lies behind the gap (Knuth, The Art of Computer Programming, 6.4,
// algorithm R).
func (t *table) unlink(h uint32, ref uint64) {
	gap := h & t.mask
	for t.index[gap] != uint64(h)<<32|ref {
		gap = (gap + 1) & t.mask
	}
	for i := (gap + 1) & t.mask; t.index[i] != 0; i = (i + 1) & t.mask {
		home := uint32(t.index[i]>>32) & t.mask
		if (i-home)&t.mask >= (i-gap)&t.mask {
			t.index[gap] = t.index[i]
			gap = i
		}
	}
	t.index[gap] = 0
}

// unmark forgets which state of the source lists let connections in: marks are about to be used again.
func (t *table) unmark() {
	for i := range t.conns[:t.high] {
		t.conns[i].lists = 0
	}
}

// sweep moves the hand over up to n conns and calls drop, which removes them, for those that are over. It reports whether
// that ends a pass over all of them. The next call then begins another at the first, however many there are by then.
func (t *table) sweep(n int, over func(c *Conn) bool, drop func(n int)) (ended bool) {
	for end := min(t.hand+n, t.high); t.hand < end; t.hand++ {
		if c := &t.conns[t.hand]; c.state != stateFree && over(c) {
			drop(t.hand)
		}
	}
	if t.hand < t.high {
		return false
	}
	t.hand = 0
	return true
}

// ConnInfo describes a connection.
type ConnInfo struct {
	Backend  uint32 // its number
	Proto    uint8  // IP protocol
	Client   netip.AddrPort
	Service  netip.AddrPort // the service address
	Target   netip.AddrPort // address of the backend; port 0 in direct modes
	Source   netip.AddrPort // what the backend sees; the zero value in direct modes
	State    string
	HalfOpen bool          // only one side has been seen
	Kernel   bool          // the kernel forwards its packets
	Left     time.Duration // until it is forgotten without another packet
}

// The names of states in which a connection carries nothing any more.
const (
	StateTimeWait = "time_wait" // both ends have closed it
	StateReset    = "reset"
)

// stateNames are the states as a ConnInfo has them.
var stateNames = [states]string{
	stateUDP: "udp", stateSynSent: "syn_sent", stateAnswered: "syn_recv", stateMidFlow: "mid_flow",
	stateEstablished: "established", stateHalfClosed: "half_closed", stateClosing: "closing",
	stateTimeWait: StateTimeWait, stateReset: StateReset,
}

// connPage is the number of places of a table that are copied at once: the loop stands still for some 50 us.
const connPage = 1024

// Conns appends the connections in the next places of the table from at on to buf. more reports whether
// there are further places, from next on. Only the loop may call it.
func (h *Handler) Conns(buf []ConnCopy, at int) (_ []ConnCopy, next int, more bool) {
	t := h.table
	for end := min(at+connPage, t.high); at < end; at++ {
		if c := &t.conns[at]; c.state != stateFree {
			h.kernelSide().read(c)
			buf = append(buf, ConnCopy{*c, h.snap.Era, t.sequences[at]})
		}
	}
	return buf, at, at < t.high
}

// Describe describes a connection; false if what it refers to is gone, so that it has ended since it was copied. The
// snapshot is not older than the connection.
func (s *Snapshot) Describe(c *ConnCopy, now clock.Time) (_ ConnInfo, ok bool) {
	if !s.describes(c) {
		return ConnInfo{}, false
	}
	front, frontPort := s.vip(c.vip)
	to, port := s.endpoint(c.endpoint)
	left := max(int32(c.deadline-ticksAt(now)), 0)
	info := ConnInfo{
		Backend: c.backend, Proto: front.Proto,
		Client:  netip.AddrPortFrom(c.client.Addr(), c.clientPort),
		Service: netip.AddrPortFrom(front.addr.Addr(), frontPort),
		Target:  netip.AddrPortFrom(to.addr.Addr(), port),
		State:   stateNames[c.state], HalfOpen: c.halfOpen(), Kernel: c.entered(), Left: time.Duration(left) << 24,
	}
	if port != 0 {
		info.Source = netip.AddrPortFrom(s.sourceOf(&c.Conn).Addr(), c.sourcePort)
	}
	return info, true
}
