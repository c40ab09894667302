package shim

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim/ring"
	"github.com/millrace/millrace/socket"
)

// wantRings is the bit of a request that asks for rings: of arg in CONNECT, and of name in LISTEN.
const wantRings = 1

// blocks is the bit of CONNECT's arg that says that connect(2) waits for the end of the handshake.
const blocks = 2

// dropRings frees what newRings has made, when there is no connection.
func (k *sock) dropRings(r *reply) {
	if r.memory.fd == 0 {
		return
	}
	r.memory.close()
	if mem := k.takeMemory(); mem != nil {
		k.closeMemory(mem, ring.Moved)
	}
}

// moveBack makes bytes travel by the socket from now on. The program's library asks for it with the locks of both rings held:
// what the rings have is complete, and the socket carries doorbell bytes alone. The library takes those out that are in
// the program's end; they are before all bytes that the relay writes from now on.
//
// value is the number of doorbell bytes that the node has written since the beginning.
func (k *sock) moveBack(p int) (value []byte, err error) {
	k.mu.Lock()
	conn, r := k.conn, k.relayed
	mem := k.mem
	k.mu.Unlock()
	switch {
	case mem != nil: // its handshake is not complete
		return appendInt(nil, 0), k.moveEarly(p)
	case conn == nil || r == nil:
		return nil, syscall.ENOTCONN
	}
	raiseBuffer(p, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBuffer)
	doorbells := uint32(0)
	err = syscall.ENOTCONN
	conn.Do(func(in socket.LoopConn) {
		r.in = in
		doorbells, err = r.moveBack()
	})
	return appendInt(nil, int(doorbells)), err
}

// moveEarly is moveBack before the handshake is complete. The larger send buffer has to be filled again.
func (k *sock) moveEarly(p int) error {
	k.mu.Lock()
	mem := k.mem
	if mem == nil { // it is complete now
		k.mu.Unlock()
		return syscall.EAGAIN
	}
	defer k.closeMemory(mem, ring.Moved)
	defer k.mu.Unlock()
	k.mem = nil
	raiseBuffer(p, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBuffer)
	filled, err := fill(p)
	k.refilled += filled
	return err
}

// moveBack takes the bytes out of both rings.
func (r *relay) moveBack() (doorbells uint32, err error) {
	switch {
	case r.closed:
		return 0, syscall.ENOTCONN
	case r.rings == nil:
		return 0, syscall.EALREADY
	}
	doorbells = r.rings.mem.Out.Doorbells()
	early, late, err := r.rings.mem.Drain()
	if err != nil {
		r.violated()
		return 0, syscall.EPROTO
	}
	r.skipAllBut(1)
	if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_PEEK_OFF, 1); err != nil {
		return 0, err
	}
	r.early, r.late, r.full, r.rejects = early, late, false, false
	r.lateEnd = r.peerEnded // the ring had all
	r.closeRings(ring.Moved)
	r.k.s.stats.moved.Add(1)
	r.showTier(0)
	r.toStack()
	if !r.closed {
		r.toProgram()
	}
	return doorbells, nil
}

// sendEarly writes what the ring from the program had. True is that nothing is left of it.
func (r *relay) sendEarly() bool {
	for len(r.early) > 0 {
		n, err := r.in.Write(r.early)
		if err != nil || n == 0 { // ready closes the socket, or Writable follows
			return false
		}
		r.early = r.early[n:]
	}
	r.early = nil
	return true
}

// sendLate passes what the ring to the program had. True is that nothing is left of it.
func (r *relay) sendLate() bool {
	for len(r.late) > 0 {
		n, errno := r.deliver(&[2][]byte{r.late}, len(r.late))
		if errno == syscall.EPIPE {
			r.rejected()
			if r.closed {
				return false
			}
			continue
		}
		if n == 0 {
			r.awaitSpace(true)
			return false
		}
		r.late = r.late[n:]
	}
	r.late = nil
	if r.lateEnd {
		r.lateEnd = false
		_ = unix.Shutdown(r.fd, unix.SHUT_WR) // the program may have closed it
	}
	return true
}
