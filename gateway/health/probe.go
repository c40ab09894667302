package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Causes of failed probes; others are the kernel's and the TLS library's own.
var (
	ErrTimeout = errors.New("no answer")         // within the timeout
	ErrAnswer  = errors.New("wrong answer")      // status, body or datagram are not what was expected
	ErrCommand = errors.New("the command fails") // it ended by a signal or with another code than 0
)

// Dialer makes the connections of probes; net.Dialer is one. It has to return when the context
// ends.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Target is the target of probes. The names are for commands only.
type Target struct {
	At      netip.AddrPort // address and port, those of the check counted in
	Path    string         // in place of the address: a socket of this machine
	Backend string         // its name
	Service string         // of which service
}

// host returns the name that a certificate of the target has where nothing else says so. A socket is of this machine.
func (t *Target) host() string {
	if t.Path != "" {
		return "localhost"
	}
	return t.At.Addr().String()
}

// authority returns the Host of a request to the target where the check names none.
func (t *Target) authority() string {
	if t.Path != "" {
		return "localhost"
	}
	return t.At.String()
}

// probe asks a target once. It returns soon after ctx ends, with whatever error.
type probe func(ctx context.Context, t Target) error

// newProbe returns the probe of a check. dial is nil for the kernel's stack.
func newProbe(c *Check, dial Dialer) probe {
	if dial == nil {
		dial = newDialer(c.Device)
	}
	switch c.Type {
	case TypeHTTP, TypeHTTPS:
		return newHTTPProbe(c, dial).ask
	case TypeGRPC, TypeGRPCS:
		return newGRPCProbe(c, dial).ask
	case TypeUDP:
		return (&udpProbe{c.UDP, dial}).ask
	case TypeCommand:
		return commandProbe(c.Command).ask
	}
	if len(c.TCP) > 0 {
		return (&tcpProbe{c.TCP, c.Conn, dial}).ask
	}
	return func(ctx context.Context, t Target) error { return connect(ctx, dial, c.Conn.Preamble, t) }
}

// connect makes a TCP connection, sends what it begins with, and closes it.
func connect(ctx context.Context, dial Dialer, preamble string, t Target) error {
	conn, err := open(ctx, dial, preamble, t)
	if err != nil {
		return err
	}
	return conn.Close()
}

// open makes a TCP connection and sends what it begins with, which fits every send buffer.
func open(ctx context.Context, dial Dialer, preamble string, t Target) (net.Conn, error) {
	network, address := "tcp", t.At.String()
	if t.Path != "" {
		network, address = "unix", t.Path
	}
	conn, err := dial.DialContext(ctx, network, address)
	if err != nil || preamble == "" {
		return conn, err
	}
	if _, err := io.WriteString(conn, preamble); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// cause returns what a log line says of a failed probe: without addresses, which stand beside it.
func cause(ctx context.Context, err error, timeout time.Duration) error {
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w within %v", ErrTimeout, timeout)
	}
	return bare(err)
}

// bare returns an error without the addresses that package net puts around it.
func bare(err error) error {
	if op, ok := err.(*net.OpError); ok { // what is wrapped deeper has its words around it
		return op.Err
	}
	return err
}

// newDialer returns a dialer by the kernel's stack, by the device if one is named.
func newDialer(device string) *net.Dialer {
	d := &net.Dialer{KeepAlive: -1}
	d.ControlContext = func(_ context.Context, network, _ string, raw syscall.RawConn) error {
		var err error
		ctl := raw.Control(func(fd uintptr) { err = prepare(int(fd), network, device) })
		return errors.Join(ctl, err)
	}
	return d
}

// prepare binds a socket to a device, whatever the routes say, and asks for all ICMP errors, not
// only those of the port, on a UDP socket (ip(7), IP_RECVERR).
func prepare(fd int, network, device string) error {
	if device != "" {
		if err := unix.BindToDevice(fd, device); err != nil {
			return fmt.Errorf("bind to %s: %w", device, err)
		}
	}
	if !strings.HasPrefix(network, "udp") {
		return nil
	}
	if network == "udp6" {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
}
