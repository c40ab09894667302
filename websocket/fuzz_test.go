package websocket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/testkit/wscases"
)

// The limits under which the fuzzer runs: low enough to be met.
var fuzzLimits = Limits{Frame: 3000, Message: 4000, Fragments: 20, Conn: 6000}

// reference reads a whole input at once, by the RFC's words. It returns what a machine must report, and the
// close code of the violation that ends it, 0 for none.
func reference(role Role, deflate bool, in []byte) (items []item, code CloseCode) {
	var message, history []byte
	open, zipped, fragments, size, total := Continuation, false, 0, 0, 0
	for len(in) >= 2 {
		n := 2
		long := map[byte]int{126: 2, 127: 8}[in[1]&0x7F]
		masked := in[1]&0x80 != 0
		n += long
		if masked {
			n += 4
		}
		if len(in) < n {
			return items, 0
		}
		length := uint64(in[1] & 0x7F)
		if long > 0 {
			length = binary.BigEndian.Uint64(append(make([]byte, 8-long), in[2:2+long]...))
		}
		op, fin, rsv1 := Opcode(in[0]&15), in[0]&0x80 != 0, in[0]&0x40 != 0
		control := op >= 8
		switch {
		case in[0]&0x30 != 0,
			rsv1 && (!deflate || op != Text && op != Binary),
			op > 2 && op < 8, op > 10,
			masked != (role == Server),
			long == 2 && length < 126, long == 8 && length < 65536, length >= 1<<63,
			control && (!fin || length > 125),
			op == Continuation && open == Continuation, !control && op != Continuation && open != Continuation:
			return items, CloseProtocolError
		}
		if !control {
			if op != Continuation {
				open, zipped, message, fragments, size = op, rsv1, nil, 0, 0
			}
			fragments++
			most := fuzzLimits.Message
			if zipped {
				most += most>>10 + 64
			}
			switch {
			case fragments > fuzzLimits.Fragments:
				return items, ClosePolicyViolation
			case length > uint64(fuzzLimits.Frame), uint64(size)+length > uint64(most):
				return items, CloseMessageTooBig
			case uint64(total)+length > uint64(fuzzLimits.Conn):
				return items, ClosePolicyViolation
			}
			size += int(length)
			total += int(length)
		}
		whole := uint64(len(in)-n) >= length
		p := bytes.Clone(in[n:min(len(in), n+int(length))])
		if masked {
			maskSlowly(p, [4]byte(in[n-4:n]), 0)
		}
		in = in[n+len(p):]
		if control {
			if !whole {
				return items, 0
			}
			it := item{op: op, payload: string(p)}
			if op == opClose {
				it.code = CloseNoStatus
				if len(p) == 1 {
					return items, CloseProtocolError
				}
				if len(p) > 1 {
					it.code, it.payload = CloseCode(binary.BigEndian.Uint16(p)), string(p[2:])
					if !it.code.Valid() {
						return items, CloseProtocolError
					}
					if !utf8.ValidString(it.payload) {
						return items, CloseInvalidPayload
					}
				}
				return append(items, it), 0
			}
			items = append(items, it)
			continue
		}
		message = append(message, p...)
		last := whole && fin
		if !zipped && open == Text && (!last && !validPrefix(message) || last && !utf8.Valid(message)) {
			return items, CloseInvalidPayload
		}
		if !last {
			continue
		}
		content := message
		if zipped {
			all, err := wscases.Inflate(history, append(message, 0, 0, 0xff, 0xff), 1<<15)
			switch {
			case err != nil:
				return items, anyCode // which of them depends on where the decoder stops
			case len(all)-len(history) > int(fuzzLimits.Message):
				return items, CloseMessageTooBig
			}
			content = all[len(history):]
			history = all[max(0, len(all)-1<<15):]
			if open == Text && !utf8.Valid(content) {
				return items, CloseInvalidPayload
			}
		}
		items = append(items, item{op: open, payload: string(content)})
		open = Continuation
	}
	return items, 0
}

// anyCode stands for a violation whose code the reference does not know.
const anyCode CloseCode = 1

func FuzzMachine(f *testing.F) {
	f.Add([]byte("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"), uint64(1), false, false)
	f.Add([]byte("\x01\x03Hel\x89\x00\x80\x02lo\x88\x02\x03\xe8"), uint64(2), true, false)
	f.Add([]byte("\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\xc1\x05\xf2\x00\x11\x00\x00"), uint64(3), true, true)
	f.Add([]byte("\xc1\x08\xf3\x48\xcd\xc9\xc9\x07\x00\x00\x82\x7e\x00\x80"+string(make([]byte, 128))), uint64(4), true, true)
	f.Add(append(frame(0x01, "gr\xc3", 9), frame(0x80, "\xbc\xc3\x9fe", 8)...), uint64(5), false, false)
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, client, deflate bool) {
		role := Server
		if client {
			role = Client
		}
		m := NewMachine(role, MachineOptions{Limits: fuzzLimits, Deflate: Deflate{Enabled: deflate}})
		got, err := receive(t, m, in, randomly(seed))
		want, code := reference(role, deflate, in)
		var violation *ProtocolError
		if err != nil && !errors.As(err, &violation) {
			t.Fatalf("%T: %v", err, err)
		}
		if (violation != nil) != (code != 0) || violation != nil && code != anyCode && violation.Code != code {
			t.Fatalf("%v: %v, want code %d", role, err, code)
		}
		if len(got) != len(want) {
			t.Fatalf("%v: %d items %v, want %d %v", role, len(got), got, len(want), want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%v: item %d is %v, want %v", role, i, got[i], want[i])
			}
		}
	})
}

// FuzzRoundTrip sends messages from one machine to another, in fragments and compressed.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("hello hello hello"), uint64(1), uint8(0))
	f.Add(bytes.Repeat([]byte("abc"), 1000), uint64(2), uint8(0xFF))
	f.Add(jsonLike(9000), uint64(3), uint8(0x45))
	f.Fuzz(func(t *testing.T, content []byte, seed uint64, flags uint8) {
		d := Deflate{
			Enabled: flags&1 != 0, ServerNoTakeover: flags&2 != 0, ClientNoTakeover: flags&2 != 0, Threshold: 1,
			ServerWindowBits: 8 + int(flags>>2&7), ClientWindowBits: 8 + int(flags>>2&7), Compact: flags&0x40 != 0,
		}
		from, to := NewMachine(Client, MachineOptions{Deflate: d}), NewMachine(Server, MachineOptions{Deflate: d})
		if flags&0x20 != 0 {
			from, to = NewMachine(Server, MachineOptions{Deflate: d}), NewMachine(Client, MachineOptions{Deflate: d})
		}
		var wire []byte
		cut := randomly(seed)
		var want []item
		for range 3 {
			want = append(want, item{op: Binary, payload: string(content)})
			for rest := content; ; {
				n := min(len(rest), cut())
				wire, _ = from.AppendFragment(wire, Binary, rest[:n], n == len(rest))
				if rest = rest[n:]; len(rest) == 0 {
					break
				}
				if n&1 != 0 {
					wire, _ = from.AppendPing(wire, []byte("between"))
					want = append(want, item{op: opPing, payload: "between"})
				}
			}
		}
		got, err := receive(t, to, wire, randomly(seed+1))
		if err != nil {
			t.Fatal(err)
		}
		messages := func(all []item) (s []item) {
			for _, it := range all {
				if it.op == Binary {
					s = append(s, it)
				}
			}
			return s
		}
		g, w := messages(got), messages(want)
		if len(got) != len(want) || len(g) != len(w) {
			t.Fatalf("%d items, want %d", len(got), len(want))
		}
		for i := range g {
			if g[i] != w[i] {
				t.Fatalf("message %d differs: %d bytes, want %d", i, len(g[i].payload), len(w[i].payload))
			}
		}
	})
}
