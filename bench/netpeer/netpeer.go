// Package netpeer puts the TCP/IP stacks that are compared behind one interface: the kernel's, gVisor's
// netstack and Millrace's. A benchmark listens and dials; which stack does it is a word on the command
// line.
//
// gVisor is set up as its users set it up for speed: SACK on, CUBIC, the fifo queueing discipline, GRO,
// recvmmsg dispatch, host GSO where the device takes it.
package netpeer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sort"
)

// A Net is a TCP/IP stack as programs see it.
type Net interface {
	// Listen accepts connections to a port of the stack's address.
	Listen(port uint16) (net.Listener, error)
	Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	Close() error
}

// Config describes a stack over a device of the current network namespace. The kernel's stack uses the
// addresses that the device has; the others take everything from a device without an address.
type Config struct {
	Device string
	Addr   netip.Prefix
	MTU    int
	CC     string // congestion control; "" is the stack's default
	Loops  int    // of Millrace; 0 is one
	NoSACK bool   // of gVisor
}

// opener opens a stack.
type opener struct {
	name string
	open func(Config) (Net, error)
}

var openers []opener

// Open opens the stack of that name over a device.
func Open(name string, c Config) (Net, error) {
	for _, o := range openers {
		if o.name == name {
			return o.open(c)
		}
	}
	return nil, fmt.Errorf("no stack %q; there are %v", name, Names())
}

// Names returns what Open knows.
func Names() (names []string) {
	for _, o := range openers {
		names = append(names, o.name)
	}
	sort.Strings(names)
	return names
}

// A Pair is two stacks of one kind, joined in memory, or one stack that is both.
type Pair struct {
	Client, Server Net
	ServerAddr     netip.Addr
}

// Close closes both.
func (p *Pair) Close() error {
	err := p.Client.Close()
	if p.Server != p.Client {
		err = errors.Join(err, p.Server.Close())
	}
	return err
}

// pairs are the stacks that can be joined in memory.
var pairs = map[string]func(mtu, loops int) (*Pair, error){"gvisor": GVisorPair, "millrace": MillracePair}

// OpenPair joins two stacks of that name in memory. Loops are of ours; gVisor makes its own goroutines.
func OpenPair(name string, mtu, loops int) (*Pair, error) {
	open := pairs[name]
	if open == nil {
		return nil, fmt.Errorf("no stack %q can be joined in memory", name)
	}
	return open(mtu, loops)
}

// Addresses of pairs.
var (
	clientAddr = netip.MustParsePrefix("198.18.0.2/24")
	serverAddr = netip.MustParsePrefix("198.18.0.1/24")
)
