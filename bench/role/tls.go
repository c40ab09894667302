package role

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/netpeer"
	mtls "github.com/millrace/millrace/tls"
)

// tlsWork is what both ends of TLS connections do in one process, over memory or the kernel's loopback.
type tlsWork struct {
	server, client *tls.Config
	options        mtls.EngineOptions
	ops, bytes     atomic.Uint64
}

// operation returns what a contestant does, nil if it does not do that.
func (w *tlsWork) operation(name string) func() error {
	switch name {
	case "handshake engine", "handshake goroutine":
		return w.engineHandshake
	case "handshake crypto/tls":
		return w.pipeHandshake
	case "handshake crypto/tls-loopback":
		return w.loopbackHandshake
	case "records engine", "records standard":
		return w.engineRecords()
	case "records crypto/tls":
		return w.pipeRecords(netPipe)
	case "records crypto/tls-loopback":
		return w.pipeRecords(loopbackPipe)
	}
	return nil
}

// openTLSMemory runs -op (handshake, records, hold) by -as (engine, goroutine, standard, crypto/tls, crypto/tls-loopback).
func openTLSMemory(o roleOptions) (roleWork, error) {
	runtime.GOMAXPROCS(1)
	s, c := netpeer.TLSConfigs()
	w := &tlsWork{server: s, client: c}
	w.options.Coroutines = new(mtls.Coroutines)
	work := w.operation(o.op + " " + o.as)
	switch o.as {
	case "goroutine":
		w.options.AnyThread = true
	case "standard":
		w.options.StandardRecords = true
	}
	perConn := make(chan uint64, 1)
	if o.op == "hold" {
		s.CurvePreferences = []tls.CurveID{tls.X25519} // it leaves nothing behind, and takes half of the time
		work = func() error {
			n, err := w.hold(o.as, o.conns)
			perConn <- n
			if err == nil {
				select {}
			}
			return err
		}
	}
	if work == nil {
		return roleWork{}, fmt.Errorf("no operation %s by %s", o.op, o.as)
	}
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // not locked to a thread, as role functions are
		for ctx.Err() == nil {
			if err := work(); err != nil {
				failed <- err
				return
			}
		}
	}()
	return profiled(o.profile, roleWork{
		version: buildVersions(),
		counts: func() (map[string]uint64, error) {
			m := withRuntime(map[string]uint64{"ops": w.ops.Load(), "bytes": w.bytes.Load(), "conns": uint64(o.conns)})
			if o.op == "hold" {
				n := <-perConn // they are being opened
				perConn <- n
				m[harness.HeapPerConn] = n
			}
			select {
			case err := <-failed:
				return m, err
			default:
				return m, nil
			}
		},
		stop: func() error { cancel(); return nil },
	}, nil)
}

// move gives one engine's ciphertext to the other, and returns how much data came.
func move(to, from *mtls.Engine) (data int, err error) {
	p := from.Pending()
	for in := p; len(in) > 0; {
		ev, n, err := to.Next(in)
		if err != nil {
			return data, err
		}
		data += len(ev.Data)
		in = in[n:]
	}
	from.Advance(len(p))
	return data, nil
}

// engines returns a pair after its handshake.
func (w *tlsWork) engines() (s, c *mtls.Engine, err error) {
	s, c = mtls.NewServerEngine(w.server, w.options), mtls.NewClientEngine(w.client, w.options)
	for !s.Handshaken() || !c.Handshaken() {
		_, err1 := move(s, c)
		_, err2 := move(c, s)
		if err := errors.Join(err1, err2); err != nil {
			return nil, nil, err
		}
	}
	return s, c, nil
}

func (w *tlsWork) engineHandshake() error {
	s, c, err := w.engines()
	if err == nil {
		w.ops.Add(1)
		s.Close()
		c.Close()
	}
	return err
}

// stdHandshake has crypto/tls make a handshake over two ends of a connection, with a goroutine each.
func (w *tlsWork) stdHandshake(a, b net.Conn) (s, c *tls.Conn, err error) {
	s, c = tls.Server(a, w.server), tls.Client(b, w.client)
	done := make(chan error, 2)
	for _, x := range []*tls.Conn{s, c} {
		go func() { done <- x.Handshake() }()
	}
	return s, c, errors.Join(<-done, <-done)
}

func (w *tlsWork) pipeHandshake() error { return w.countHandshake(netPipe()) }

func (w *tlsWork) loopbackHandshake() error { return w.countHandshake(loopbackPipe()) }

func (w *tlsWork) countHandshake(a, b net.Conn, err error) error {
	if err != nil {
		return err
	}
	_, _, err = w.stdHandshake(a, b)
	a.Close()
	b.Close()
	if err == nil {
		w.ops.Add(1)
	}
	return err
}

func netPipe() (a, b net.Conn, err error) {
	a, b = net.Pipe()
	return a, b, nil
}

// loopbackListener is of this process's connections over the kernel.
var loopbackListener net.Listener

func loopbackPipe() (a, b net.Conn, err error) {
	if loopbackListener == nil {
		if loopbackListener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, nil, err
		}
	}
	if b, err = net.Dial("tcp", loopbackListener.Addr().String()); err != nil {
		return nil, nil, err
	}
	a, err = loopbackListener.Accept()
	return a, b, err
}

// tlsChunk is how much is encrypted at once, bytes.
const tlsChunk = 64 << 10

// engineRecords has one engine encrypt into a buffer, from which the other decrypts in place.
func (w *tlsWork) engineRecords() func() error {
	var s, c *mtls.Engine
	plain, wire := make([]byte, tlsChunk), make([]byte, 0, 2*tlsChunk)
	return func() (err error) {
		if s == nil {
			if s, c, err = w.engines(); err != nil {
				return err
			}
		}
		out, n, err := s.Seal(wire, plain)
		if err != nil {
			return err
		}
		got := 0
		for len(out) > 0 {
			ev, used, err := c.Next(out)
			if err != nil {
				return err
			}
			got += len(ev.Data)
			out = out[used:]
		}
		if got != n || n == 0 {
			return fmt.Errorf("%d bytes arrived, %d were sent", got, n)
		}
		w.bytes.Add(uint64(n))
		return nil
	}
}

// pipeRecords has crypto/tls send over a connection, with a goroutine at each end.
func (w *tlsWork) pipeRecords(open func() (a, b net.Conn, err error)) func() error {
	return func() error {
		a, b, err := open()
		if err != nil {
			return err
		}
		s, c, err := w.stdHandshake(a, b)
		if err != nil {
			return err
		}
		go func() {
			plain := make([]byte, tlsChunk)
			for err := error(nil); err == nil; {
				_, err = s.Write(plain)
			}
		}()
		buf := make([]byte, tlsChunk)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return err
			}
			w.bytes.Add(uint64(n))
		}
	}
}

// hold opens n connections of which only the server's end stays, lets each have received and sent 64 KiB, and returns
// how many bytes of heap and stacks one has.
func (w *tlsWork) hold(as string, n int) (uint64, error) {
	open := map[string]func() (any, error){
		"engine": w.holdEngine, "standard": w.holdEngine, "crypto/tls": w.holdStandard,
	}[as]
	if open == nil {
		return 0, fmt.Errorf("nothing is held by %s", as)
	}
	if _, err := open(); err != nil { // what is made once
		return 0, err
	}
	before := heapAndStacks()
	held := make([]any, n)
	for i := range held {
		var err error
		if held[i], err = open(); err != nil {
			return 0, err
		}
	}
	after := heapAndStacks()
	runtime.KeepAlive(held)
	return (after - before) / uint64(n), nil
}

// heapAndStacks returns the bytes of heap and goroutine stacks in use.
func heapAndStacks() uint64 {
	h := heap()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return h + s.StackInuse
}

func (w *tlsWork) holdEngine() (any, error) {
	s, c, err := w.engines()
	if err != nil {
		return nil, err
	}
	plain := make([]byte, 16<<10)
	for range 4 {
		for _, x := range [2][2]*mtls.Engine{{s, c}, {c, s}} {
			if _, err := x[0].Write(plain); err != nil {
				return nil, err
			}
			if n, err := move(x[1], x[0]); err != nil || n != len(plain) {
				return nil, fmt.Errorf("%d bytes: %w", n, err)
			}
		}
	}
	_, _, err = s.Next(nil)
	return s, err
}

// holdStandard leaves a tls.Conn with a goroutine that waits in Read, over a transport that has nothing but two
// references.
func (w *tlsWork) holdStandard() (any, error) {
	a, b, err := netPipe()
	if err != nil {
		return nil, err
	}
	under := &switchConn{Conn: a}
	s, c, err := w.stdHandshake(under, b)
	if err != nil {
		return nil, err
	}
	echoed := make(chan error, 1)
	go func() {
		buf := make([]byte, 16<<10)
		for range 4 {
			if _, err := io.ReadFull(s, buf); err != nil {
				echoed <- err
				return
			}
			if _, err := s.Write(buf); err != nil {
				echoed <- err
				return
			}
		}
		under.Conn, under.block = nil, make(chan struct{})
		echoed <- nil
		var one [1]byte
		_, _ = s.Read(one[:])
	}()
	plain := make([]byte, 16<<10)
	for range 4 {
		if _, err := c.Write(plain); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(c, plain); err != nil {
			return nil, err
		}
	}
	return s, <-echoed
}

// switchConn is a connection that can be replaced by one on which nothing ever arrives.
type switchConn struct {
	net.Conn
	block chan struct{}
}

func (s *switchConn) Read(p []byte) (int, error) {
	if s.block != nil {
		<-s.block
	}
	return s.Conn.Read(p)
}
