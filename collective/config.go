package collective

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// MaxSize is the largest number of ranks.
const MaxSize = 4096

// Defaults of Config.
const (
	DefaultTimeout = 60 * time.Second
	graceMost      = 2 * time.Second // for the answers of all ranks, before a failure is named
)

// Transport opens connections. The zero Config has those of the kernel's TCP; sockets of package socket and rdma's connections need
// a few lines around their Listen and Dial.
type Transport interface {
	// Listen listens on an address, of which the port may be 0.
	Listen(ctx context.Context, address string) (net.Listener, error)
	// Dial connects to the address of a listener of the same transport.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// Config describes a rank of a group. Rank, Size and Address are required.
type Config struct {
	Rank, Size int

	// Address is where rank 0 listens and the others connect: host and port.
	Address string

	// Key is shared by all ranks. Without one anybody who reaches the ports can join, so that Address must be one of this machine's
	// loopback interface.
	Key []byte

	// Timeout bounds how long Connect waits for ranks, and how long an operation waits without any progress. 0 is DefaultTimeout.
	Timeout time.Duration

	// Rails are local addresses, without ports, of which each pair of ranks uses as many connections, between the first of both, the second
	// and so on. All ranks have as many. None is one, by the address that leads to rank 0.
	Rails []string

	// TLS encrypts all connections: as servers, with Certificates, and as clients, with RootCAs and ServerName. Nil is none.
	TLS *tls.Config

	// Transport opens the connections; nil is TCP of the kernel.
	Transport Transport

	// Deterministic makes the choice of algorithms independent of measurements: the same calls with the same data in a group of the same
	// size have the same bits as results in each run.
	Deterministic bool

	// Debug compares the parameters of each operation between all ranks before it begins, at the cost of a round trip, so that a
	// difference is an error which prints them.
	Debug bool

	// NoMeasure leaves out the measurement of links in Connect: the choice is by fixed costs then, as with Deterministic.
	NoMeasure bool
}

// Errors of Config.
var (
	ErrConfig = errors.New("collective: wrong configuration")
	errNoKey  = fmt.Errorf("%w: no Key: give all ranks the same one, or use an address of the loopback interface", ErrConfig)
)

// check completes a configuration.
func (c *Config) check() error {
	switch {
	case c.Size < 1 || c.Size > MaxSize:
		return fmt.Errorf("%w: Size %d, want 1 to %d", ErrConfig, c.Size, MaxSize)
	case c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("%w: Rank %d of %d, want 0 to %d", ErrConfig, c.Rank, c.Size, c.Size-1)
	case c.Timeout < 0:
		return fmt.Errorf("%w: Timeout %v", ErrConfig, c.Timeout)
	case len(c.Rails) > maxRails:
		return fmt.Errorf("%w: %d rails, at most %d", ErrConfig, len(c.Rails), maxRails)
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	switch c.Transport.(type) {
	case *memoryNetwork:
		return nil
	case nil:
		c.Transport = kernelTCP{}
	}
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		return fmt.Errorf("%w: Address %q: %w; say such as 10.0.0.1:7400", ErrConfig, c.Address, err)
	}
	if len(c.Key) > 0 || host == "localhost" {
		return nil
	}
	if a, err := netip.ParseAddr(host); err != nil || !a.IsLoopback() {
		return errNoKey
	}
	return nil
}

const maxRails = 16

// kernelTCP is the kernel's TCP.
type kernelTCP struct{}

func (kernelTCP) Listen(ctx context.Context, address string) (net.Listener, error) {
	var l net.ListenConfig
	return l.Listen(ctx, "tcp", address)
}

func (kernelTCP) Dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}
