package control

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
)

// only returns the only connection.
func (w *world) only() datapath.ConnInfo {
	w.t.Helper()
	if n := w.h.Connections(); n != 1 {
		w.t.Fatalf("%d connections", n)
	}
	for _, c := range w.conns() {
		return c
	}
	panic("no connection")
}

// forged returns segments from elsewhere that name the connection of host and know none of its numbers.
func forged(flags string, r *rand.Rand) seg {
	s := client(host, web, flags)
	s.from, s.payload = [6]byte{2, 6, 6, 6, 6, 6}, ""
	s.seq, s.ack = r.Uint32N(1<<31)+1<<30, r.Uint32N(1<<31)+1<<30 // neither is near firstSeq
	return s
}

// A forged segment of any kind is forwarded, for its receiver to judge, and changes nothing: not where replies go, not
// the backend, not the state.
func TestForgedSegmentsChangeNothing(t *testing.T) {
	for _, source := range []string{"", "source: client"} {
		w, r := newWorld(t, fill(source)), rand.New(rand.NewPCG(1, 2))
		out := w.connect(host)
		was := w.only()
		for i := range 200 {
			for _, flags := range []string{"A", "PA", "R", "RA", "FA", "F", "P", "SA"} {
				w.expect(0, forged(flags, r).bytes(), 1)
				back := answer(out, flags) // and from the backend's side
				back.seq, back.ack = r.Uint32N(1<<31)+1<<30, r.Uint32N(1<<31)+1<<30
				w.expect(1, back.bytes(), 0)
			}
			again := forged("S", r)
			if got := flowOf(w.expect(0, again.bytes(), 1)); got.src != flowOf(out).src || got.dst != flowOf(out).dst {
				t.Fatalf("round %d: a SYN opened another connection, from %v", i, got.src)
			}
			if got := flowOf(w.expect(1, answer(out, "A").bytes(), 0)); [6]byte(got.dstMAC) != macClient {
				t.Fatalf("round %d: replies go to %v", i, got.dstMAC)
			}
		}
		now := w.only()
		if was.Left, now.Left = 0, 0; was != now || now.State != "established" {
			t.Errorf("%+v became %+v", was, now)
		}
		w.audit()
	}
}

// What must be known to reset a connection: the sequence number that the receiver expects next (RFC 5961 3.2).
func TestOnlyAnExactRSTEndsAConnection(t *testing.T) {
	for _, c := range []struct {
		seq   uint32
		state string
	}{
		{firstSeq - 1, "established"},
		{firstSeq, "reset"}, // what the backend has acknowledged
		{firstSeq + 1, "established"},
		{firstSeq + 23, "established"},
		{firstSeq + 24, "reset"}, // what the client has sent
		{firstSeq + 25, "established"},
		{firstSeq + 4000, "established"},
	} {
		w := newWorld(t, fill(""))
		out := w.connect(host)
		rst := client(host, web, "R")
		rst.payload, rst.seq = "", c.seq
		w.expect(0, rst.bytes(), 1)
		if got := w.only().State; got != c.state {
			t.Errorf("after a RST with %d: %s", c.seq, got)
		}
		same := flowOf(w.expect(0, client(host, web, "S").bytes(), 1)).src == flowOf(out).src
		if same == (c.state == "reset") {
			t.Errorf("after a RST with %d a SYN opens a connection: %v", c.seq, !same)
		}
	}
}

// A refused connection leaves nothing behind; a RST that acknowledges another SYN refuses nothing.
func TestRefusedConnectionsAreForgotten(t *testing.T) {
	w := newWorld(t, fill(""))
	for i := range 48 {
		out := w.expect(0, client(fmt.Sprintf("198.18.0.9:%d", 1000+i), web, "S").bytes(), 1)
		rst := answer(out, "RA")
		rst.payload, rst.ack = "", firstSeq+4000
		w.expect(1, rst.bytes(), 0)
		if st := w.g.Status(); st.HalfOpen != 1 {
			t.Fatalf("%d half-open after a RST that acknowledges nothing", st.HalfOpen)
		}
		rst.ack = firstSeq
		w.expect(1, rst.bytes(), 0)
		if st := w.g.Status(); st.HalfOpen != 0 || st.Connections != 0 {
			t.Fatalf("%d half-open, %d connections after a refusal", st.HalfOpen, st.Connections)
		}
		w.refused(1, rst.bytes(), packet.DropNoFlow)
	}
	w.audit()
}

// Only the acknowledgement of the backend's SYN confirms a connection.
func TestAForgedHandshakeConfirmsNothing(t *testing.T) {
	w, r := newWorld(t, fill("")), rand.New(rand.NewPCG(3, 4))
	out := w.expect(0, client(host, web, "S").bytes(), 1)
	w.expect(1, answer(out, "SA").bytes(), 0)
	for range 1000 {
		s := client(host, web, "A")
		s.ack = r.Uint32N(1<<31) + 1<<30
		w.expect(0, s.bytes(), 1)
	}
	if got := w.only(); got.State != "syn_recv" || !got.HalfOpen {
		t.Errorf("%+v", got)
	}
	w.expect(0, client(host, web, "A").bytes(), 1)
	if got := w.only(); got.State != "established" || got.HalfOpen {
		t.Errorf("%+v", got)
	}
}

// A client that begins anew from the same port while the backend has not answered its first SYN: the backend's SYN+ACK
// says which of both it is.
func TestTheBackendSaysWhichSYNCounts(t *testing.T) {
	for _, second := range []bool{false, true} {
		w := newWorld(t, fill(""))
		out := w.expect(0, client(host, web, "S").bytes(), 1)
		again := client(host, web, "S")
		again.seq = 77000
		w.expect(0, again.bytes(), 1)
		back, ack := answer(out, "SA"), client(host, web, "A")
		if back.payload = ""; second {
			back.ack, ack.seq = 77001, 77001
		}
		w.expect(1, back.bytes(), 0)
		w.expect(0, ack.bytes(), 1)
		if got := w.only().State; got != "established" {
			t.Errorf("second %v: %s", second, got)
		}
	}
}

// A close, segment by segment.
func TestTheStatesOfAClose(t *testing.T) {
	w := newWorld(t, fill(""))
	to := flowOf(w.connect(host)) // the client has sent 24 bytes
	steps := []struct {
		backend  bool
		flags    string
		seq, ack uint32
		payload  string
		want     string
	}{
		{false, "FA", firstSeq + 24, firstSeq, "", "half_closed"},
		{true, "A", firstSeq, firstSeq + 25, "", "half_closed"},
		{true, "A", firstSeq, firstSeq + 25, "the rest of a download", "half_closed"},
		{false, "A", firstSeq + 25, firstSeq + 22, "", "half_closed"},
		{true, "FA", firstSeq + 22, firstSeq + 25, "", "closing"},
		{false, "A", firstSeq + 25, firstSeq + 22, "", "closing"},
		{false, "A", firstSeq + 25, firstSeq + 23, "", "time_wait"},
		{true, "FA", firstSeq + 22, firstSeq + 25, "", "time_wait"},
	}
	for i, step := range steps {
		s, from := client(host, web, step.flags), uint8(0)
		if step.backend {
			s, from = seg{src: to.dst, dst: to.src, flags: step.flags, from: macBackend, to: macGw1}, 1
		}
		s.seq, s.ack, s.payload = step.seq, step.ack, step.payload
		w.expect(from, s.bytes(), 1-from)
		st := w.g.Status()
		if got := w.only().State; got != step.want || st.Closing != 1 || st.Services[0].Backends[0].Closing+st.Services[0].Backends[1].Closing != 1 {
			t.Errorf("step %d: %s, want %s; %d closing", i, got, step.want, st.Closing)
		}
	}
	w.after(40e9)
	if st := w.g.Status(); st.Closing != 0 || st.Connections != 0 {
		t.Errorf("%d closing of %d", st.Closing, st.Connections)
	}
}

// The four conditions at their edges, by a FIN that is followed or not, without and with window scales. Both sides
// offer a window of 5000; the client has sent 24 bytes, the backend 16.
func TestTheEdgesOfTheWindows(t *testing.T) {
	const sent, got, scaled = firstSeq + 24, firstSeq + 16, 5000 << 7
	scale := []byte{1, 3, 3, 7}
	for _, c := range []struct {
		name            string
		client, backend []byte // options of the SYNs
		fromBackend     bool
		seq, ack        int
		follows         bool
	}{
		{"I, in the window", nil, nil, false, firstSeq + 5000, got, true},
		{"I, beyond it", nil, nil, false, firstSeq + 5001, got, false},
		{"II, a window old", nil, nil, false, sent - 5000 - 1, got, true}, // a FIN occupies a number
		{"II, older", nil, nil, false, sent - 5000 - 2, got, false},
		{"III, all that was sent", nil, nil, false, sent, got, true},
		{"III, more", nil, nil, false, sent, got + 1, false},
		{"IV, old", nil, nil, false, sent, got - oldest, true},
		{"IV, too old", nil, nil, false, sent, got - oldest - 1, false},
		{"I with scales", scale, scale, true, firstSeq + scaled, sent, true},
		{"I beyond it with scales", scale, scale, true, firstSeq + scaled + 1, sent, false},
		{"I, only the client scales", scale, nil, true, got + 5001, sent, false},
		{"I, only the backend scales", nil, scale, true, got + 5001, sent, false},
		{"IV with scales", scale, scale, false, sent, got - scaled, true},
		{"IV too old with scales", scale, scale, false, sent, got - scaled - 1, false},
	} {
		w := newWorld(t, fill(""))
		syn := client(host, web, "S")
		syn.options = c.client
		out := w.expect(0, syn.bytes(), 1)
		back := answer(out, "SA")
		back.options = c.backend
		w.expect(1, back.bytes(), 0)
		w.expect(0, client(host, web, "A").bytes(), 1)
		fin, from := client(host, web, "FA"), uint8(0)
		if c.fromBackend {
			fin, from = answer(out, "FA"), 1
		}
		fin.payload, fin.seq, fin.ack = "", uint32(c.seq), uint32(c.ack)
		w.expect(from, fin.bytes(), 1-from)
		if follows := w.only().State == "half_closed"; follows != c.follows {
			t.Errorf("%s: %s", c.name, w.only().State)
		}
	}
}

// Some clients send more than they were offered, and some backends take it: from its acknowledgement on the connection is
// followed as before. Too much changes nothing.
func TestAnOverrunOfTheWindowIsForgiven(t *testing.T) {
	for _, c := range []struct {
		beyond   uint32 // the window: where the segment begins; it has 10 bytes
		ack      uint32 // the backend has sent up to firstSeq+16
		forgiven bool
	}{{1, firstSeq, true}, {5000 - 11, firstSeq, true}, {5000 - 10, firstSeq, false}, {6000, firstSeq, false}, {1, firstSeq + 17, false}} {
		w := newWorld(t, fill(""))
		out := w.expect(0, client(host, web, "S").bytes(), 1)
		w.expect(1, answer(out, "SA").bytes(), 0)
		send := func(flags string, fromBackend bool, seq, ack uint32, payload string) {
			s, from := client(host, web, flags), uint8(0)
			if fromBackend {
				s, from = answer(out, flags), 1
			}
			s.seq, s.ack, s.payload = seq, ack, payload
			w.expect(from, s.bytes(), 1-from)
		}
		send("A", false, firstSeq, firstSeq, "")
		over := uint32(firstSeq + 5000 + c.beyond) // the window's end, and what is beyond
		w.now = w.now.Add(time.Minute)
		was := w.only().Left
		if send("PA", false, over, c.ack, "ten bytes."); w.only().Left != was {
			t.Errorf("%+v: it counts as a segment of the connection", c)
		}
		send("A", true, firstSeq, over+10, "")
		if send("FA", true, firstSeq, over+10, ""); (w.only().State == "half_closed") != c.forgiven {
			t.Errorf("%+v: %s", c, w.only().State)
		}
		w.audit()
	}
}

// A window that was larger than known grows by each segment that goes beyond it, but not beyond what a window can be
// (RFC 7323 2.3), also where the segment is sent again and again: much older segments do not belong to the connection.
func TestAWindowDoesNotGrowForEver(t *testing.T) {
	const scaled = 65535 << 14 // 16 KiB less than the largest window
	for _, c := range []struct {
		older   uint32 // than what the client has sent
		follows bool
	}{{1<<30 - 1000, true}, {1<<30 + 2000, false}} {
		w := newWorld(t, fill(""))
		syn := client(host, web, "S")
		syn.options = []byte{1, 3, 3, 14}
		out := w.expect(0, syn.bytes(), 1)
		back := answer(out, "SA")
		back.options = syn.options // and some data: a shorter frame would be padded
		w.expect(1, back.bytes(), 0)
		send := func(flags string, seq uint32, payload string) {
			t.Helper()
			s := client(host, web, flags)
			s.seq, s.ack, s.payload = seq, firstSeq, payload
			w.expect(0, s.bytes(), 1)
		}
		send("A", firstSeq, "")
		open := answer(out, "A")
		open.payload, open.window = "", 65535
		w.expect(1, open.bytes(), 0)
		const at = firstSeq + scaled - 100
		for range 30 {
			send("A", at, strings.Repeat("x", 1100))
		}
		if send("FA", at+1100-c.older-1, ""); (w.only().State == "half_closed") != c.follows {
			t.Errorf("%d bytes old: %s", c.older, w.only().State)
		}
	}
}

// A SYN that is sent again, or was on its way for long, keeps no open connection alive.
func TestASYNDoesNotProlongAConnection(t *testing.T) {
	w := newWorld(t, fill(""))
	syn, ack := client(host, web, "S"), client(host, web, "A")
	syn.payload, ack.payload = "", ""
	back := answer(w.expect(0, syn.bytes(), 1), "SA")
	back.payload = ""
	w.expect(1, back.bytes(), 0)
	w.expect(0, ack.bytes(), 1)
	w.after(time.Hour)
	was := w.only()
	w.expect(0, syn.bytes(), 1)
	if is := w.only(); is.Left != was.Left || is.State != "established" {
		t.Errorf("%s for %v, was %s for %v", is.State, is.Left, was.State, was.Left)
	}
}

// A closed connection makes way for a SYN, not for one with another flag that opens no connection.
func TestOnlyASYNReplacesAClosedConnection(t *testing.T) {
	for _, flags := range []string{"SF", "SR"} {
		w := newWorld(t, fill(""))
		out := w.connect(host)
		rst := client(host, web, "R")
		rst.payload = ""
		w.expect(0, rst.bytes(), 1)
		if got := w.only().State; got != "reset" {
			t.Fatal(got)
		}
		s := client(host, web, flags)
		s.payload, s.seq = "", 77000
		if got := flowOf(w.expect(0, s.bytes(), 1)); got.src != flowOf(out).src || w.only().State != "reset" {
			t.Errorf("%s: from %v, %s", flags, got.src, w.only().State)
		}
		w.audit()
	}
}

// oldest is how far an acknowledgement may lie behind, at least.
const oldest = 66000
