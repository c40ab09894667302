package shim

import (
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// Datagrams of a connected socket are plain, so that read(2) and write(2) work on it, until its program asks for what only a header
// has: control messages, or another destination. The form is in the mark, and what the library has to know beside it in SO_INCOMING_CPU of
// the program's end.
const (
	formMask      = 0x7fff0000
	formValue     = 0x4d460000 // the upper half of the value
	formConnected = 1          // datagrams have headers, and a peer
	formErrors    = 2          // notices of errors may come between datagrams
)

// headed reports whether datagrams have headers, also while the socket is connected. A supervisor's program never has any.
func (k *sock) headed() bool {
	return !k.byCall && (k.options.want != 0 || k.needsHeaders)
}

// setForm tells the library about the form of the program's end. mu is held.
func (k *sock) setForm(p int, plain, connected bool) error {
	if err := k.setMark(p, plain); err != nil || k.byCall {
		return err
	}
	form := formValue
	if connected && !plain {
		form |= formConnected
	}
	if connected && !plain || k.options.udp.QueueErrors {
		form |= formErrors
	}
	return unix.SetsockoptInt(p, unix.SOL_SOCKET, unix.SO_INCOMING_CPU, form)
}

// reform changes the form of a socket's datagrams after its options have changed, at a time when none is on its way.
func (k *sock) reform() error {
	u := k.packets()
	if u == nil {
		if k.current() != idle || k.byCall {
			return nil
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.setForm(k.asked, false, false)
	}
	err := error(syscall.ENETDOWN)
	u.flush(func() {
		k.mu.Lock()
		to := u.peer
		k.mu.Unlock()
		if u.watch != nil { // otherwise the program has closed it
			err = u.convert(k.asked, to)
		}
	})
	return err
}

// reforming is an option that may change the form of datagrams.
func reforming(spec optionSpec) optionSpec {
	set := spec.set
	spec.set = func(k *sock, n optionName, v []byte) error {
		was := k.headed()
		queued := k.options.udp.QueueErrors
		if err := set(k, n, v); err != nil {
			return err
		}
		if k.headed() == was && k.options.udp.QueueErrors == queued {
			return nil
		}
		return k.reform()
	}
	return spec
}

// queuesErrors is IP_RECVERR and IPV6_RECVERR of UDP, which a socket of IPv6 has both.
func queuesErrors() optionSpec {
	spec := keptFlag(0)
	set := spec.set
	spec.set = func(k *sock, n optionName, v []byte) error {
		if n.level == unix.IPPROTO_IPV6 && !k.v6 {
			return syscall.ENOPROTOOPT
		}
		if err := set(k, n, v); err != nil {
			return err
		}
		on := k.options.kept[name4(unix.IP_RECVERR)] != 0 || k.options.kept[name6(unix.IPV6_RECVERR)] != 0
		if u := k.packets(); u != nil {
			u.reports.Store(on)
		}
		return k.change(func(o *socket.UDPOptions) { o.QueueErrors = on })
	}
	return reforming(spec)
}

// addHeaders is HEADERS: the program sends control messages with a connected socket.
func (k *sock) addHeaders() error {
	if k.stream || k.byCall {
		return syscall.EOPNOTSUPP
	}
	k.needsHeaders = true
	return k.reform()
}

// Sizes of struct shim_error: what of a datagram follows it is cut off at the end of the reply.
const (
	errorSize   = 16
	errorInfoAt = 4
	errorFromAt = 8 // origin, type, code
)

// nextError is ERRORS: it takes the oldest entry of the queue of errors. SO_ERROR is then the one of the next, as on Linux.
func (k *sock) nextError(r *reply) error {
	u := k.packets()
	if u == nil {
		return syscall.EAGAIN
	}
	e, err := u.conn.ReadError()
	if err != nil {
		return bare(err)
	}
	k.packetError() // of this entry
	switch {        // Linux sends ICMP to itself where a neighbour does not answer: host or address unreachable
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
	r.value = append(b, e.Data[:min(len(e.Data), maxReplyValue-errorSize)]...)
	if e.From.IsValid() {
		r.local = netip.AddrPortFrom(e.From, 0)
	}
	r.remote = e.To
	return nil
}

// SO_TIMESTAMPING (linux/net_tstamp.h). Times of sent datagrams do not come: programs that ask for them learn it by the errno.
const (
	stampingReceived = unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE
	stampingSent     = unix.SOF_TIMESTAMPING_TX_HARDWARE | unix.SOF_TIMESTAMPING_TX_SOFTWARE | unix.SOF_TIMESTAMPING_TX_SCHED | unix.SOF_TIMESTAMPING_TX_ACK
	stampingAll      = 1<<17 - 1
)

// stamping is SO_TIMESTAMPING with software times of received datagrams.
func stamping() optionSpec {
	return optionSpec{
		set: func(k *sock, n optionName, v []byte) error {
			i, err := intOf(n, v)
			if err != nil {
				return err
			}
			if i&^stampingAll != 0 || i&stampingSent != 0 {
				return syscall.EINVAL
			}
			if k.options.kept == nil {
				k.options.kept = map[optionName]int32{}
			}
			k.options.kept[n] = int32(i)
			k.setWant(wantStamping, i&stampingReceived == stampingReceived)
			return nil
		},
		get: func(k *sock, n optionName, b []byte) ([]byte, error) { // struct so_timestamping: flags and a clock
			return appendInt(appendInt(b, int(k.options.kept[n])), 0), nil
		},
	}
}
