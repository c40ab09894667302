package shim

import (
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/shim/ring"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

const (
	// ringSendBuffer is SO_SNDBUF of the program's end while its bytes travel by rings: the socket carries doorbell bytes
	// alone, and bytes that make it not writable: a quarter of what the kernel makes of it, which is twice as much. It
	// has to take those twice, once while they are being read, and all doorbell bytes: one that is lost wakes no reader.
	ringSendBuffer = 32 << 10

	// maxDoorbells is the number of doorbell bytes that may stay in the socket unread, beside the guard byte. Each counts as 768, and
	// together they are less than a quarter.
	maxDoorbells = 12

	// fillBytes is with how many bytes a program makes its socket not writable (RING_FILL of ringend.h, and one).
	fillBytes = 16<<10 + 1

	// hotRings is the number of rings that a loop polls. The others have a doorbell.
	hotRings = 64

	// hotTime is for how long a ring without bytes is polled by a loop that is awake.
	hotTime = time.Millisecond
)

// rings is the state of a relay while bytes travel by shared memory. It belongs to the connection's loop.
type rings struct {
	mem           *ring.Memory
	poller        *ringPoller
	hot           bool       // in poller.hot
	last          clock.Time // bytes came
	blocked       bool       // the stack has no space: Writable follows
	lingers       bool       // both ends have sent their FIN, and the program has not read all
	emptying      bool       // the socket, until all that is on its way has come
	taken         uint32     // doorbell bytes of the program that were taken out of the socket
	lastDoorbells uint32     // how many it had written at the last event of the socket
	moved         uint64     // bytes, both ways
}

// newRings makes the memory of a connection, if its user may have more and the budget of those that it belongs to permits it.
// It returns what the program gets, which the caller closes. Where that is none, the socket is of tier 0.
func (k *sock) newRings(p int, of *ringBudget) (made memory) {
	if !of.take(stack.Now()) {
		k.s.stats.noRings.Add(1)
		return made
	}
	if !k.user.take(&k.user.rings, k.s.cfg.Limits.Rings) {
		k.user.limited.Add(1)
		return made
	}
	mem, fd, err := ring.Create(ring.DefaultSize)
	if err != nil {
		k.user.giveBack(&k.user.rings)
		return made
	}
	_ = unix.SetsockoptInt(p, unix.SOL_SOCKET, unix.SO_SNDBUF, ringSendBuffer)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mem, k.budget = mem, of
	return memory{fd, ring.NodeEnds}
}

// takeMemory returns the memory of a socket, and makes it the caller's; nil if it has none.
func (k *sock) takeMemory() *ring.Memory {
	k.mu.Lock()
	defer k.mu.Unlock()
	mem := k.mem
	k.mem = nil
	return mem
}

// closeMemory frees shared memory of the node's side.
func (k *sock) closeMemory(mem *ring.Memory, s ring.State) {
	mem.SetState(s)
	_ = mem.Close() // it is mapped
	k.user.giveBack(&k.user.rings)
}

// openRings makes bytes travel by mem from now on. The socket carries none yet.
func (r *relay) openRings(mem *ring.Memory, loop socket.LoopStack) {
	r.rings = &rings{mem: mem, poller: r.k.s.pollerOf(loop)}
	r.rings.mem.SetState(ring.Open)
}

// showTier says in the reports how bytes travel.
func (r *relay) showTier(tier int) {
	of := *r.k.owner
	of.Tier = tier
	r.in.SetProcess(&of)
}

// closeRings frees the memory.
func (r *relay) closeRings(s ring.State) {
	if r.rings == nil {
		return
	}
	r.k.budget.refund(r.rings.moved)
	r.k.closeMemory(r.rings.mem, s)
	r.rings = nil
}

// violated ends a connection whose program has written indexes that cannot be.
func (r *relay) violated() {
	r.k.s.stats.violations.Add(1)
	_ = r.in.Abort()
	r.close(syscall.EPROTO)
}

// ringToStack is toStack by the ring.
func (r *relay) ringToStack() {
	g := r.rings
	moved := 0
	for !r.ended && r.failed == 0 && moved < burst {
		n, err := r.takeFromRing()
		if err != nil {
			r.violated()
			return
		}
		if n == 0 {
			break
		}
		moved += n
	}
	r.k.s.stats.toStack.Add(uint64(moved))
	g.moved += uint64(moved)
	if moved > 0 {
		g.last = r.k.s.loopNow(r)
	}
	if r.failed != 0 {
		r.ringToProgram()
		if r.closed {
			return
		}
	}
	r.dropRejected()
	if r.emptySocket(); r.closed {
		return
	}
	r.shut = r.shut || g.mem.Shut() // before Len: nothing comes after it
	if left, err := g.mem.In.Len(); err == nil && left == 0 && r.shut && !r.ended {
		r.programEnded()
	}
	switch {
	case r.closed:
		return
	case g.lingers && !r.ringUnread():
		r.finish()
	case r.hangup:
		r.ringHangup()
	}
	if r.rings != nil {
		g.keepPolling(r)
	}
}

// takeFromRing copies one piece to the send buffer. 0 is that there is none, or no space.
func (r *relay) takeFromRing() (int, error) {
	g := r.rings
	waiting, err := g.mem.In.Len()
	if err != nil || waiting == 0 {
		return 0, err
	}
	space, e := r.in.Reserve(min(waiting, reserved))
	if e != nil { // and ready does not report it again
		r.fail(e)
		g.blocked = true
		return 0, nil
	}
	size := len(space[0]) + len(space[1])
	if g.blocked = size == 0; g.blocked {
		return 0, nil
	}
	data, err := g.mem.In.Peek(size)
	n := copyPieces(&space, &data)
	if e := r.in.Commit(n); e != nil {
		r.fail(e)
		g.blocked = true
		return 0, err
	}
	g.mem.In.Discard(n)
	return n, err
}

// copyPieces copies what both have.
func copyPieces(to, from *[2][]byte) (n int) {
	a, b := to[0], to[1]
	for _, f := range from {
		for len(f) > 0 {
			if len(a) == 0 {
				if a, b = b, nil; len(a) == 0 {
					return n
				}
			}
			m := copy(a, f)
			a, f = a[m:], f[m:]
			n += m
		}
	}
	return n
}

// emptySocket takes doorbell bytes out of the socket, all but one: the guard byte. It does so before they make the program's
// socket not writable, and when there is space for a program that has made it so to wait for that.
func (r *relay) emptySocket() {
	g := r.rings
	limit := uint32(maxDoorbells)
	if g.mem.In.Full() { // it tries to write once more than it needs to, where the other direction needs many doorbell bytes
		limit += fillBytes
	}
	if g.mem.In.Filled() || g.mem.In.Doorbells()-g.taken > limit {
		g.emptying = true
	}
	if g.emptying {
		g.mem.In.Emptied() // what comes later is counted, and makes an event
		g.taken += uint32(r.skipAllBut(1))
		doorbells := g.mem.In.Doorbells()
		if int32(doorbells-g.taken) < 0 {
			r.violated()
			return
		}
		g.emptying = doorbells != g.taken
	}
}

// foreign reports whether the socket has bytes that are no doorbells: the program writes to it past the library, and what it has
// written is not in its place in the stream. An event without a new doorbell byte makes it look.
func (r *relay) foreign() bool {
	g := r.rings
	if doorbells := g.mem.In.Doorbells(); doorbells != g.lastDoorbells {
		g.lastDoorbells = doorbells
		return false
	}
	have, err := unix.IoctlGetInt(r.fd, unix.SIOCINQ)
	return err == nil && have-1 > int(int32(g.mem.In.Doorbells()-g.taken)) // counted before it is written
}

// skipAllBut takes all bytes out of the socket but the last n. It returns how many.
func (r *relay) skipAllBut(n int) int {
	have, err := unix.IoctlGetInt(r.fd, unix.SIOCINQ)
	if err != nil || have <= n || r.skip(have-n) != nil { // the end shows as an event
		return 0
	}
	return have - n
}

// ringUnread reports whether the program has its socket open and bytes in the ring. A dup of it, or the next program, may want
// to read them from the socket.
func (r *relay) ringUnread() bool {
	if r.rings == nil || r.hangup && hungUp(r.fd) {
		return false
	}
	n, err := r.rings.mem.Out.Used()
	return err == nil && n > 0
}

// ringHangup closes a connection whose program has closed its socket. What it has not read makes that a reset (RFC 2525, 2.17).
func (r *relay) ringHangup() {
	used, err := r.rings.mem.Out.Used()
	switch {
	case err != nil:
		r.violated()
	case used > 0 && r.reset:
		r.afterSend((*relay).programFailed)
	case r.ended && r.isClosed():
		if r.lingers() || r.unread() {
			r.closeAfterSend()
			return
		}
		r.programClosed()
	}
}

// ringToProgram is toProgram by the ring.
func (r *relay) ringToProgram() {
	moved, doorbells := 0, 0
	r.full = false
	for moved < burst {
		data := r.in.Peek()
		size := len(data[0]) + len(data[1])
		if size == 0 {
			break
		}
		n, more, err := r.putToRing(&data, size)
		if err != nil {
			r.violated()
			return
		}
		if n == 0 {
			r.full = true
			break
		}
		r.in.Discard(n)
		moved += n
		doorbells += more
	}
	r.k.s.stats.toProgram.Add(uint64(moved))
	r.rings.moved += uint64(moved)
	if doorbells > 0 && !r.ringDoorbell(doorbells) {
		return
	}
	left := r.in.Peek()
	switch {
	case len(left[0]) == 0:
		r.atEnd()
		return
	case !r.full:
		r.watch.Again(stackWritable)
	}
	if r.failed != 0 && !r.rejects {
		r.rejectRing()
	}
}

// rejectRing is rejectWrites by the ring: the socket has to carry doorbell bytes until the program has read all.
func (r *relay) rejectRing() {
	r.rejects = true
	r.rings.mem.SetState(ring.Failed)
	r.dropRejected()
	r.emptySocket()
}

// dropRejected drops what the program has written to a connection that has failed. So its socket is writable again, and the
// program finds out.
func (r *relay) dropRejected() {
	if !r.rejects {
		return
	}
	r.rings.blocked = false
	if n, err := r.rings.mem.In.Len(); err == nil {
		r.rings.mem.In.Discard(n)
	}
}

// putToRing copies one piece to the ring, or drops it where the program reads no more. 0 is that the ring is full.
func (r *relay) putToRing(data *[2][]byte, size int) (n, doorbells int, err error) {
	if r.readShut {
		return size, 0, nil
	}
	out := &r.rings.mem.Out
	for {
		space, err := out.Reserve(size)
		if err != nil {
			return 0, 0, err
		}
		if len(space[0]) > 0 {
			n := copyPieces(&space, data)
			return n, out.Commit(n), nil
		}
		if !out.AwaitSpace() {
			return 0, 0, nil
		}
	}
}

// ringDoorbell writes doorbell bytes. False is that the relay was closed.
func (r *relay) ringDoorbell(n int) bool {
	b := [2][]byte{zeros[:n]}
	_, errno := send(r.fd, &b)
	for errno == syscall.EINTR {
		_, errno = send(r.fd, &b)
	}
	if errno == syscall.EPIPE { // otherwise enough bytes wait
		r.readShut = true
		if hungUp(r.fd) {
			r.hangup, r.shut = true, true
			r.ringToStack()
		}
	}
	return !r.closed
}

const (
	// ringBurst is the number of connections that get rings whatever they move, and ringPause how often one more does. To make, map and
	// unmap rings costs node and program some 40 us, about as much as all else that a connection of a few
	// messages does: at this rate it is less than 1 % of a processor.
	ringBurst = 1024
	ringPause = 5 * time.Millisecond

	// ringWorth is from how many bytes on a connection has been worth its rings.
	ringWorth = 256 << 10
)

// ringBudget says which connections of a listener, or of a channel of a process, get rings: so a program whose connections are
// short and many does not pay for them. The others travel by the socket. The zero value has not been used. Its methods
// may be called from several goroutines.
type ringBudget struct {
	mu   sync.Mutex
	used int        // of ringBurst
	last clock.Time // when used was last reduced for the time that has passed
}

// take reports whether a connection that begins at now gets rings.
func (b *ringBudget) take(now clock.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := int(now.Sub(b.last) / ringPause); n > 0 {
		b.used = max(0, b.used-n)
		b.last = b.last.Add(time.Duration(n) * ringPause)
	}
	if b.used >= ringBurst {
		return false
	}
	b.used++
	return true
}

// refund is called at the end of a connection that had rings and has moved as many bytes.
func (b *ringBudget) refund(moved uint64) {
	if moved < ringWorth {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = max(0, b.used-1)
}
