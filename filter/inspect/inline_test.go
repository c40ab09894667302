package inspect

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// gate is a lab whose packets go on to a receiver, unless the engine drops them.
type gate struct {
	*lab
	cfg     Config
	results []Result
	got     map[uint32]byte // what the server has, by sequence number: the bytes that came last
	fresh   bool
}

func newGate(t *testing.T, cfg Config, rules string) *gate {
	t.Helper()
	cfg.Inline, cfg.Block = true, true
	g := &gate{cfg: cfg, got: map[uint32]byte{}}
	g.lab = &lab{t: t, now: 1e9}
	g.e = New(rulesOf(t, rules, nil), cfg, func(a *Alert) { g.alerts = append(g.alerts, *a) })
	return g
}

// rulesOf compiles rules behind others.
func rulesOf(t *testing.T, text string, before *Rules) *Rules {
	t.Helper()
	f := signature.Parse("test", text, nil)
	for _, e := range append(f.Errors, f.Skipped...) {
		t.Fatal(e)
	}
	r, err := CompileNext(f.Rules, before)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// segment sends a segment of the client, or of the server, and returns the result.
func (g *gate) segment(fromClient bool, seq uint32, flags wire.TCPFlags, payload string) Result {
	h := wire.TCPHeader{SrcPort: 40000, DstPort: 80, Seq: seq, Ack: 5000, Flags: flags, Window: 65535}
	src, dst, dir := client, server, signature.ToServer
	if !fromClient {
		h.SrcPort, h.DstPort, h.Ack = 80, 40000, 1
		src, dst, dir = server, client, signature.ToClient
	}
	g.now += 1e6
	frame := ether(wire.EtherTypeIPv4, ipPacket(src, dst, wire.ProtoTCP, append(wire.AppendTCP(nil, &h), payload...)))
	r := g.e.Inspect(&Input{Now: g.now, Frame: frame, Dir: dir, Fresh: g.fresh})
	g.fresh = false
	g.results = append(g.results, r)
	if fromClient && r.Outcome == Pass && !(r.Bound && g.cfg.Refuse) && !r.Anomaly {
		for i := range len(payload) {
			g.got[seq+uint32(i)] = payload[i]
		}
	}
	return r
}

// newOther opens another connection, and returns what sends its segments.
func newOther(g *gate, port uint16) func(seq uint32, payload string) Result {
	send := func(seq uint32, flags wire.TCPFlags, payload string, fresh bool) Result {
		h := wire.TCPHeader{SrcPort: port, DstPort: 80, Seq: seq, Ack: 5000, Flags: flags, Window: 65535}
		g.now += 1e6
		frame := ether(wire.EtherTypeIPv4, ipPacket(client, server, wire.ProtoTCP, append(wire.AppendTCP(nil, &h), payload...)))
		return g.e.Inspect(&Input{Now: g.now, Frame: frame, Dir: signature.ToServer, Fresh: fresh})
	}
	send(0, wire.FlagSYN, "", true)
	return func(seq uint32, payload string) Result { return send(seq, wire.FlagACK, payload, false) }
}

// open opens a connection whose client's first byte has number 1.
func (g *gate) open() {
	g.fresh = true
	g.segment(true, 0, wire.FlagSYN, "")
	g.segment(false, 4999, wire.FlagSYN|wire.FlagACK, "")
	g.segment(true, 1, wire.FlagACK, "")
}

// received returns the bytes that the server has in order.
func (g *gate) received() string {
	var b strings.Builder
	for seq := uint32(1); ; seq++ {
		c, ok := g.got[seq]
		if !ok {
			return b.String()
		}
		b.WriteByte(c)
	}
}

const dropDawn = `drop tcp any any -> any any (flow:established,to_server; content:"attack at dawn"; sid:7;)`

// The receiver must never have all bytes of a pattern, however they are cut, ordered and repeated.
func TestTheReceiverNeverHasAWholePattern(t *testing.T) {
	const text = "we attack at dawn, or later"
	rng := rand.New(rand.NewPCG(7, 8))
	for round := range 400 {
		g := newGate(t, Config{Refuse: round%2 == 0}, dropDawn)
		g.open()
		var at []int
		for i := 0; i < len(text); i += 1 + rng.IntN(8) {
			at = append(at, i)
		}
		order := rng.Perm(len(at))
		for range 3 { // everything is sent again, as a sender does that gets no acknowledgement
			for _, i := range order {
				end := len(text)
				if i+1 < len(at) {
					end = at[i+1]
				}
				g.segment(true, 1+uint32(at[i]), wire.FlagACK, text[at[i]:end])
			}
		}
		if got := g.received(); strings.Contains(got, "attack at dawn") {
			t.Fatalf("round %d: the receiver has %q; cut at %v, in order %v", round, got, at, order)
		}
		if g.sids() != "7" {
			t.Fatalf("round %d: alerts %q", round, g.sids())
		}
		if r := g.segment(true, 100, wire.FlagACK, "more"); r.Outcome != Drop || !r.Blocked {
			t.Fatalf("a later segment: %+v", r)
		}
		if r := g.segment(false, 5000, wire.FlagACK, "answer"); r.Outcome != Drop || !r.Blocked {
			t.Fatalf("the other direction: %+v", r)
		}
	}
}

func TestRejectAndPassRules(t *testing.T) {
	g := newGate(t, Config{}, `reject tcp any any -> any any (content:"reject me"; sid:1;)
pass tcp any any -> any any (content:"exempt"; sid:2;)
drop tcp any any -> any any (content:"evil"; sid:3;)
alert tcp any any -> any any (content:"only alert"; sid:4;)
drop tcp any any -> any any (content:"silent"; noalert; sid:5;)
drop tcp any any -> any any (content:"limited"; threshold:type limit, track by_src, count 1, seconds 600; sid:6;)`)
	check := func(text string, want Outcome) {
		t.Helper()
		g.open()
		if r := g.segment(true, 1, wire.FlagACK, text); r.Outcome != want {
			t.Errorf("%q: %v, want %v", text, r.Outcome, want)
		}
	}
	check("reject me", Reject)
	check("exempt evil", Pass)
	check("evil", Drop)
	check("only alert", Pass)
	check("silent", Drop)
	check("limited", Drop)
	check("limited again", Drop)
	g.want("alerts", "1 3 4 6")
}

// Without Block the same engine only reports: all of the flow is inspected.
func TestWithoutBlockAllIsInspected(t *testing.T) {
	g := newGate(t, Config{}, dropDawn+"\nalert tcp any any -> any any (content:\"later on\"; sid:8;)")
	g.e.Swap(g.e.rules, Config{Inline: true})
	g.open()
	g.segment(true, 1, wire.FlagACK, "attack at dawn")
	if r := g.segment(true, 15, wire.FlagACK, " and later on"); r.Blocked {
		t.Errorf("%+v", r)
	}
	g.want("alerts", "7 8")
}

// Segments that the receiver discards must not change what the engine knows.
func TestForgedSegmentsEndNothing(t *testing.T) {
	g := newGate(t, Config{}, dropDawn+"\ndrop http any any -> any any (http.uri; content:\"/evil\"; sid:9;)")
	g.open()
	g.segment(true, 1, wire.FlagACK, "GET /ev")
	g.segment(true, 5000, wire.FlagRST, "")               // beyond the window
	g.segment(false, 4000, wire.FlagRST|wire.FlagACK, "") // before it
	g.segment(true, 9000, wire.FlagFIN|wire.FlagACK, "")  // and both FINs
	g.segment(false, 9000, wire.FlagFIN|wire.FlagACK, "") //
	g.segment(true, 70000, wire.FlagSYN, "")              // another connection, which the receiver challenges
	if r := g.segment(true, 8, wire.FlagACK, "il HTTP/1.1\r\n\r\n"); r.Outcome != Drop {
		t.Errorf("the request passes: %+v, alerts %q", r, g.sids())
	}
	g.want("alerts", "9")
	g.open() // the caller says that the connection is another one
	if r := g.segment(true, 1, wire.FlagACK, "GET / HTTP/1.1\r\n\r\n"); r.Outcome != Pass {
		t.Errorf("another connection on the same ports: %+v", r)
	}
}

func TestOverlapsAreReported(t *testing.T) {
	g := newGate(t, Config{}, dropDawn)
	g.open()
	g.segment(true, 4, wire.FlagACK, "attack ")
	if r := g.segment(true, 4, wire.FlagACK, "nothing"); !r.Anomaly {
		t.Errorf("%+v", r)
	}
	if r := g.segment(true, 4, wire.FlagACK, "attack "); r.Anomaly || r.Outcome != Pass {
		t.Errorf("the same bytes again: %+v", r)
	}
}

// With Refuse nothing that is known changes at a bound, so that what is sent again is inspected as the first time.
func TestBoundsRefuse(t *testing.T) {
	t.Run("flows", func(t *testing.T) {
		g := newGate(t, Config{Refuse: true, MaxFlows: 2}, dropDawn)
		for port := range uint16(4) {
			g.now += 1e6
			r := g.e.Inspect(&Input{Now: g.now, Dir: signature.ToServer, Frame: ether(wire.EtherTypeIPv4, udpPacket(4000+port, 9, []byte("x")))})
			if want := port >= 2; r.Bound != want {
				t.Errorf("flow %d: %+v", port, r)
			}
		}
		g.now += 31e9 // both have been quiet for their time
		if r := g.e.Inspect(&Input{Now: g.now, Dir: signature.ToServer, Frame: ether(wire.EtherTypeIPv4, udpPacket(5000, 9, []byte("x")))}); r.Bound {
			t.Errorf("a flow after others have ended: %+v", r)
		}
	})
	t.Run("memory", func(t *testing.T) {
		g := newGate(t, Config{Refuse: true, MemoryBytes: 4000}, dropDawn) // a window of 2 KiB, not one of 4
		g.open()
		fill := strings.Repeat("x", 1200)
		for i := range 2 {
			if r := g.segment(true, 1+uint32(i)*1200, wire.FlagACK, fill); r.Bound != (i == 1) {
				t.Fatalf("segment %d: %+v", i, r)
			}
		}
		g.e.budget.Max = 20_000 // others have given theirs back
		if r := g.segment(true, 1201, wire.FlagACK, "attack at dawn"+fill); r.Outcome != Drop {
			t.Errorf("sent again: %+v", r)
		}
	})
	t.Run("memory of quiet streams", func(t *testing.T) {
		g := newGate(t, Config{Refuse: true, MemoryBytes: 70_000}, `drop tcp any any -> any any (content:"first half, second half"; sid:7;)`)
		g.open()
		g.segment(true, 1, wire.FlagACK, strings.Repeat("x", 20_000)+"first half, ")
		other := newOther(g, 41000)
		for i := range 20 {
			if r := other(1+uint32(i)*2000, strings.Repeat("y", 2000)); r.Bound {
				t.Fatalf("segment %d: %+v", i, r)
			}
		}
		if n := g.e.Stats().Shortened; n != 1 {
			t.Errorf("%d streams shortened", n)
		}
		if r := g.segment(true, 20_013, wire.FlagACK, "second half"); r.Outcome != Drop {
			t.Errorf("a pattern across what was kept: %+v", r)
		}
	})
	t.Run("fragments in memory", func(t *testing.T) {
		g := newGate(t, Config{Refuse: true, MemoryBytes: 18_500}, dropDawn)
		send := func(id uint16, at int, more bool) Result {
			b := ipPacket(client, server, wire.ProtoUDP, make([]byte, 1000))
			ip := wire.IPv4(b)
			ip.SetID(id)
			ip.SetMoreFragments(more)
			ip.SetFragmentOffset(at)
			g.now++
			return g.e.Inspect(&Input{Now: g.now, Frame: ether(wire.EtherTypeIPv4, b), Dir: signature.ToServer})
		}
		for id := range uint16(12) {
			if r := send(id, 0, true); r.Bound != (id >= 10) {
				t.Errorf("fragment %d: %+v", id, r)
			}
			send(id, 0, true) // again: held once
		}
		for id := range uint16(9) { // one has no place for its other half
			g.e.budget.Max = 20_500
			if r := send(id, 1000, false); r.Bound {
				t.Errorf("the rest of %d: %+v", id, r)
			}
		}
		if n := g.e.budget.Used(); n < 1000 || n > 1900 {
			t.Errorf("%d bytes held, want those of one packet", n)
		}
	})
	t.Run("out of order", func(t *testing.T) {
		g := newGate(t, Config{Refuse: true}, dropDawn)
		g.open()
		fill := strings.Repeat("x", 1000)
		refused := 0
		for i := range 400 { // more than a stream queues
			if g.segment(true, 100+uint32(i)*1000, wire.FlagACK, fill).Bound {
				refused++
			}
		}
		if refused < 100 || refused > 200 {
			t.Errorf("%d of 400 segments refused", refused)
		}
		if r := g.segment(true, 1, wire.FlagACK, "attack at dawn"); r.Outcome != Drop {
			t.Errorf("behind a gap that is not given up: %+v", r)
		}
	})
	t.Run("fragments", func(t *testing.T) {
		g := newGate(t, Config{Refuse: true}, dropDawn)
		bounds := 0
		for id := range maxFragmented + 10 {
			b := ipPacket(client, server, wire.ProtoUDP, make([]byte, 16))
			ip := wire.IPv4(b)
			ip.SetID(uint16(id))
			b[6] = 0x20 // more fragments
			g.now++
			if g.e.Inspect(&Input{Now: g.now, Frame: ether(wire.EtherTypeIPv4, b), Dir: signature.ToServer}).Bound {
				bounds++
			}
		}
		if bounds != 10 {
			t.Errorf("%d fragments refused", bounds)
		}
	})
	t.Run("steps", func(t *testing.T) {
		g := newGate(t, Config{Refuse: true}, `alert tcp any any -> any any (content:"begin"; pcre:"/(a*)*(a*)*b\1c/"; sid:1;)`)
		g.open()
		evil := "begin" + strings.Repeat("a", 3000)
		if r := g.segment(true, 1, wire.FlagACK, evil); !r.Bound {
			t.Fatalf("%+v; %+v", r, g.e.Stats())
		}
		if r := g.segment(true, 1, wire.FlagACK, evil); r.Outcome != Drop {
			t.Errorf("sent again, which is not evaluated: %+v", r)
		}
	})
}

// Without Refuse packets pass at a bound, and it counts.
func TestBoundsPass(t *testing.T) {
	g := newGate(t, Config{MaxFlows: 2, MemoryBytes: 3000}, dropDawn)
	for port := range uint16(4) {
		g.now++
		g.e.Inspect(&Input{Now: g.now, Dir: signature.ToServer, Frame: ether(wire.EtherTypeIPv4, udpPacket(4000+port, 9, []byte("x")))})
	}
	if s := g.e.Stats(); s.Evicted != 2 {
		t.Errorf("%d flows given up", s.Evicted)
	}
	g.open()
	bounds := 0
	for i := range 6 {
		r := g.segment(true, 1+uint32(i)*1000, wire.FlagACK, strings.Repeat("x", 1000))
		if r.Outcome != Pass {
			t.Fatalf("%+v", r)
		}
		if r.Bound {
			bounds++
		}
	}
	if bounds == 0 || g.e.Stats().Bounds != uint64(bounds) {
		t.Errorf("%d packets met a bound, %d counted", bounds, g.e.Stats().Bounds)
	}
}

// What completes a match in a request must not leave, in its head and in its body.
func TestHTTPIsEvaluatedBeforeItLeaves(t *testing.T) {
	const head = "POST /upload HTTP/1.1\r\nHost: a.example\r\nUser-Agent: tool/1\r\nContent-Length: 400\r\n\r\n"
	body := strings.Repeat("x", 100) + "needle in the body" + strings.Repeat("y", 282)
	for _, c := range []struct {
		name, rule string
		last       string // of the bytes that may pass
		never      string
	}{
		{"head", `drop http any any -> any any (http.user_agent; content:"tool/1"; sid:1;)`, "", "400\r\n\r\n"},
		{"body", `drop http any any -> any any (http.request_body; content:"needle in the body"; sid:1;)`, "x", "needle in the body"},
		{"head and body", `drop http any any -> any any (http.uri; content:"/upload"; http.request_body; content:"needle"; content:"body"; distance:0; sid:1;)`, "x", "needle in the body"},
		{"file", `drop http any any -> any any (file_data; content:"in the body"; sid:1;)`, "x", "needle in the body"},
		{"payload", `drop http any any -> any any (http.method; content:"POST"; pkt_data; content:"needle in the body"; sid:1;)`, "", ""},
		{"absent", `drop http any any -> any any (http.request_body; content:"needle"; content:!"zzz"; sid:1;)`, "yyy", body},
	} {
		for _, mss := range []int{7, 40, 1000} {
			g := newGate(t, Config{}, c.rule)
			g.open()
			text := head + body
			for at := 0; at < len(text); at += mss {
				g.segment(true, 1+uint32(at), wire.FlagACK, text[at:min(len(text), at+mss)])
			}
			got := g.received()
			if c.never != "" && strings.Contains(got, c.never) {
				t.Errorf("%s, segments of %d: the receiver has %q", c.name, mss, got)
			}
			if mss < 1000 && !strings.Contains(got, c.last) {
				t.Errorf("%s, segments of %d: the receiver lacks what had to pass: %q", c.name, mss, got)
			}
			if g.sids() != "1" {
				t.Errorf("%s, segments of %d: alerts %q", c.name, mss, g.sids())
			}
		}
	}
}

// A rule matches once for a message, whether it was evaluated early or not.
func TestEarlyEvaluationReportsAsAtTheEnd(t *testing.T) {
	const rules = `alert http any any -> any any (http.uri; content:"/a"; sid:1;)
alert http any any -> any any (http.request_body; content:"needle"; sid:2;)
alert http any any -> any any (http.request_body; content:!"absent"; content:"x"; sid:3;)
alert http any any -> any any (http.request_body; pcre:"/nee+dle/"; sid:4;)
alert http any any -> any any (http.uri; content:"/a"; http.request_body; content:"needle"; within:6; sid:5;)
alert http any any -> any any (http.request_body; bsize:>10; sid:6;)
alert http any any -> any any (http.response_body; content:"answer"; sid:7;)
alert http any any -> any any (file_data; content:"answer"; endswith; sid:8;)
alert http any any -> any any (http.stat_code; content:"200"; sid:9;)`
	req := func(body string) string {
		return fmt.Sprintf("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	resp := func(body string) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	}
	for _, body := range []string{"needle", "x absent", strings.Repeat("x", 30) + "needle" + strings.Repeat("x", 30), ""} {
		want := ""
		for i, mss := range []int{10000, 1, 3, 17} {
			g := newGate(t, Config{}, rules)
			cfg := Config{Inline: i > 0}
			g.e.Swap(g.e.rules, cfg)
			g.open()
			text := req(body) + req(body)
			for at := 0; at < len(text); at += mss {
				g.segment(true, 1+uint32(at), wire.FlagACK, text[at:min(len(text), at+mss)])
			}
			text = resp("the answer") + resp("answer again")
			for at := 0; at < len(text); at += mss {
				g.segment(false, 5000+uint32(at), wire.FlagACK, text[at:min(len(text), at+mss)])
			}
			if i == 0 {
				want = g.sids()
			}
			if got := g.sids(); got != want {
				t.Errorf("body %q, segments of %d: alerts %q, at the end of messages %q", body, mss, got, want)
			}
		}
	}
}

// A swap between any two segments changes nothing for rules that stay.
func TestSwapKeepsWhatIsKnown(t *testing.T) {
	const keep = `alert tcp any any -> any any (flow:established,to_server; content:"first part"; content:"second part"; distance:0; sid:1;)
alert tcp any any -> any any (content:"set it"; flowbits:set,seen; noalert; sid:2;)
alert tcp any any -> any any (flowbits:isset,seen; content:"ask for it"; sid:3;)
alert ip any any -> 198.18.0.1 any (sid:4;)
alert tcp any any -> any any (content:"twice"; threshold:type threshold, track by_src, count 2, seconds 60; sid:5;)`
	const other = "alert tcp any any -> any any (content:\"%d\"; flowbits:set,other%[1]d; sid:%[2]d;)\n"
	parts := []string{"first part ", "set it ", "twice ", "second part ", "twice ", "ask for it "}
	for at := range parts {
		g := newGate(t, Config{}, keep)
		g.open()
		seq := uint32(1)
		for i, p := range parts {
			if i == at {
				more := ""
				for n := range 50 { // the numbers of rules and bits change
					more += fmt.Sprintf(other, 1000+n, 100+n)
				}
				g.e.Swap(rulesOf(t, more+keep, g.e.rules), g.cfg)
			}
			g.segment(true, seq, wire.FlagACK, p)
			seq += uint32(len(p))
		}
		g.want(fmt.Sprintf("swap before part %d", at), "1 3 4 5")
	}
	g := newGate(t, Config{}, keep)
	g.open()
	g.segment(true, 1, wire.FlagACK, "first part")
	g.e.Swap(rulesOf(t, strings.Replace(keep, "198.18.0.1", "198.18.0.0/15", 1)+"\ndrop ip any any -> 198.18.0.1 any (sid:6;)", g.e.rules), g.cfg)
	if r := g.segment(true, 11, wire.FlagACK, " second part"); r.Outcome != Drop {
		t.Errorf("a new rule on addresses does not see the flow: %+v", r)
	}
	g.want("rules that changed are others", "1 4 4 6")
}

func TestFlowsExpire(t *testing.T) {
	g := newGate(t, Config{}, dropDawn)
	for port := range uint16(10) {
		g.now++
		g.e.Inspect(&Input{Now: g.now, Frame: ether(wire.EtherTypeIPv4, udpPacket(4000+port, 9, []byte("x")))})
	}
	g.e.Expire(g.now+29e9, 100)
	if n, _ := g.e.Flows(); n != 10 {
		t.Errorf("%d flows before their time", n)
	}
	g.e.Expire(g.now+31e9, 4)
	if n, _ := g.e.Flows(); n != 6 {
		t.Errorf("%d flows after 4 of 10 were to end", n)
	}
}

// What is found when a flow ends is about bytes that have left: it says nothing about the packet that made room.
func TestTheEndOfAFlowDropsNoOther(t *testing.T) {
	g := newGate(t, Config{MaxFlows: 1}, `drop http any any -> any any (http.request_body; content:"needle"; content:!"absent"; sid:1;)`)
	g.open()
	g.segment(true, 1, wire.FlagACK, "POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nneedle")
	g.now++
	r := g.e.Inspect(&Input{Now: g.now, Dir: signature.ToServer, Frame: ether(wire.EtherTypeIPv4, udpPacket(5000, 9, []byte("x")))})
	if r.Outcome != Pass || g.e.Stats().Blocked != 0 {
		t.Errorf("%+v", r)
	}
	g.want("alerts", "1")
	if a := g.alerts[0]; a.Packet != 0 {
		t.Errorf("an alert of packet %d", a.Packet)
	}
}

// The direction is what the caller says, not who was seen first.
func TestTheCallerKnowsTheDirection(t *testing.T) {
	g := newGate(t, Config{Midstream: true}, `alert tcp any any -> any any (flow:to_server; content:"request"; sid:1;)
alert tcp any any -> any any (flow:to_client; content:"answer"; sid:2;)`)
	g.segment(false, 5000, wire.FlagACK, "answer")
	g.segment(true, 1, wire.FlagACK, "request")
	g.want("picked up in the middle, the server first", "1 2")
	if a := g.alerts[0]; !bytes.Equal(a.Src.AsSlice(), server[:]) {
		t.Errorf("%+v", a)
	}
}
