package proxy

import (
	"bytes"
	"context"
	ctls "crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/l7/side"
)

// streamRule is a rule of a listener that passes connections through, with its backends.
type streamRule struct {
	match    route.Match
	backends []string
}

// streams adds a listener to the tree, which passes connections to the first rule's backends that matches.
func (r *rig) streams(mode StreamMode, rules ...streamRule) *Listener {
	r.t.Helper()
	ln := &Listener{Name: "streams", Address: free(r.t), Stream: mode, Timeouts: side.Timeouts{Handshake: 5 * time.Second, Write: 5 * time.Second, Tunnel: 20 * time.Second}}
	var list []route.Rule
	for i, s := range rules {
		name := string(rune('a' + i))
		var all []pool.BackendOptions
		for _, b := range s.backends {
			all = append(all, pool.BackendOptions{Address: netip.MustParseAddrPort(b)})
		}
		p, err := pool.New(pool.Options{Name: name}, all, 1)
		must(r.t, err)
		pooled := &Pool{Pool: p}
		r.tree.Pools = append(r.tree.Pools, pooled)
		ln.Rules = append(ln.Rules, &Rule{Name: name, Backends: []Weighted{{Pool: pooled, Weight: 1}}, Attempts: 3})
		list = append(list, route.Rule{Name: name, Match: s.match})
	}
	table, err := route.New(list)
	must(r.t, err)
	ln.Table = table
	r.tree.Listeners = append(r.tree.Listeners, ln)
	return ln
}

// passRig is a rig with a listener of streams.
func passRig(t *testing.T, mode StreamMode, rules ...streamRule) (*rig, *Listener) {
	t.Helper()
	var ln *Listener
	r := newRig(t, "127.0.0.1:1", func(r *rig) { ln = r.streams(mode, rules...) })
	return r, ln
}

// dial connects to a listener.
func dial(t *testing.T, ln *Listener) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", ln.Address.String())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c.(*net.TCPConn)
}

// expectRefused connects to a listener, and expects a reset and nothing before.
func expectRefused(t *testing.T, ln *Listener) {
	t.Helper()
	c, err := net.Dial("tcp", ln.Address.String())
	if err == nil {
		defer c.Close()
		c.SetDeadline(time.Now().Add(30 * time.Second))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, not a reset", err)
	}
}

// passed waits until no stream is open, and checks that the pools count nothing as open.
func (r *rig) passed() StreamStats {
	r.t.Helper()
	var s StreamStats
	open := true
	for end := time.Now().Add(20 * time.Second); open && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		r.do(func() {
			s = r.worker.Stats().Stream
			open = s.Active != 0
			for _, p := range r.tree.Pools {
				for _, b := range p.Backends() {
					open = open || !b.Idle()
				}
				open = open || p.Requests() != 0
			}
		})
	}
	if open {
		r.t.Errorf("streams are left: %+v", s)
	}
	return s
}

// echoTCP sends back what it gets until the end.
func echoTCP(t *testing.T) string {
	return script(t, func(c net.Conn) { io.Copy(c, c) })
}

func greeter(t *testing.T, name string) string {
	return script(t, func(c net.Conn) { io.WriteString(c, name); io.Copy(io.Discard, c) })
}

// Bytes arrive as they were sent, in both directions at once, and the end of each direction is passed on by itself.
func TestPassesBytes(t *testing.T) {
	r, ln := passRig(t, StreamTCP, streamRule{backends: []string{echoTCP(t)}})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 2))
			sent := make([]byte, 1+rnd.IntN(1<<(4+3*(g%6))))
			for i := range sent {
				sent[i] = byte(rnd.Uint32())
			}
			c := dial(t, ln)
			go func() {
				for rest := sent; len(rest) > 0; {
					n := min(len(rest), 1+rnd.IntN(100<<10))
					if _, err := c.Write(rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
				c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%d bytes of %d, %v", len(got), len(sent), err)
			}
		})
	}
	wg.Wait()
	if s := r.passed(); s.Passed != 8 || s.Up != s.Down || s.Up == 0 || s.Cut != 0 {
		t.Errorf("%+v", s)
	}
}

// The end of one direction is passed on, and the other goes on: both ways.
func TestPassesHalfClose(t *testing.T) {
	late := script(t, func(c net.Conn) {
		all, _ := io.ReadAll(c)
		time.Sleep(50 * time.Millisecond)
		io.WriteString(c, "after "+string(all))
	})
	r, ln := passRig(t, StreamTCP, streamRule{backends: []string{late}})
	c := dial(t, ln)
	io.WriteString(c, "end")
	c.CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "after end" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	r.passed()

	rest := make(chan string, 1)
	early := script(t, func(c net.Conn) {
		io.WriteString(c, "first")
		c.(*net.TCPConn).CloseWrite()
		all, err := io.ReadAll(c)
		if err != nil {
			t.Error(err)
		}
		rest <- string(all)
	})
	r, ln = passRig(t, StreamTCP, streamRule{backends: []string{early}})
	c = dial(t, ln)
	if got, err := io.ReadAll(c); string(got) != "first" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	io.WriteString(c, "then")
	c.CloseWrite()
	if got := <-rest; got != "then" {
		t.Errorf("%q", got)
	}
	if s := r.passed(); s.Cut != 0 {
		t.Errorf("%+v", s)
	}
}

// A reset of one side is a reset of the other.
func TestPassesResets(t *testing.T) {
	got := make(chan error, 1)
	ready := make(chan struct{}, 1)
	backend := script(t, func(c net.Conn) {
		b := make([]byte, 1)
		c.Read(b)
		if b[0] == 'r' {
			c.(*net.TCPConn).SetLinger(0)
			return
		}
		ready <- struct{}{}
		c.SetReadDeadline(time.Now().Add(time.Minute))
		_, err := c.Read(b)
		got <- err
	})
	r, ln := passRig(t, StreamTCP, streamRule{backends: []string{backend}})
	c := dial(t, ln)
	io.WriteString(c, "r")
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client sees %v", err)
	}
	c = dial(t, ln)
	io.WriteString(c, "c")
	<-ready
	c.SetLinger(0)
	c.Close()
	if err := <-got; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the backend sees %v", err)
	}
	if s := r.passed(); s.Cut != 2 {
		t.Errorf("%+v", s)
	}
	status := r.tree.Pools[len(r.tree.Pools)-1].Status(0)
	if n := status.Backends[0].Failures[pool.Reset]; n != 1 { // the client's reset does not count
		t.Errorf("the pool counts %d resets", n)
	}
}

// A side that does not read stops the other one: what the gateway holds is bounded. One that never reads is given up.
func TestPassHoldsSendersBack(t *testing.T) {
	begin := make(chan struct{})
	backend := script(t, func(c net.Conn) { <-begin; io.Copy(c, c) })
	r, ln := passRig(t, StreamTCP, streamRule{backends: []string{backend}})
	c := dial(t, ln)
	piece := make([]byte, 64<<10)
	sent := 0
	for { // until the gateway takes no more
		c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		n, err := c.Write(piece)
		if sent += n; err != nil {
			break
		}
		if sent > 256<<20 {
			t.Fatal("the sender is not held back")
		}
	}
	r.do(func() {
		for l := range r.worker.fronts {
			if e, ok := l.Session.(*passEnd); ok {
				if held := len(l.In) + e.other.l.Unsent(); held > link.High+2*link.ReadSize {
					t.Errorf("%d bytes are held", held)
				}
			}
		}
	})
	close(begin)
	c.SetDeadline(time.Now().Add(time.Minute))
	c.CloseWrite()
	if n, err := io.Copy(io.Discard, c); int(n) != sent || err != nil {
		t.Errorf("%d of %d bytes, %v", n, sent, err)
	}
	r.passed()
}

func TestPassGivesUpOnAClientThatNeverReads(t *testing.T) {
	end := make(chan error, 1)
	flood := script(t, func(c net.Conn) {
		_, err := io.Copy(c, zeros{})
		end <- err
	})
	var ln *Listener
	r := newRig(t, "127.0.0.1:1", func(r *rig) {
		ln = r.streams(StreamTCP, streamRule{backends: []string{flood}})
		ln.Timeouts.Write = 300 * time.Millisecond
	})
	dial(t, ln)
	select {
	case err := <-end:
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the backend goes on")
	}
	if s := r.passed(); s.Cut != 1 {
		t.Errorf("%+v", s)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// A backend that cannot be reached gives way to another one, and its failure is the pool's to know.
func TestPassRetries(t *testing.T) {
	dead := free(t).String()
	r, ln := passRig(t, StreamTCP, streamRule{backends: []string{dead, greeter(t, "alive")}})
	for range 4 {
		c := dial(t, ln)
		b := make([]byte, 5)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "alive" {
			t.Fatalf("%q %v", b, err)
		}
		c.Close()
	}
	s := r.passed()
	if s.Retries == 0 || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
	for _, b := range r.tree.Pools[len(r.tree.Pools)-1].Status(0).Backends {
		if refused := b.Failures[pool.Refused]; (b.Backend.Name() == dead) != (refused > 0) {
			t.Errorf("%s: %d refused", b.Backend.Name(), refused)
		}
	}
	// Without another one the client is refused.
	r, ln = passRig(t, StreamTCP, streamRule{backends: []string{dead}})
	expectRefused(t, ln)
	if s := r.passed(); s.Failed != 1 {
		t.Errorf("%+v", s)
	}
}

// A backend at its limit of connections gives way, and without another one the client waits.
func TestPassHeedsLimits(t *testing.T) {
	var ln *Listener
	r := newRig(t, "127.0.0.1:1", func(r *rig) {
		ln = r.streams(StreamTCP, streamRule{backends: []string{greeter(t, "a"), greeter(t, "b")}})
		ln.Rules[0].Attempts = 1 // a backend that is full was not tried
		p := ln.Rules[0].Backends[0].Pool
		o := *p.Options()
		o.PerBackend.Connections = 1
		var all []pool.BackendOptions
		for _, b := range p.Backends() {
			all = append(all, pool.BackendOptions{Address: b.Address()})
		}
		must(t, p.Update(0, o, all))
	})
	seen := map[byte]bool{}
	var open []net.Conn
	for range 2 {
		c := dial(t, ln)
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		seen[b[0]] = true
		open = append(open, c)
	}
	if len(seen) != 2 {
		t.Errorf("%v", seen)
	}
	third := dial(t, ln)
	for _, c := range open {
		c.Close()
	}
	if _, err := io.ReadFull(third, make([]byte, 1)); err != nil {
		t.Errorf("a client that has waited: %v", err)
	}
	third.Close()
	if s := r.passed(); s.Passed != 3 || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
}

// A client that leaves while the backend is being connected takes the attempt with it.
func TestPassClientLeavesEarly(t *testing.T) {
	// The backlog of a listener that accepts nothing fills: further connections stay in SYN-SENT.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	must(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	must(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(t, syscall.Listen(fd, 0))
	sa, err := syscall.Getsockname(fd)
	must(t, err)
	full := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(sa.(*syscall.SockaddrInet4).Port)).String()
	for range 4 {
		ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", full)
		stop()
		if err != nil {
			break
		}
		t.Cleanup(func() { c.Close() })
	}
	r, ln := passRig(t, StreamTCP, streamRule{backends: []string{full}})
	c := dial(t, ln)
	io.WriteString(c, "hello")
	open := false
	for end := time.Now().Add(10 * time.Second); !open && time.Now().Before(end); time.Sleep(time.Millisecond) {
		r.do(func() { open = r.worker.Stats().Stream.Active == 1 })
	}
	c.SetLinger(0)
	c.Close()
	if s := r.passed(); s.Passed != 1 || s.Failed != 0 || s.Cut != 1 {
		t.Errorf("%+v", s)
	}
}

// Listeners can end TLS and pass on what is inside, and pools can encrypt it again.
func TestPassesWhatIsInsideOfTLS(t *testing.T) {
	var ln *Listener
	r := newRig(t, "127.0.0.1:1", func(r *rig) {
		ln = r.streams(StreamTCP, streamRule{backends: []string{echoTLS(t, r.tree.Listeners[1].TLS)}})
		ln.TLS = r.tree.Listeners[1].TLS
		ln.Rules[0].Backends[0].Pool.TLS = &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test"}
	})
	c, err := ctls.Dial("tcp", ln.Address.String(), &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test"})
	must(t, err)
	c.SetDeadline(time.Now().Add(time.Minute))
	sent := bytes.Repeat([]byte("0123456789"), 100_000)
	go func() { c.Write(sent); c.CloseWrite() }()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d, %v", len(got), len(sent), err)
	}
	c.Close()
	r.passed()
}

// echoTLS is echoTCP over TLS.
func echoTLS(t *testing.T, config *ctls.Config) string {
	return script(t, func(c net.Conn) {
		s := ctls.Server(c, config)
		io.Copy(s, s)
		s.CloseWrite()
	})
}
