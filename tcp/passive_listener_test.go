package tcp

import (
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// muxTest is a Mux with an Output that keeps what is sent, for tests of what stands before connections.
type muxTest struct {
	testing.TB
	m    *Mux
	now  clock.Time
	sent []reply
	full bool // the Output has no room
	mtu  int  // of the path
	link int  // MTU of the interface, where it is larger
}

// reply is a segment that was sent.
type reply struct {
	tuple wire.Tuple
	seg   wire.TCP
	opts  wire.TCPOptions
	ecn   wire.ECN
	ttl   uint8
}

func (d *muxTest) Send(now clock.Time, o *Outgoing) bool {
	if d.full {
		return false
	}
	b := wire.AppendTCP(nil, &o.Header)
	b = append(append(b, o.Payload[0]...), o.Payload[1]...)
	r := reply{tuple: *o.Tuple, seg: b, ecn: o.ECN, ttl: o.TTL}
	r.seg.SetAE(o.AE)
	if o.Sign != nil {
		o.Sign(r.seg)
	}
	if !r.seg.ParseOptions(&r.opts) {
		d.Errorf("malformed options %x", r.seg.Options())
	}
	if r.seg.SrcPort() != o.Tuple.LocalPort || r.seg.DstPort() != o.Tuple.RemotePort {
		d.Errorf("ports %d to %d, tuple %v", r.seg.SrcPort(), r.seg.DstPort(), *o.Tuple)
	}
	d.sent = append(d.sent, r)
	return true
}

func (d *muxTest) MTU(*wire.Tuple) int     { return d.mtu }
func (d *muxTest) LinkMTU(*wire.Tuple) int { return max(d.mtu, d.link) }
func (d *muxTest) Offload() int            { return 1 << 16 }

func newMuxTest(t testing.TB, change ...func(*Config)) *muxTest {
	d := &muxTest{TB: t, now: clock.Time(100 * time.Hour), mtu: 1500}
	cfg := Config{Output: d, Now: d.now, Secret: [32]byte{1, 2, 3}, Seed: 1}
	for _, f := range change {
		f(&cfg)
	}
	d.m = NewMux(cfg)
	return d
}

func (d *muxTest) listen(backlog int, o *Options) *Listener {
	d.Helper()
	l, err := d.m.Listen(wire.Addr{}, 80, backlog, o, nil)
	if err != nil {
		d.Fatal(err)
	}
	return l
}

// after lets time pass, with Polls when the Mux asks for them.
func (d *muxTest) after(t time.Duration) {
	end := d.now.Add(t)
	for {
		next := d.m.Poll(d.now)
		if next <= d.now {
			next = d.now.Add(time.Microsecond)
		}
		if next > end {
			break
		}
		d.now = next
	}
	d.now = end
	d.m.Poll(d.now)
}

// one takes the only segment that was sent since.
func (d *muxTest) one() reply {
	d.Helper()
	if len(d.sent) != 1 {
		d.Fatalf("%d segments were sent, want 1", len(d.sent))
	}
	r := d.sent[0]
	d.sent = nil
	return r
}

func (d *muxTest) none() {
	d.Helper()
	if len(d.sent) != 0 {
		d.Errorf("sent: %v seq %d ack %d", d.sent[0].seg.Flags(), d.sent[0].seg.Seq(), d.sent[0].seg.Ack())
		d.sent = nil
	}
}

// from is the tuple of client n, at our port 80.
func from(n int) wire.Tuple {
	return wire.Tuple{
		Local: wire.AddrFrom4([4]byte{192, 0, 2, 1}), Remote: wire.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}),
		LocalPort: 80, RemotePort: 20000 + uint16(n>>16),
	}
}

// input gives the Mux a segment of len(payload) bytes.
func (d *muxTest) input(t wire.Tuple, s Segment, payload ...string) packet.Verdict {
	s.Packets = 1
	for _, p := range payload {
		s.Payload = append(s.Payload, []byte(p))
		s.Len += uint32(len(p))
	}
	return d.m.Input(d.now, &t, &s)
}

func (d *muxTest) want(what string, got, want packet.Verdict) {
	d.Helper()
	if got != want {
		d.Errorf("%s: %v, want %v", what, got, want)
	}
}

// linuxSYN is the SYN of a usual client.
func linuxSYN(seq uint32) Segment {
	return Segment{Seq: seq, Flags: wire.FlagSYN, Window: 64240, Options: wire.TCPOptions{
		MSS: 1460, SACKPermitted: true, HasTimestamps: true, TSVal: 7000, HasWindowScale: true, WindowScale: 7,
	}}
}

// ackOf is the ACK that completes the handshake.
func ackOf(r reply) Segment {
	s := Segment{Seq: r.seg.Ack(), Ack: r.seg.Seq() + 1, Flags: wire.FlagACK, Window: 500}
	if r.opts.HasTimestamps {
		s.Options = wire.TCPOptions{HasTimestamps: true, TSVal: r.opts.TSEcr + 1, TSEcr: r.opts.TSVal}
	}
	return s
}

func TestHalfOpenIs64BytesWithoutPointers(t *testing.T) {
	if n := unsafe.Sizeof(halfOpen{}); n > 64 {
		t.Errorf("%d bytes", n)
	}
	var a, b any = halfOpen{}, halfOpen{}
	if a != b {
		t.Error("not comparable")
	}
	if n := unsafe.Sizeof(timeWaitRecord{}); n > 80 {
		t.Errorf("TIME-WAIT: %d bytes", n)
	}
}

func TestSYNIsAnswered(t *testing.T) { // RFC 9293 3.10.7.2
	d := newMuxTest(t)
	d.listen(5, nil)
	d.want("SYN", d.input(from(1), linuxSYN(1000)), packet.Deliver)
	r := d.one()
	if r.seg.Flags() != wire.FlagSYN|wire.FlagACK || r.seg.Ack() != 1001 || r.tuple != from(1) {
		t.Errorf("%v ack %d to %v", r.seg.Flags(), r.seg.Ack(), r.tuple)
	}
	if r.opts.MSS != 1460 || !r.opts.SACKPermitted || !r.opts.HasWindowScale || !r.opts.HasTimestamps || r.opts.TSEcr != 7000 {
		t.Errorf("options %+v", r.opts)
	}
	if got := d.m.passive.secrets.timestampOffset(&r.tuple) + timestamp(d.now); r.opts.TSVal != got {
		t.Errorf("TSVal %d, want %d", r.opts.TSVal, got)
	}
}

func TestSYNAnswersOnlyWhatWasOffered(t *testing.T) { // RFC 7323 1.3, RFC 2018 2
	offer := linuxSYN(1).Options
	for name, c := range map[string]struct {
		syn  wire.TCPOptions
		o    Options
		want wire.TCPOptions
	}{
		"nothing":       {wire.TCPOptions{}, Options{}, wire.TCPOptions{MSS: 1460}},
		"scale alone":   {wire.TCPOptions{HasWindowScale: true}, Options{}, wire.TCPOptions{MSS: 1460, HasWindowScale: true}},
		"sack alone":    {wire.TCPOptions{SACKPermitted: true}, Options{}, wire.TCPOptions{MSS: 1460, SACKPermitted: true}},
		"no timestamps": {offer, Options{NoTimestamps: true}, wire.TCPOptions{MSS: 1460, HasWindowScale: true, SACKPermitted: true}},
		"no sack":       {offer, Options{NoSACK: true}, wire.TCPOptions{MSS: 1460, HasWindowScale: true, HasTimestamps: true}},
		"no scaling":    {offer, Options{NoScaling: true}, wire.TCPOptions{MSS: 1460, HasTimestamps: true, SACKPermitted: true}},
		"mss":           {wire.TCPOptions{}, Options{MSS: 1000}, wire.TCPOptions{MSS: 1000}},
	} {
		d := newMuxTest(t)
		d.listen(5, &c.o)
		s := linuxSYN(1)
		s.Options = c.syn
		d.input(from(1), s)
		got := d.one().opts
		got.TSVal, got.TSEcr, got.WindowScale = 0, 0, 0
		if got.MSS != c.want.MSS || got.HasWindowScale != c.want.HasWindowScale || got.HasTimestamps != c.want.HasTimestamps || got.SACKPermitted != c.want.SACKPermitted {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestMSSFollowsFamilyAndMTU(t *testing.T) { // RFC 9293 3.7.1
	for mtu, want := range map[int][2]uint16{1500: {1460, 1440}, 9000: {8960, 8940}, 576: {536, 516}} {
		d := newMuxTest(t)
		d.mtu = mtu
		d.listen(5, nil)
		for i, tuple := range []wire.Tuple{from(1), six(1)} {
			d.input(tuple, linuxSYN(1))
			if got := d.one().opts.MSS; got != want[i] {
				t.Errorf("MTU %d: MSS %d, want %d", mtu, got, want[i])
			}
		}
	}
}

func six(n byte) wire.Tuple {
	return wire.Tuple{
		Local: wire.Addr{0x20, 1, 0xd, 0xb8, 15: 1}, Remote: wire.Addr{0x20, 1, 0xd, 0xb8, 14: 1, 15: n},
		LocalPort: 80, RemotePort: 30000,
	}
}

func TestListenRefuses(t *testing.T) {
	d := newMuxTest(t)
	d.listen(5, nil)
	loop := wire.Tuple{Local: from(1).Local, Remote: from(1).Local, LocalPort: 80, RemotePort: 80}
	group := from(1)
	group.Local = wire.AddrFrom4([4]byte{239, 1, 2, 3})
	zero := from(1)
	zero.RemotePort = 0
	for name, c := range map[string]struct {
		t wire.Tuple
		f wire.TCPFlags
	}{
		"RST": {from(1), wire.FlagRST}, "SYN RST": {from(1), wire.FlagSYN | wire.FlagRST},
		"SYN FIN": {from(1), wire.FlagSYN | wire.FlagFIN}, "none": {from(1), 0}, "FIN": {from(1), wire.FlagFIN},
		"to a group": {group, wire.FlagSYN}, "from itself": {loop, wire.FlagSYN}, "port 0": {zero, wire.FlagSYN},
	} {
		d.want(name, d.input(c.t, Segment{Seq: 1, Flags: c.f}), packet.DropState)
		d.none()
	}
	if d.m.passive.synQueue.used != 0 {
		t.Error("something is half-open")
	}
}

func TestResetHasAcceptableNumbers(t *testing.T) { // RFC 9293 3.10.7.1
	d := newMuxTest(t)
	for name, c := range map[string]struct {
		in       Segment
		seq, ack uint32
		flags    wire.TCPFlags
	}{
		"SYN":          {Segment{Seq: 100, Flags: wire.FlagSYN}, 0, 101, wire.FlagRST | wire.FlagACK},
		"SYN and data": {Segment{Seq: 100, Flags: wire.FlagSYN, Len: 5, Payload: [][]byte{[]byte("12345")}}, 0, 106, wire.FlagRST | wire.FlagACK},
		"FIN":          {Segment{Seq: 0xffffffff, Flags: wire.FlagFIN}, 0, 0, wire.FlagRST | wire.FlagACK},
		"ACK":          {Segment{Seq: 100, Ack: 777, Flags: wire.FlagACK}, 777, 0, wire.FlagRST},
		"SYN ACK":      {Segment{Seq: 100, Ack: 777, Flags: wire.FlagSYN | wire.FlagACK}, 777, 0, wire.FlagRST},
	} {
		d.want(name, d.input(from(1), c.in), packet.DropNoSocket)
		r := d.one()
		if r.seg.Seq() != c.seq || r.seg.Ack() != c.ack || r.seg.Flags() != c.flags {
			t.Errorf("%s: seq %d ack %d %v", name, r.seg.Seq(), r.seg.Ack(), r.seg.Flags())
		}
	}
	d.want("RST", d.input(from(1), Segment{Flags: wire.FlagRST | wire.FlagACK}), packet.DropNoSocket)
	d.none()
}

func TestResetsAreLimited(t *testing.T) {
	d := newMuxTest(t)
	for range 5000 {
		d.input(from(1), Segment{Seq: 1, Flags: wire.FlagSYN})
	}
	if n := len(d.sent); n != replyBurst {
		t.Errorf("%d at once, want %d", n, replyBurst)
	}
	d.sent = nil
	for range 1000 {
		d.now = d.now.Add(100 * time.Microsecond)
		d.input(from(1), Segment{Seq: 1, Flags: wire.FlagSYN})
	}
	if n := len(d.sent); n != 100 {
		t.Errorf("%d in 100 ms, want 100", n)
	}
}

func TestSynAckIsSentAgain(t *testing.T) { // RFC 9293 3.8.3, RFC 6298 5.5
	d := newMuxTest(t)
	l := d.listen(5, nil)
	d.input(from(1), linuxSYN(1000))
	first := d.one()
	var at []time.Duration
	for i := range 700 {
		d.after(100 * time.Millisecond)
		for _, r := range d.sent {
			at = append(at, time.Duration(i+1)*100*time.Millisecond)
			if r.seg.Seq() != first.seg.Seq() || r.seg.Flags() != first.seg.Flags() || r.opts.MSS != first.opts.MSS {
				t.Errorf("another SYN-ACK: %+v", r)
			}
		}
		d.sent = nil
	}
	want := []time.Duration{1, 3, 7, 15, 31}
	if len(at) != len(want) {
		t.Fatalf("sent at %v", at)
	}
	for i := range at {
		if late := at[i] - want[i]*time.Second; late < 0 || late > 200*time.Millisecond {
			t.Errorf("sent at %v, want %d s", at, want)
		}
	}
	if d.m.passive.synQueue.used != 0 || l.halfOpen != 0 || d.m.Poll(d.now) != clock.Never {
		t.Errorf("%d half-open are left, %d of the listener", d.m.passive.synQueue.used, l.halfOpen)
	}
}

// TestRefusedSynAckIsSentSoon: a SYN-ACK that the Output has no room for was not lost on the path. It leaves
// soon, and in place of none of the few retransmissions: a peer that waits for our data never speaks again.
func TestRefusedSynAckIsSentSoon(t *testing.T) {
	d := newMuxTest(t)
	l := d.listen(5, nil)
	d.full = true
	d.input(from(1), linuxSYN(1000))
	var r reply
	began := d.now // then when the first has left, about
	for _, timeout := range []time.Duration{0, 1, 3, 7, 15, 31} {
		d.full = true
		d.after(began.Add(timeout*time.Second + 300*time.Millisecond).Sub(d.now))
		d.none()
		d.full = false
		d.after(unsentSynAckWait + 2*halfOpenTick)
		r = d.one()
		if timeout == 0 {
			began = d.now
		}
	}
	if st := d.m.Stats(); st.Retransmits != synAckRetries {
		t.Errorf("%d retransmissions", st.Retransmits)
	}
	d.input(from(1), ackOf(r))
	if l.Waiting() != 1 || l.halfOpen != 0 {
		t.Errorf("%d connections wait, %d half-open", l.Waiting(), l.halfOpen)
	}
}

// TestRefusedSynAckHasAnEnd: with a queue that stays full, a record lives as long as one whose peer is silent,
// and its attempts are few.
func TestRefusedSynAckHasAnEnd(t *testing.T) {
	d := newMuxTest(t)
	l := d.listen(5, nil)
	d.full = true
	d.input(from(1), linuxSYN(1000))
	d.after(62 * time.Second)
	if l.halfOpen != 1 {
		t.Fatal("forgotten before the last retransmission has timed out")
	}
	d.after(2 * time.Second)
	if l.halfOpen != 0 || d.m.Stats().Failed != 1 || d.m.Stats().Retransmits != 0 {
		t.Errorf("%d half-open, %d failed, %d retransmissions", l.halfOpen, d.m.Stats().Failed, d.m.Stats().Retransmits)
	}
}

// TestRefusedSynAckAndRoundTripTime: the time in which the SYN-ACK could not leave is none of the path.
func TestRefusedSynAckAndRoundTripTime(t *testing.T) {
	d := newMuxTest(t)
	l := d.listen(5, nil)
	d.full = true
	s := linuxSYN(1000)
	s.Options.HasTimestamps = false
	d.input(from(1), s)
	d.after(unsentSynAckWait / 2)
	d.full = false
	for len(d.sent) == 0 {
		d.after(time.Millisecond)
	}
	first := d.one()
	d.after(20 * time.Millisecond)
	d.input(from(1), Segment{Seq: 1001, Ack: first.seg.Seq() + 1, Flags: ackF, Window: 1000})
	if rtt := l.Accept().Info().RTT; rtt < 20*time.Millisecond || rtt > 30*time.Millisecond {
		t.Errorf("round-trip time %v, want 20 ms", rtt)
	}
}

func TestHalfOpenRejectsForgeries(t *testing.T) { // RFC 9293 3.10.7.4, RFC 5961
	for name, c := range map[string]struct {
		s       func(r reply) Segment
		v       packet.Verdict
		flags   wire.TCPFlags // of the answer; 0 none
		survive bool
	}{
		"RST exactly next":       {func(r reply) Segment { return Segment{Seq: r.seg.Ack(), Flags: wire.FlagRST} }, packet.Deliver, 0, false},
		"RST in the window":      {func(r reply) Segment { return Segment{Seq: r.seg.Ack() + 1, Flags: wire.FlagRST} }, packet.DropSequence, wire.FlagACK, true},
		"RST before":             {func(r reply) Segment { return Segment{Seq: r.seg.Ack() - 1, Flags: wire.FlagRST} }, packet.DropSequence, 0, true},
		"SYN again":              {func(r reply) Segment { return linuxSYN(r.seg.Ack() - 1) }, packet.Deliver, wire.FlagSYN | wire.FlagACK, true},
		"another SYN":            {func(r reply) Segment { return linuxSYN(r.seg.Ack()) }, packet.DropSequence, wire.FlagACK, true},
		"SYN ACK":                {func(r reply) Segment { s := ackOf(r); s.Flags |= wire.FlagSYN; return s }, packet.DropSequence, wire.FlagACK, true},
		"ACK too low":            {func(r reply) Segment { s := ackOf(r); s.Ack--; return s }, packet.DropState, wire.FlagRST, true},
		"ACK too high":           {func(r reply) Segment { s := ackOf(r); s.Ack++; return s }, packet.DropState, wire.FlagRST, true},
		"before the window":      {func(r reply) Segment { s := ackOf(r); s.Seq--; return s }, packet.DropSequence, wire.FlagACK, true},
		"behind the window":      {func(r reply) Segment { s := ackOf(r); s.Seq += 1 << 16; return s }, packet.DropSequence, wire.FlagACK, true},
		"old timestamp":          {func(r reply) Segment { s := ackOf(r); s.Options.TSVal -= 2; return s }, packet.DropSequence, wire.FlagACK, true},
		"without timestamp":      {func(r reply) Segment { s := ackOf(r); s.Options = wire.TCPOptions{}; return s }, packet.DropState, 0, true},
		"data without ACK":       {func(r reply) Segment { s := ackOf(r); s.Flags = 0; return s }, packet.DropState, 0, true},
		"window's end is beyond": {func(r reply) Segment { s := ackOf(r); s.Seq, s.Len = s.Seq-1, 1; return s }, packet.DropSequence, wire.FlagACK, true},
	} {
		d := newMuxTest(t)
		d.listen(5, nil)
		d.input(from(1), linuxSYN(1000))
		d.want(name, d.input(from(1), c.s(d.one())), c.v)
		if c.flags == 0 {
			d.none()
		} else if r := d.one(); r.seg.Flags() != c.flags {
			t.Errorf("%s: answer %v, want %v", name, r.seg.Flags(), c.flags)
		}
		if got := d.m.passive.synQueue.used == 1; got != c.survive {
			t.Errorf("%s: still half-open: %v", name, got)
		}
	}
}

func TestECNIsNegotiated(t *testing.T) { // RFC 3168 6.1.1, RFC 9768 Table 2
	ecnBits := wire.FlagECE | wire.FlagCWR
	for name, c := range map[string]struct {
		flags wire.TCPFlags
		ae    bool
		ip    wire.ECN
		mode  ECNMode
		want  wire.TCPFlags
		wants bool
	}{
		"not asked":         {0, false, 0, ECNAccurate, 0, false},
		"classic":           {ecnBits, false, 0, ECNPassive, wire.FlagECE, false},
		"off":               {ecnBits, true, 0, ECNOff, 0, false},
		"only classic here": {ecnBits, true, 0, ECNClassic, wire.FlagECE, false},
		"accurate":          {ecnBits, true, wire.NotECT, ECNPassive, wire.FlagCWR, false},
		"accurate, ECT(1)":  {ecnBits, true, wire.ECT1, ECNPassive, ecnBits, false},
		"accurate, ECT(0)":  {ecnBits, true, wire.ECT0, ECNPassive, 0, true},
		"accurate, CE":      {ecnBits, true, wire.CE, ECNPassive, wire.FlagCWR, true},
		// RFC 9768 3.1.3: reserved combinations ask for accurate ECN, except of an end that knows RFC 3168 alone.
		"reserved (0,0,1)":          {wire.FlagECE, false, 0, ECNPassive, wire.FlagCWR, false},
		"reserved (0,1,0)":          {wire.FlagCWR, false, 0, ECNPassive, wire.FlagCWR, false},
		"reserved (1,0,0)":          {0, true, wire.ECT0, ECNPassive, 0, true},
		"reserved (1,0,1)":          {wire.FlagECE, true, wire.CE, ECNPassive, wire.FlagCWR, true},
		"reserved (1,1,0)":          {wire.FlagCWR, true, 0, ECNAccurate, wire.FlagCWR, false},
		"reserved, classic here":    {wire.FlagECE, false, 0, ECNClassic, 0, false},
		"reserved AE, classic here": {0, true, 0, ECNClassic, 0, false},
	} {
		d := newMuxTest(t)
		d.listen(5, &Options{ECN: c.mode})
		s := linuxSYN(1)
		s.Flags |= c.flags
		s.AE, s.ECN = c.ae, c.ip
		d.input(from(1), s)
		r := d.one()
		if got := r.seg.Flags() & ecnBits; got != c.want || r.seg.AE() != c.wants {
			t.Errorf("%s: %v AE %v, want %v %v", name, got, r.seg.AE(), c.want, c.wants)
		}
		if r.ecn != wire.NotECT {
			t.Errorf("%s: SYN-ACK is %v (RFC 3168 6.1.1)", name, r.ecn)
		}
	}
}

func TestListenersAreFoundByAddressThenPort(t *testing.T) {
	d := newMuxTest(t)
	share := &Options{Share: true}
	any := d.listen(5, share)
	one, err := d.m.Listen(from(1).Local, 80, 5, share, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.m.Listen(from(1).Local, 80, 5, nil, nil); err != ErrInUse {
		t.Errorf("a second one: %v", err)
	}
	tuple := from(1)
	for step, want := range []*Listener{one, any, nil} {
		if got := d.m.passive.listenerFor(&tuple); got != want {
			t.Errorf("step %d: %v, want %v", step, got, want)
		}
		if want != nil {
			want.Close(d.now)
			want.Close(d.now)
		}
	}
	again := d.listen(5, nil)
	if a, p := again.Addr(); a != (wire.Addr{}) || p != 80 {
		t.Errorf("listens on %v %d", a, p)
	}
}

func TestCloseForgetsHalfOpen(t *testing.T) {
	d := newMuxTest(t)
	l := d.listen(5, nil)
	other, _ := d.m.Listen(wire.Addr{}, 81, 5, nil, nil)
	tuple := from(9)
	tuple.LocalPort = 81
	d.input(tuple, linuxSYN(1))
	for i := range 10 {
		d.input(from(i), linuxSYN(1))
	}
	l.Close(d.now)
	if n := d.m.passive.synQueue.used; n != 1 || other.halfOpen != 1 || l.halfOpen != 0 {
		t.Errorf("%d half-open, %d and %d of listeners", n, l.halfOpen, other.halfOpen)
	}
	d.sent = nil
	d.after(2 * time.Second)
	d.one() // the other's SYN-ACK alone
}

func TestListenChoosesAPort(t *testing.T) {
	m := NewMux(Config{Seed: 1})
	seen := map[uint16]bool{}
	for range 100 {
		l, err := m.Listen(wire.Addr{}, 0, 1, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, port := l.Addr()
		if port < firstPort || seen[port] {
			t.Fatalf("port %d", port)
		}
		seen[port] = true
	}
}

func TestListenersAreFoundBySpecificity(t *testing.T) {
	m := NewMux(Config{})
	four, six := wire.AddrFrom4([4]byte{198, 18, 0, 1}), wire.Addr{0x20, 1, 0xd, 0xb8, 15: 1}
	listen := func(a wire.Addr) *Listener {
		l, err := m.Listen(a, 80, 1, &Options{Share: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	find := func(a wire.Addr) *Listener { return m.passive.listenerFor(&wire.Tuple{Local: a, LocalPort: 80}) }
	every := listen(wire.Addr{})
	if find(four) != every || find(six) != every {
		t.Error("any is not any")
	}
	every4 := listen(wire.Unspecified4)
	if find(four) != every4 || find(six) != every {
		t.Error("any of IPv4 is not that")
	}
	one := listen(four)
	if find(four) != one || find(wire.AddrFrom4([4]byte{198, 18, 0, 2})) != every4 {
		t.Error("an address comes before any")
	}
	every.Close(0)
	only6, err := m.Listen(wire.Addr{}, 80, 1, &Options{V6Only: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if find(six) != only6 || find(four) != one {
		t.Error("any of IPv6 is not that")
	}
	one.Close(0)
	every4.Close(0)
	if find(four) != nil {
		t.Error("a listener of IPv6 alone accepts IPv4")
	}
}

// sharing opens n listeners that share port 80.
func (d *muxTest) sharing(n int) (list []*Listener) {
	for range n {
		list = append(list, d.listen(100, &Options{Share: true}))
	}
	return list
}

func TestListenersThatShareAPortShareConnections(t *testing.T) {
	d := newMuxTest(t)
	list := d.sharing(4)
	for i := range 200 {
		d.input(from(i), linuxSYN(1))
	}
	for i, l := range list {
		if l.halfOpen < 25 || l.halfOpen > 75 {
			t.Errorf("listener %d has %d of 200 connections, want about 50", i, l.halfOpen)
		}
	}
	// One that leaves moves its own flows alone, and one that joins takes its place.
	was := map[int]*Listener{}
	find := func(i int) *Listener {
		tuple := from(i)
		return d.m.passive.listenerFor(&tuple)
	}
	for i := range 200 {
		was[i] = find(i)
	}
	gone := list[1]
	moved := gone.halfOpen
	gone.Close(d.now)
	sum := 0
	for _, l := range []*Listener{list[0], list[2], list[3]} {
		sum += l.halfOpen
	}
	if d.m.passive.synQueue.used != 200 || sum != 200 || gone.halfOpen != 0 {
		t.Errorf("%d half-open connections at %d listeners are left of 200, %d of which were the closed one's", sum, 3, moved)
	}
	for i := range 200 {
		if l := find(i); was[i] != gone && l != was[i] || l == gone {
			t.Fatalf("flow %d has moved", i)
		}
	}
	again := d.sharing(1)[0]
	for i := range 200 {
		if l := find(i); was[i] != gone && l != was[i] || was[i] == gone && l != again {
			t.Fatalf("flow %d has moved when a listener joined", i)
		}
	}
}

func TestConnectionsOfAClosedListenerMoveToThoseThatShareItsPort(t *testing.T) {
	d := newMuxTest(t)
	list := d.sharing(2)
	for i := range 20 {
		d.establish(i)
	}
	a, b := list[0].Waiting(), list[1].Waiting()
	if a == 0 || b == 0 || a+b != 20 {
		t.Fatalf("%d and %d wait", a, b)
	}
	d.sent = nil
	list[0].Close(d.now)
	if list[1].Waiting() != 20 || len(d.sent) != 0 {
		t.Errorf("%d wait after the other listener closed, %d segments were sent", list[1].Waiting(), len(d.sent))
	}
	list[1].Close(d.now)
	d.m.Poll(d.now)
	if d.m.Stats().Conns != 0 || len(d.sent) != 20 {
		t.Errorf("%d connections are left, %d resets were sent", d.m.Stats().Conns, len(d.sent))
	}
}

// TestConnectionsDoNotMoveToOtherOptions has a second listener with another receive buffer: its window
// scale is not the one that the SYN-ACKs announced.
func TestConnectionsDoNotMoveToOtherOptions(t *testing.T) {
	d := newMuxTest(t)
	one := d.listen(100, &Options{Share: true})
	d.input(from(1), linuxSYN(1))
	d.listen(100, &Options{Share: true, ReceiveBuffer: 1 << 24})
	if one.Close(d.now); d.m.passive.synQueue.used != 0 {
		t.Error("a half-open connection has moved")
	}
}

// TestMinTTL: segments with fewer hops left are dropped in LISTEN, SYN-RECEIVED and later (RFC 5082 3).
func TestMinTTL(t *testing.T) {
	d := newMuxTest(t)
	l := d.listen(1, &Options{MinTTL: 255})
	syn := linuxSYN(1)
	syn.TTL = 254
	d.want("a SYN from afar", d.input(from(1), syn), packet.DropTTL)
	d.none()
	syn.TTL = 255
	d.want("a SYN", d.input(from(1), syn), packet.Deliver)
	ack := ackOf(d.one())
	d.want("an ACK from afar", d.input(from(1), ack), packet.DropTTL)
	ack.TTL = 255
	d.want("an ACK", d.input(from(1), ack), packet.Deliver)
	if l.Waiting() != 1 {
		t.Fatalf("%d connections", l.Waiting())
	}
	ack.TTL = 254
	d.want("data from afar", d.input(from(1), ack, "x"), packet.DropTTL)
	ack.TTL = 255
	d.want("data", d.input(from(1), ack, "x"), packet.Deliver)
}

// establish completes the handshake of client n.
func (d *muxTest) establish(n int) {
	d.Helper()
	d.sent = nil
	d.input(from(n), linuxSYN(1))
	r := d.one()
	d.want("the ACK", d.input(from(n), Segment{
		Seq: 2, Ack: r.seg.Seq() + 1, Flags: wire.FlagACK, Window: 502,
		Options: wire.TCPOptions{HasTimestamps: true, TSVal: 7001, TSEcr: r.opts.TSVal},
	}), packet.Deliver)
	d.m.Poll(d.now)
}

// TestFastOpenConnectionsMoveWithTheirCount closes a listener before the handshakes of its Fast Open
// connections are complete: they count against the limit of their new listener (RFC 7413 5.1).
func TestFastOpenConnectionsMoveWithTheirCount(t *testing.T) {
	d := newMuxTest(t)
	o := &Options{FastOpen: true, Share: true}
	one := d.listen(100, o)
	for i := range 3 {
		tuple, s := from(i), linuxSYN(1000)
		c := d.m.passive.secrets.fastOpenCookie(d.now, &tuple, 0)
		s.Options.HasFastOpen, s.Options.FastOpen = true, c[:]
		d.input(tuple, s, "data")
	}
	if one.fastOpenPending != 3 || one.Waiting() != 3 {
		t.Fatalf("%d are opening, %d wait", one.fastOpenPending, one.Waiting())
	}
	other := d.listen(100, o)
	one.Close(d.now)
	if one.fastOpenPending != 0 || other.fastOpenPending != 3 || other.Waiting() != 3 {
		t.Errorf("%d are opening, %d wait, the closed listener has %d", other.fastOpenPending, other.Waiting(), one.fastOpenPending)
	}
}

// TestDeferredConnectionsMove closes a listener that keeps a connection from Accept until it has data.
func TestDeferredConnectionsMove(t *testing.T) {
	d := newMuxTest(t)
	one := d.listen(100, &Options{Share: true})
	one.SetDeferAccept(time.Minute)
	d.establish(1)
	if one.Waiting() != 0 || len(one.deferred) != 1 {
		t.Fatalf("%d wait, %d are deferred", one.Waiting(), len(one.deferred))
	}
	other := d.listen(100, &Options{Share: true})
	one.Close(d.now)
	if other.Waiting() != 1 || d.m.Stats().Conns != 1 || len(one.deferred) != 0 {
		t.Errorf("%d wait after the listener closed, of %d connections", other.Waiting(), d.m.Stats().Conns)
	}
}

// TestDeferredConnectionsAreFreed has a connection that waits for data be reset, by its peer or because the
// listener is closed: nothing is left of it.
func TestDeferredConnectionsAreFreed(t *testing.T) {
	for _, closing := range []bool{false, true} {
		p := newDirectPair(t, Options{})
		p.a.Abort(p.now)
		p.b.Abort(p.now)
		p.turn()
		p.l.SetDeferAccept(time.Minute)
		var err error
		if p.a, err = p.ma.Connect(p.now, wire.Tuple{Local: addrA, Remote: addrB, RemotePort: testPort}, nil, nil); err != nil {
			t.Fatal(err)
		}
		p.turn()
		if p.a.State() != StateEstablished || p.l.Accept() != nil || p.mb.Stats().Conns != 1 {
			t.Fatal(p.a.State(), p.mb.Stats().Conns)
		}
		if closing {
			p.l.Close(p.now)
		} else {
			p.a.Abort(p.now)
		}
		p.turn()
		if n := p.mb.Stats().Conns; n != 0 || len(p.l.deferred) != 0 || len(p.mb.passive.deferred) != 0 {
			t.Errorf("closing %v: %d connections, %d and %d deferred", closing, n, p.l.deferred, len(p.mb.passive.deferred))
		}
		if closing && p.a.Err() != ErrReset {
			t.Error(p.a.Err())
		}
	}
}

// TestListenTakesFreedIDs opens as many listeners as there may be: each Listen takes constant time, and the identifiers
// of those that are closed are used again.
func TestListenTakesFreedIDs(t *testing.T) {
	p := newPeer(t, bare())
	m, o := p.e.m, &Options{Share: true}
	listen := func() (*Listener, error) { return m.Listen(wire.Addr{}, testPort, 1, o, nil) }
	var open []*Listener
	for range maxListeners {
		l, err := listen()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, l)
	}
	if _, err := listen(); !errors.Is(err, ErrTooMany) {
		t.Fatalf("one more: %v", err)
	}
	seen := map[uint16]bool{}
	for _, i := range []int{7, 4000, maxListeners - 1} {
		seen[open[i].id] = true
		open[i].Close(p.now)
	}
	for range 3 {
		l, err := listen()
		if err != nil || !seen[l.id] || m.passive.listeners[l.id] != l {
			t.Fatalf("after Close: %v, %v", l, err)
		}
		delete(seen, l.id)
	}
	if _, err := listen(); !errors.Is(err, ErrTooMany) {
		t.Fatalf("one more again: %v", err)
	}
}

// BenchmarkListen opens and closes a listener beside 60 000 others.
func BenchmarkListen(b *testing.B) {
	e := newEnd(b, 1, 1)
	for port := range uint16(60000) {
		if _, err := e.m.Listen(wire.Addr{}, 1+port, 1, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		l, err := e.m.Listen(wire.Addr{}, 65000, 1, nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		l.Close(1)
	}
}
