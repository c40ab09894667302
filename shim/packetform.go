package shim

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// Datagrams of a connected socket are plain, so that read(2) and write(2) work on it, until its program asks for what only a header
// has: control messages, or another destination. The form is in the mark, and what the library has to know beside it in SO_INCOMING_CPU of
// the program's end.
//
// A supervisor does not see read(2) and write(2). So what its program receives is plain, connected or not, until a call has asked for what
// a header has; what it sends has a header while the socket is not connected, since write(2) is an error then. The mark says whether
// the socket is connected, and the form whether headers come.
const (
	formMask      = 0x7fff0000
	formValue     = 0x4d460000 // the upper half of the value
	formConnected = 1          // datagrams have headers, and a peer
	formErrors    = 2          // notices of errors may come between datagrams
	formQueue     = 4          // it has a queue of errors
	formHeaded    = 8          // a supervisor's program: datagrams come with headers
	formJoins     = 32         // datagrams may join others (see cork)
	formControl   = 16         // a supervisor's program asks for control messages
)

// headed reports whether the datagrams that a program gets have headers, while the socket is connected or is not.
func (k *sock) headed(connected bool) bool {
	asked := k.needsHeaders[asInt(connected)]
	if k.byCall {
		return asked
	}
	return !connected || k.options.want != 0 || asked
}

// setForm tells the library, or a supervisor, about the form of the program's end. mu is held.
func (k *sock) setForm(p int, plain, connected bool) error {
	form := formValue
	if k.joins {
		form |= formJoins
	}
	if k.byCall {
		if !plain {
			form |= formHeaded
		}
		if k.options.want != 0 {
			form |= formControl
		}
		if err := k.setMark(p, connected); err != nil {
			return err
		}
		return unix.SetsockoptInt(p, unix.SOL_SOCKET, unix.SO_INCOMING_CPU, form)
	}
	if err := k.setMark(p, plain); err != nil {
		return err
	}
	if connected && !plain {
		form |= formConnected
	}
	if connected && !plain || k.queues() {
		form |= formErrors
	}
	if k.queues() {
		form |= formQueue
	}
	return unix.SetsockoptInt(p, unix.SOL_SOCKET, unix.SO_INCOMING_CPU, form)
}

// reform changes the form of a socket's datagrams after its options have changed, at a time when none is on its way.
func (k *sock) reform() error {
	u := k.packets()
	if u == nil {
		if k.current() != idle {
			return nil
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.setForm(k.asked, !k.headed(false), false)
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
		was, wanted := k.headed(true), k.options.want != 0
		queued := k.queues()
		if err := set(k, n, v); err != nil {
			return err
		}
		if k.headed(true) == was && k.queues() == queued && (k.options.want != 0) == wanted {
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
		err := k.change(func(o *socket.UDPOptions) { o.QueueErrors = on })
		if u := k.packets(); u != nil {
			u.reports.Store(k.queues())
		}
		return err
	}
	return reforming(spec)
}

// addHeaders is HEADERS: the program sends control messages with a connected socket, or a supervisor has a call that needs what they have.
func (k *sock) addHeaders() error {
	if k.stream {
		return syscall.EOPNOTSUPP
	}
	u := k.packets()
	k.needsHeaders[asInt(!k.byCall || u != nil && u.peered.Load())] = true
	return k.reform()
}
