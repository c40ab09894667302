package ecn

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/wire"
)

// ackOnItsWay is an ACK of the receiver's.
type ackOnItsWay struct {
	next   uint32 // bytes in order
	field  Field
	option *wire.AccECN
	marked uint32 // the truth when it left
	packed uint32
}

// joined is a Receiver and a Sender, with ACKs that are lost and reordered.
type joined struct {
	t      testing.TB
	r      *rand.Rand
	in     Receiver
	out    Sender
	mss    uint32
	next   uint32
	una    uint32
	marked uint32 // bytes that arrived as CE
	way    []ackOnItsWay
	sum    uint32 // bytes that the sender takes as marked
	acked  uint32 // marked, as the newest ACK that arrived knew it
	packed uint32
	strips bool // the path removes options
	small  bool // segments of all sizes
	most   uint32
}

// data has segments arrive that were merged: at most six of them marked.
func (j *joined) data(mark wire.ECN) {
	packets := 1 + j.r.Uint32N(6)
	n := packets * j.mss
	if j.small {
		n = packets * (1 + j.r.Uint32N(j.mss))
	}
	if mark == wire.CE && j.in.Unreported()+packets > MostUnreported {
		j.ack()
	}
	j.next += n
	if mark == wire.CE {
		j.marked += n
	}
	if j.in.Input(mark, packets, n, true) || j.r.IntN(2) == 0 {
		j.ack()
	}
}

// ack has the receiver send one.
func (j *joined) ack() {
	if u := j.in.Unreported(); u > MostUnreported {
		j.t.Fatalf("%d marks in one ACK", u)
	}
	l := j.in.Layout(12, 0)
	a := ackOnItsWay{j.next, j.in.Field(true), &wire.AccECN{}, j.marked, j.in.CE()}
	if !j.strips {
		a.option = parsed(j.t, j.in.AppendOption(nil, l))
	}
	j.in.Sent(0, l != NoOption)
	j.way = append(j.way, a)
}

// arrive has an ACK arrive, perhaps behind younger ones.
func (j *joined) arrive(at int) {
	a := j.way[at]
	j.way = append(j.way[:at], j.way[at+1:]...)
	delivered := uint32(0)
	if int32(a.next-j.una) > 0 {
		delivered, j.una = a.next-j.una, a.next
		j.acked, j.packed = a.marked, a.packed
	} else if int32(a.next-j.una) < 0 {
		return // package tcp drops them
	}
	f := Feedback{Accurate: &j.out, Later: delivered > 0, Field: a.field, Option: a.option}
	marked, _ := f.Read(delivered, j.mss)
	j.sum += marked
	j.most = max(j.most, (delivered+j.mss-1)/j.mss)
}

func newJoined(t testing.TB, seed uint64) *joined {
	j := &joined{t: t, r: rand.New(rand.NewPCG(seed, 7)), mss: 1000, strips: seed&1 != 0, small: seed&2 != 0}
	j.in.Start()
	j.out.Start(false)
	j.out.tested = true // the first field may be any
	j.out.Sent(1, 1)
	if seed&4 != 0 { // just before the counters wrap
		j.in.Bytes[wire.CE], j.out.Bytes[wire.CE] = 1<<24-5, 1<<24-5
		j.in.Bytes[wire.ECT0], j.out.Bytes[wire.ECT0] = 1<<32-50, 1<<32-50
	}
	return j
}

// run takes the events of a trace.
func (j *joined) run(trace []byte) {
	for _, e := range trace {
		switch mark := wire.ECN(e & 3); {
		case e&0x30 != 0x30:
			j.data(mark)
		case len(j.way) == 0:
		case e&0x40 != 0:
			j.way = j.way[1:] // lost
		default:
			j.arrive(j.r.IntN(min(len(j.way), 2)))
		}
	}
	for len(j.way) > 0 {
		j.arrive(0)
	}
	j.data(wire.ECT0)
	j.ack()
	for len(j.way) > 0 {
		j.arrive(0)
	}
}

// check compares with the truth: where options pass, the bytes are exact whatever ACKs were lost. Where they do not, the
// field has the right low bits, and all marks are found as long as no jump of ACKs had room for more than the field tells
// and ACKs were not thin before.
func (j *joined) check() {
	if !j.strips {
		if j.sum < j.marked {
			j.t.Fatalf("%d bytes were marked, the sender knows of %d", j.marked, j.sum)
		}
		if j.out.Payload(wire.CE) != j.in.Payload(wire.CE) || j.out.Payload(wire.ECT0) != j.in.Payload(wire.ECT0) || j.out.Payload(wire.ECT1) != j.in.Payload(wire.ECT1) {
			j.t.Fatalf("counters %+v, the peer's are %+v", j.out.Counts, j.in.Counts)
		}
	}
	if (j.out.Packets-j.in.Packets)&7 != 0 {
		j.t.Fatalf("fields differ: %d and %d", j.out.Packets, j.in.Packets)
	}
	if j.strips && j.most <= 7 && !j.small && j.out.CE() != j.in.CE() {
		j.t.Fatalf("%d packets were marked, %d are known, though no ACK had room for a wrap", j.in.CE(), j.out.CE())
	}
}

func FuzzJoined(f *testing.F) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		trace := make([]byte, 400)
		for i := range trace {
			trace[i] = byte(r.Uint32())
		}
		f.Add(seed, trace)
	}
	f.Fuzz(func(t *testing.T, seed uint64, trace []byte) {
		j := newJoined(t, seed)
		j.run(trace)
		j.check()
	})
}

// TestOptionsMakeTheCountExact: with every ACK's option the bytes are the truth at each ACK, whatever is lost.
func TestOptionsMakeTheCountExact(t *testing.T) {
	for seed := range uint64(200) {
		j := newJoined(t, seed&^5)
		for range 500 {
			j.data(marks[1+j.r.IntN(3)]) // what is not ECN-capable has no option
			if j.in.pending != 0 {
				j.ack()
			}
			for len(j.way) > 0 {
				if j.r.IntN(3) == 0 {
					j.way = j.way[1:]
					continue
				}
				j.arrive(j.r.IntN(min(2, len(j.way))))
				if have := j.out.Payload(wire.CE); have != j.acked {
					t.Fatalf("seed %d: %d bytes, the truth is %d", seed, have, j.acked)
				}
			}
		}
	}
}

// TestSafetyBound: without options the sender never knows of fewer marks than there were, where full segments are sent, all
// of them marked, and ACKs are lost in one run (RFC 9768 A.2.1).
func TestSafetyBound(t *testing.T) {
	for run := range uint32(60) {
		var in Receiver
		var out Sender
		in.Start()
		out.Start(false)
		out.varies = true // else it would take the path to mark everything (section 3.2.2.3)
		una := uint32(0)
		for i := range uint32(40 + run) {
			in.Input(wire.CE, 1, 1000, true)
			field := in.Field(true)
			in.Sent(0, false)
			if i >= 20 && i < 20+run {
				continue
			}
			f := Feedback{Accurate: &out, Later: true, Field: field, Option: &wire.AccECN{}}
			marked, _ := f.Read((i+1)*1000-una, 1000)
			if marked != (i+1)*1000-una || out.CE() != in.CE() {
				t.Fatalf("%d ACKs lost: %d bytes of %d, %d packets of %d", run, marked, (i+1)*1000-una, out.CE(), in.CE())
			}
			una = (i + 1) * 1000
		}
	}
}

func FuzzOption(f *testing.F) {
	f.Add([]byte("\xac\x0b\x00\x00\x01\x00\x00\x00\x00\x00\x01"), uint32(1000), uint8(3))
	f.Add([]byte("\xae\x02\x01\x01"), uint32(0), uint8(0))
	f.Fuzz(func(t *testing.T, option []byte, delivered uint32, field uint8) {
		var o wire.TCPOptions
		wire.TCP(wire.AppendTCP(nil, &wire.TCPHeader{Options: option[:min(len(option), wire.TCPMaxOptions)]})).ParseOptions(&o)
		var s Sender
		s.Start(field&8 != 0)
		s.Final(Field(field&7), wire.NotECT, &o.AccECN, field&16 != 0)
		before := s.Packets
		for range 3 {
			f := Feedback{Accurate: &s, Later: true, Field: Field(field & 7), Option: &o.AccECN}
			f.Read(delivered&0xffffff, 1000)
		}
		if int32(s.Packets-before) < 0 || o.AccECN.ECT0 > 1<<24-1 || o.AccECN.CE > 1<<24-1 || o.AccECN.ECT1 > 1<<24-1 {
			t.Errorf("%d to %d, %+v", before, s.Packets, o.AccECN)
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	var in Receiver
	var out Sender
	in.Start()
	out.Start(false)
	var b [wire.TCPMaxOptions]byte
	var o wire.TCPOptions
	head := [64]byte{12: 8 << 4}
	if n := testing.AllocsPerRun(100, func() {
		in.Input(wire.CE, 1, 1000, true)
		l := in.Layout(40, 0)
		copy(head[20:32], in.AppendOption(b[:0], l))
		wire.TCP(head[:32]).ParseOptions(&o)
		in.Sent(0, true)
		f := Feedback{Accurate: &out, Later: true, Field: in.Field(true), Option: &o.AccECN}
		f.Read(1000, 1000)
	}); n != 0 || out.CE() != in.CE() {
		t.Errorf("%v allocations; %d of %d", n, out.CE(), in.CE())
	}
}
