package websocket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

// item is what a peer of a machine perceives: a message as a whole, or a control frame.
type item struct {
	op      Opcode
	payload string
	code    CloseCode
}

// receive feeds a machine the input in pieces of the sizes that cut returns, and collects.
func receive(t testing.TB, m *Machine, in []byte, cut func() int) (items []item, err error) {
	t.Helper()
	in = bytes.Clone(in)
	var message []byte
	open := false
	for first := true; first || len(in) > 0; first = false {
		piece := in[:min(len(in), max(1, cut()))]
		in = in[len(piece):]
		for {
			ev, n, err := m.Next(piece)
			if err != nil {
				if _, _, again := m.Next(nil); again != err {
					t.Errorf("after %v the machine reports %v", err, again)
				}
				return items, err
			}
			piece = piece[n:]
			if ev.Kind == NeedInput {
				break
			}
			switch ev.Kind {
			case Message:
				if ev.First == open {
					t.Errorf("First is %v inside of a message: %v", ev.First, open)
				}
				open = !ev.Last
				if message = append(message, ev.Payload...); ev.Last {
					items = append(items, item{op: ev.Opcode, payload: string(message)})
					message = message[:0]
				}
			case Ping:
				items = append(items, item{op: opPing, payload: string(ev.Payload)})
			case Pong:
				items = append(items, item{op: opPong, payload: string(ev.Payload)})
			case Close:
				items = append(items, item{op: opClose, payload: string(ev.Payload), code: ev.Code})
			}
		}
		if len(piece) > 0 {
			t.Fatalf("%d bytes not consumed", len(piece))
		}
	}
	return items, nil
}

// Ways to cut the input.
func whole() int      { return 1 << 30 }
func byteByByte() int { return 1 }

func randomly(seed uint64) func() int {
	rnd := rand.New(rand.NewPCG(seed, 7))
	return func() int { return 1 << rnd.IntN(12) }
}

// frame builds a frame for tests, legal or not. A key of zero leaves it unmasked.
func frame(first byte, payload string, key uint32) []byte {
	mask := byte(0)
	if key != 0 {
		mask = bitMask
	}
	b := appendHeader(nil, first, mask, len(payload))
	if key == 0 {
		return append(b, payload...)
	}
	b = binary.LittleEndian.AppendUint32(b, key)
	p := []byte(payload)
	maskSlowly(p, [4]byte(b[len(b)-4:]), 0)
	return append(b, p...)
}

func TestExamplesOfRFC6455Section5_7(t *testing.T) {
	big := strings.Repeat("\x01", 256)
	huge := strings.Repeat("\x02", 65536)
	for _, c := range []struct {
		name string
		role Role
		in   string
		want item
	}{
		{"single-frame unmasked text", Client, "\x81\x05Hello", item{op: Text, payload: "Hello"}},
		{"single-frame masked text", Server, "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", item{op: Text, payload: "Hello"}},
		{"fragmented unmasked text", Client, "\x01\x03Hel\x80\x02lo", item{op: Text, payload: "Hello"}},
		{"unmasked ping", Client, "\x89\x05Hello", item{op: opPing, payload: "Hello"}},
		{"masked pong", Server, "\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", item{op: opPong, payload: "Hello"}},
		{"256 bytes binary", Client, "\x82\x7e\x01\x00" + big, item{op: Binary, payload: big}},
		{"64 KiB binary", Client, "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00" + huge, item{op: Binary, payload: huge}},
	} {
		for _, cut := range []func() int{whole, byteByByte} {
			got, err := receive(t, NewMachine(c.role, MachineOptions{}), []byte(c.in), cut)
			if err != nil || len(got) != 1 || got[0] != c.want {
				t.Errorf("%s: %.60v, %v", c.name, got, err)
			}
		}
	}
}

// fixedKey is a source of masking keys for tests.
type fixedKey struct{}

func (fixedKey) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "\x37\xfa\x21\x3d"[i%4]
	}
	return len(p), nil
}

func TestFramesAreThoseOfTheRFC(t *testing.T) {
	server, client := NewMachine(Server, MachineOptions{}), NewMachine(Client, MachineOptions{Random: fixedKey{}})
	var b []byte
	check := func(name, want string, err error) {
		t.Helper()
		if err != nil || string(b) != want {
			t.Errorf("%s: %q, %v, want %q", name, b, err, want)
		}
		b = b[:0]
	}
	var err error
	b, err = server.AppendMessage(b, Text, []byte("Hello"))
	check("text of a server", "\x81\x05Hello", err)
	b, err = client.AppendMessage(b, Text, []byte("Hello"))
	check("text of a client", "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", err)
	b, err = server.AppendFragment(b, Text, []byte("Hel"), false)
	check("first fragment", "\x01\x03Hel", err)
	if b, err = server.AppendMessage(b, Text, nil); err != ErrMessageOpen || len(b) > 0 {
		t.Errorf("a message inside of another: %q, %v", b, err)
	}
	if b, err = server.AppendFragment(b, Binary, nil, true); err != ErrMessageOpen || len(b) > 0 {
		t.Errorf("a fragment of another type: %q, %v", b, err)
	}
	b, err = server.AppendPing(b, []byte("x"))
	check("ping between fragments", "\x89\x01x", err)
	b, err = server.AppendFragment(b, Text, []byte("lo"), true)
	check("last fragment", "\x80\x02lo", err)
	b, err = server.AppendMessage(b, Binary, make([]byte, 125))
	check("7-bit length", "\x82\x7d"+strings.Repeat("\x00", 125), err)
	b, err = server.AppendMessage(b, Binary, make([]byte, 126))
	check("16-bit length", "\x82\x7e\x00\x7e"+strings.Repeat("\x00", 126), err)
	b, err = server.AppendMessage(b, Binary, make([]byte, 65535))
	check("largest 16-bit length", "\x82\x7e\xff\xff"+strings.Repeat("\x00", 65535), err)
	b, err = server.AppendHeader(b, Binary, 65536, true)
	check("64-bit length", "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00", err)
	b, err = client.AppendHeader(b, Text, 5, true)
	b = client.AppendPayload(client.AppendPayload(b, []byte("H")), []byte("ello"))
	check("payload in pieces", "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", err)
	if b, err = server.AppendPing(b, make([]byte, 126)); err != ErrControlSize || len(b) > 0 {
		t.Errorf("ping of 126 bytes: %d bytes, %v", len(b), err)
	}
	if b, err = server.AppendMessage(b, opPing, nil); err != ErrOpcode || len(b) > 0 {
		t.Errorf("ping as a message: %q, %v", b, err)
	}
}

func TestCloseFrameIsTheLast(t *testing.T) {
	m := NewMachine(Server, MachineOptions{})
	for _, code := range []CloseCode{0, 999, 1004, CloseAbnormal, CloseTLSHandshake, 1016, 2999, 5000} {
		if b, err := m.AppendClose(nil, code, ""); err != ErrCloseCode || len(b) > 0 {
			t.Errorf("code %v: %q, %v", code, b, err)
		}
	}
	if _, err := m.AppendClose(nil, CloseNormal, "\xff"); err != ErrCloseReason {
		t.Errorf("reason that is not UTF-8: %v", err)
	}
	b, err := m.AppendClose(nil, CloseNormal, strings.Repeat("x", 122)+"\u00e9")
	if want := "\x88\x7c\x03\xe8" + strings.Repeat("x", 122); string(b) != want || err != nil {
		t.Errorf("long reason: %q, %v", b, err)
	}
	if !m.CloseSent() {
		t.Error("CloseSent is false")
	}
	_, message := m.AppendMessage(nil, Text, nil)
	_, header := m.AppendHeader(nil, Text, 0, true)
	_, ping := m.AppendPing(nil, nil)
	_, again := m.AppendClose(nil, CloseNormal, "")
	for _, err := range []error{message, header, ping, again} {
		if err != ErrCloseSent {
			t.Errorf("after the Close frame: %v", err)
		}
	}
	if b, err := NewMachine(Server, MachineOptions{}).AppendClose(nil, CloseNoStatus, "ignored"); string(b) != "\x88\x00" || err != nil {
		t.Errorf("close without status: %q, %v", b, err)
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits Limits
		in     []byte
		want   *ProtocolError
	}{
		{"frame at the limit", Limits{Frame: 5}, frame(0x82, "12345", 1), nil},
		{"frame above it", Limits{Frame: 5}, frame(0x82, "123456", 1), errFrameTooBig},
		{"message at the limit", Limits{Message: 6}, append(frame(0x02, "123", 1), frame(0x80, "456", 1)...), nil},
		{"message above it", Limits{Message: 5}, append(frame(0x02, "123", 1), frame(0x80, "456", 1)...), errMessageTooBig},
		{"one frame above it", Limits{Message: 5}, frame(0x82, "123456", 1), errMessageTooBig},
		{"second message counts anew", Limits{Message: 3}, append(frame(0x82, "123", 1), frame(0x82, "456", 1)...), nil},
		{"fragments at the limit", Limits{Fragments: 2}, append(frame(0x02, "", 1), frame(0x80, "", 1)...), nil},
		{"fragments above it", Limits{Fragments: 2}, append(append(frame(0x02, "", 1), frame(0x00, "", 1)...), frame(0x80, "", 1)...), errTooManyFragments},
		{"connection at the limit", Limits{Conn: 6}, append(frame(0x82, "123", 1), frame(0x82, "456", 1)...), nil},
		{"connection above it", Limits{Conn: 5}, append(frame(0x82, "123", 1), frame(0x82, "456", 1)...), errConnTooBig},
		{"default of messages", Limits{}, []byte("\x82\xff\x00\x00\x00\x00\x01\x00\x00\x01aaaa"), errMessageTooBig},
		{"no limit", Limits{Message: -1, Fragments: -1}, []byte("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xffaaaa"), errFrameTooBig}, // 2^63-1
		{"no limit, 2^40", Limits{Message: -1}, []byte("\x82\xff\x00\x00\x01\x00\x00\x00\x00\x00aaaa"), nil},
	} {
		_, err := receive(t, NewMachine(Server, MachineOptions{Limits: c.limits}), c.in, whole)
		var violation *ProtocolError
		if errors.As(err, &violation); violation != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// The second byte of a header looks like the first of a short message, and the key like the second.
func TestAHeaderThatIsCutIsNoShortMessage(t *testing.T) {
	m := NewMachine(Server, MachineOptions{})
	in := frame(0x82, "x", 0x80)
	if ev, n, err := m.Next(in[:1]); ev.Kind != NeedInput || n != 1 || err != nil {
		t.Fatalf("%+v, %d, %v", ev, n, err)
	}
	if ev, n, err := m.Next(in[1:]); ev.Kind != Message || string(ev.Payload) != "x" || n != len(in)-1 || err != nil {
		t.Errorf("%+v %q, %d of %d bytes, %v", ev, ev.Payload, n, len(in)-1, err)
	}
}

func TestNothingIsReadAfterTheCloseFrame(t *testing.T) {
	in := append(frame(0x88, "\x03\xe8bye", 1), "\xff\xff\xff"...)
	got, err := receive(t, NewMachine(Server, MachineOptions{}), in, whole)
	if err != nil || len(got) != 1 || got[0] != (item{opClose, "bye", CloseNormal}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestNeededIsTheRestOfThePayload(t *testing.T) {
	m := NewMachine(Client, MachineOptions{})
	for _, step := range []struct {
		in   string
		want uint64
	}{{"\x82", 0}, {"\x05", 5}, {"ab", 3}, {"cde", 0}} {
		for in := []byte(step.in); ; {
			ev, n, err := m.Next(in)
			if err != nil {
				t.Fatal(err)
			}
			if in = in[n:]; ev.Kind == NeedInput {
				break
			}
		}
		if got := m.Needed(); got != step.want {
			t.Errorf("after %q: %d, want %d", step.in, got, step.want)
		}
	}
}

// TestMachineAllocatesNothing echoes messages between two machines, plain and compressed.
func TestMachineAllocatesNothing(t *testing.T) {
	for name, deflate := range map[string]Deflate{
		"plain":       {},
		"takeover":    {Enabled: true},
		"no takeover": {Enabled: true, ServerNoTakeover: true, ClientNoTakeover: true},
		"compact":     {Enabled: true, Compact: true},
		"window 9":    {Enabled: true, ServerWindowBits: 9, ClientWindowBits: 9},
	} {
		if raceEnabled && deflate.Enabled {
			continue // the race detector has pools lose what they keep
		}
		client := NewMachine(Client, MachineOptions{Deflate: deflate})
		server := NewMachine(Server, MachineOptions{Deflate: deflate})
		text := []byte(strings.Repeat("no allocation in the steady state. ", 20))
		var toServer, toClient []byte
		pump := func(m *Machine, in []byte, on func(Event)) {
			for {
				ev, n, err := m.Next(in)
				if err != nil {
					t.Fatal(err)
				}
				if in = in[n:]; ev.Kind == NeedInput {
					return
				}
				on(ev)
			}
		}
		received := 0
		echo := func(ev Event) {
			toClient, _ = server.AppendFragment(toClient, Text, ev.Payload, ev.Last)
			toClient, _ = server.AppendPong(toClient, ev.Payload[:1])
		}
		count := func(ev Event) { received += len(ev.Payload) }
		step := func() {
			toServer, toClient = toServer[:0], toClient[:0]
			toServer, _ = client.AppendMessage(toServer, Text, text)
			pump(server, toServer, echo)
			pump(client, toClient, count)
		}
		for range 200 {
			step()
		}
		if n := testing.AllocsPerRun(200, step); n != 0 {
			t.Errorf("%s: %v allocations for each message", name, n)
		}
		if want := 401 * (len(text) + 1); received != want {
			t.Errorf("%s: %d bytes returned, want %d", name, received, want)
		}
	}
}

// A peer that agreed to begin each message with an empty window must not refer to those before.
func TestWindowEndsWithTheMessage(t *testing.T) {
	in := append(frame(0xC1, "\xf2\x48\xcd\xc9\xc9\x07\x00", 1), frame(0xC1, "\xf2\x00\x11\x00\x00", 1)...)
	for noTakeover, want := range map[bool]error{false: nil, true: errDeflate} {
		m := NewMachine(Server, MachineOptions{Deflate: Deflate{Enabled: true, ClientNoTakeover: noTakeover}})
		var violation error
		got, err := receive(t, m, in, whole)
		if errors.Is(err, errDeflate) {
			violation = errDeflate
		}
		if violation != want || len(got) == 0 || got[0].payload != "Hello" {
			t.Errorf("no takeover %v: %v, %v", noTakeover, got, err)
		}
	}
}
