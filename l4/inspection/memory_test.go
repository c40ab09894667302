package inspection

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
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
