package netpeer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/metrics"
)

// Ports of the services that a server offers.
const (
	SinkPort   = 9001 // reads and throws away
	SourcePort = 9002 // writes without end
	EchoPort   = 9003 // sends back what it gets
	GreetPort  = 9004 // writes one byte and closes
	HoldPort   = 9010 // keeps connections open; holdPorts of them, since a client has 64 K ports to each
)

const holdPorts = 4

// chunk is how much bulk transfers read and write at once, bytes.
const chunk = 64 << 10

// Counters count what one side did, for each of its loops. They are read beside the work. Loops on different cores
// that wrote one cache line would wait for each other: four such writes for each round trip cost a second loop a tenth.
type Counters struct{ loop [countedLoops]LoopCounters }

// countedLoops is a power of two. Loops beyond it count together with others.
const countedLoops = 8

// LoopCounters count what was done over the connections of one loop. The pads of Latency, which lie around it, keep
// the counters of two loops on different cache lines.
type LoopCounters struct {
	Bytes, Ops, Conns, Failed atomic.Uint64
	Latency                   metrics.Histogram // of operations, nanoseconds
}

// of returns the counters for a connection of n. They are those of the first loop where the stack is not Millrace.
func (c *Counters) of(n Net, conn net.Conn) *LoopCounters {
	m, ok := n.(*millrace)
	if !ok {
		return &c.loop[0]
	}
	return &c.loop[m.loopOf(conn)%countedLoops]
}

// total returns the sum of a counter over the loops.
func (c *Counters) total(counter func(*LoopCounters) *atomic.Uint64) (n uint64) {
	for i := range c.loop {
		n += counter(&c.loop[i]).Load()
	}
	return n
}

// Bytes returns how many bytes were moved.
func (c *Counters) Bytes() uint64 {
	return c.total(func(l *LoopCounters) *atomic.Uint64 { return &l.Bytes })
}

// Ops returns how many operations were done.
func (c *Counters) Ops() uint64 {
	return c.total(func(l *LoopCounters) *atomic.Uint64 { return &l.Ops })
}

// Conns returns how many connections were opened or accepted.
func (c *Counters) Conns() uint64 {
	return c.total(func(l *LoopCounters) *atomic.Uint64 { return &l.Conns })
}

// Failed returns how many operations failed.
func (c *Counters) Failed() uint64 {
	return c.total(func(l *LoopCounters) *atomic.Uint64 { return &l.Failed })
}

// Counts returns the counters by name.
func (c *Counters) Counts() map[string]uint64 {
	m := map[string]uint64{"bytes": c.Bytes(), "ops": c.Ops(), "conns": c.Conns(), "failed": c.Failed()}
	var d metrics.Distribution
	for i := range c.loop {
		c.loop[i].Latency.AddTo(&d)
	}
	if d.Count() > 0 {
		m["p50 ns"], m["p99 ns"] = d.Quantile(0.5), d.Quantile(0.99)
	}
	return m
}

// Serve offers all services on n until ctx ends.
func Serve(ctx context.Context, n Net, c *Counters) error {
	services := map[uint16]func(net.Conn, *LoopCounters){SinkPort: sink, SourcePort: source, EchoPort: echo, GreetPort: greet}
	for i := range uint16(holdPorts) {
		services[HoldPort+i] = nil
	}
	for port, serve := range services {
		l, err := n.Listen(port)
		if err != nil {
			return fmt.Errorf("listen on port %d: %w", port, err)
		}
		context.AfterFunc(ctx, func() { l.Close() })
		go accept(n, l, c, serve)
	}
	return nil
}

// accept serves each connection with a goroutine; without serve it keeps them open and has none.
func accept(n Net, l net.Listener, all *Counters, serve func(net.Conn, *LoopCounters)) {
	var held []net.Conn
	for {
		conn, err := l.Accept()
		if err != nil {
			for _, h := range held {
				h.Close()
			}
			return
		}
		c := all.of(n, conn)
		c.Conns.Add(1)
		if serve == nil {
			held = append(held, conn)
			continue
		}
		go func() {
			defer conn.Close()
			serve(conn, c)
		}()
	}
}

func sink(conn net.Conn, c *LoopCounters)   { bulk(conn.Read, c) }
func source(conn net.Conn, c *LoopCounters) { bulk(conn.Write, c) }

// bulk moves chunks until it fails.
func bulk(move func([]byte) (int, error), c *LoopCounters) {
	buf := make([]byte, chunk)
	for {
		n, err := move(buf)
		c.Bytes.Add(uint64(n))
		if err != nil {
			return
		}
	}
}

func echo(conn net.Conn, c *LoopCounters) {
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			return
		}
		c.Ops.Add(1)
	}
}

func greet(conn net.Conn, c *LoopCounters) {
	if _, err := conn.Write([]byte{'.'}); err == nil {
		c.Ops.Add(1)
	}
}

// A Load is what a client does.
type Load struct {
	Op    string // "send", "receive", "echo", "connect", "connect-echo", "hold"
	Conns int    // at once
	Idle  int    // connections that stay open beside them
	To    netip.Addr
}

// Drive puts load on a server until ctx ends. It returns when all idle connections, and those of "hold",
// are open; wait returns when all has ended.
func Drive(ctx context.Context, n Net, l Load, c *Counters) (wait func(), err error) {
	var all sync.WaitGroup
	work, port, err := client(l.Op)
	if err != nil {
		return nil, err
	}
	to := netip.AddrPortFrom(l.To, port)
	if l.Op == "hold" {
		return all.Wait, open(ctx, n, l.To, l.Conns, c)
	}
	if err := open(ctx, n, l.To, l.Idle, c); err != nil {
		return nil, err
	}
	for range max(1, l.Conns) {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := work(ctx, n, to, c); err != nil && ctx.Err() == nil {
					c.loop[0].Failed.Add(1)
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	return all.Wait, nil
}

func client(op string) (func(context.Context, Net, netip.AddrPort, *Counters) error, uint16, error) {
	switch op {
	case "send":
		return overConn(source), SinkPort, nil
	case "receive":
		return overConn(sink), SourcePort, nil
	case "echo":
		return overConn(pingPong), EchoPort, nil
	case "connect":
		return connectRead, GreetPort, nil
	case "connect-echo":
		return connectEcho, EchoPort, nil
	case "hold":
		return nil, HoldPort, nil
	}
	return nil, 0, fmt.Errorf("no operation %q", op)
}

// dialTimeout is the time that a client waits for a connection.
const dialTimeout = 5 * time.Second

func dial(ctx context.Context, n Net, to netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return n.Dial(ctx, to)
}

// overConn opens one connection and has f use it until ctx ends.
func overConn(f func(net.Conn, *LoopCounters)) func(context.Context, Net, netip.AddrPort, *Counters) error {
	return func(ctx context.Context, n Net, to netip.AddrPort, c *Counters) error {
		conn, err := dial(ctx, n, to)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		count := c.of(n, conn)
		count.Conns.Add(1)
		f(conn, count)
		return errors.New("the connection ended")
	}
}

func pingPong(conn net.Conn, c *LoopCounters) {
	var buf [1]byte
	for {
		begin := time.Now()
		if _, err := conn.Write(buf[:]); err != nil {
			return
		}
		if _, err := io.ReadFull(conn, buf[:]); err != nil {
			return
		}
		c.Latency.Record(uint64(time.Since(begin)))
		c.Ops.Add(1)
	}
}

func connectRead(ctx context.Context, n Net, to netip.AddrPort, c *Counters) error {
	begin := time.Now()
	conn, err := dial(ctx, n, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	got, err := io.ReadAll(conn)
	if err != nil || len(got) != 1 {
		return fmt.Errorf("%d bytes: %w", len(got), err)
	}
	count := c.of(n, conn)
	count.Latency.Record(uint64(time.Since(begin)))
	count.Ops.Add(1)
	return nil
}

func connectEcho(ctx context.Context, n Net, to netip.AddrPort, c *Counters) error {
	conn, err := dial(ctx, n, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	var buf [1]byte
	if _, err := conn.Write(buf[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, buf[:]); err != nil {
		return err
	}
	c.of(n, conn).Ops.Add(1)
	return nil
}

// open opens connections, one after the other, and keeps them until ctx ends.
func open(ctx context.Context, n Net, to netip.Addr, conns int, c *Counters) error {
	held := make([]net.Conn, 0, conns)
	context.AfterFunc(ctx, func() {
		for _, h := range held {
			h.Close()
		}
	})
	for i := range conns {
		conn, err := dial(ctx, n, netip.AddrPortFrom(to, HoldPort+uint16(i%holdPorts)))
		if err != nil {
			return fmt.Errorf("connection %d: %w", c.Conns()+1, err)
		}
		c.of(n, conn).Conns.Add(1)
		held = append(held, conn)
	}
	return nil
}
