package rdma

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"
)

// connPair returns two Conns of contexts.
func connPair(t testing.TB, a, b *Context, ca, cb ConnConfig) (*Conn, *Conn) {
	t.Helper()
	l, err := Listen(b, 7200, cb)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed := make(chan *Conn, 1)
	go func() {
		c, err := Dial(short(t), a, netip.AddrPortFrom(b.Addr(), 7200), ca)
		if err != nil {
			t.Error(err)
		}
		dialed <- c
	}()
	s, err := l.AcceptConn()
	if err != nil {
		t.Fatal(err)
	}
	c := <-dialed
	if c == nil {
		t.FailNow()
	}
	t.Cleanup(func() { _, _ = c.Close(), s.Close() })
	return c, s
}

// TestConnConforms runs the tests of net.Conn that golang.org/x/net has.
func TestConnConforms(t *testing.T) {
	c := openContext(t, 1, Config{})
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		a, b := connPair(t, c, c, ConnConfig{}, ConnConfig{})
		return a, b, func() { _, _ = a.Close(), b.Close() }, nil
	})
}

// TestStream moves 8 MiB each way by few and small buffers: credits end the stream of neither side.
func TestStream(t *testing.T) {
	c := openContext(t, 1, Config{})
	a, b := connPair(t, c, c, ConnConfig{Buffers: 2, BufferSize: 1000}, ConnConfig{Buffers: 5, BufferSize: 3000, SelectiveRepeat: true})
	if a.MaxMessage() != 1000 || b.MaxMessage() != 1000 {
		t.Error(a.MaxMessage(), b.MaxMessage())
	}
	data := make([]byte, 2<<20)
	for i := range data {
		data[i] = byte(i*7 + i>>9)
	}
	want := sha256.Sum256(data)
	done := make(chan error, 4)
	for _, x := range []*Conn{a, b} {
		go func() {
			_, err := x.Write(data)
			done <- err
		}()
		go func() {
			h := sha256.New()
			_, err := io.CopyN(h, x, int64(len(data)))
			if err == nil && [32]byte(h.Sum(nil)) != want {
				err = errors.New("other bytes")
			}
			done <- err
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if n := a.QP().Counters().RNRNaks + b.QP().Counters().RNRNaks; n != 0 {
		t.Errorf("%d RNR NAKs", n)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Read(make([]byte, 9)); n != 0 || err != io.EOF {
		t.Error(n, err)
	}
}

// TestMessagesKeepTheirBounds sends messages of each length to the maximum.
func TestMessagesKeepTheirBounds(t *testing.T) {
	c := openContext(t, 1, Config{})
	a, b := connPair(t, c, c, ConnConfig{BufferSize: 300}, ConnConfig{})
	go func() {
		for n := 1; n <= 300; n++ {
			if err := a.WriteMessage(bytes.Repeat([]byte{byte(n)}, n)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	_ = b.SetReadDeadline(time.Now().Add(20 * time.Second))
	buf := make([]byte, 300)
	for n := 1; n <= 300; n++ {
		if n > 1 {
			if _, err := b.ReadMessage(buf[:n-1]); !errors.Is(err, io.ErrShortBuffer) {
				t.Fatal(err)
			}
		}
		k, err := b.ReadMessage(buf)
		if err != nil || k != n || buf[0] != byte(n) || buf[n-1] != byte(n) {
			t.Fatalf("message %d: %d bytes, %v", n, k, err)
		}
	}
	for _, n := range []int{0, 301} {
		if err := a.WriteMessage(make([]byte, n)); err == nil {
			t.Errorf("a message of %d bytes was sent", n)
		}
	}
}

// TestPeerGone ends a queue pair without Close: reads and writes of the other side fail.
func TestPeerGone(t *testing.T) {
	c := openContext(t, 1, Config{})
	a, b := connPair(t, c, c, ConnConfig{}, ConnConfig{})
	if err := a.id.Disconnect(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	if _, err := b.Write(make([]byte, 1)); err == nil {
		t.Error("a write succeeds")
	}
}

// TestPeerVanishes: a peer that answers nothing any more, without a word of RDMA-CM, ends the connection of a side that only reads, and
// not that of a peer that is idle.
func TestPeerVanishes(t *testing.T) {
	c := openContext(t, 1, Config{})
	alive := ConnConfig{KeepAlive: 20 * time.Millisecond}
	a, b := connPair(t, c, c, alive, ConnConfig{KeepAlive: -1})
	x, y := connPair(t, c, c, alive, ConnConfig{KeepAlive: -1})
	if err := b.qp.Destroy(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("Read returns %v", err)
	}
	if n := x.QP().Counters().CompletedSends; n < 2 {
		t.Errorf("an idle connection has sent %d empty messages", n)
	}
	if n := y.QP().Counters().CompletedSends; n > 0 {
		t.Errorf("a side without them has sent %d", n)
	}
	if _, err := x.Write([]byte("still here")); err != nil {
		t.Error(err)
	}
	p := make([]byte, 16)
	if n, err := y.Read(p); err != nil || string(p[:n]) != "still here" {
		t.Errorf("%q, %v", p[:n], err)
	}
}

// TestOtherProtocols connects programs of RDMA-CM that have no Conn, and refuses wrong configurations.
func TestOtherProtocols(t *testing.T) {
	c := openContext(t, 1, Config{})
	l, err := Listen(c, 7200, ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	s := newSide(t, c, RC, 64)
	var rejected *RejectedError
	if _, err := c.ConnectCM(short(t), netip.AddrPortFrom(c.Addr(), 7200), s.qp, ConnParam{}); !errors.As(err, &rejected) {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	raw, err := c.ListenCM(7201, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	go func() {
		if r, err := raw.GetRequest(short(t)); err == nil {
			_, _ = r.Accept(short(t), newSide(t, c, RC, 64).qp, ConnParam{}) // the client gives up
		}
	}()
	if _, err := Dial(short(t), c, netip.AddrPortFrom(c.Addr(), 7201), ConnConfig{}); !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
	for _, cfg := range []ConnConfig{{Buffers: 1}, {Buffers: 5000}, {BufferSize: 8}, {BufferSize: 17 << 20}} {
		if _, err := Listen(c, 7202, cfg); err == nil {
			t.Errorf("%+v", cfg)
		}
	}
}

// TestNothingStays opens and closes Conns from either side: no object of them is left.
func TestNothingStays(t *testing.T) {
	c := openContext(t, 1, Config{})
	for i := range 20 {
		a, b := connPair(t, c, c, ConnConfig{Buffers: 4, BufferSize: 64}, ConnConfig{Buffers: 4, BufferSize: 64})
		if i%2 == 0 {
			a, b = b, a
		}
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) { // the end of TimeWait
		c.lock.Enter()
		qps, regions, paths, conns := len(c.qps), c.table.Len(), len(c.paths), c.gsi.manager.Conns()
		c.lock.ExitUnchanged()
		if qps+regions+paths+conns == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d queue pairs, %d regions, %d paths, %d connections", qps, regions, paths, conns)
		}
	}
}

// TestCreditsFollowControls has as many messages without payload in flight as are permitted: the completion of one sends the credits that
// had to wait, though no Read follows.
func TestCreditsFollowControls(t *testing.T) {
	c := openContext(t, 1, Config{})
	a, b := connPair(t, c, c, ConnConfig{Buffers: 4}, ConnConfig{})
	c.lock.Enter()
	a.mu.Lock()
	a.controls, a.posted, a.emptied = mostControls, mostControls, 3
	a.grant()
	waiting := a.emptied
	a.mu.Unlock()
	for range mostControls {
		a.completed(Completion{ID: noBuffer, Op: OpSendImm}, false)
	}
	a.mu.Lock()
	left := a.emptied
	a.mu.Unlock()
	c.makeReady(a.qp)
	c.lock.Exit()
	if waiting != 3 || left != 0 {
		t.Errorf("%d credits waited, %d still do", waiting, left)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.credits != 4+3 {
		b.changed.Wait()
	}
}
