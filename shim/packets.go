package shim

import (
	"net/netip"
	"syscall"
)

type packets struct{}

func (l *packets) close()                                        {}
func (k *sock) connectPackets(q *request, r *reply, p int) error { return syscall.EOPNOTSUPP }
func (k *sock) bindPackets(a netip.AddrPort, r *reply) error     { return syscall.EOPNOTSUPP }
func (k *sock) packetError() syscall.Errno                       { return 0 }
func (c *channel) resolve(q *request, r *reply) error            { return syscall.ENOSYS }

var packetOptions = map[optionName]optionSpec{}
