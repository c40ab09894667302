package netpeer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/millrace/millrace/socket"
)

// The ways in which a program can use Millrace's connections, besides a goroutine for each: functions that a loop
// calls, and a Poller with a goroutine for each loop.
const (
	Callbacks = "callbacks"
	Polled    = "poller"
)

// EchoPair serves echoes on the server of a pair and drives conns connections to it from the client, until ctx
// ends, both in the given way. Server and client count in served and c.
func EchoPair(ctx context.Context, p *Pair, way string, loops, conns int, served, c *Counters) error {
	server, ok := p.Server.(*millrace)
	client, isOurs := p.Client.(*millrace)
	if !ok || !isOurs {
		return errors.New("only millrace has callbacks and pollers")
	}
	var err error
	var start func(*socket.TCPConn) error // gives a client's connection its first byte
	switch way {
	case Callbacks:
		err = listenCallbacks(server, served)
		start = func(conn *socket.TCPConn) error { return conn.OnReady(pingCallback(c.of(client, conn))) }
	case Polled:
		err = listenPolled(ctx, server, loops, served)
		start = newPollers(ctx, client, loops, func(conn *socket.TCPConn) func() error { return pingOnce(conn, c.of(client, conn)) }).add
	default:
		err = fmt.Errorf("no way %q", way)
	}
	for i := 0; i < conns && err == nil; i++ {
		var conn net.Conn
		if conn, err = dial(ctx, client, netip.AddrPortFrom(p.ServerAddr, EchoPort)); err == nil {
			c.of(client, conn).Conns.Add(1)
			err = start(conn.(*socket.TCPConn))
		}
		if err == nil {
			_, err = conn.Write([]byte{0})
		}
	}
	return err
}

// listenCallbacks echoes on the loops.
func listenCallbacks(m *millrace, all *Counters) error {
	l, err := m.Listen(EchoPort)
	if err != nil {
		return err
	}
	l.(*socket.Listener).OnAccept(func(in socket.LoopConn) {
		count := all.of(m, in.Conn())
		in.OnReady(func(in socket.LoopConn, _ socket.Events) {
			var buf [64]byte
			for {
				n, err := in.Read(buf[:])
				if n == 0 {
					if err != nil {
						_ = in.Close()
					}
					return
				}
				if _, err := in.Write(buf[:n]); err == nil {
					count.Ops.Add(1)
				}
			}
		})
	})
	return nil
}

// pingCallback sends a byte for each that comes.
func pingCallback(c *LoopCounters) func(socket.LoopConn, socket.Events) {
	begin := time.Now()
	return func(in socket.LoopConn, _ socket.Events) {
		var buf [1]byte
		for {
			if n, _ := in.Read(buf[:]); n == 0 {
				return
			}
			now := time.Now()
			c.Latency.Record(uint64(now.Sub(begin)))
			begin = now
			c.Ops.Add(1)
			if _, err := in.Write(buf[:]); err != nil {
				c.Failed.Add(1)
				return
			}
		}
	}
}

// pollers are Pollers with a goroutine each. Connections are given to them in turn.
type pollers struct {
	list []*socket.Poller
	work func(*socket.TCPConn) func() error // for a new connection: what to do when it is readable
	next int
}

// polled is the Data of an Interest.
type polled struct {
	conn *socket.TCPConn
	work func() error
}

func newPollers(ctx context.Context, m *millrace, n int, work func(*socket.TCPConn) func() error) *pollers {
	p := &pollers{work: work}
	for range n {
		one := m.NewPoller()
		p.list = append(p.list, one)
		context.AfterFunc(ctx, func() { one.Close() })
		go func() {
			events := make([]socket.Event, 256)
			for {
				n, err := one.Wait(events, -1)
				if err != nil {
					return
				}
				for _, ev := range events[:n] {
					if x := ev.Data.(*polled); x.work() != nil {
						x.conn.Close()
					}
				}
			}
		}()
	}
	return p
}

func (p *pollers) add(conn *socket.TCPConn) error {
	p.next++
	return p.list[p.next%len(p.list)].Add(conn, socket.Interest{Events: socket.Readable, Data: &polled{conn, p.work(conn)}})
}

// listenPolled echoes on the goroutines of Pollers.
func listenPolled(ctx context.Context, m *millrace, loops int, c *Counters) error {
	l, err := m.Listen(EchoPort)
	if err != nil {
		return err
	}
	p := newPollers(ctx, m, loops, func(conn *socket.TCPConn) func() error {
		count, buf := c.of(m, conn), make([]byte, 64)
		return func() error {
			n, err := conn.Read(buf)
			if err == nil {
				_, err = conn.Write(buf[:n])
			}
			count.Ops.Add(1)
			return err
		}
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil || p.add(conn.(*socket.TCPConn)) != nil {
				return
			}
		}
	}()
	return nil
}

// pingOnce answers a byte with the next.
func pingOnce(conn *socket.TCPConn, c *LoopCounters) func() error {
	begin, buf := time.Now(), make([]byte, 1)
	return func() error {
		if _, err := conn.Read(buf); err != nil {
			return err
		}
		now := time.Now()
		c.Latency.Record(uint64(now.Sub(begin)))
		begin = now
		c.Ops.Add(1)
		_, err := conn.Write(buf)
		return err
	}
}
