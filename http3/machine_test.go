package http3

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/http3/qpack"
)

// link is two machines whose streams deliver at once.
type link struct {
	t              testing.TB
	client, server *Machine
	streams        map[*Machine][3]*Stream // the peer's control, encoder and decoder stream at each
	buf            []byte
	events         []string
}

func newLink(t testing.TB, c, s MachineOptions) *link {
	l := &link{t: t, client: NewMachine(RoleClient, c), server: NewMachine(RoleServer, s)}
	l.streams = map[*Machine][3]*Stream{l.client: open3(t, l.client, 3), l.server: open3(t, l.server, 2)}
	l.exchange()
	return l
}

func open3(t testing.TB, m *Machine, first uint64) (s [3]*Stream) {
	for i := range s {
		var err error
		if s[i], err = m.Open(first + uint64(i)*4); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// exchange moves what is pending on the unidirectional streams, both ways.
func (l *link) exchange() {
	for range 2 {
		l.move(l.client, l.server)
		l.move(l.server, l.client)
	}
}

func (l *link) move(from, to *Machine) {
	for i, app := range []func([]byte) []byte{from.AppendControl, from.AppendEncoder, from.AppendDecoder} {
		l.buf = app(l.buf[:0])
		l.feed(to, l.streams[to][i], l.buf)
	}
}

func (l *link) feed(to *Machine, s *Stream, p []byte) {
	for {
		ev, n, err := to.Input(s, p, false)
		if err != nil {
			l.t.Fatal(err)
		}
		p = p[n:]
		if ev.Kind == NeedInput {
			return
		}
		if l.events != nil {
			l.events = append(l.events, fmt.Sprint(ev.Kind, ev.ID, ev.Priority))
		}
	}
}

var requestFields = []qpack.Field{
	{Name: ":method", Value: "POST"},
	{Name: ":authority", Value: "h3.example"},
	{Name: ":scheme", Value: "https"},
	{Name: ":path", Value: "/path"},
	{Name: "user-agent", Value: "a test with a name of some length"},
	{Name: "x-secret", Value: "42", Never: true},
}

// A request and its response pass without an allocation, with a field that is a literal each time.
func TestMachineAllocations(t *testing.T) {
	l := newLink(t, MachineOptions{}, MachineOptions{})
	id := uint64(0)
	body := bytes.Repeat([]byte("b"), 500)
	response := []qpack.Field{{Name: ":status", Value: "200"}, {Name: "server", Value: "a server"}}
	var failed error
	var b []byte
	consume := func(m *Machine, s *Stream, fin bool) {
		p := b
		got := 0
		for {
			ev, n, err := m.Input(s, p, fin)
			p = p[n:]
			switch {
			case err != nil:
				failed = err
				return
			case ev.Kind == Data:
				got += len(ev.Payload)
			case ev.Kind == End:
				if got != len(body) {
					failed = fmt.Errorf("%d bytes of content", got)
				}
				return
			case ev.Kind == NeedInput:
				failed = errors.New("no end")
				return
			}
		}
	}
	round := func() {
		req, err := l.server.Open(id)
		resp, err2 := l.client.Open(id)
		if err != nil || err2 != nil {
			failed = errors.Join(err, err2)
			return
		}
		b = l.client.AppendHeaders(b[:0], id, requestFields)
		b = append(AppendDataHeader(b, len(body)), body...)
		l.exchange()
		consume(l.server, req, true)
		b = l.server.AppendHeaders(b[:0], id, response)
		b = append(AppendDataHeader(b, len(body)), body...)
		l.exchange()
		consume(l.client, resp, true)
		l.server.Completed()
		l.server.Release(req)
		l.client.Release(resp)
		id += 4
	}
	for range 20 {
		round()
	}
	if n := testing.AllocsPerRun(300, round); n > 0 || failed != nil {
		t.Errorf("%v allocations, %v", n, failed)
	}
}

func BenchmarkMachine(b *testing.B) {
	l := newLink(b, MachineOptions{}, MachineOptions{})
	var p []byte
	id := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		s, err := l.server.Open(id)
		if err != nil {
			b.Fatal(err)
		}
		p = l.client.AppendHeaders(p[:0], id, requestFields)
		l.exchange()
		if ev, _, err := l.server.Input(s, p, true); err != nil || ev.Kind != Headers {
			b.Fatal(ev, err)
		}
		l.server.Completed()
		l.server.Release(s)
		id += 4
	}
}

// code returns the code with which input ends the connection of a new server, or a stream.
func serverCode(o MachineOptions, inputs ...struct {
	id  uint64
	p   string
	fin bool
},
) (conn, stream ErrorCode) {
	m := NewMachine(RoleServer, o)
	streams := map[uint64]*Stream{}
	for _, in := range inputs {
		s := streams[in.id]
		var err error
		if s == nil {
			s, err = m.Open(in.id)
			streams[in.id] = s
		}
		p := []byte(in.p)
		for err == nil {
			var ev Event
			var n int
			ev, n, err = m.Input(s, p, in.fin)
			p = p[n:]
			if ev.Kind == NeedInput {
				break
			}
		}
		var ce *ConnError
		var se *StreamError
		if errors.As(err, &ce) {
			return ce.Code, 0
		}
		if errors.As(err, &se) {
			stream = se.Code
		}
	}
	return 0, stream
}

type input = struct {
	id  uint64
	p   string
	fin bool
}

// Floods of frames that do nothing end the connection.
func TestFloods(t *testing.T) {
	begin := "\x00\x04\x00"
	for name, in := range map[string]input{
		"unknown frames":       {0, strings.Repeat("\x21\x00", 11000), false},
		"PRIORITY_UPDATE":      {2, begin + strings.Repeat("\x80\x0f\x07\x00\x04\x00u=1", 11000), false},
		"MAX_PUSH_ID":          {2, begin + strings.Repeat("\x0d\x01\x05", 11000), false},
		"encoder stream":       {2, "\x02\x3f\xe1\x1f\x41x\x01y" + strings.Repeat("\x00", 70000), false},
		"control frame, 20 KB": {2, begin + "\x07\x80\x00\x50\x00", false},
		"settings":             {2, "\x00\x04\x80\x00\x0b\xb8" + manySettings(600), false},
	} {
		if conn, _ := serverCode(MachineOptions{}, in); conn != ExcessiveLoad {
			t.Errorf("%s: %v", name, conn)
		}
	}
	empty := string(NewMachine(RoleClient, MachineOptions{}).AppendHeaders(nil, 0, requestFields)) + strings.Repeat("\x00\x00", 11000)
	if conn, _ := serverCode(MachineOptions{}, input{0, empty, false}); conn != ExcessiveLoad {
		t.Errorf("empty DATA: %v", conn)
	}
}

// manySettings returns unknown settings, each another.
func manySettings(n int) string {
	var p []byte
	for i := range n {
		p = append(appendVarint(p, uint64(0x10000+i)), 1)
	}
	return string(p)
}

// Attack: requests that are cancelled as soon as they are sent. Those that complete pay for some.
func TestRapidReset(t *testing.T) {
	m := NewMachine(RoleServer, MachineOptions{MaxResets: 10})
	cancel := func(id uint64) error {
		s, err := m.Open(id)
		if err != nil {
			return err
		}
		defer m.Release(s)
		_ = m.Cancelled(s, true)
		return m.Cancelled(s, true) // STOP_SENDING beside RESET_STREAM is one
	}
	for id := range uint64(1000) {
		if err := cancel(id * 4); err != nil {
			t.Fatal("cancelled and completed in turn", err)
		}
		m.Completed()
	}
	for id := range uint64(10) {
		if err := cancel(id * 4); err != nil {
			t.Fatal(id, err)
		}
	}
	var ce *ConnError
	if err := cancel(0); !errors.As(err, &ce) || ce.Code != ExcessiveLoad {
		t.Error(err)
	}
}

// Attack: requests that are malformed, each in its header, its content or its trailers, so that the server resets them (CVE-2025-8671).
func TestRapidResetByErrors(t *testing.T) {
	encode := func(fields ...qpack.Field) string {
		return string(NewMachine(RoleClient, MachineOptions{}).AppendHeaders(nil, 0, fields))
	}
	post := slices.Concat(requestFields, []qpack.Field{{Name: "content-length", Value: "4"}})
	for name, text := range map[string]string{
		"header": encode(qpack.Field{Name: ":method", Value: "GET"}), "content": encode(post...) + "\x00\x05hello",
		"trailers": encode(requestFields...) + encode(qpack.Field{Name: ":path", Value: "/"}), "no end": encode(post...),
	} {
		m := NewMachine(RoleServer, MachineOptions{MaxResets: 10})
		reset := func(id uint64) error {
			s, err := m.Open(id)
			if err != nil {
				return err
			}
			defer m.Release(s)
			for in := []byte(text); ; {
				ev, n, err := m.Input(s, in, true)
				if err != nil {
					_ = m.Cancelled(s, false)
					_ = m.Cancelled(s, true) // the client resets it as well
					return err
				}
				if in = in[n:]; ev.Kind == NeedInput || ev.Kind == End {
					t.Fatalf("%s: the request is complete", name)
				}
			}
		}
		var ce *ConnError
		var se *StreamError
		for id := range uint64(10) {
			if err := reset(id * 4); !errors.As(err, &se) {
				t.Fatalf("%s, request %d: %v", name, id, err)
			}
		}
		if err := reset(40); !errors.As(err, &ce) || ce.Code != ExcessiveLoad {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A stream that waits for the dynamic table is read on after the event, and frees its place when it is reset.
func TestBlockedStreams(t *testing.T) {
	l := newLink(t, MachineOptions{}, MachineOptions{BlockedStreams: 2})
	var sections [3][]byte
	for i := range sections {
		sections[i] = l.client.AppendHeaders(nil, uint64(i)*4, requestFields)
	}
	var s [3]*Stream
	for i := range 2 {
		s[i], _ = l.server.Open(uint64(i) * 4)
		ev, n, err := l.server.Input(s[i], append(sections[i], "\x00\x01x"...), true)
		if err != nil || ev.Kind != NeedInput || !s[i].Blocked() || n != len(sections[i]) {
			t.Fatal(ev, n, err, s[i].Blocked())
		}
	}
	if err := l.server.Cancelled(s[0], true); err != nil {
		t.Fatal(err)
	}
	l.server.Release(s[0])
	instructions := l.client.AppendEncoder(nil)
	ev, n, err := l.server.Input(l.streams[l.server][1], instructions, false)
	if err != nil || ev.Kind != Unblocked || ev.Blocked != s[1] || n != len(instructions) {
		t.Fatal(ev, n, err)
	}
	if more, found := l.server.NextUnblocked(); found {
		t.Fatal("another:", more.ID())
	}
	var kinds []EventKind
	rest := []byte("\x00\x01x")
	for {
		ev, n, err := l.server.Input(s[1], rest, true)
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
		kinds = append(kinds, ev.Kind)
		if ev.Kind == NeedInput {
			break
		}
	}
	if !slices.Equal(kinds, []EventKind{Headers, Data, End, NeedInput}) {
		t.Errorf("events %v", kinds)
	}
}

func TestControlEvents(t *testing.T) {
	l := newLink(t, MachineOptions{MaxPushes: 3}, MachineOptions{WebTransport: 1})
	if s, known := l.client.Peer(); !known || s.WebTransport != 1 || !s.sessions || !s.ExtendedConnect || !s.Datagrams || s.MaxFieldSection != DefaultFieldSection ||
		s.TableCapacity != DefaultTableCapacity || s.BlockedStreams != DefaultBlockedStreams {
		t.Errorf("%+v", s)
	}
	l.events = []string{}
	l.client.UpdatePriority(8, Priority{Urgency: 1, Incremental: true})
	l.client.PermitPushes(5)
	l.client.PermitPushes(4) // cannot shrink
	l.client.GoAway(7)
	l.client.GoAway(9) // cannot grow
	l.server.GoAway(400)
	_, id, err := l.server.AppendPush(nil, 0, requestFields)
	if err != nil || id != 0 {
		t.Fatal(id, err)
	}
	l.exchange()
	l.server.CancelPush(0)
	l.client.CancelPush(0)
	l.exchange()
	want := []string{
		fmt.Sprint(PriorityUpdate, 8, Priority{1, true}), fmt.Sprint(MaxPushID, 4, Priority{}), fmt.Sprint(GoAway, 7, Priority{}),
		fmt.Sprint(GoAway, 400, Priority{}), fmt.Sprint(CancelPush, 0, Priority{}), fmt.Sprint(CancelPush, 0, Priority{}),
	}
	if !slices.Equal(l.events, want) {
		t.Errorf("%q\nwant %q", l.events, want)
	}
	for range 4 {
		if _, _, err := l.server.AppendPush(nil, 0, requestFields); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := l.server.AppendPush(nil, 0, requestFields); !errors.Is(err, ErrPush) {
		t.Errorf("a sixth push: %v", err)
	}
}

// The signal of WebTransport and the session, on both kinds of streams.
func TestWebTransportStreams(t *testing.T) {
	for _, c := range []struct {
		role Role
		id   uint64
		p    string
		kind EventKind
		code ErrorCode
	}{
		{RoleServer, 4, "\x40\x41\x00hello", WebTransport, 0},
		{RoleServer, 2, "\x40\x54\x04hello", WebTransport, 0},
		{RoleClient, 1, "\x40\x41\x00hello", WebTransport, 0},
		{RoleClient, 3, "\x40\x54\x04hello", WebTransport, 0},
		{RoleServer, 4, "\x40\x41\x01", 0, IDError},
		{RoleServer, 2, "\x40\x54\x02", 0, IDError},
		{RoleClient, 1, "\x01\x00", 0, StreamCreationError},
	} {
		m := NewMachine(c.role, MachineOptions{WebTransport: 1})
		s, err := m.Open(c.id)
		if err != nil {
			t.Fatal(err)
		}
		var ev Event
		var ce *ConnError
		p := []byte(c.p)
		for len(p) > 0 && ev.Kind == NeedInput && err == nil {
			var n int
			ev, n, err = m.Input(s, p[:1], false)
			p = p[n:]
		}
		if c.code != 0 {
			if !errors.As(err, &ce) || ce.Code != c.code {
				t.Errorf("stream %d, %q: %v", c.id, c.p, err)
			}
			continue
		}
		if err != nil || ev.Kind != c.kind || string(p) != "hello" {
			t.Errorf("stream %d, %q: %v, %v, rest %q", c.id, c.p, ev, err, p)
			continue
		}
		if ev, n, err := m.Input(s, p, true); err != nil || ev.Kind != Data || string(ev.Payload) != "hello" || n != 5 {
			t.Errorf("data %v, %v", ev, err)
		}
		if ev, _, err := m.Input(s, nil, true); err != nil || ev.Kind != End {
			t.Errorf("end %v, %v", ev, err)
		}
	}
	if _, err := NewMachine(RoleClient, MachineOptions{}).Open(1); err == nil {
		t.Error("a bidirectional stream of the server without WebTransport")
	}
}

// The header of a response changes what it names, and nothing if it is malformed.
func TestMergePriority(t *testing.T) {
	p := Priority{Urgency: 5, Incremental: true}
	for s, want := range map[string]Priority{
		"": p, "u=1": {1, true}, "i=?0": {5, false}, "u=0, i=?0": {0, false}, "u=9, x": p, "u=1,": p, "u=": p,
	} {
		if got, ok := p.Merge(s); got != want || ok == (s == "u=1," || s == "u=") {
			t.Errorf("%q: %v %v, want %v", s, got, ok, want)
		}
	}
}

func TestParsePriority(t *testing.T) {
	for s, want := range map[string]Priority{
		"": DefaultPriority, "u=0": {0, false}, "u=7, i": {7, true}, "i": {3, true}, "i=?1": {3, true}, "i=?0": {3, false},
		"u=1,u=2": {2, false}, "u=8": DefaultPriority, "u=-1": DefaultPriority, `x="a,u=1", u=5`: {5, false}, `x="\",u=1", u=6`: {6, false},
		" u=4;a=b , i;x": {4, true}, "u=a": DefaultPriority,
	} {
		if got, ok := ParsePriority(s); !ok || got != want {
			t.Errorf("%q: %v, %v; want %v", s, got, ok, want)
		}
	}
	for _, s := range []string{"=", "u=", "U=1", "u=1,", ",u=1", "1=u", "u=1,,i"} {
		if got, ok := ParsePriority(s); ok || got != DefaultPriority {
			t.Errorf("%q: %v, %v", s, got, ok)
		}
	}
	for p, want := range map[Priority]string{{3, false}: "", {0, true}: "u=0, i", {3, true}: "i", {7, false}: "u=7"} {
		if got := p.String(); got != want {
			t.Errorf("%v: %q, want %q", p, got, want)
		}
	}
}

func TestCapsules(t *testing.T) {
	stream := AppendCapsule(nil, CapsuleDatagram, []byte("first"))
	stream = AppendCapsule(stream, 0x1234, bytes.Repeat([]byte("x"), 1000))
	stream = AppendCapsule(stream, CapsuleDrainSession, nil)
	for size := 1; size <= len(stream); size += 7 {
		c := Capsules{Max: 10, Known: func(k uint64) bool { return k != 0x1234 }}
		var got []string
		for p := stream; len(p) > 0; {
			piece := p[:min(size, len(p))]
			p = p[len(piece):]
			for {
				kind, value, n, complete, err := c.Next(piece)
				if err != nil {
					t.Fatal(err)
				}
				piece = piece[n:]
				if !complete {
					break
				}
				got = append(got, fmt.Sprintf("%x %s", kind, value))
			}
			if c.Cut() != (len(p) > 0 && !boundary(len(stream)-len(p))) {
				t.Fatalf("pieces of %d: cut %v with %d left", size, c.Cut(), len(p))
			}
		}
		if !slices.Equal(got, []string{"0 first", "78ae "}) {
			t.Fatalf("pieces of %d: %q", size, got)
		}
	}
	c := Capsules{Max: 10, Known: func(uint64) bool { return true }}
	if _, _, _, _, err := c.Next(AppendCapsule(nil, 0, make([]byte, 11))); !errors.Is(err, ErrCapsule) {
		t.Error(err)
	}
}

// boundary reports whether a capsule of TestCapsules ends at an offset.
func boundary(at int) bool { return at == 7 || at == 7+4+1000 || at == 7+4+1000+5 }

func TestDatagrams(t *testing.T) {
	p := AppendDatagram(nil, 400, []byte("payload"))
	if stream, payload, err := ParseDatagram(p); err != nil || stream != 400 || string(payload) != "payload" {
		t.Error(stream, payload, err)
	}
	for _, bad := range []string{"", "\x40", "\xd0\x00\x00\x00\x00\x00\x00\x00"} {
		var ce *ConnError
		if _, _, err := ParseDatagram([]byte(bad)); !errors.As(err, &ce) || ce.Code != DatagramError {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

// Codes of applications fit between those of HTTP/3 that are reserved (draft-ietf-webtrans-http3 4.4).
func TestSessionCodes(t *testing.T) {
	for _, code := range []uint32{0, 1, 28, 29, 30, 31, 255, 1 << 20, 1<<32 - 1} {
		wire := WireCode(code)
		if got, ok := ApplicationCode(wire); !ok || got != code || (wire-0x21)%0x1f == 0 {
			t.Errorf("%d: %#x, %d, %v", code, wire, got, ok)
		}
	}
	if WireCode(0) != 0x52e4a40fa8db || WireCode(1<<32-1) != 0x52e5ac983162 {
		t.Errorf("%#x to %#x", WireCode(0), WireCode(1<<32-1))
	}
	for _, wire := range []uint64{0, 0x52e4a40fa8da, 0x52e5ac983163, 0x52e4a40fa8f9} {
		if code, ok := ApplicationCode(wire); ok {
			t.Errorf("%#x: %d", wire, code)
		}
	}
}

func TestVarints(t *testing.T) {
	for _, v := range []uint64{0, 63, 64, 16383, 16384, 1<<30 - 1, 1 << 30, maxVarint} {
		p := appendVarint(nil, v)
		got, n := varint(p)
		if got != v || n != len(p) || varintSize(v) != n {
			t.Errorf("%d: %d in %d bytes of %d", v, got, n, len(p))
		}
		for i := range p {
			if _, n := varint(p[:i]); n != 0 {
				t.Errorf("%d cut to %d bytes is complete", v, i)
			}
		}
	}
}

// A HEADERS frame that announces more than the limit is not collected.
func TestAnnouncedSection(t *testing.T) {
	m := NewMachine(RoleServer, MachineOptions{})
	s, err := m.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	if ev, _, err := m.Input(s, []byte("\x01\x80\x10\x00\x00"), false); err != nil || ev.Kind != TooLarge {
		t.Fatal(ev, err)
	}
	if ev, n, err := m.Input(s, make([]byte, 1000), false); err != nil || ev.Kind != NeedInput || n != 1000 || cap(s.buf) > 0 {
		t.Error(ev, n, err, cap(s.buf))
	}
}

// responseError returns the error with which a client that permits one push ends a response.
func responseError(head bool, p string) error {
	m := NewMachine(RoleClient, MachineOptions{MaxPushes: 1})
	s, err := m.Open(0)
	if err != nil {
		return err
	}
	if head {
		s.ExpectNoContent()
	}
	for in := []byte(p); ; {
		ev, n, err := m.Input(s, in, true)
		if err != nil || ev.Kind == End {
			return err
		}
		in = in[n:]
	}
}

func TestResponses(t *testing.T) {
	const ok, noContent = "\x01\x03\x00\x00\xd9", "\x01\x04\x00\x00\xff\x01"
	promise := "\x05\x09\x00\x00\x00\xd1\xd7\x50\x01h\xc1"
	var se *StreamError
	var ce *ConnError
	if err := responseError(false, noContent+"\x00\x01x"); !errors.As(err, &se) || se.Code != MessageError {
		t.Errorf("204 with content: %v", err)
	}
	if err := responseError(true, ok+"\x00\x01x"); !errors.As(err, &se) || se.Code != MessageError {
		t.Errorf("the response to HEAD with content: %v", err)
	}
	if err := responseError(true, "\x01\x07\x00\x00\xd9\x54\x02\x31\x30"); err != nil {
		t.Errorf("the response to HEAD with Content-Length: %v", err)
	}
	if err := responseError(false, promise+ok); err != nil {
		t.Errorf("the push that is permitted: %v", err)
	}
	if err := responseError(false, strings.Replace(promise, "\x09\x00", "\x09\x01", 1)+ok); !errors.As(err, &ce) || ce.Code != IDError {
		t.Errorf("the push after it: %v", err)
	}
}

func TestRepeatable(t *testing.T) {
	request := func(method string, body, again bool) *http.Request {
		r := &http.Request{Method: method}
		if body {
			r.Body = io.NopCloser(strings.NewReader("x"))
		}
		if again {
			r.GetBody = func() (io.ReadCloser, error) { return nil, nil }
		}
		return r
	}
	rejected, other := &StreamError{Code: RequestRejected, Remote: true}, &StreamError{Code: InternalError, Remote: true}
	for i, c := range []struct {
		r    *http.Request
		err  error
		want bool
	}{
		{request("POST", false, false), rejected, true},
		{request("POST", true, true), rejected, true},
		{request("POST", true, false), rejected, false},
		{request("GET", false, false), other, false},
		{request("GET", false, false), &StreamError{Code: RequestRejected}, false},
		{request("POST", false, false), ErrGoingAway, true},
		{request("GET", false, false), net.ErrClosed, true},
		{request("POST", false, false), net.ErrClosed, false},
		{request("GET", false, false), &ConnError{Code: NoError, Remote: true}, true},
		{request("GET", false, false), &ConnError{Code: FrameError}, false},
		{request("GET", false, false), errors.New("a failed dial"), false},
	} {
		if got := repeatable(c.r, c.err); got != c.want {
			t.Errorf("case %d: %v", i, got)
		}
	}
}

// Each draft of WebTransport enables it by a setting of its own.
func TestSettingsOfWebTransport(t *testing.T) {
	for id, want := range map[uint64]Settings{
		0x2b603742: {WebTransport: 1}, 0xc671706a: {WebTransport: 5}, 0x14e9cd29: {WebTransport: 5}, 0x2c7cf000: {WebTransport: 1, sessions: true},
	} {
		got, err := parseSettings(appendVarint(appendVarint(nil, id), 5))
		if err != nil || got != want {
			t.Errorf("%#x: %+v, %v", id, got, err)
		}
		if off, err := parseSettings(appendVarint(appendVarint(nil, id), 0)); err != nil || off != (Settings{}) {
			t.Errorf("%#x is 0: %+v, %v", id, off, err)
		}
	}
}

// Unidirectional streams of unknown types cost nothing but their number, which is bounded.
func TestFloodOfUnknownStreams(t *testing.T) {
	m := NewMachine(RoleServer, MachineOptions{MaxIdleFrames: 100})
	for i := range uint64(200) {
		s, err := m.Open(2 + 4*i)
		if err != nil {
			t.Fatal(err)
		}
		ev, _, err := m.Input(s, []byte("\x21 and more"), false)
		var ce *ConnError
		if i >= 100 {
			if !errors.As(err, &ce) || ce.Code != ExcessiveLoad {
				t.Errorf("stream %d: %v", i, err)
			}
			return
		}
		if err != nil || ev.Kind != Unknown || ev.ID != 0x21 {
			t.Fatalf("stream %d: %+v, %v", i, ev, err)
		}
		m.Release(s)
	}
}
