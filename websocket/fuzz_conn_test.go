package websocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// scripted is a stream that delivers in, cut at random, and then ends. It discards what is written.
type scripted struct {
	in  []byte
	cut func() int
}

func (s *scripted) Read(p []byte) (int, error) {
	n := copy(p, s.in[:min(len(s.in), max(1, s.cut()))])
	if s.in = s.in[n:]; n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (s *scripted) Write(p []byte) (int, error) { return len(p), nil }
func (s *scripted) Close() error                { return nil }

// FuzzConnInput reads whatever a peer sends by all the methods that read, in random order. The messages and
// the end are those of the reference, whatever the cuts.
func FuzzConnInput(f *testing.F) {
	f.Add([]byte("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"), uint64(1), false, false)
	f.Add([]byte("\x01\x03Hel\x89\x01x\x80\x02lo\x88\x02\x03\xe8"), uint64(2), true, false)
	f.Add([]byte("\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\xc1\x05\xf2\x00\x11\x00\x00"), uint64(3), true, true)
	f.Add(append(frame(0x02, string(make([]byte, 2500)), 9), frame(0x80, string(make([]byte, 1400)), 8)...), uint64(4), false, false)
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, client, deflate bool) {
		role := Server
		if client {
			role = Client
		}
		want, code := reference(role, deflate, in)
		rng := rand.New(rand.NewPCG(seed, 3))
		c := NewConn(&scripted{bytes.Clone(in), randomly(seed)}, role, ConnOptions{
			Limits: fuzzLimits, Deflate: Deflate{Enabled: deflate}, CloseTimeout: time.Second, ReadBuffer: 256 << rng.IntN(5),
		})
		var err error
		for _, it := range want {
			if it.op != Text && it.op != Binary {
				continue
			}
			var op Opcode
			var got []byte
			if op, got, err = readSomehow(c, rng); err != nil {
				t.Fatalf("%v, want the message %q", err, it.payload)
			}
			if op != it.op || string(got) != it.payload {
				t.Fatalf("%v %q, want %v", op, got, it)
			}
		}
		if _, _, err = c.ReadMessage(nil); err == nil {
			t.Fatal("a message too many")
		}
		checkEnd(t, err, want, code)
	})
}

// readSomehow reads one message.
func readSomehow(c *Conn, rng *rand.Rand) (op Opcode, got []byte, err error) {
	if rng.IntN(2) == 0 {
		return c.ReadMessage(make([]byte, rng.IntN(64)))
	}
	op, r, err := c.NextReader()
	for err == nil {
		p := make([]byte, 1<<rng.IntN(12))
		var n int
		n, err = r.Read(p)
		got = append(got, p[:n]...)
	}
	if err == io.EOF { //nolint:errorlint // io.Reader returns it as it is
		err = nil
	}
	return op, got, err
}

// checkEnd compares how a connection ended with the reference.
func checkEnd(t *testing.T, err error, want []item, code CloseCode) {
	t.Helper()
	var violation *ProtocolError
	var closed *CloseError
	switch {
	case code != 0:
		if !errors.As(err, &violation) || code != anyCode && violation.Code != code {
			t.Fatalf("%v, want a violation with code %d", err, code)
		}
	case len(want) > 0 && want[len(want)-1].op == opClose:
		if !errors.As(err, &closed) || closed.Code != want[len(want)-1].code {
			t.Fatalf("%v, want the close %v", err, want[len(want)-1])
		}
	case !errors.Is(err, ErrAbnormal):
		t.Fatalf("%v, want %v", err, ErrAbnormal)
	}
}

// choppy is a net.Conn whose reads and writes are cut at random.
type choppy struct {
	net.Conn
	read, write func() int
}

func (c choppy) Read(p []byte) (int, error) { return c.Conn.Read(p[:min(len(p), max(1, c.read()))]) }

func (c choppy) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var k int
		k, err = c.Conn.Write(p[n:min(len(p), n+max(1, c.write()))])
		n += k
	}
	return n, err
}

// FuzzNetConn sends content both ways between two adapters, in writes and reads of random sizes, while
// deadlines pass and pings are sent. The bytes arrive as they were, and each end sees the end of the other.
func FuzzNetConn(f *testing.F) {
	f.Add([]byte("hello hello hello"), uint64(1), uint8(0))
	f.Add(bytes.Repeat([]byte("abc"), 3000), uint64(2), uint8(0xFF))
	f.Add(bytes.Repeat([]byte{1}, 200), uint64(3), uint8(5))
	f.Fuzz(func(t *testing.T, content []byte, seed uint64, flags uint8) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		left, right := net.Pipe()
		o := ConnOptions{Deflate: Deflate{Enabled: flags&1 != 0, ServerNoTakeover: flags&2 != 0, Threshold: 1}}
		a := NewConn(choppy{left, randomly(seed), randomly(seed + 1)}, Client, o)
		b := NewConn(choppy{right, randomly(seed + 2), randomly(seed + 3)}, Server, o)
		ends := [2]net.Conn{NetConn(ctx, a, Binary), NetConn(ctx, b, Binary)}
		results := make(chan error, 5)
		received := make(chan struct{}, 2)
		for i, c := range ends {
			sending, reading := rand.New(rand.NewPCG(seed, uint64(i))), rand.New(rand.NewPCG(seed, uint64(i)+2))
			go func() { results <- writeSomehow(c, content, sending) }()
			go func() {
				results <- readAll(c, content, reading, flags&4 != 0, func() { received <- struct{}{} })
			}()
		}
		if flags&8 != 0 {
			if err := a.Ping(ctx); err != nil { // both read until the end
				t.Error("ping:", err)
			}
		}
		closing := false
		for waiting := 4; waiting > 0; {
			select {
			case err := <-results:
				if waiting--; err != nil {
					t.Fatal(err)
				}
			case <-received:
				if closing {
					waiting++
					go func() { results <- ends[flags>>4&1].Close() }()
				}
				closing = true
			}
		}
		_ = ends[0].Close()
		_ = ends[1].Close()
	})
}

// writeSomehow writes content in pieces of random sizes.
func writeSomehow(c net.Conn, content []byte, rng *rand.Rand) error {
	for len(content) > 0 {
		n, err := c.Write(content[:min(len(content), rng.IntN(1<<rng.IntN(12)))])
		if err != nil {
			return err
		}
		content = content[n:]
	}
	return nil
}

// readAll reads to the end, and calls whole when it has the content. Until then, with deadlines, reads time out.
func readAll(c net.Conn, content []byte, rng *rand.Rand, deadlines bool, whole func()) error {
	var got []byte
	for complete := false; ; {
		if !complete && len(got) >= len(content) {
			complete = true
			whole()
		}
		if deadlines && !complete && rng.IntN(4) == 0 {
			_ = c.SetReadDeadline(time.Unix(1, 0))
		}
		p := make([]byte, 1+rng.IntN(1<<rng.IntN(12)))
		n, err := c.Read(p)
		got = append(got, p[:n]...)
		switch {
		case isTimeout(err):
			_ = c.SetReadDeadline(time.Time{})
		case err == nil:
		case !bytes.Equal(got, content):
			return fmt.Errorf("%d bytes of %d, or others: %w", len(got), len(content), err)
		case err != io.EOF && !errors.Is(err, net.ErrClosed): //nolint:errorlint // net.Conn returns io.EOF as it is
			return err
		default:
			return nil
		}
	}
}
