package tls

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"testing"
)

// FuzzEngine drives two engines by a script: writes, partial deliveries, key updates, closes, damage, ends of input,
// in any order and from the first byte of the handshake on. What arrives is a prefix of what was written. Without damage,
// all of it arrives and nothing fails.
func FuzzEngine(f *testing.F) {
	f.Add([]byte{0, 0x80, 0xff, 0x81, 0xff, 0x82, 0xff, 0x83, 0xff, 0, 1, 0x40, 50, 0x41, 50, 0x80, 0xff, 0x81, 0xff})
	f.Add([]byte{1, 0x80, 1, 0x81, 1, 0x80, 0xff, 0x81, 0xff, 0x20, 3, 0x60, 0, 0x61, 1, 0x80, 0xff})
	f.Add([]byte{2, 0x80, 0xff, 0x81, 0xff, 0x80, 0xff, 0x10, 200, 0xA0, 7, 0x80, 0xff, 0xC0, 0, 0xE1, 0})
	f.Add([]byte{5, 0x80, 0xff, 0x81, 0xff, 0x80, 0xff, 0x81, 0xff, 0x1f, 200, 0xA0, 7, 0x80, 0x20, 0xE0, 0, 0xC1})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) < 1 || len(script) > 400 {
			return
		}
		m := modes[int(script[0])%len(modes)]
		s, c := m.configs(t)
		if script[0]&0x80 != 0 {
			c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		}
		if script[0]&0x40 != 0 {
			m.options.Output = 1
		}
		runScript(t, s, c, m, script[1:])
	})
}

// scripted is one end of FuzzEngine, and what it did.
type scripted struct {
	end
	written int  // bytes that the engine accepted
	closed  bool // CloseWrite
	wire    []byte
}

// pattern returns the n bytes at offset off of the stream that each end writes.
func pattern(off, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte((off + i) * 7 / 3)
	}
	return p
}

func runScript(t *testing.T, s, c *tls.Config, m mode, script []byte) {
	ends := [2]*scripted{{end: end{Engine: NewServerEngine(s, m.options)}}, {end: end{Engine: NewClientEngine(c, m.options)}}}
	damaged := false
	for len(script) >= 2 {
		op, arg := script[0], int(script[1])
		script = script[2:]
		x, y := ends[op&1], ends[1-op&1]
		x.wire = append(x.wire, x.take()...)
		switch op >> 5 {
		case 0, 1:
			x.write(t, arg*int(op>>1&15))
		case 2:
			x.seal(t, arg*int(op>>1&15), 1+arg*31)
		case 3:
			_ = x.UpdateKeys(op&2 != 0)
		case 4:
			n := min(len(x.wire), arg)
			if arg == 255 {
				n = len(x.wire)
			}
			y.feed(x.wire[:n], randomCuts(uint64(arg)))
			x.wire = x.wire[n:]
		case 5:
			if len(x.wire) > 0 && op&2 != 0 {
				x.wire[arg*len(x.wire)/256] ^= 1 << (arg & 7)
				damaged = true
			} else if err := x.CloseWrite(); err == nil {
				x.closed = true
			}
		case 6:
			if op&2 != 0 {
				_ = x.InputClosed()
				damaged = true
			}
		case 7:
			if op&6 == 6 {
				x.Close()
				damaged = true
			}
		}
		x.check(t, y)
		y.check(t, x)
	}
	for i := 0; i < 2 || len(ends[0].Pending())+len(ends[1].Pending()) > 0; i++ {
		for i, x := range ends {
			wire := append(x.wire, x.take()...)
			x.wire = nil
			ends[1-i].feed(wire, wholly)
		}
	}
	for i, x := range ends {
		y := ends[1-i]
		x.check(t, y)
		if !damaged && (x.err != nil || !x.Handshaken() || len(x.data) != y.written) {
			t.Errorf("end %d: %v, handshake %v, %d bytes of %d", i, x.err, x.Handshaken(), len(x.data), y.written)
		}
		x.Close()
	}
}

func (x *scripted) write(t *testing.T, n int) {
	got, err := x.Write(pattern(x.written, n))
	if err != nil && x.Handshaken() && !x.closed && x.Engine.err == nil {
		t.Fatal(err)
	}
	x.written += got
}

func (x *scripted) seal(t *testing.T, n, room int) {
	out, got, err := x.Seal(make([]byte, 0, room), pattern(x.written, n))
	if err != nil && x.Handshaken() && !x.closed && x.Engine.err == nil {
		t.Fatal(err)
	}
	x.wire = append(x.wire, out...)
	x.written += got
}

// check compares what arrived with what the peer wrote, and bounds what an engine holds.
func (x *scripted) check(t *testing.T, peer *scripted) {
	if len(x.data) > peer.written || !bytes.Equal(x.data, pattern(0, len(x.data))) {
		t.Fatalf("%d bytes arrived, %d were written, or they differ", len(x.data), peer.written)
	}
	if n := len(x.Pending()); n > DefaultOutput+maxRecord {
		t.Fatalf("%d bytes are pending", n)
	}
	if x.Engine.err != nil && x.own != nil && x.own.input.buf != nil {
		t.Fatal("a failed engine holds a buffer")
	}
}

// FuzzEngineInput gives arbitrary bytes to engines before the handshake, and as protected content after it.
func FuzzEngineInput(f *testing.F) {
	f.Add(byte(0), []byte("\x16\x03\x01\x00\x04\x01\x00\x00\x00"))
	f.Add(byte(1), []byte{typeHandshake, 5, 24, 0, 0, 1, 0})
	f.Add(byte(2), []byte{typeHandshake, 3, 4, 0, 0, typeHandshake, 20, 14, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0})
	f.Add(byte(0x13), []byte{typeAlert, 2, 1, 90, typeData, 0, typeAlert, 2, 1, 0})
	f.Fuzz(func(t *testing.T, how byte, in []byte) {
		m := modes[[]int{0, 5, 7, 1}[int(how>>4)%4]]
		s, c := m.configs(t)
		if how&8 != 0 {
			c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		}
		if how&3 == 0 {
			x := &end{Engine: NewServerEngine(s, m.options)}
			defer x.Close()
			x.feed(in, randomCuts(uint64(how)))
			return
		}
		srv, cli := handshaken(t, s, c, m.options, wholly)
		from, to := cli, srv
		if how&1 != 0 {
			from, to = srv, cli
		}
		useless := 0
		for len(in) >= 2 { // records of content: type, length, bytes
			n := min(int(in[1]), len(in)-2)
			to.feed(sealed(in[0], in[2:2+n])(from.own), wholly)
			if useless++; in[0] == typeData && n > 0 {
				useless = 0
			}
			in = in[2+n:]
			if useless > 2*maxUseless+maxWarnings && to.err == nil && len(to.events) < 2 {
				t.Fatalf("%d records without data were borne", useless)
			}
		}
		if to.err != nil {
			var alert tls.AlertError
			var op *net.OpError
			if !errors.As(to.err, &alert) || !errors.As(to.err, &op) {
				t.Fatalf("an error without an alert: %v", to.err)
			}
		}
		if n := len(to.Pending()); n > 4096 {
			t.Fatalf("%d bytes are pending", n)
		}
	})
}
