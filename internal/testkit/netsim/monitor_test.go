package netsim

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/wire"
)

// stage is two hosts that do nothing of their own, and a monitor: a test plays what they send.
type stage struct {
	net  *Net
	host [2]*Host
	mon  *Monitor
}

func newStage() *stage {
	s := &stage{net: New(3)}
	for i := range s.host {
		s.host[i] = s.net.Host(HostConfig{})
	}
	s.net.Join(s.host[0], s.host[1], MustProfile("delay=1ms"))
	s.mon = s.net.Monitor()
	return s
}

// say has host i send a segment, which arrives unless it is lost.
func (s *stage) say(i int, h wire.TCPHeader, n int, ecn wire.ECN, lost bool) *Packet {
	t := wire.Tuple{Local: s.host[i].Addr, Remote: s.host[1-i].Addr, LocalPort: uint16(10 + i), RemotePort: uint16(11 - i)}
	h.SrcPort, h.DstPort = t.LocalPort, t.RemotePort
	b := AppendIP(nil, &t, wire.TCPLen+(len(h.Options)+3)&^3+n, ecn, 0)
	at := len(b)
	b = append(wire.AppendTCP(b, &h), make([]byte, n)...)
	seg := wire.TCP(b[at:])
	seg.FillChecksum(Pseudo(&t, len(seg)))
	p := &Packet{Bytes: b, From: t.Local, to: t.Remote}
	s.net.report(Sent, p, "")
	if !lost {
		s.net.report(Arrived, p, "")
	}
	s.net.now = s.net.now.Add(time.Millisecond)
	return p
}

const (
	syn = wire.FlagSYN
	ack = wire.FlagACK
	fin = wire.FlagFIN
	rst = wire.FlagRST
)

// line is what host 0 or 1 sends; ISNs are 1000 and 2000.
type line struct {
	host     int
	seq, ack uint32
	flags    wire.TCPFlags
	window   uint16
	options  []byte
	n        int
	ecn      wire.ECN
	lost     bool
	wait     time.Duration // before it
}

func (s *stage) play(lines []line) {
	for _, l := range lines {
		s.net.now = s.net.now.Add(l.wait)
		s.say(l.host, wire.TCPHeader{Seq: l.seq, Ack: l.ack, Flags: l.flags, Window: l.window, Options: l.options}, l.n, l.ecn, l.lost)
	}
}

// opening is a handshake with timestamps, SACK, a shift of 2 for host 1's windows, and ECN.
func opening() []line {
	offer := wire.AppendTimestamps(wire.AppendSACKPermitted(wire.AppendWindowScale(wire.AppendMSS(nil, 600), 2)), 50, 0)
	answer := wire.AppendTimestamps(wire.AppendSACKPermitted(wire.AppendWindowScale(wire.AppendMSS(nil, 500), 2)), 70, 50)
	return []line{
		{host: 0, seq: 1000, flags: syn | wire.FlagECE | wire.FlagCWR, window: 4000, options: offer},
		{host: 1, seq: 2000, ack: 1001, flags: syn | ack | wire.FlagECE, window: 4000, options: answer},
		{host: 0, seq: 1001, ack: 2001, flags: ack, window: 1000, options: stamps(51, 70)},
	}
}

func stamps(val, ecr uint32, blocks ...wire.SACKBlock) []byte {
	b := wire.AppendTimestamps(wire.AppendNOP(nil, 2), val, ecr)
	if len(blocks) > 0 {
		b = wire.AppendSACK(wire.AppendNOP(b, 2), blocks...)
	}
	return b
}

// counters are timestamps and an option of accurate ECN.
func counters(ecr uint32, kind uint8, v ...uint32) []byte {
	b := wire.AppendAccECN(stamps(72, ecr), kind, v)
	return wire.AppendNOP(b, -len(b)&3)
}

// TestTheMonitorLetsOldACKsBeDropped: data that arrives with an ACK older than the largest window needs no
// answer (RFC 5961 5.2), since its receiver may drop it whole.
func TestTheMonitorLetsOldACKsBeDropped(t *testing.T) {
	for acknowledged, faults := range map[uint32]int{6400: 0, 6000: 1} { // windows are 4000
		s := newStage()
		s.play(opening())
		late := s.say(0, wire.TCPHeader{Seq: 1001, Ack: 2001, Flags: ack, Window: 1000, Options: stamps(51, 70)}, 400, 0, true)
		for end := uint32(2401); end <= acknowledged+1; end += 400 {
			s.play([]line{
				{host: 1, seq: end - 400, ack: 1001, flags: ack, window: 1000, options: stamps(72, 51), n: 400},
				{host: 0, seq: 1401, ack: end, flags: ack, window: 1000, options: stamps(51, 72)},
			})
		}
		s.net.report(Arrived, late, "")
		s.play([]line{{host: 1, seq: acknowledged + 1, ack: 1401, flags: ack, window: 1000, options: stamps(72, 51), wait: time.Second}})
		if s.mon.Count != faults {
			t.Errorf("%d acknowledged: %q, want %d faults", acknowledged, s.mon.Faults, faults)
		}
	}
}

// TestTheMonitorSeesEachFault plays conversations of which the last segment breaks one rule, or none.
func TestTheMonitorSeesEachFault(t *testing.T) {
	data := line{host: 0, seq: 1001, ack: 2001, flags: ack, window: 1000, options: stamps(52, 70), n: 400}
	answer := line{host: 1, seq: 2001, ack: 1401, flags: ack, window: 1000, options: stamps(72, 52)}
	with := func(l line, f func(*line)) line { f(&l); return l }
	for name, c := range map[string]struct {
		lines []line
		want  string
	}{
		"nothing":              {nil, ""},
		"data and answer":      {[]line{data, answer}, ""},
		"above the MSS":        {[]line{with(data, func(l *line) { l.n = 489 })}, "above the MSS 500"},
		"a full segment":       {[]line{with(data, func(l *line) { l.n = 488 })}, ""},
		"without timestamps":   {[]line{with(data, func(l *line) { l.options = nil })}, "timestamps: agreed true, there false"},
		"timestamp goes back":  {[]line{with(data, func(l *line) { l.options = stamps(50, 70) })}, "timestamp 50 after 51"},
		"echo of the future":   {[]line{with(data, func(l *line) { l.options = stamps(52, 71) })}, "echoes timestamp 71, the latest is 70"},
		"beyond the window":    {[]line{with(data, func(l *line) { l.seq, l.n = 1001+3700, 400 })}, "100 bytes beyond the window"},
		"up to the window":     {[]line{with(data, func(l *line) { l.seq, l.n = 1001+3600, 400 })}, "a hole in what is sent"},
		"ack of nothing":       {[]line{with(data, func(l *line) { l.ack = 2002 })}, "acknowledges up to 2, received without a hole is up to 1"},
		"ack goes back":        {[]line{data, answer, with(answer, func(l *line) { l.ack = 1301 })}, "acknowledges 301 after 401"},
		"ack of what was lost": {[]line{with(data, func(l *line) { l.lost = true }), answer}, "acknowledges up to 401, received without a hole is up to 1"},
		"window shrinks":       {[]line{data, with(answer, func(l *line) { l.window = 100 })}, "the window shrinks"},
		"ack too late":         {[]line{data, with(answer, func(l *line) { l.wait = 501 * time.Millisecond })}, "acknowledges after 50"},
		"sack of what is there": {[]line{
			with(data, func(l *line) { l.lost = true }), with(data, func(l *line) { l.seq += 400 }),
			with(answer, func(l *line) { l.ack, l.options = 1001, stamps(72, 51, wire.SACKBlock{Left: 1401, Right: 1801}) }),
		}, ""},
		"sack of what is not": {[]line{
			with(data, func(l *line) { l.lost = true }), with(data, func(l *line) { l.seq += 400 }),
			with(answer, func(l *line) { l.ack, l.options = 1001, stamps(72, 51, wire.SACKBlock{Left: 1301, Right: 1801}) }),
		}, "SACK block 0 of what has not arrived"},
		"sack backwards": {[]line{
			data, with(answer, func(l *line) { l.options = stamps(72, 52, wire.SACKBlock{Left: 1401, Right: 1301}) }),
		}, "SACK block 0 of what has not arrived"},
		"dsack": {[]line{
			data, with(answer, func(l *line) { l.options = stamps(72, 52, wire.SACKBlock{Left: 1001, Right: 1401}) }),
		}, ""},
		"again what is acknowledged": {[]line{data, answer, data}, "data that is acknowledged up to 401"},
		"fin and data behind":        {[]line{with(data, func(l *line) { l.flags |= fin }), with(data, func(l *line) { l.seq += 400 })}, "data behind the FIN at 401"},
		"fin moves":                  {[]line{with(data, func(l *line) { l.flags |= fin }), with(data, func(l *line) { l.flags |= fin; l.n = 300 })}, "FIN at 301 and before at 401"},
		"counters": {[]line{
			with(data, func(l *line) { l.ecn = wire.CE }), with(data, func(l *line) { l.seq += 400; l.ecn = wire.ECT0 }),
			with(answer, func(l *line) { l.ack, l.options = 1801, counters(52, wire.TCPOptAccECN0, 401, 400, 1) }),
		}, "CE from a host"}, // the host's fault is that, not the counters
		"more of ECT(0)": {[]line{
			with(data, func(l *line) { l.ecn = wire.ECT0 }), with(answer, func(l *line) { l.options = counters(52, wire.TCPOptAccECN0, 402) }),
		}, "401 bytes of ECT(0), 400 have arrived"},
		"more of ECT(1)": {[]line{
			with(data, func(l *line) { l.ecn = wire.ECT0 }), with(answer, func(l *line) { l.options = counters(52, wire.TCPOptAccECN1, 2) }),
		}, "1 bytes of ECT(1), 0 have arrived"},
		"marks of what was lost": {[]line{
			with(data, func(l *line) { l.ecn, l.lost = wire.ECT0, true }), data, with(answer, func(l *line) { l.options = counters(52, wire.TCPOptAccECN0, 2) }),
		}, "1 bytes of ECT(0), 0 have arrived"},
		"a cleared counter": {[]line{
			with(data, func(l *line) { l.ecn = wire.ECT0 }), with(answer, func(l *line) { l.options = counters(52, wire.TCPOptAccECN0, 0) }),
		}, "bytes of ECT(0), 400 have arrived"},
		"a counter goes back": {[]line{
			with(data, func(l *line) { l.ecn = wire.ECT0 }), with(answer, func(l *line) { l.options = counters(52, wire.TCPOptAccECN0, 401) }),
			with(answer, func(l *line) { l.options = counters(52, wire.TCPOptAccECN0, 400) }),
		}, "ECT(0) goes back from 401 to 400"},
		"marks that did not arrive": {[]line{
			data, with(answer, func(l *line) { l.options = counters(52, wire.TCPOptAccECN0, 1) }),
			with(answer, func(l *line) { l.n, l.flags = 100, ack|wire.FlagECE|wire.FlagCWR }),
		}, "6 marked packets, 0 have arrived"},
		"ect":               {[]line{with(data, func(l *line) { l.ecn = wire.ECT0 })}, ""},
		"ect without data":  {[]line{data, with(answer, func(l *line) { l.ecn = wire.ECT0 })}, "ECT(0) without data"},
		"ect again":         {[]line{with(data, func(l *line) { l.lost = true }), with(data, func(l *line) { l.ecn = wire.ECT0 })}, "ECT(0) on a retransmission"},
		"ce":                {[]line{with(data, func(l *line) { l.ecn = wire.CE })}, "CE from a host"},
		"no ack":            {[]line{with(data, func(l *line) { l.flags = 0 })}, "without ACK"},
		"mss again":         {[]line{with(data, func(l *line) { l.options = append(stamps(52, 70), wire.AppendMSS(nil, 5)...) })}, "options of a SYN"},
		"a reset":           {[]line{{host: 0, seq: 1001, ack: 2001, flags: rst | ack}}, ""},
		"a reset with data": {[]line{{host: 0, seq: 1001, ack: 2001, flags: rst | ack, n: 3}}, "a reset with data"},
		"resets for resets": {[]line{
			{host: 0, seq: 1001, flags: rst},
			{host: 1, seq: 2001, flags: rst},
			{host: 0, seq: 1001, flags: rst},
			{host: 1, seq: 2001, flags: rst},
			{host: 0, seq: 1001, flags: rst},
		}, "3 resets for 1 segments"},
		"from nowhere": {[]line{{host: 0, seq: 1001, ack: 2001, flags: ack, wait: -1}}, "belongs to no connection"},
	} {
		s := newStage()
		if name == "from nowhere" {
			c.lines[0].wait = 0
			s.play(c.lines)
		} else {
			s.play(append(opening(), c.lines...))
		}
		if got := strings.Join(s.mon.Faults, "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestTheMonitorSeesFaultsOfHandshakes plays a SYN and an answer.
func TestTheMonitorSeesFaultsOfHandshakes(t *testing.T) {
	bare := line{host: 0, seq: 1000, flags: syn, window: 4000}
	answer := line{host: 1, seq: 2000, ack: 1001, flags: syn | ack, window: 4000}
	with := func(l line, o []byte) line { l.options = o; return l }
	for want, lines := range map[string][]line{
		"window scale that was not offered":    {bare, with(answer, wire.AppendWindowScale(nil, 3))},
		"timestamps that were not offered":     {bare, with(answer, wire.AppendTimestamps(nil, 3, 0))},
		"SACK that was not offered":            {bare, with(answer, wire.AppendSACKPermitted(nil))},
		"SYN-ACK without a SYN":                {answer},
		"acknowledges what nobody sent":        {{host: 0, seq: 1000, ack: 5, flags: syn | ack, window: 9}},
		"SYN with ECT(0)":                      {{host: 0, seq: 1000, flags: syn, window: 4000, ecn: wire.ECT0}},
		"a SYN with an option of accurate ECN": {{host: 0, seq: 1000, flags: syn, window: 4000, options: wire.AppendNOP(wire.AppendAccECN(nil, wire.TCPOptAccECN0, nil), 2)}},
		"SYN with FIN":                         {{host: 0, seq: 1000, flags: syn | fin, window: 4000}},
	} {
		s := newStage()
		s.play(lines)
		if got := strings.Join(s.mon.Faults, "; "); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRanges(t *testing.T) {
	// A set of numbers as a slice of bools is the slow form.
	rng := pmd.NewRandomSource(5, 0)
	for range 300 {
		var r ranges
		var slow [64]bool
		for range 12 {
			from := rng.Uint64N(pmd.CauseLoss, 60)
			to := from + rng.Uint64N(pmd.CauseLoss, 5)
			r.add(from, to)
			for i := from; i < to; i++ {
				slow[i] = true
			}
		}
		prefix := uint64(0)
		for slow[prefix] {
			prefix++
		}
		if r.prefix() != prefix {
			t.Fatalf("%v: prefix %d, want %d", r, r.prefix(), prefix)
		}
		for from := range uint64(63) {
			all := true
			for to := from + 1; to < 64; to++ {
				all = all && slow[to-1]
				if r.has(from, to) != all {
					t.Fatalf("%v: has(%d, %d) = %v", r, from, to, !all)
				}
			}
		}
	}
}

func TestEventsComeInOrder(t *testing.T) {
	var q events
	rng := pmd.NewRandomSource(9, 0)
	at := map[clock.Time]int{}
	for range 2000 {
		x := clock.Time(rng.Uint64N(pmd.CauseLoss, 300))
		at[x]++
		n := at[x]
		q.push(event{at: x, host: &Host{turns: n}})
	}
	last, n := clock.Time(-1), 0
	for range 2000 {
		e := q.pop()
		if e.at < last || e.at == last && e.host.turns != n+1 {
			t.Fatal("out of order")
		}
		if e.at != last {
			n = 0
		}
		last, n = e.at, n+1
	}
	if q.next() != clock.Never {
		t.Error("something is left")
	}
}
