package shim

import (
	"net/netip"
	"syscall"

	"github.com/millrace/millrace/socket"
)

// local checks the address of bind(2), and returns the network and the address as the stack has them.
func (k *sock) localAddr(proto string, a netip.AddrPort) (network string, at netip.AddrPort, err error) {
	ip := a.Addr()
	switch {
	case !ip.IsValid() || ip.Is4() == k.v6:
		return "", a, syscall.EAFNOSUPPORT
	case !k.v6:
		return proto + "4", a, nil
	case ip.Is4In6() && k.options.v6only:
		return "", a, syscall.EINVAL
	case ip.Is4In6():
		return proto + "4", netip.AddrPortFrom(ip.Unmap(), a.Port()), nil
	case k.options.v6only:
		return proto + "6", a, nil
	}
	return proto, a, nil // the unspecified address is that of both families
}

// bind reserves an address and port. The socket has it until it is closed.
func (k *sock) bind(q *request, r *reply) error {
	if err := k.s.mayBind(k.user, q.addr.Port()); err != nil {
		return err
	}
	bind := k.bindStream
	if !k.stream {
		bind = k.bindPackets
	}
	if err := bind(q.addr); err != nil {
		return err
	}
	r.local, r.remote = k.names()
	return nil
}

func (k *sock) bindStream(a netip.AddrPort) error {
	if k.bound != nil || k.current() != idle {
		return syscall.EINVAL
	}
	network, at, err := k.localAddr("tcp", a)
	if err != nil {
		return err
	}
	o := k.options
	cfg := &socket.BindConfig{ReuseAddr: o.reuse, ReusePort: o.share, V6Only: o.v6only, FreeBind: o.freeBind, User: k.user.uid}
	bound, err := k.s.cfg.Stack.Bind(cfg, network, at)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bound = bound
	k.local = k.shown(bound.Addr())
	if k.state == released { // closeAll waits for ops, which the caller holds
		return syscall.ENETDOWN
	}
	return nil
}

func (k *sock) current() state {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}
