package inspect

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/gpukern"
	flows "github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/internal/testkit/checkout"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
	batch "github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// timedFrame is a frame and its time.
type timedFrame struct {
	at    int64
	frame []byte
}

// capturedFrames reads all captures.
func capturedFrames(t testing.TB) (list []timedFrame) {
	t.Helper()
	for _, path := range testpcaps.Files(t) {
		in, err := capture.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for {
			rec, err := in.Next()
			if err != nil {
				break
			}
			if frame, err := capture.ToEthernet(rec.LinkType, rec.Data, nil); err == nil {
				list = append(list, timedFrame{rec.Time, bytes.Clone(frame)})
			}
		}
		in.Close()
	}
	return list
}

// searchRules returns the rules of the comparison with Suricata and, where MILLRACE_RULES names a folder, those of its
// files.
func searchRules(t testing.TB) *Rules {
	t.Helper()
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{filepath.Join(root, "internal/testkit/interop/testdata/suricata/keywords.rules")}
	if dir := os.Getenv("MILLRACE_RULES"); dir != "" {
		more, _ := filepath.Glob(filepath.Join(dir, "*.rules"))
		paths = append(paths, more...)
	}
	cfg := signature.Default()
	for name := range cfg.Addresses {
		cfg.Addresses[name] = "any"
	}
	var list []*signature.Rule
	seen := map[uint32]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range signature.Parse(path, string(text), cfg).Rules {
			if !seen[r.SID] {
				seen[r.SID] = true
				list = append(list, r)
			}
		}
	}
	rules, err := Compile(list)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// alertText is what two engines must agree on.
func alertText(a *Alert) string {
	sid := uint32(0)
	if a.Rule != nil {
		sid = a.Rule.SID
	}
	return fmt.Sprintf("%d %v packet %d flow %d %v:%d %v:%d %d %d %v %x", sid, a.Anomaly, a.Packet, a.Flow, a.Src, a.SrcPort, a.Dst, a.DstPort,
		a.Proto, a.Dir, a.App, a.Payload)
}

// throughEngine passes frames through a packet engine, batch by batch, and calls visit for each: it is packet i of the batch,
// which is borrowed.
func throughEngine(t testing.TB, pe gpukern.Engine, list []timedFrame, visit func(p timedFrame, b *batch.Batch, i int)) {
	t.Helper()
	const frameSize, burst = 64 << 10, 64
	arena := &batch.Arena{Mem: make([]byte, frameSize*burst), Shift: 16}
	for len(list) > 0 {
		n := min(burst, len(list))
		b := &batch.Batch{Arena: arena}
		for i, p := range list[:n] {
			size := min(copy(arena.Mem[i*frameSize:(i+1)*frameSize], p.frame), 65535)
			b.D = append(b.D, batch.Desc{Off: uint32(i * frameSize), Len: uint16(size)})
		}
		if err := pe.Submit(b); err != nil {
			t.Fatal(err)
		}
		var done [1]*batch.Batch
		for pe.Poll(done[:]) == 0 {
		}
		for i := range b.D {
			visit(list[i], b, i)
		}
		list = list[n:]
	}
}

// searchedBy inspects frames that a packet engine has searched, batch by batch.
func searchedBy(t testing.TB, rules *Rules, pe gpukern.Engine, list []timedFrame) (alerts []string, stats Stats) {
	t.Helper()
	e := New(rules, Config{}, func(a *Alert) { alerts = append(alerts, alertText(a)) })
	var reader gpukern.MatchReader
	throughEngine(t, pe, list, func(p timedFrame, b *batch.Batch, i int) {
		found := reader.Of(b, i)
		from, to := gpukern.Window(&b.D[i], b.Bytes(i))
		e.Searched(p.at, b.Bytes(i), Search{From: from, To: to, Matches: found, Base: testBase})
	})
	e.Flush()
	return alerts, e.Stats()
}

// inspected inspects frames without a packet engine.
func inspected(rules *Rules, list []timedFrame) (alerts []string) {
	e := New(rules, Config{}, func(a *Alert) { alerts = append(alerts, alertText(a)) })
	for _, p := range list {
		e.Packet(p.at, p.frame)
	}
	e.Flush()
	return alerts
}

// testBase is how many literals of others a set begins with.
const testBase = 3

// packetEngine returns a packet engine that searches for the literals of rules.
func packetEngine(t testing.TB, rules *Rules, ops gpukern.Ops) gpukern.Engine {
	t.Helper()
	set, err := literal.Compile(rules.AppendLiterals([]literal.Pattern{{Bytes: []byte("other"), Rule: 1}, {Bytes: []byte("GET "), Rule: 2}, {Bytes: []byte("HTTP/1.1"), Rule: 3}}))
	if err != nil {
		t.Fatal(err)
	}
	cfg := gpukern.Config{Ops: gpukern.OpParse | gpukern.OpLiterals | ops, Tables: gpukern.Tables{Literals: set}}
	if ops&gpukern.OpFlow != 0 {
		if cfg.Streams, err = gpukern.NewStreams(1 << 12); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cfg.Streams.Close() })
		if cfg.Flows, err = flows.New(flows.Config{Flows: 1 << 11}); err != nil {
			t.Fatal(err)
		}
	}
	return gpukern.NewCPU(cfg)
}

// TestAPacketEngineChangesNoAlert inspects all captures with and without the matches of a packet engine.
func TestAPacketEngineChangesNoAlert(t *testing.T) {
	rules, list := searchRules(t), capturedFrames(t)
	list = slices.DeleteFunc(list, func(p timedFrame) bool { return len(p.frame) > 65535 })
	want := inspected(rules, list)
	if len(want) < 100 {
		t.Fatalf("%d alerts", len(want))
	}
	for _, ops := range []gpukern.Ops{0, gpukern.OpL2Encap, gpukern.OpFlow} {
		got, stats := searchedBy(t, rules, packetEngine(t, rules, ops), list)
		if !slices.Equal(got, want) {
			t.Errorf("with %v: %d alerts, want %d", ops, len(got), len(want))
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					t.Errorf("first: %.200s\n want: %.200s", got[i], want[i])
					break
				}
			}
		}
		t.Logf("with %v: %d alerts, %d payloads taken, %d searched again", ops, len(got), stats.Taken, stats.Overflows)
		if stats.Taken*2 < stats.Packets || stats.Overflows == 0 {
			t.Errorf("with %v: of %d packets %d were taken, %d searched again", ops, stats.Packets, stats.Taken, stats.Overflows)
		}
	}
}

// TestDecoysBeforeAPacketEngine has 16 to 10 000 matches before the one that counts, of which the engine lists 16: in
// a datagram, and in a stream whose segments cut the last pattern.
func TestDecoysBeforeAPacketEngine(t *testing.T) {
	for _, n := range []int{0, 15, 16, 17, 100, 1000, 10000} {
		l := newLab(t, "content:\"dec\";\ncontent:\"the-one\";\n")
		var list []timedFrame
		l.record = func(b []byte) { list = append(list, timedFrame{l.now, b}) }
		text := strings.Repeat("dec", n) + "the-one"
		l.udp(9, text)
		datagram := len(list)
		for i, mss := range []int{1400, 1 + len(text)/2, max(1, len(text)-3), 5} {
			if mss > 30000 || len(text)/mss > 7000 {
				continue
			}
			c := l.tcp(uint16(10 + i)).open()
			c.send(true, text, mss)
		}
		connections := 0
		for _, p := range list[datagram:] {
			connections += boolInt(wire.TCP(p.frame[34:]).Flags() == wire.FlagSYN)
		}
		want := inspected(l.e.rules, list)
		got, stats := searchedBy(t, l.e.rules, packetEngine(t, l.e.rules, 0), list)
		if !slices.Equal(got, want) {
			t.Errorf("%d decoys: %d alerts, %d without the engine", n, len(got), len(want))
		}
		counts := 0
		for _, a := range got {
			counts += boolInt(strings.HasPrefix(a, "2 "))
		}
		if counts != 1+connections {
			t.Errorf("%d decoys, a datagram and %d connections: %d alerts of the rule behind them", n, connections, counts)
		}
		if (stats.Overflows > 0) != (n >= 16) || n < 16 && stats.Taken == 0 {
			t.Errorf("%d decoys: %d payloads taken, %d searched again", n, stats.Taken, stats.Overflows)
		}
	}
}

// TestSearchOfOtherBytesIsNotTaken has matches that do not fit: of other bytes, of other literals, and of a literal
// that begins in an earlier packet.
func TestSearchOfOtherBytesIsNotTaken(t *testing.T) {
	l := newLab(t, "content:\"needle\";")
	frame := ether(wire.EtherTypeIPv4, udpPacket(4000, 9, []byte("xneedlex")))
	const from, to = 42, 50
	for name, c := range map[string]struct {
		s      Search
		alerts int
		taken  uint64
	}{
		"nothing searched":     {Search{}, 1, 0},
		"all searched":         {Search{from, to, []batch.Match{{Rule: 1, End: from + 7}}, 0}, 1, 1},
		"nothing found":        {Search{from, to, nil, 0}, 0, 1},
		"a part searched":      {Search{from, to - 1, nil, 0}, 1, 0},
		"headers searched too": {Search{from - 1, to, nil, 0}, 1, 0},
		"as many other bytes":  {Search{from - 8, to - 8, nil, 0}, 1, 0},
		"more than the frame":  {Search{from + 10, to + 10, nil, 0}, 1, 0},
		"others follow":        {Search{from, to, []batch.Match{{Rule: 0, End: from + 7}}, 0}, 1, 0},
		"with a base":          {Search{from, to, []batch.Match{{Rule: 8, End: from + 7}}, 7}, 1, 1},
		"of rules before":      {Search{from, to, []batch.Match{{Rule: 7, End: from + 7}}, 7}, 0, 1},
		"of rules behind":      {Search{from, to, []batch.Match{{Rule: 2, End: from + 7}}, 0}, 0, 1},
		"behind the end":       {Search{from, to, []batch.Match{{Rule: 1, End: to + 1}}, 0}, 0, 1},
		"begins before":        {Search{from, to, []batch.Match{{Rule: 1, End: from + 5}}, 0}, 0, 1},
	} {
		l.alerts = nil
		taken := l.e.Stats().Taken
		l.now += 1e9
		l.e.Searched(l.now, frame, c.s)
		if got := l.e.Stats().Taken - taken; len(l.alerts) != c.alerts || got != c.taken {
			t.Errorf("%s: %d alerts, want %d; %d taken, want %d", name, len(l.alerts), c.alerts, got, c.taken)
		}
	}
	l.alerts = nil
	l.e.Packet(l.now+1, frame)
	if len(l.alerts) != 1 {
		t.Error("the search of one frame is taken for the next")
	}
}

// TestContentOfTheStreamInARuleOfRequests has a rule whose longest content is of the stream and not of a buffer.
func TestContentOfTheStreamInARuleOfRequests(t *testing.T) {
	l := newLab(t, `alert http any any -> any any (http.method; content:"GET"; pkt_data; content:"X-Header-Of-The-Stream"; sid:1;)
alert http any any -> any any (http.method; content:"P"; pkt_data; content:"X-Header-Of-The-Stream"; sid:2;)`)
	l.tcp(80).open().send(true, "GET / HTTP/1.1\r\nHost: a\r\nX-Header-Of-The-Stream: 1\r\n\r\n", 1400)
	l.want("GET", "1")
}

// TestPaddingIsNotSearchedFor has a rule whose content is one byte again and again.
func TestPaddingIsNotSearchedFor(t *testing.T) {
	l := newLab(t, `alert udp any any -> any 9 (content:"|00 00 00 00|"; content:"|01 02 03|"; sid:1;)
alert udp any any -> any 9 (content:"|00 00 00 00|"; offset:5; sid:2;)
alert udp any any -> any any (content:"AAAAAAAA"; sid:3;)
alert udp any any -> any 9 (content:"|00 00 00 00 00 00|"; fast_pattern; content:"|04 05 06|"; sid:4;)`)
	var searched []string
	for _, p := range l.e.rules.payloads.patterns {
		searched = append(searched, fmt.Sprintf("%q", p.Bytes))
	}
	if got := strings.Join(searched, " "); got != `"\x01\x02\x03" "AAAAAAAA" "\x04\x05\x06"` {
		t.Errorf("searched for: %s", got)
	}
	l.udp(9, "\x01\x02\x03"+strings.Repeat("\x00", 1000))
	l.want("padding", "1 2")
	l.udp(9, "\x04\x05\x06\x00\x00\x00\x00\x00\x00 AAAAAAAAA")
	l.want("runs", "1 2 2 3 4")
}
