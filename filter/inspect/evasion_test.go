package inspect

import (
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

const evilRequests = `drop http any any -> any any (flow:to_server; http.uri; content:"/evil"; sid:1;)
drop http any any -> any any (flow:to_server; http.request_body; content:"evilbody"; sid:2;)`

// keptBack sends a text in segments, and reports whether any was kept from the server.
func keptBack(g *gate, text string) (kept bool) {
	seq := uint32(1)
	for len(text) > 0 {
		n := min(len(text), 1400)
		r := g.segment(true, seq, wire.FlagACK, text[:n])
		kept = kept || r.Outcome != Pass || r.Bound || r.Blocked
		seq += uint32(n)
		text = text[n:]
	}
	return kept
}

// What a server may take and a parser finds strange must not switch inspection off.
func TestStrangeRequestsHideNothing(t *testing.T) {
	evil := "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n"
	head := "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, text := range map[string]string{
		"plain":                     evil,
		"chunk extension":           head + "1;" + strings.Repeat("a", 1000) + "\r\nx\r\n0\r\n\r\n" + evil,
		"chunk extension of 70 KiB": head + "1;" + strings.Repeat("a", 70<<10) + "\r\nx\r\n0\r\n\r\n" + evil,
		"trailer of 70 KiB":         head + "0\r\na: " + strings.Repeat("a", 70<<10) + "\r\n\r\n" + evil,
		"chunk without a size":      head + "x\r\n" + evil,
		"chunk of 1 GiB":            head + "40000000\r\nevilbody",
		"chunk of 2 GiB":            head + "80000000\r\nevilbody",
		"empty lines first":         "\r\n\r\n" + evil,
		"unknown method":            "FETCH /evil HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, Config{Refuse: true}, evilRequests)
			g.open()
			if !keptBack(g, text) {
				t.Error("all of it reached the server, without a verdict or a bound")
			}
		})
	}
}

// A swap may lower the bound of bodies below what one has.
func TestSwapLowersTheBoundOfBodies(t *testing.T) {
	l := newLab(t, `alert http any any -> any any (http.request_body; content:"zz"; sid:1;)`)
	c := l.tcp(80).open().send(true, "POST / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n"+strings.Repeat("a", 2000), 1000)
	l.e.Swap(l.e.rules, Config{BodyBytes: 1000})
	c.send(true, strings.Repeat("b", 1000), 1000)
}

// What parsers hold counts: many requests that are not complete take no more than the bound, and give it back.
func TestParsersHaveABudget(t *testing.T) {
	for _, refuse := range []bool{true, false} {
		const flows, bound = 300, 4 << 20
		g := newGate(t, Config{Refuse: refuse, MemoryBytes: bound, MaxFlows: flows + 1}, evilRequests)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		bounds := 0
		for i := range flows {
			send := newOther(g, uint16(1000+i))
			seq := uint32(1)
			put := func(s string) {
				for range 20 {
					if r := send(seq, s); !r.Bound {
						break
					}
					bounds++
					g.now += 20e6
				}
				seq += uint32(len(s))
			}
			put("POST / HTTP/1.1\r\nContent-Length: 99000\r\n\r\n")
			for range 70 {
				put(strings.Repeat("x", 1400))
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 3*bound {
			t.Errorf("refuse %v: the heap has %d bytes, the bound is %d", refuse, held, bound)
		}
		if s := g.e.Stats(); s.Shortened == 0 || refuse != (s.Blocked > 0) {
			t.Errorf("refuse %v: %d bounds, %+v", refuse, bounds, s)
		}
		g.e.Flush()
		if n, used := g.e.Flows(); n != 0 || used != 0 {
			t.Errorf("refuse %v: %d flows and %d bytes are left", refuse, n, used)
		}
		runtime.KeepAlive(g)
	}
}

// Requests that wait for their answers are counted with what they keep, and keep no heads.
func TestUnansweredRequestsKeepNoHeads(t *testing.T) {
	const requests, head = 500, 20 << 10
	g := newGate(t, Config{}, evilRequests)
	g.open()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	keptBack(g, strings.Repeat("GET / HTTP/1.1\r\nA: "+strings.Repeat("a", head)+"\r\n\r\n", requests))
	g.got = nil // what the receiver has is not the engine's
	runtime.GC()
	runtime.ReadMemStats(&after)
	_, used := g.e.Flows()
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > int64(used)+requests*head/4 {
		t.Errorf("the heap has %d bytes, the budget %d", held, used)
	}
	runtime.KeepAlive(g)
}

// A table of thresholds that forged sources keep full does not make each packet look through it.
func TestFullTablesAreNotSearched(t *testing.T) {
	const span = 60_000_000_000
	g := newGate(t, Config{MaxFlows: 1000}, `alert udp any any -> any any (content:"x"; threshold:type limit, track by_src, count 1, seconds 60; sid:1;)`)
	send := func(i int) {
		g.now += span / maxLimits
		u := []byte{0x9c, 0x40, 0x10, 0, 0, 9, 0, 0, 'x'}
		frame := ether(wire.EtherTypeIPv4, ipPacket([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}, server, wire.ProtoUDP, u))
		g.e.Inspect(&Input{Now: g.now, Frame: frame, Dir: signature.ToServer})
	}
	for i := range maxLimits + 200 {
		send(i)
		if len(g.e.thresholds.limits) > maxLimits {
			t.Fatalf("%d entries", len(g.e.thresholds.limits))
		}
	}
	if len(g.e.thresholds.limits) != maxLimits {
		t.Errorf("%d entries of %d are left: a full table gives up one for one", len(g.e.thresholds.limits), maxLimits)
	}
}
