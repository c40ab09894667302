package ecn

import (
	"testing"

	"github.com/millrace/millrace/wire"
)

var marks = [4]wire.ECN{wire.NotECT, wire.ECT1, wire.ECT0, wire.CE}

// parsed is what an option says after it was a segment's.
func parsed(t testing.TB, option []byte) *wire.AccECN {
	t.Helper()
	var o wire.TCPOptions
	if !wire.TCP(wire.AppendTCP(nil, &wire.TCPHeader{Options: option})).ParseOptions(&o) {
		t.Fatalf("%x is malformed", option)
	}
	return &o.AccECN
}

func TestSection3_1_1Table2(t *testing.T) {
	for mark, want := range map[wire.ECN]Field{wire.NotECT: 0b010, wire.ECT1: 0b011, wire.ECT0: 0b100, wire.CE: 0b110} {
		if got := Encode(mark); got != want {
			t.Errorf("%v is %03b, want %03b", mark, got, want)
		}
		if got, ok := want.Mark(); got != mark || !ok {
			t.Errorf("%03b is %v", want, got)
		}
		flags, ae := want.Flags()
		if FieldOf(flags, ae) != want || flags&^(wire.FlagCWR|wire.FlagECE) != 0 {
			t.Errorf("%03b is %v %v", want, flags, ae)
		}
	}
	for _, f := range []Field{0, 1, 5, 7} {
		if _, ok := f.Mark(); ok {
			t.Errorf("%03b reports a mark", f)
		}
	}
}

func TestSection3_1_2Agreement(t *testing.T) {
	for f, want := range [8][3]Mode{
		{None, None, None},
		{None, Classic, Classic},
		{None, None, Accurate},
		{None, None, Accurate},
		{None, None, Accurate},
		{None, Classic, Accurate},
		{None, None, Accurate},
		{None, None, None},
	} {
		for asked, mode := range want {
			if got := Field(f).Agreed(Mode(asked)); got != mode {
				t.Errorf("SYN-ACK %03b, asked %d: %d, want %d", f, asked, got, mode)
			}
		}
	}
}

func TestSection3_1_3ForwardCompatibility(t *testing.T) {
	for f, want := range [8]Mode{None, Accurate, Accurate, Classic, Accurate, Accurate, Accurate, Accurate} {
		if got := Field(f).Asked(); got != want {
			t.Errorf("SYN %03b asks for %d, want %d", f, got, want)
		}
	}
	for _, mark := range marks {
		if f := SynAck(Accurate, mark, 0); f == 0b101 {
			t.Error("(1,0,1) was sent")
		}
	}
}

func TestSection3_1_5Conflicts(t *testing.T) {
	for a := range Mode(3) {
		for b := range Mode(3) {
			want := a == Classic && b == Accurate || a == Accurate && b == Classic
			if Conflict(a, b) != want {
				t.Errorf("%d and %d: %v", a, b, !want)
			}
		}
	}
}

func TestSection3_2_1InitialCounters(t *testing.T) {
	var r Receiver
	r.Start()
	if r.Packets != 5 || r.Bytes != [4]uint32{wire.ECT0: 1, wire.ECT1: 1} || r.CE() != 0 || r.Payload(wire.ECT0) != 0 {
		t.Errorf("%+v", r.Counts)
	}
	if got := string(AppendInitial(nil, 40)); got != "\xac\x0b\x00\x00\x01\x00\x00\x00\x00\x00\x01" {
		t.Errorf("%x", got)
	}
}

func TestSection3_2_2_1EncodingOfTheLastACK(t *testing.T) {
	for _, mark := range marks {
		var r Receiver
		r.Start()
		r.SynAck(mark, true)
		r.Input(mark, 1, 0, false)
		cep := Field(5)
		if mark == wire.CE {
			cep = 6
		}
		if r.Field(true) != Encode(mark) || r.Field(false) != cep || !r.HandshakeDue() {
			t.Errorf("%v: %03b, %03b", mark, r.Field(true), r.Field(false))
		}
		r.Sent(0, true)
		if r.Field(true) != cep {
			t.Errorf("%v: then %03b", mark, r.Field(true))
		}
		for range 3 {
			r.SynAck(wire.CE, false)
			if r.Field(true) != 0b110 || r.Packets != 6 {
				t.Errorf("%v: a marked SYN-ACK again: %03b, %d", mark, r.Field(true), r.Packets)
			}
			r.Sent(0, false)
		}
	}
}

func TestSection3_2_2_1Table4(t *testing.T) {
	for f, want := range []struct {
		cep                     uint32
		noECT, disabled, marked bool
	}{{5, true, true, false}, {cep: 5}, {cep: 5}, {cep: 5, noECT: true}, {cep: 5, noECT: true}, {cep: 5}, {6, true, false, true}, {cep: 5}} {
		var s Sender
		s.Start(true)
		marked, read := s.Final(Field(f), wire.NotECT, &wire.AccECN{}, true)
		if !read || s.Packets != want.cep || s.noECT != want.noECT || s.disabled != want.disabled || marked != want.marked {
			t.Errorf("%03b: %+v, %v %v", f, s, marked, read)
		}
		if _, again := s.Final(Field(f), wire.NotECT, &wire.AccECN{}, true); again {
			t.Error("read twice")
		}
		s.Start(true)
		if _, read := s.Final(Field(f), wire.NotECT, &wire.AccECN{}, false); read || s.NotECT() {
			t.Error("the field of data was taken for the handshake's")
		}
	}
}

func TestSection3_2_2_2SynAckDoesNotCount(t *testing.T) {
	var s Sender
	s.Start(false)
	if !s.SynAck(0b110, wire.NotECT, &wire.AccECN{}) || s.Packets != 5 || !s.NotECT() {
		t.Errorf("%+v", s)
	}
}

func TestSection3_2_2_3InvalidTransitions(t *testing.T) {
	valid := map[[2]wire.ECN]bool{{wire.ECT0, wire.CE}: true, {wire.ECT1, wire.CE}: true}
	for _, a := range marks {
		for _, b := range marks {
			if want := a != b && !valid[[2]wire.ECN{a, b}]; Mangled(a, b) != want {
				t.Errorf("%v to %v: %v", a, b, !want)
			}
		}
	}
}

func TestSection3_2_2_4ZeroedField(t *testing.T) {
	for f := range Field(8) {
		var s Sender
		s.Start(false)
		s.read(f, &wire.AccECN{}, 1000, 1000)
		if zero := f == 0; s.NotECT() != zero || s.disabled != zero {
			t.Errorf("%03b first: %v", f, s.NotECT())
		}
	}
	var s Sender
	s.Start(false)
	if s.read(0, &wire.AccECN{}, 3000, 1000); s.NotECT() {
		t.Error("three marks make it 0")
	}
	s.Start(false)
	s.read(5, &wire.AccECN{}, 1000, 1000)
	marked, congested := s.read(0, &wire.AccECN{}, 3000, 1000)
	if s.NotECT() || !congested || marked != 3000 {
		t.Error("a later 0 is a counter")
	}
}

func TestSection3_2_2_5_1WhenToAcknowledge(t *testing.T) {
	var r Receiver
	r.Start()
	ce := func(n uint32, unacked, want bool) {
		t.Helper()
		if got := r.Input(wire.CE, 1, n, unacked); got != want {
			t.Errorf("due %v with %d unreported", got, r.Unreported())
		}
	}
	ce(100, true, true) // the first after one that was not marked
	r.Sent(0, true)
	ce(100, true, false)
	ce(100, true, true)
	r.Sent(0, true)
	ce(0, false, false)
	ce(0, false, false)
	ce(0, false, true)
	r.Sent(0, false)
	r.Input(wire.NotECT, 1, 0, false) // compared is any packet
	ce(0, false, false)               // but only data is acknowledged for it
	r.Input(wire.ECT0, 1, 100, true)
	ce(100, true, true)
}

func TestSection3_2_2_5_2SafetyWithoutTheOption(t *testing.T) {
	for _, c := range []struct{ acked, least, want uint32 }{{9, 2, 2}, {10, 2, 10}, {1, 5, 5}, {8, 0, 8}, {7, 0, 0}, {30, 3, 27}, {0, 0, 0}} {
		var s Sender
		s.Start(false)
		s.read(5, &wire.AccECN{}, 1, 1000)
		marked, congested := s.read(Field((5+c.least)&7), &wire.AccECN{}, c.acked*1000, 1000)
		if s.CE() != c.want || marked != min(c.want, c.acked)*1000 || congested != (c.want > 0) {
			t.Errorf("%+v: %d packets, %d bytes", c, s.CE(), marked)
		}
	}
	for least := range uint32(8) { // the first ACK shows no jump
		var s Sender
		s.Start(false)
		if s.read(Field((5+least)&7), &wire.AccECN{}, 10_000, 1000); least != 3 && s.CE() != least {
			t.Errorf("a first ACK of ten: %d, want %d", s.CE(), least)
		}
	}
	var s Sender
	s.Start(false)
	for range 50 {
		s.read(5, &wire.AccECN{}, 20_000, 1000)
	}
	n := s.CE()
	s.read(7, &wire.AccECN{}, 20_000, 1000)
	if s.CE() != n+2 {
		t.Errorf("ACKs of 20 segments are the rule: %d, then %d", n, s.CE())
	}
}

func TestSection3_2_3Figure4(t *testing.T) {
	all := bits(1<<wire.ECT0 | 1<<wire.ECT1 | 1<<wire.CE)
	for set, want := range map[bits]string{
		1 << wire.ECT0:              "\xac\x05\x00\x00\x0a",
		1 << wire.ECT1:              "\xae\x05\x00\x00\x0b",
		1 << wire.CE:                "\xac\x08\x00\x00\x0a\x00\x00\x0c",
		1<<wire.ECT0 | 1<<wire.CE:   "\xac\x08\x00\x00\x0a\x00\x00\x0c",
		1<<wire.ECT1 | 1<<wire.CE:   "\xae\x08\x00\x00\x0b\x00\x00\x0c",
		1<<wire.ECT0 | 1<<wire.ECT1: "\xac\x0b\x00\x00\x0a\x00\x00\x0c\x00\x00\x0b",
		all:                         "\xac\x0b\x00\x00\x0a\x00\x00\x0c\x00\x00\x0b",
		1<<wire.ECT0 | 1<<wire.CE | 1<<wire.NotECT: "\xac\x08\x00\x00\x0a\x00\x00\x0c",
	} {
		r := Receiver{Counts: Counts{Bytes: [4]uint32{wire.ECT0: 0x7000_000a, wire.ECT1: 0x1100_000b, wire.CE: 12}}}
		l := layoutOf(set)
		if got := string(r.AppendOption(nil, l)); got != want || l.Len() != len(want) {
			t.Errorf("%04b: %x, want %x", set, got, want)
		}
	}
}

func TestSection3_2_3Table5(t *testing.T) {
	for kind, order := range map[uint8][3]wire.ECN{wire.TCPOptAccECN0: {wire.ECT0, wire.CE, wire.ECT1}, wire.TCPOptAccECN1: {wire.ECT1, wire.CE, wire.ECT0}} {
		for n := range 31 {
			b := []byte{kind, byte(2 + n)}
			for i := range n {
				b = append(b, byte(i+1))
			}
			o := parsed(t, b)
			if !o.Present() || o.Has(wire.NotECT) {
				t.Errorf("%d bytes: %+v", n, o)
			}
			for i, mark := range order {
				value := map[wire.ECN]uint32{wire.ECT0: o.ECT0, wire.ECT1: o.ECT1, wire.CE: o.CE}[mark]
				want := uint32(0)
				if n >= 3*(i+1) {
					want = 0x010203 + uint32(i)*0x030303
				}
				if o.Has(mark) != (want != 0) || value != want {
					t.Errorf("kind %d, %d bytes, %v: %x", kind, n, mark, value)
				}
			}
		}
	}
}

func TestSection3_2_3_1TwentyFourBits(t *testing.T) {
	s := Sender{Counts: Counts{Bytes: [4]uint32{wire.CE: 33_554_433}}} // the example of A.1
	if d := advance(&s.Bytes[wire.CE], 1461); d != 1460 || s.Bytes[wire.CE] != 33_555_893 {
		t.Errorf("%d, %d", d, s.Bytes[wire.CE])
	}
	if d := advance(&s.Bytes[wire.CE], 1460); d != 1<<24-1 {
		t.Errorf("one cycle less a byte is %d", d)
	}
}

func TestSection3_2_3_2_1FirstSegmentsHaveTheOption(t *testing.T) {
	var r Receiver
	r.Start()
	r.SynAck(wire.NotECT, true)
	if l := r.Layout(40, 0); l.Len() != 11 {
		t.Errorf("the ACK has %d bytes", l.Len())
	}
	r.Sent(0, true)
	if l := r.Layout(40, 0); l != NoOption {
		t.Error("so has the second")
	}
	if l := r.Layout(40, 5); l.Len() != 11 || !r.TestsData() {
		t.Errorf("the first data has %d bytes", l.Len())
	}
	r.Sent(5, true)
	if l := r.Layout(40, 5); l != NoOption || r.TestsData() {
		t.Error("so has the second")
	}
	r.SynAck(wire.NotECT, false)
	if l := r.Layout(40, 0); l != NoOption {
		t.Error("and the ACK of a second SYN-ACK, though the first may have been dropped for it")
	}
}

func TestSection3_2_3_2_2LossOfTheOption(t *testing.T) {
	for unanswered, want := range []Field{0b010, 0b010, 0, 0} {
		if got := SynAck(Accurate, wire.NotECT, unanswered); got != want {
			t.Errorf("after %d: %03b", unanswered, got)
		}
	}
	for _, c := range []struct {
		option   bool
		progress int
		silent   bool
	}{{true, 0, true}, {true, 63, true}, {true, 64, false}, {false, 0, false}} {
		var r Receiver
		r.Start()
		r.Input(wire.ECT0, 1, 10, true)
		r.Sent(0, c.option)
		r.Repeated()
		if r.Silent() {
			t.Error("after one")
		}
		for range c.progress {
			r.Progressed()
		}
		r.Repeated()
		r.Input(wire.ECT0, 1, 10, true)
		if r.Silent() != c.silent || (r.Layout(40, 0) == NoOption) != c.silent {
			t.Errorf("%+v: %v", c, r.Silent())
		}
	}
}

func TestSection3_2_3_2_4ZeroedOption(t *testing.T) {
	for _, c := range []struct {
		option string
		zeroed bool
	}{
		{"\xac\x05\x00\x00\x00", true},
		{"\xac\x05\x00\x00\x01", false},
		{"\xac\x02", false},
		{"\xac\x0b\x00\x00\x01\x00\x00\x00\x00\x00\x00", true},
		{"\xae\x08\x00\x00\x00\x00\x00\x00", true},
		{"\xae\x05\x00\x00\x09", false},
	} {
		var s, client Sender
		s.Start(true)
		s.Final(2, wire.NotECT, parsed(t, []byte(c.option)), true)
		client.SynAck(2, wire.NotECT, parsed(t, []byte(c.option)))
		if s.zeroed != c.zeroed || client.zeroed != c.zeroed {
			t.Errorf("%x: %v %v", c.option, s.zeroed, client.zeroed)
		}
	}
	var s Sender
	s.Start(false)
	s.SynAck(2, wire.NotECT, parsed(t, []byte("\xac\x05\x00\x00\x00")))
	s.read(5, &wire.AccECN{}, 1, 1000)
	s.read(5, parsed(t, []byte("\xac\x08\x00\x30\x00\x00\x00\x00")), 8000, 1000)
	if s.CE() != 8 || s.Payload(wire.ECT0) != 0 {
		t.Errorf("read nevertheless: %+v", s.Counts)
	}
}

func TestSection3_2_3_2_5FieldsContradict(t *testing.T) {
	more := func(acked uint32, f Field, before ...Field) bool {
		var s Sender
		s.Start(false)
		s.Sent(100_000, 1000)
		s.read(5, parsed(t, []byte("\xac\x08\x00\x00\x01\x00\x00\x00")), 1, 1000)
		for _, x := range before {
			s.read(x, &wire.AccECN{}, 1000, 1000)
		}
		s.read(f, parsed(t, []byte("\xac\x08\x00\x00\x01\x00\x03\xe8")), acked*1000, 1000)
		return s.NotECT()
	}
	if !more(2, 5) || !more(6, 5) {
		t.Error("bytes without a packet went unnoticed")
	}
	if more(2, 6) || more(8, 5) || more(2, 6, 6) {
		t.Error("what can be right was not believed")
	}
}

func TestSection3_2_3_3WhichCounters(t *testing.T) {
	var r Receiver
	r.Start()
	length := func(room, want int) {
		t.Helper()
		if l := r.Layout(room, 0); l.Len() != want {
			t.Errorf("%d bytes of %d, want %d", l.Len(), room, want)
		}
	}
	r.Input(wire.NotECT, 1, 100, true)
	length(40, 0)
	r.Input(wire.ECT0, 1, 100, true)
	length(40, 5)
	length(4, 0) // what has changed goes along or nothing does
	r.Sent(0, true)
	length(40, 0)
	r.Input(wire.ECT1, 1, 100, true)
	length(40, 11)
	length(8, 5) // only what has changed since the last option
	r.Sent(0, true)
	r.Input(wire.CE, 1, 100, true)
	length(8, 8)
	length(4, 0)
	r.Sent(0, false) // it had no room
	r.Input(wire.ECT1, 1, 100, true)
	length(8, 8) // CE is still owed
	r.Input(wire.ECT0, 1, 100, true)
	length(8, 0)
	r.Sent(0, true)
	r.Input(wire.CE, 1, 0, true) // without payload no counter changes
	length(40, 0)
}

func TestClassicEchoMarksAllThatIsDelivered(t *testing.T) {
	f := Feedback{Echo: true}
	if marked, congested := f.Read(300, 1000); marked != 300 || !congested {
		t.Error(marked, congested)
	}
	f = Feedback{}
	if marked, congested := f.Read(300, 1000); marked != 0 || congested {
		t.Error(marked, congested)
	}
}

func TestOvertakenACKsAreNotRead(t *testing.T) {
	for _, c := range []struct {
		later, sack bool
		delivered   uint32
		read        bool
	}{{true, false, 0, true}, {false, true, 1, true}, {false, true, 0, false}, {false, false, 1000, false}} {
		var s Sender
		s.Start(false)
		f := Feedback{Accurate: &s, Later: c.later, SACK: c.sack, Field: 6, Option: &wire.AccECN{}}
		if _, congested := f.Read(c.delivered, 1000); congested != c.read {
			t.Errorf("%+v: %v", c, congested)
		}
	}
}

// One byte that came unmarked shows that the path does not mark everything.
func TestSection3_2_2_3ContinuousCEButOneByte(t *testing.T) {
	var s Sender
	s.Start(false)
	s.Sent(1000, 1000)
	field, bytes := Field(firstPackets), uint32(0)
	for ack := range 40 {
		field = (field + 1) & fieldMask
		if bytes += 1000; ack == 2 {
			bytes--
		}
		o := parsed(t, (&Receiver{Counts: Counts{Bytes: [4]uint32{wire.ECT0: firstECT + 1, wire.CE: bytes}}}).AppendOption(nil, layoutOf(1<<wire.ECT0|1<<wire.CE)))
		f := Feedback{Accurate: &s, Later: true, Field: field, Option: o}
		if marked, congested := f.Read(1000, 1000); !congested || marked < 999 {
			t.Fatalf("ACK %d: %d bytes, congested %v", ack, marked, congested)
		}
	}
	if s.NotECT() {
		t.Error("not ECN-capable any more")
	}
}

// Only where all of the first round trips is marked the path is taken to mark everything.
func TestSection3_2_2_3ContinuousCE(t *testing.T) {
	for _, c := range []struct {
		what     string
		unmarked int // ACK whose packets arrived unmarked; 0 is none
		flight   uint32
		want     int // ACK from which on reports do not count; 0 is never
	}{
		{"a packet in each round trip", 0, 0, 5},
		{"three packets in each round trip", 0, 2000, 9},
		{"not the first", 1, 0, 0},
		{"not the fourth", 4, 0, 0},
		{"not the one after the test", 6, 0, 5},
	} {
		var s Sender
		s.Start(false)
		s.Sent(1000, 1000)
		field, from := Field(firstPackets), 0
		for ack := 1; ack <= 40; ack++ {
			if ack != c.unmarked {
				field = (field + 1) & fieldMask
			}
			f := Feedback{Accurate: &s, Later: true, Flight: c.flight, Field: field, Option: &wire.AccECN{}}
			marked, congested := f.Read(1000, 1000)
			switch {
			case (marked > 0) != congested:
				t.Fatalf("%s: ACK %d: %d bytes, congested %v", c.what, ack, marked, congested)
			case from == 0 && !congested && ack != c.unmarked:
				from = ack
			case from > 0 && congested:
				t.Fatalf("%s: ACK %d counts again", c.what, ack)
			}
		}
		if from != c.want || s.NotECT() != (c.want > 0) {
			t.Errorf("%s: ignored from ACK %d on, not ECN-capable %v; want %d", c.what, from, s.NotECT(), c.want)
		}
		if want := uint32(40 - min(c.unmarked, 1)); s.CE() != want {
			t.Errorf("%s: %d marks counted, want %d", c.what, s.CE(), want)
		}
	}
}
