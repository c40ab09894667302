package tcp

import (
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// wait puts a TIME-WAIT record of client n: next numbers 5000 of ours, 1000 of the peer's.
func (d *muxTest) wait(n int, stamps bool) {
	t := from(n)
	r := d.m.passive.timeWait.add(d.now, &t)
	r.sndNxt, r.rcvNxt, r.tsRecent, r.timestamps, r.window = 5000, 1000, 7000, stamps, 321
}

func stamped(s Segment, v uint32) Segment {
	s.Options = wire.TCPOptions{HasTimestamps: true, TSVal: v}
	return s
}

func TestTimeWaitAnswers(t *testing.T) { // RFC 9293 3.10.7.4, RFC 1337, RFC 6191
	const ack = wire.FlagACK
	for name, c := range map[string]struct {
		stamps bool
		in     Segment
		v      packet.Verdict
		sent   wire.TCPFlags
		stays  bool
	}{
		"FIN again":                   {false, Segment{Seq: 999, Flags: ack | wire.FlagFIN}, packet.Deliver, ack, true},
		"FIN again, stamped":          {true, stamped(Segment{Seq: 999, Flags: ack | wire.FlagFIN}, 7000), packet.Deliver, ack, true},
		"FIN of long ago":             {true, stamped(Segment{Seq: 999, Flags: ack | wire.FlagFIN}, 6999), packet.DropSequence, ack, true},
		"last ACK":                    {false, Segment{Seq: 1000, Ack: 5000, Flags: ack}, packet.Deliver, 0, true},
		"old data":                    {false, Segment{Seq: 900, Len: 100, Flags: ack}, packet.DropSequence, ack, true},
		"new data":                    {false, Segment{Seq: 1000, Len: 1, Flags: ack}, packet.DropSequence, ack, true},
		"ACK beside the window":       {false, Segment{Seq: 1001, Flags: ack}, packet.DropSequence, ack, true},
		"no flag":                     {false, Segment{Seq: 1000}, packet.DropSequence, ack, true},
		"RST":                         {false, Segment{Seq: 1000, Flags: wire.FlagRST}, packet.DropState, 0, true},
		"SYN ACK":                     {false, Segment{Seq: 2000, Flags: wire.FlagSYN | ack}, packet.DropSequence, ack, true},
		"SYN above":                   {false, Segment{Seq: 1001, Flags: wire.FlagSYN}, packet.Deliver, wire.FlagSYN | ack, false},
		"SYN at":                      {false, Segment{Seq: 1000, Flags: wire.FlagSYN}, packet.DropSequence, ack, true},
		"SYN below":                   {false, Segment{Seq: 999, Flags: wire.FlagSYN}, packet.DropSequence, ack, true},
		"SYN stamped, none before":    {false, stamped(Segment{Seq: 5, Flags: wire.FlagSYN}, 1), packet.Deliver, wire.FlagSYN | ack, false},
		"SYN with a later stamp":      {true, stamped(Segment{Seq: 5, Flags: wire.FlagSYN}, 7001), packet.Deliver, wire.FlagSYN | ack, false},
		"SYN with the same, above":    {true, stamped(Segment{Seq: 1001, Flags: wire.FlagSYN}, 7000), packet.Deliver, wire.FlagSYN | ack, false},
		"SYN with the same, below":    {true, stamped(Segment{Seq: 5, Flags: wire.FlagSYN}, 7000), packet.DropSequence, ack, true},
		"SYN with an earlier, above":  {true, stamped(Segment{Seq: 1001, Flags: wire.FlagSYN}, 6999), packet.DropSequence, ack, true},
		"SYN without, stamped before": {true, Segment{Seq: 1001, Flags: wire.FlagSYN}, packet.Deliver, wire.FlagSYN | ack, false},
	} {
		d := newMuxTest(t)
		d.listen(5, nil)
		d.wait(1, c.stamps)
		tuple := from(1)
		d.want(name, d.input(tuple, c.in), c.v)
		if stays := d.m.passive.timeWait.find(&tuple) != noSlot; stays != c.stays {
			t.Errorf("%s: record stays: %v", name, stays)
		}
		if c.sent == 0 {
			d.none()
			continue
		}
		r := d.one()
		switch {
		case r.seg.Flags() != c.sent:
			t.Errorf("%s: answer %v, want %v", name, r.seg.Flags(), c.sent)
		case c.stays && (r.seg.Seq() != 5000 || r.seg.Ack() != 1000 || r.seg.Window() != 321 || r.opts.HasTimestamps != c.stamps):
			t.Errorf("%s: seq %d ack %d window %d %+v", name, r.seg.Seq(), r.seg.Ack(), r.seg.Window(), r.opts)
		case !c.stays && int32(r.seg.Seq()-5000) <= 0:
			t.Errorf("%s: begins at %d, not above 5000", name, r.seg.Seq())
		}
	}
}

func TestTimeWaitDoesNotReopenWithoutListener(t *testing.T) {
	d := newMuxTest(t)
	d.wait(1, false)
	d.want("SYN", d.input(from(1), Segment{Seq: 1001, Flags: wire.FlagSYN}), packet.DropSequence)
	if r := d.one(); r.seg.Flags() != wire.FlagACK {
		t.Errorf("answer %v", r.seg.Flags())
	}
}

func TestTimeWaitRateLimitsACKs(t *testing.T) { // RFC 5961 7
	d := newMuxTest(t)
	d.wait(1, false)
	for range 3000 {
		d.input(from(1), Segment{Seq: 1, Flags: wire.FlagACK})
		d.now = d.now.Add(time.Millisecond)
	}
	if n := len(d.sent); n != 6 {
		t.Errorf("%d ACKs in 3 s, want 6", n)
	}
}

func TestTimeWaitLastsItsTimeAndAFINBeginsItAnew(t *testing.T) {
	d := newMuxTest(t, func(c *Config) { c.TimeWait = 10 * time.Second })
	w := &d.m.passive.timeWait
	for n := range 3 {
		d.wait(n, false)
		d.after(time.Second)
	}
	d.input(from(0), Segment{Seq: 999, Flags: wire.FlagACK | wire.FlagFIN})
	for i, want := range []int{3, 3, 3, 3, 3, 3, 3, 2, 1, 0} { // at 4, 5, ... 13 s: 1 ends at 11, 2 at 12, 0 at 13
		d.after(time.Second)
		if w.used != want {
			t.Errorf("after %d s: %d records, want %d", i+4, w.used, want)
		}
	}
	if w.oldest != 0 || w.newest != 0 {
		t.Errorf("list from %d to %d", w.oldest, w.newest)
	}
}

func TestTimeWaitEvictsTheOldest(t *testing.T) {
	d := newMuxTest(t, func(c *Config) { c.MaxTimeWait = 100 })
	for n := range 1000 {
		d.wait(n, false)
	}
	w := &d.m.passive.timeWait
	if w.used != 100 || len(w.slots) != 100 {
		t.Errorf("%d records, %d slots", w.used, len(w.slots))
	}
	for n, want := range map[int]bool{899: false, 900: true, 999: true} {
		tuple := from(n)
		if got := w.find(&tuple) != noSlot; got != want {
			t.Errorf("record %d is there: %v", n, got)
		}
	}
	d.wait(950, false) // again, not twice
	if w.used != 100 {
		t.Errorf("%d records", w.used)
	}
}

func TestConnectReusesTimeWaitByTimestamps(t *testing.T) { // RFC 6191
	d := newMuxTest(t)
	tuple := from(1)
	for _, c := range []struct {
		stamps bool
		after  time.Duration
		ok     bool
	}{{false, 50 * time.Second, false}, {true, 500 * time.Millisecond, false}, {true, 1100 * time.Millisecond, true}} {
		d.wait(1, c.stamps)
		d.m.passive.timeWait.at(d.m.passive.timeWait.find(&tuple)).sndNxt = d.m.passive.secrets.initialSequence(d.now, &tuple) + 1<<30
		last := d.m.passive.timeWait.at(d.m.passive.timeWait.find(&tuple)).sndNxt
		d.now = d.now.Add(c.after)
		free := d.tupleFree(d.now, &tuple)
		iss, ok := d.m.sequenceFor(d.now, &tuple)
		if ok != c.ok || free != c.ok || ok && int32(iss-last) <= 0 {
			t.Errorf("%+v: %v, free %v, begins %d after the last", c, ok, free, int32(iss-last))
		}
	}
	if d.m.passive.timeWait.used != 0 {
		t.Error("the record is left")
	}
	if iss, ok := d.m.sequenceFor(d.now, &tuple); !ok || iss != d.m.passive.secrets.initialSequence(d.now, &tuple) {
		t.Error("a free tuple")
	}
}

// TestTimeWaitIsEndedByWhatOpens: only a SYN that LISTEN takes ends TIME-WAIT before its time (RFC 6191 2), also one
// with text; one with a FIN is acknowledged as any other segment.
func TestTimeWaitIsEndedByWhatOpens(t *testing.T) {
	for flags, opens := range map[wire.TCPFlags]bool{syn: true, syn | psh: true, syn | fin: false, syn | ackF: false, syn | rst: false} {
		for _, n := range []int{0, 10} {
			p := inState(t, StateFinWait2)
			if _, err := p.e.m.Listen(wire.Addr{}, p.tuple.LocalPort, 4, bare(), nil); err != nil {
				t.Fatal(err)
			}
			p.send(seg{flags: fin | ackF, seq: 1, ack: 2, win: 1000})
			p.after(time.Second)
			p.e.out = nil
			p.send(seg{flags: flags, seq: 1000, ack: 2, win: 1000, n: n})
			if got := p.e.m.passive.timeWait.used == 0; got != opens {
				t.Errorf("%v: TIME-WAIT is over: %v", flags, got)
			}
			switch {
			case opens:
				b := wire.TCP(p.e.out[0].bytes)
				if b.Flags() != syn|ackF || b.Ack()-p.irs != 1001 {
					t.Errorf("%v: answered by %v, ack %d", flags, b.Flags(), b.Ack()-p.irs)
				}
			case flags.Has(rst):
				p.quiet()
			default:
				p.expect(seg{flags: ackF, seq: 2, ack: 2})
			}
		}
	}
}
