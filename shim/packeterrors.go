package shim

import (
	"net/netip"
	"syscall"

	"github.com/millrace/millrace/socket"
)

// While an error of a datagram stands, SO_ERROR or an entry of the queue of errors, there is a notice in the program's socket, so that it
// is readable. The library takes notices out, and reports how many with its next request: if an error still stands then, another notice
// is sent. A program without the library would take one for a datagram: one of a supervisor gets them while headers come, since
// it receives by the supervisor then.

// Bits of the argument of PENDING and ERRORS.
const (
	noticesTaken = 0xff  // how many the library has taken since
	takeError    = 0x100 // SO_ERROR
	holdNotice   = 0x200 // without SO_ERROR the library goes on, and asks once more
)

// pendingSize is the size of struct shim_pending.
const pendingSize = 8

// maxNotices bounds the notices in a socket. Each error has one of its own until then, because epoll(7) shows edges of messages.
const maxNotices = 8

// failed keeps what ICMP has said of a datagram, and wakes the program.
func (u *packets) failed(err error) {
	u.k.setPacketError(err)
	u.k.mu.Lock()
	defer u.k.mu.Unlock()
	u.notify()
}

// notify sends a notice, if the program understands it. mu is held.
func (u *packets) notify() {
	k := u.k
	if k.fd < 0 || k.byCall && u.plain.Load() || !u.peered.Load() && !u.reports.Load() || k.notices >= maxNotices {
		return
	}
	if sendNotice(k.fd, k.s.notice) {
		k.notices++
		return
	}
	if !u.late.Swap(true) { // full: the program is awake, and has read when there is space
		k.s.cfg.Stack.QueueOnLoop(u.home, u.awaitSpace)
	}
}

// notifyLate sends the notice for which there was no space.
func (u *packets) notifyLate() {
	if u.late.Swap(false) {
		u.k.settle(u, 0)
	}
}

// settle takes account of notices that the library has taken, and sends one if none is left while an error stands.
func (k *sock) settle(u *packets, arg int) (stands bool) {
	stands = k.errorStands(u)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notices = max(k.notices-arg&noticesTaken, 0)
	if stands && u != nil && k.notices == 0 && arg&holdNotice == 0 {
		u.notify()
	}
	return stands
}

func (k *sock) errorStands(u *packets) bool {
	k.mu.Lock()
	n := k.packetErr
	k.mu.Unlock()
	return n != 0 || u != nil && (u.conn.Failed() || u.stamps.waiting())
}

// pending is PENDING: SO_ERROR, and whether an error is left.
func (k *sock) pending(arg int, r *reply) error {
	if k.stream {
		return syscall.EOPNOTSUPP
	}
	var errno syscall.Errno
	if arg&takeError != 0 {
		errno = k.packetError()
	}
	if errno != 0 {
		arg &^= holdNotice
	}
	stands := k.settle(k.packets(), arg)
	r.value = order.AppendUint32(make([]byte, 0, pendingSize), uint32(errno))
	r.value = order.AppendUint32(r.value, uint32(asInt(stands)))
	return nil
}

// setPacketError keeps an error for SO_ERROR.
func (k *sock) setPacketError(err error) {
	k.mu.Lock()
	k.packetErr = errnoOf(err)
	k.mu.Unlock()
}

// packetError takes the error of a datagram, or what ICMP has said.
func (k *sock) packetError() syscall.Errno {
	k.mu.Lock()
	n, u := k.packetErr, k.udp
	k.packetErr = 0
	k.mu.Unlock()
	if n == 0 && u != nil {
		n = errnoOf(u.conn.SocketError())
	}
	return n
}

// Sizes of struct shim_error: what of a datagram follows it is cut off at the end of the reply.
const (
	errorSize   = 24
	errorInfoAt = 4
	errorFromAt = 8 // origin, type, code
	errorDataAt = 12
	errorTimeAt = 16
)

// nextError is ERRORS: it takes the oldest entry of the queue of errors. SO_ERROR is then the one of the next, as on Linux.
func (k *sock) nextError(arg int, r *reply) error {
	u := k.packets()
	if u == nil {
		k.settle(u, arg)
		return syscall.EAGAIN
	}
	e, err := u.conn.ReadError()
	if err == nil {
		k.mu.Lock()
		k.packetErr = 0 // of this entry
		k.mu.Unlock()
	} else if one, ok := u.stamps.take(); ok {
		e, err = one.queued(), nil
	}
	k.settle(u, arg)
	if err != nil {
		return bare(err)
	}
	switch { // Linux sends ICMP to itself where a neighbour does not answer: host or address unreachable
	case e.Origin != socket.OriginLocal:
	case errnoOf(e.Err) != syscall.EHOSTUNREACH:
		e.Type, e.Code = 0, 0
	case e.To.Addr().Is4():
		e.Origin, e.Type, e.Code = socket.OriginICMP, 3, 1
	default:
		e.Origin, e.Type, e.Code = socket.OriginICMP6, 1, 3
	}
	b := make([]byte, errorSize, maxReplyValue)
	order.PutUint32(b, uint32(errnoOf(e.Err)))
	order.PutUint32(b[errorInfoAt:], e.Info)
	b[errorFromAt], b[errorFromAt+1], b[errorFromAt+2] = uint8(e.Origin), e.Type, e.Code
	order.PutUint32(b[errorDataAt:], e.ID)
	if !e.Time.IsZero() {
		order.PutUint64(b[errorTimeAt:], uint64(e.Time.UnixNano()))
	}
	r.value = append(b, e.Data[:min(len(e.Data), maxReplyValue-errorSize)]...)
	if e.From.IsValid() {
		r.local = netip.AddrPortFrom(e.From, 0)
	}
	r.remote = e.To
	return nil
}
