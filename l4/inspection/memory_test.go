package inspection

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// segmentOf is a segment of a client.
func segmentOf(port uint16, seq uint32, payload string) []byte {
	frame := datagramOf(0, "")[:34]
	wire.IPv4(frame[14:]).SetTotalLen(uint16(40 + len(payload)))
	frame[23] = wire.ProtoTCP
	frame = wire.AppendTCP(frame, &wire.TCPHeader{SrcPort: port, DstPort: 80, Seq: seq, Flags: wire.FlagACK})
	return append(frame, payload...)
}

// inUse returns the bytes of the heap, garbage included.
func inUse() int {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Requests that are not complete, from thousands of clients, take the memory of the policy and no more, garbage included.
func TestMemoryIsWhatTheProcessTakes(t *testing.T) {
	const memory, flows, segments = 64 << 20, 3000, 30
	i, _ := openedAs(t, `drop http any any -> any any (http.request_body; content:"evil"; sid:7;)`, "drop from 192.0.2.9\n", Options{}, func(c *config.Config) {
		c.Inspection.Memory = memory
	})
	defer i.Close()
	runtime.GC()
	base, peak := inUse(), 0
	body := segmentOf(0, 0, strings.Repeat("x", 1400))
	head := "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\n"
	now := clock.Time(1)
	for n := range segments {
		for k := range flows {
			frame, seq := body, uint32(1+len(head)+1400*(n-1))
			if n == 0 {
				frame, seq = segmentOf(0, 0, head), 1
			}
			wire.TCP(frame[34:]).SetSrcPort(uint16(1000 + k))
			wire.TCP(frame[34:]).SetSeq(seq)
			now += clock.Time(10 * time.Microsecond)
			inspectIn(i.Loop(0), frame, &datapath.Inspected{Now: now, FromClient: true, Opens: n == 0})
			if k%50 == 0 {
				peak = max(peak, inUse()-2*base)
			}
		}
	}
	t.Logf("at most %d MiB of %d", peak>>20, memory>>20)
	if peak > memory*3/2 { // the collector is a little late
		t.Errorf("%d bytes of a memory of %d", peak, memory)
	}
	if p := i.Status(1).Policies[0]; p.Bounds == 0 {
		t.Errorf("no packet has met a bound: %+v", p)
	}
}

// A hundred reloads beside flows that are quiet keep one set of rules, not a hundred.
func TestReloadsKeepNoRules(t *testing.T) {
	var rules strings.Builder
	for n := range 3000 {
		fmt.Fprintf(&rules, "alert tcp any any -> any any (content:\"a rare text %d\"; sid:%d;)\n", n, n+1)
	}
	rules.WriteString(`alert tcp any any -> any any (content:"first"; content:"second"; sid:9000;)` + "\n")
	i, dir := openedAs(t, rules.String(), "drop from 192.0.2.9\n", Options{}, nil)
	defer i.Close()
	live := func() int {
		runtime.GC()
		runtime.GC()
		return inUse()
	}
	inspectIn(i.Loop(0), segmentOf(999, 1, "first"), &datapath.Inspected{Now: 1, FromClient: true, Opens: true})
	one := 0
	for n := range 20 {
		write(t, dir+"/a.rules", fmt.Sprintf("%salert tcp any any -> any any (content:\"this time %d\"; sid:9001;)\n", rules.String(), n))
		if err := i.Reload(i.cfg); err != nil {
			t.Fatal(err)
		}
		inspectIn(i.Loop(0), segmentOf(uint16(1000+n), 1, "first"), &datapath.Inspected{Now: clock.Time(2 + n), FromClient: true, Opens: true})
		if n == 1 {
			one = live()
		}
	}
	if last := live(); last > one+one/4 {
		t.Errorf("%d bytes after 2 reloads, %d after 20", one, last)
	}
}

// resident returns the memory of the process that the kernel has given pages to.
func resident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// otherRules are n rules of kinds that leave something with flows: contents, bits, counters and limits. Those of two generations
// have nothing in common but the last one: no number, no text, no name.
func otherRules(n, generation int) string {
	var b strings.Builder
	for k := range n {
		sid, word := generation*n+k+1, fmt.Sprintf("word%dof%d", k, generation)
		switch k % 5 {
		case 0:
			fmt.Fprintf(&b, "alert http any any -> any any (msg:\"%s\"; http.uri; content:\"/%s/\"; http.user_agent; content:\"%s\"; sid:%d;)\n", word, word, word, sid)
		case 1:
			fmt.Fprintf(&b, "alert tcp any any -> any any (content:\"xxx\"; content:\"%s\"; distance:0; flowbits:set,%s; noalert; sid:%d;)\n", word, word, sid)
		case 2:
			fmt.Fprintf(&b, "alert tcp any any -> any %d (flow:established; flowbits:isset,%s; pcre:\"/%s/\"; sid:%d;)\n", 1+k%80, word, word, sid)
		case 3:
			fmt.Fprintf(&b, "alert http any any -> any any (http.request_body; content:\"%s\"; threshold:type limit,track by_src,count 1,seconds 9; sid:%d;)\n", word, sid)
		default:
			fmt.Fprintf(&b, "alert tcp any any -> any any (content:\"%s\"; flowint:%s,+,1; sid:%d;)\n", word, word, sid)
		}
	}
	b.WriteString("drop tcp any any -> any any (content:\"first\"; content:\"second\"; gid:9; sid:1;)\n")
	return b.String()
}

// halfSent sends requests that never end from clients that each have sent for the last time after some segments.
type halfSent struct {
	i       *Inspector
	now     clock.Time
	packets int
}

const halfSentSegments, halfSentClients = 20, 1000

func (h *halfSent) step() {
	client, n := h.packets/halfSentSegments%halfSentClients, h.packets%halfSentSegments
	head := "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\n"
	payload, seq := strings.Repeat("x", 1400), uint32(1+len(head)+1400*(n-1))
	if n == 0 {
		payload, seq = head, 1
	}
	h.packets++
	h.now += clock.Time(10 * time.Microsecond)
	inspectIn(h.i.Loop(0), segmentOf(uint16(1000+client), seq, payload), &datapath.Inspected{Now: h.now, FromClient: true, Opens: n == 0})
}

// Reloads beside traffic, of rules that have nothing in common with those before, take no memory beyond that of the rules and of the
// policy. With MILLRACE_SOAK there are 100 of 30 000 rules.
func TestReloadsUnderTrafficKeepMemory(t *testing.T) {
	rules, reloads, memory := 2000, 12, 8<<20
	if os.Getenv("MILLRACE_SOAK") != "" {
		rules, reloads, memory = 30_000, 100, 64<<20
	}
	i, dir := openedAs(t, otherRules(rules, 0), "drop from 192.0.2.9\n", Options{}, func(c *config.Config) { c.Inspection.Memory = memory })
	defer i.Close()
	load := &halfSent{i: i, now: 1}
	apart := func() int { // what is in use beside what the budget counts
		runtime.GC()
		runtime.GC()
		_, used := i.Loop(0).engines[1].Flows()
		return inUse() - used
	}
	for range halfSentClients * halfSentSegments { // all clients have a flow
		load.step()
	}
	early, earlyResident := 0, 0
	for n := range reloads {
		write(t, dir+"/a.rules", otherRules(rules, n+1))
		done, cfg := make(chan error, 1), i.cfg
		go func() { done <- i.Reload(cfg) }()
		for reloading := true; reloading; {
			load.step()
			select {
			case err := <-done:
				if reloading = false; err != nil {
					t.Fatal(err)
				}
			default:
			}
		}
		load.step() // takes the rules
		if n == 2 {
			early = apart()
			debug.FreeOSMemory()
			earlyResident = resident(t)
		}
	}
	last := apart()
	debug.FreeOSMemory()
	lastResident := resident(t)
	flows, used := i.Loop(0).engines[1].Flows()
	t.Logf("%d reloads of %d rules beside %d packets: in use beside the budget %.1f MiB after 3 reloads, %.1f MiB after all; resident %.1f and %.1f MiB; %d flows, %.1f of %d MiB counted",
		reloads, rules, load.packets, mib(early), mib(last), mib(earlyResident), mib(lastResident), flows, mib(used), memory>>20)
	if last > early+early/5 {
		t.Errorf("%d bytes are in use after 3 reloads beside the budget, %d after %d", early, last, reloads)
	}
	if lastResident > earlyResident+earlyResident/5+memory {
		t.Errorf("%d bytes are resident after 3 reloads, %d after %d", earlyResident, lastResident, reloads)
	}
}

func mib(n int) float64 { return float64(n) / (1 << 20) }

// Counters outlive one generation without their rule, and those of rules that are gone go.
func TestCountersOfRulesThatAreGoneGo(t *testing.T) {
	rule := func(n int) string {
		return fmt.Sprintf("alert udp any any -> any any (content:\"evil\"; sid:%d;)\n", n)
	}
	access := func(n int) string { return fmt.Sprintf("pass udp from 192.0.2.%d\n", n) }
	i, dir := openedAs(t, rule(1), access(1), Options{}, nil)
	defer i.Close()
	packets := 0
	matches := func() uint64 {
		packets++
		inspect1(i.Loop(0), clock.Time(packets), uint16(1000+packets), "evil")
		s := i.Status(5)
		if len(s.Rules) == 0 {
			return 0
		}
		return s.Rules[0].Matches
	}
	reload := func(rules, list string) {
		write(t, dir+"/a.rules", rules)
		write(t, dir+"/a.access", list)
		if err := i.Reload(i.cfg); err != nil {
			t.Fatal(err)
		}
	}
	matches()
	reload("", "")
	reload(rule(1), "")
	if n := matches(); n != 2 {
		t.Errorf("%d matches, behind a generation without the rule; want 2", n)
	}
	for n := range 50 {
		reload(rule(2+n), access(2+n))
	}
	if n := len(i.counters.rules) + len(i.earlier.rules); n > 4 {
		t.Errorf("%d counters of 4 rules", n)
	}
	reload(rule(1), "")
	if n := matches(); n != 1 {
		t.Errorf("%d matches of a rule that was gone for long; want 1", n)
	}
}

// A policy that the configuration has no more keeps no rules. One of its name has other rules for an engine that has met no packet
// since.
func TestPoliciesThatAreGoneKeepNoRules(t *testing.T) {
	i, dir := openedAs(t, `drop tcp any any -> any any (content:"first"; content:"second"; sid:7;)`+"\n", "drop from 192.0.2.9\n", Options{}, nil)
	defer i.Close()
	send := func(seq uint32, text string) packet.Verdict {
		return inspectIn(i.Loop(0), segmentOf(999, seq, text), &datapath.Inspected{Now: clock.Time(seq), FromClient: true, Opens: seq == 1})
	}
	send(1, "first")
	renamed := *i.cfg
	was := i.cfg
	renamed.Inspection.Policies = slices.Clone(was.Inspection.Policies)
	renamed.Inspection.Policies[0].Name = "other"
	for _, cfg := range []*config.Config{&renamed, &renamed} {
		if err := i.Reload(cfg); err != nil {
			t.Fatal(err)
		}
	}
	if all, _ := i.compiled["p"].packets.Len(); all != 0 {
		t.Errorf("%d rules of a policy that is gone are kept", all)
	}
	write(t, dir+"/a.rules", `drop tcp any any -> any any (content:"third"; content:"second"; sid:8;)`+"\n")
	if err := i.Reload(was); err != nil {
		t.Fatal(err)
	}
	if v := send(6, "second"); v != packet.Forward {
		t.Errorf("%v: the bytes match no rule of the policy that has come back", v)
	}
}
