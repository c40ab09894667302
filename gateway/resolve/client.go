package resolve

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Family selects which addresses of names count.
type Family string

// Values of Family.
const (
	AnyFamily Family = "any"
	IPv4      Family = "ipv4"
	IPv6      Family = "ipv6"
)

// Kind selects the records of a name that lead to backends.
type Kind uint8

// Values of Kind.
const (
	Host    Kind = iota // its addresses, with the port of the Name
	Service             // its services: SRV has names, ports and weights
)

// Name identifies a look-up.
type Name struct {
	Kind Kind
	Name string // complete, with or without the dot at its end
	Port uint16 // of Host
}

// String returns the name as configurations have it.
func (n Name) String() string {
	switch {
	case n == Name{}:
		return ""
	case n.Kind == Service:
		return "srv:" + n.Name
	}
	return fmt.Sprintf("%s:%d", n.Name, n.Port)
}

// Target is an address that a name has led to.
type Target struct {
	At     netip.AddrPort
	Weight int // of SRV, relative to the others; 1 of addresses
}

// Answer holds the result of a look-up: targets in the order of their addresses, so that servers which rotate them change nothing.
type Answer struct {
	Targets []Target
	TTL     time.Duration // the least of all records on the way
}

// Options are the settings of a Client and a Watcher.
type Options struct {
	Servers  []netip.AddrPort // none are those of /etc/resolv.conf, which is read for each look-up
	Timeout  time.Duration    // of one question to one server
	Attempts int              // how often all servers are asked
	Family   Family
	MinTTL   time.Duration // a shorter time to live counts as this, a longer one than MaxTTL as that
	MaxTTL   time.Duration

	ResolvConf, Hosts string // paths; "" are those in /etc
}

// Client asks name servers. It holds nothing, and may be used by any goroutine.
type Client struct{ opt Options }

// NewClient returns a client.
func NewClient(o Options) *Client {
	o.ResolvConf, o.Hosts = cmp.Or(o.ResolvConf, "/etc/resolv.conf"), cmp.Or(o.Hosts, "/etc/hosts")
	o.Attempts = max(o.Attempts, 1)
	return &Client{o}
}

// maxTargets bounds the targets of a name: an answer must not fill a pool.
const maxTargets = 256

// Lookup returns the targets of a name. Without any it is an error.
func (c *Client) Lookup(ctx context.Context, n Name) (a Answer, err error) {
	if n.Kind == Service {
		a, err = c.service(ctx, n.Name)
	} else if a, err = c.host(ctx, n.Name); err == nil {
		for i := range a.Targets {
			a.Targets[i].At = netip.AddrPortFrom(a.Targets[i].At.Addr(), n.Port)
		}
	}
	if err != nil {
		return Answer{}, err
	}
	slices.SortFunc(a.Targets, func(x, y Target) int { return cmp.Or(x.At.Compare(y.At), cmp.Compare(y.Weight, x.Weight)) })
	a.Targets = slices.CompactFunc(a.Targets, func(x, y Target) bool { return x.At == y.At })
	if len(a.Targets) > maxTargets {
		a.Targets = a.Targets[:maxTargets]
	}
	return a, nil
}

// host returns the addresses of a name, with port 0. A family whose question fails fails the look-up: half of the addresses would
// seem to be gone. One that has none does not.
func (c *Client) host(ctx context.Context, name string) (Answer, error) {
	if a, ok := c.local(name); ok {
		return a, nil
	}
	types := map[Family][]dnsmessage.Type{IPv4: {dnsmessage.TypeA}, IPv6: {dnsmessage.TypeAAAA}}[c.opt.Family]
	if types == nil {
		types = []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA}
	}
	type found struct {
		list []record
		err  error
	}
	answers := make([]found, len(types))
	done := make(chan struct{})
	for i, t := range types {
		go func() {
			answers[i].list, answers[i].err = c.ask(ctx, name, t)
			done <- struct{}{}
		}()
	}
	for range types {
		<-done
	}
	a := Answer{TTL: c.opt.MaxTTL}
	for _, f := range answers {
		if f.err != nil {
			return Answer{}, f.err
		}
		for _, r := range f.list {
			a.TTL = min(a.TTL, r.ttl)
			a.Targets = append(a.Targets, Target{netip.AddrPortFrom(r.addr, 0), 1})
		}
	}
	if len(a.Targets) == 0 {
		return Answer{}, ErrNoAddress
	}
	return a, nil
}

// service returns the targets of a service: of the least priority that has some with addresses (RFC 2782). Those of higher numbers are
// for when none of them can be reached, which the health of a pool does not tell a name server.
func (c *Client) service(ctx context.Context, name string) (Answer, error) {
	list, err := c.ask(ctx, name, dnsmessage.TypeSRV)
	if err != nil {
		return Answer{}, err
	}
	slices.SortStableFunc(list, func(a, b record) int { return cmp.Compare(a.srv.Priority, b.srv.Priority) })
	a, last, failure := Answer{TTL: c.opt.MaxTTL}, uint16(0), error(nil)
	for i := range list[:min(len(list), maxTargets)] {
		r := &list[i].srv
		if len(a.Targets) > 0 && r.Priority != last {
			break
		}
		if last = r.Priority; r.Target.String() == "." { // decidedly not available
			continue
		}
		of, err := c.host(ctx, r.Target.String())
		a.TTL = min(a.TTL, list[i].ttl)
		switch {
		case errors.Is(err, ErrNoAddress), errors.Is(err, ErrNoName):
			failure = fmt.Errorf("%s: %w", r.Target, err)
			continue
		case err != nil:
			return Answer{}, fmt.Errorf("%s: %w", r.Target, err)
		}
		a.TTL = min(a.TTL, of.TTL)
		for _, t := range of.Targets {
			a.Targets = append(a.Targets, Target{netip.AddrPortFrom(t.At.Addr(), r.Port), max(1, int(r.Weight))})
		}
	}
	if len(a.Targets) == 0 {
		return Answer{}, cmp.Or(failure, ErrNoService)
	}
	return a, nil
}

// ask asks the servers in their order, each round of attempts again, until one answers. That there is no such name is an answer.
func (c *Client) ask(ctx context.Context, name string, typ dnsmessage.Type) (list []record, err error) {
	servers := c.opt.Servers
	if len(servers) == 0 {
		if servers, err = readResolvConf(c.opt.ResolvConf); err != nil {
			return nil, err
		}
	}
	if !strings.HasSuffix(name, ".") {
		name += "."
	}
	for range c.opt.Attempts {
		for _, s := range servers {
			if list, err = c.askServer(ctx, s, name, typ); err == nil || errors.Is(err, ErrNoName) {
				return list, err
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
	}
	return nil, err
}

// askServer asks one server: by UDP, without EDNS if it does not know that, and by TCP if the answer does not fit a datagram.
func (c *Client) askServer(ctx context.Context, server netip.AddrPort, name string, typ dnsmessage.Type) ([]record, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	list, err := c.exchange(ctx, "udp", server, name, typ, payload)
	if errors.Is(err, errFormat) {
		list, err = c.exchange(ctx, "udp", server, name, typ, 0)
	}
	if errors.Is(err, errTruncated) {
		list, err = c.exchange(ctx, "tcp", server, name, typ, payload)
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil:
		return nil, fmt.Errorf("%s: no answer within %v", server, c.opt.Timeout)
	case err != nil && !errors.Is(err, ErrNoName):
		return nil, fmt.Errorf("%s: %w", server, bare(err))
	}
	return list, err
}

// exchange asks once, on a socket of its own: its port is another secret of the question (RFC 5452 9.2).
func (c *Client) exchange(ctx context.Context, network string, server netip.AddrPort, name string, typ dnsmessage.Type, size int) ([]record, error) {
	id := uint16(rand.Uint32()) // of ChaCha8, whose seed is the system's
	head := 0
	if network == "tcp" {
		head = 2 // the length (RFC 1035 4.2.2)
	}
	msg, err := appendQuery(make([]byte, head, 512), id, name, typ, size)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if head > 0 {
		binary.BigEndian.PutUint16(msg, uint16(len(msg)-head))
	}
	if _, err := conn.Write(msg); err != nil {
		return nil, err
	}
	for {
		answer, err := readMessage(conn, head > 0)
		if err != nil {
			return nil, err
		}
		list, err := parseAnswer(answer, id, name, typ)
		if errors.Is(err, errForeign) && head == 0 { // it may be forged: the true one may follow
			continue
		}
		return list, err
	}
}

// readMessage reads a message.
func readMessage(conn net.Conn, framed bool) ([]byte, error) {
	if !framed {
		b := make([]byte, 1<<16)
		n, err := conn.Read(b)
		return b[:n], err
	}
	var head [2]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(head[:]))
	_, err := io.ReadFull(conn, b)
	return b, err
}

// bare returns an error of the network without the addresses around it.
func bare(err error) error {
	if op, ok := err.(*net.OpError); ok {
		return op.Err
	}
	return err
}
