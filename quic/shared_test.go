package quic_test

import (
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/quic"
)

// process is one of several that share a UDP socket, as a transport of this one.
type process struct {
	t      *testing.T
	conn   *quic.SharedConn
	tr     *quic.Transport
	number uint8
	conns  chan *quic.Conn
}

var sharedSecret = []byte("0123456789abcdef")

// startProcess opens a transport on a socket: its own, or one that another process has passed.
func startProcess(t *testing.T, number uint8, passed *quic.Passed) *process {
	t.Helper()
	g, err := quic.NewGeneration(number, sharedSecret)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, number: number, conns: make(chan *quic.Conn, 64)}
	var udp *net.UDPConn
	if passed == nil {
		udp = udpConn(t)
	} else {
		pc, err := net.FilePacketConn(passed.Socket)
		if err != nil {
			t.Fatal(err)
		}
		passed.Socket.Close()
		udp = pc.(*net.UDPConn)
	}
	if p.conn, err = quic.NewSharedConn(udp, g, passed == nil); err != nil {
		t.Skip(err)
	}
	if passed != nil {
		if err := p.conn.Inherit(passed.Relays); err != nil {
			t.Fatal(err)
		}
	}
	p.tr = transport(t, p.conn, quic.TransportConfig{IDs: g.IDs(), Secret: sharedSecret})
	serve(t, p.tr, serverTLS(), nil, func(c *quic.Conn) { p.conns <- c; echo(c) })
	return p
}

// pass has another process read the socket.
func (p *process) pass(number uint8) *process {
	p.t.Helper()
	passed, err := p.conn.Pass()
	if err != nil {
		p.t.Fatal(err)
	}
	next := startProcess(p.t, number, passed)
	p.conn.Leave()
	next.conn.Take()
	p.conn.Give()
	return next
}

// accepts dials, and checks that the process accepts the connection.
func (p *process) accepts() *quic.Conn {
	p.t.Helper()
	c := dial(p.t, transport(p.t, nil, quic.TransportConfig{}), p.conn.LocalAddr(), clientTLS(), nil)
	select {
	case <-p.conns:
	case <-time.After(patience):
		p.t.Fatalf("process %d has not accepted the connection", p.number)
	}
	return c
}

// TestConnectionsStayWithTheirProcess passes a socket from process to process: connections of each go on, with bulk and small data, new
// ones are the newest's, and those of a process that has ended are reset by it.
func TestConnectionsStayWithTheirProcess(t *testing.T) {
	bulk := strings.Repeat("0123456789abcdef", 1<<15)
	p := startProcess(t, 254, nil)
	all := []*process{p}
	conns := []*quic.Conn{p.accepts()}
	for _, number := range []uint8{255, 0, 1} {
		p = p.pass(number)
		all = append(all, p)
		conns = append(conns, p.accepts())
		var all sync.WaitGroup
		for i, c := range conns {
			all.Go(func() {
				for _, data := range []string{"hello", bulk} {
					if got := ask(t, c, data); got != data {
						t.Errorf("connection %d: %d bytes, want %d", i, len(got), len(data))
					}
				}
			})
		}
		all.Wait()
	}
	if n := len(p.conn.Generations()); n != 3 {
		t.Errorf("%d processes before the last, want 3", n)
	}
	_ = all[1].tr.Close()
	eventually(t, "the end of a process is known", func() bool {
		return len(p.conn.Generations()) == 2 && conns[1].Context().Err() != nil
	})
	if got := ask(t, conns[0], "still"); got != "still" {
		t.Error(got)
	}
}

// TestASocketThatIsLeftCanBeTakenBack passes a socket to a process that ends before it reads, twice: the first one reads it again.
func TestASocketThatIsLeftCanBeTakenBack(t *testing.T) {
	p := startProcess(t, 7, nil)
	c := p.accepts()
	for range 2 {
		passed, err := p.conn.Pass()
		if err != nil {
			t.Fatal(err)
		}
		p.conn.Leave()
		passed.Close()
		time.Sleep(10 * time.Millisecond)
		p.conn.Take()
		if got := ask(t, c, "again"); got != "again" {
			t.Error(got)
		}
	}
	p.accepts()
}

// TestTheSocketIsFreeAfterTheProcessThatReadsIt ends the process that reads, without its end of transports, as a crash does: the one that
// has left it gives the socket up, and the address can be opened again.
func TestTheSocketIsFreeAfterTheProcessThatReadsIt(t *testing.T) {
	p := startProcess(t, 1, nil)
	at := p.conn.LocalAddr().(*net.UDPAddr)
	passed, err := p.conn.Pass()
	if err != nil {
		t.Fatal(err)
	}
	p.conn.Leave()
	p.conn.Give()
	passed.Close()
	eventually(t, "the socket is free", func() bool {
		c, err := net.ListenUDP("udp4", at)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// TestPacketsOfNoProcess has packets whose IDs only look like those of another process: they are this one's, which drops or answers them.
func TestPacketsOfNoProcess(t *testing.T) {
	p := startProcess(t, 1, nil).pass(2)
	client := udpConn(t)
	defer client.Close()
	at := p.conn.LocalAddr()
	for _, b := range [][]byte{
		{},
		{0x40},
		{0xc0, 0, 0, 0, 1, 12},
		append([]byte{0x40, 1}, make([]byte, 40)...),
		append([]byte{0xc0, 0, 0, 0, 1, 12, 1}, make([]byte, 40)...), append([]byte{0xc0, 0, 0, 0, 1, 20, 1}, make([]byte, 60)...),
	} {
		if _, err := client.WriteTo(b, at); err != nil {
			t.Fatal(err)
		}
	}
	p.accepts()
}

func TestGenerationsNeedASecret(t *testing.T) {
	if _, err := quic.NewGeneration(1, []byte("short")); err == nil {
		t.Error("a short secret was taken")
	}
	a, err := quic.NewSecret()
	b, err2 := quic.NewSecret()
	if err != nil || err2 != nil || string(a) == string(b) || len(a) < 16 {
		t.Error(a, b, err, err2)
	}
}

// TestNoGoroutineIsLeft closes processes that relay to each other.
func TestNoGoroutineIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	p := startProcess(t, 1, nil)
	next := p.pass(2)
	last := next.pass(3)
	for _, p := range []*process{p, next, last} {
		_ = p.tr.Close()
	}
	eventually(t, "the end of the goroutines", func() bool { return runtime.NumGoroutine() <= before })
	if _, err := last.conn.Pass(); err == nil {
		t.Error("a closed socket was passed")
	}
}
