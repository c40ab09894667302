package websocket

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// framesOf parses what a connection sent until its end.
func framesOf(t testing.TB, r io.Reader) (items []item) {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && len(b) == 0 {
		t.Fatal(err)
	}
	for len(b) > 0 {
		h, n := parseHeader(b)
		if n == 0 || uint64(len(b)-n) < h.length {
			t.Fatalf("cut frame: % x", b)
		}
		p := bytes.Clone(b[n : n+int(h.length)])
		if h.masked {
			maskSlowly(p, [4]byte(binary.LittleEndian.AppendUint32(nil, h.key)), 0)
		}
		it := item{op: h.opcode(), payload: string(p)}
		if it.op == opClose && len(p) >= 2 {
			it.code, it.payload = CloseCode(binary.BigEndian.Uint16(p)), it.payload[2:]
		}
		items = append(items, it)
		b = b[n+int(h.length):]
	}
	return items
}

// A violation ends in a Close frame with its code, which arrives although the peer has sent more than was
// read.
func TestViolationsEndInACloseFrame(t *testing.T) {
	bomb := func(size int) string {
		var b bytes.Buffer
		w, _ := flate.NewWriter(&b, 9)
		_, _ = w.Write(make([]byte, size))
		_ = w.Flush()
		return b.String()[:b.Len()-4]
	}
	for _, c := range []struct {
		name string
		in   []byte
		o    ConnOptions
		want CloseCode
	}{
		{"reserved bit", frame(0xC2, "x", 1), ConnOptions{}, CloseProtocolError},
		{"unmasked", frame(0x82, "x", 0), ConnOptions{}, CloseProtocolError},
		{"not UTF-8", frame(0x81, "\xff", 1), ConnOptions{}, CloseInvalidPayload},
		{"oversized", append(frame(0x82, strings.Repeat("x", 200_000), 1), frame(0x82, "y", 1)...), ConnOptions{Limits: Limits{Message: 100_000}}, CloseMessageTooBig},
		{"bomb by size", frame(0xC2, bomb(10<<20), 1), ConnOptions{Limits: Limits{Message: 1 << 20}, Deflate: Deflate{Enabled: true}}, CloseMessageTooBig},
		{"bomb by ratio", frame(0xC2, bomb(10<<20), 1), ConnOptions{Deflate: Deflate{Enabled: true}}, CloseMessageTooBig},
		{"final blocks without end", frame(0xC2, strings.Repeat("\x03\x00", 1000), 1), ConnOptions{Deflate: Deflate{Enabled: true}}, CloseInvalidPayload},
		{"not DEFLATE", frame(0xC2, "\xff\xff\xff", 1), ConnOptions{Deflate: Deflate{Enabled: true}}, CloseInvalidPayload},
	} {
		conn, peer := rawPeer(t, Server, c.o)
		sent := async(func() {
			_, _ = peer.Write(c.in)
			_ = peer.CloseWrite()
		})
		_, _, err := conn.ReadMessage(nil)
		var violation *ProtocolError
		if !errors.As(err, &violation) || violation.Code != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := framesOf(t, peer); len(got) != 1 || got[0].op != opClose || got[0].code != c.want || got[0].payload == "" {
			t.Errorf("%s: the peer receives %v", c.name, got)
		}
		wait(t, "sending", sent)
		if _, _, again := conn.ReadMessage(nil); again != err {
			t.Errorf("%s: the second call returns %v", c.name, again)
		}
	}
}

func TestEveryPingIsAnsweredInOrder(t *testing.T) {
	conn, peer := rawPeer(t, Server, ConnOptions{})
	var in []byte
	for i := range 10 {
		in = append(in, frame(0x89, itoa(i), 1)...)
	}
	_, _ = peer.Write(append(in, frame(0x88, "", 1)...))
	_, _, err := conn.ReadMessage(nil)
	var closed *CloseError
	if !errors.As(err, &closed) || closed.Code != CloseNoStatus {
		t.Error(err)
	}
	got := framesOf(t, peer)
	if len(got) != 11 || got[10].op != opClose {
		t.Fatalf("%v", got)
	}
	for i, g := range got[:10] {
		if g != (item{op: opPong, payload: itoa(i)}) {
			t.Errorf("answer %d: %v", i, g)
		}
	}
}

// A peer floods pings and reads nothing: the answers must not pile up, and the connection ends.
func TestFloodOfPingsIsBounded(t *testing.T) {
	conn, peer := rawPeer(t, Server, ConnOptions{CloseTimeout: 300 * time.Millisecond})
	flood := bytes.Repeat(frame(0x89, strings.Repeat("p", 125), 1), 1000)
	done := async(func() {
		for {
			if _, err := peer.Write(flood); err != nil {
				return
			}
		}
	})
	_, _, err := conn.ReadMessage(nil)
	if !errors.Is(err, ErrStalled) {
		t.Errorf("%v, want %v", err, ErrStalled)
	}
	if n := cap(conn.pongs) + cap(conn.out) + cap(conn.wbuf); n > 100_000 {
		t.Errorf("%d bytes of answers are held", n)
	}
	wait(t, "the flood", done)
}

// While a goroutine is stuck in writing to a peer that does not read, a reader goes on and answers stay
// bounded.
func TestReaderDoesNotWaitForAStuckWriter(t *testing.T) {
	conn, peer := rawPeer(t, Server, ConnOptions{})
	writing := async(func() {
		for conn.WriteMessage(Binary, make([]byte, 1<<20)) == nil {
		}
	})
	reading := async(func() {
		for range 2000 {
			if _, p, err := conn.ReadMessage(nil); err != nil || string(p) != "message" {
				t.Errorf("%q, %v", p, err)
				return
			}
		}
	})
	time.Sleep(50 * time.Millisecond) // the writer fills the socket
	in := append(frame(0x89, strings.Repeat("p", 125), 1), frame(0x82, "message", 1)...)
	_, _ = peer.Write(bytes.Repeat(in, 2000))
	wait(t, "reading", reading)
	conn.pongmu.Lock()
	if len(conn.pongs) > maxPongs {
		t.Errorf("%d bytes of answers are held", len(conn.pongs))
	}
	conn.pongmu.Unlock()
	_ = conn.CloseNow()
	wait(t, "writing", writing)
}

func TestCloseIsBounded(t *testing.T) {
	const limit = 200 * time.Millisecond
	for name, prepare := range map[string]func(conn *Conn, peer net.Conn){
		"the peer is silent": func(*Conn, net.Conn) {},
		"the peer sends forever": func(_ *Conn, peer net.Conn) {
			go func() {
				for {
					if _, err := peer.Write(frame(0x82, "more", 1)); err != nil {
						return
					}
				}
			}()
		},
		"the peer never reads, a writer is stuck": func(conn *Conn, _ net.Conn) {
			go func() {
				for conn.WriteMessage(Binary, make([]byte, 1<<20)) == nil {
				}
			}()
			time.Sleep(50 * time.Millisecond)
		},
		"a reader waits": func(conn *Conn, _ net.Conn) {
			go func() { _, _, _ = conn.ReadMessage(nil) }()
			time.Sleep(20 * time.Millisecond)
		},
	} {
		conn, peer := rawPeer(t, Server, ConnOptions{CloseTimeout: limit})
		prepare(conn, peer)
		var err error
		wait(t, name+": Close", async(func() { err = conn.Close(CloseGoingAway, "") }))
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if err := conn.WriteMessage(Text, nil); err == nil {
			t.Errorf("%s: a message after Close", name)
		}
	}
}

func TestCloseHandshake(t *testing.T) {
	conn, peer := rawPeer(t, Server, ConnOptions{})
	if err := conn.Close(CloseAbnormal, ""); err != ErrCloseCode {
		t.Errorf("code that must not be sent: %v", err)
	}
	// The peer sends a message ahead of its answer, and a ping.
	_, _ = peer.Write(append(append(frame(0x82, "late", 1), frame(0x89, "p", 1)...), frame(0x88, "\x03\xe9", 1)...))
	if err := conn.Close(CloseGoingAway, "restart"); err != nil {
		t.Error(err)
	}
	got := framesOf(t, peer)
	if n := len(got); n == 0 || got[n-1] != (item{opClose, "restart", CloseGoingAway}) || n > 2 {
		t.Errorf("the peer receives %v", got) // a pong may precede it
	}
	if err := conn.Close(CloseNormal, ""); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestEndWithoutCloseFrame(t *testing.T) {
	for name, in := range map[string]string{"between messages": "", "inside of a frame": "\x82\xfe\x01", "inside of a message": "\x02\x81aaaab"} {
		conn, peer := rawPeer(t, Server, ConnOptions{})
		_, _ = peer.Write([]byte(in))
		_ = peer.Close()
		if _, _, err := conn.ReadMessage(nil); !errors.Is(err, ErrAbnormal) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A header may claim any length: memory follows what arrives.
func TestClaimedLengthAllocatesNothing(t *testing.T) {
	conn, peer := rawPeer(t, Server, ConnOptions{Limits: Limits{Message: -1}})
	_, _ = peer.Write([]byte("\x82\xff\x00\x00\x7f\x00\x00\x00\x00\x00aaaab"))
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	_, p, err := conn.ReadMessage(nil)
	if !errors.Is(err, os.ErrDeadlineExceeded) || cap(p) > 4096 {
		t.Errorf("capacity %d, %v", cap(p), err)
	}
}
