package shim

import (
	"cmp"
	"context"
	"net/netip"

	"github.com/millrace/millrace/socket"
)

// Config is the configuration of a Server. Stack and Path are required.
type Config struct {
	Stack *socket.Stack
	Path  string // of the control socket, a SOCK_SEQPACKET socket
	Name  string // of the stack, for programs that ask

	// Groups are those whose members may use the stack, besides uid 0 and the node's own user. Everyone permits all.
	Groups   []uint32
	Everyone bool

	// PrivilegedPorts permits every user to bind ports below 1024. Otherwise only uid 0 and the node's own may.
	PrivilegedPorts bool

	// Lookup returns the addresses of a host name. Nil: names are not resolved (ENOSYS).
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)

	// ThroughLoop makes connections between two programs of the stack TCP through its loop, as all others are. Otherwise
	// most are AF_UNIX pairs, which no capture sees.
	ThroughLoop bool

	// Service returns the name of the node's own service that has a local address and port, "" for none. An unspecified address
	// is all. A program that cannot bind there reports it. Nil: the node has no services.
	Service func(local netip.AddrPort) string

	Limits Limits // of each user
}

// Limits are what one user's programs may have at once. 0 is the default. Uid 0 and the node's own user have none of these
// limits, but some of the process's descriptors are kept for others.
type Limits struct {
	Sockets  int // registered sockets and connections, default 16384
	Channels int // control channels, default 1024
	Backlog  int // the most of listen(2), default 4096
	Connects int // connections begun in one second, default 10000
	Rings    int // connections with rings, default 4096; each takes 256 KiB when it is used
	Lookups  int // host names resolved at the same time, default 32

	// Descriptors are those of the node that channels, sockets and connections take, one each. The default is half of what the
	// process may have (RLIMIT_NOFILE).
	Descriptors int
}

// complete returns the limits with their defaults.
func (l Limits) complete() Limits {
	return Limits{
		Sockets: cmp.Or(l.Sockets, 16384), Channels: cmp.Or(l.Channels, 1024), Backlog: cmp.Or(l.Backlog, 4096),
		Connects: cmp.Or(l.Connects, 10000), Lookups: cmp.Or(l.Lookups, 32),
		Rings: cmp.Or(l.Rings, 4096), Descriptors: l.Descriptors,
	}
}
