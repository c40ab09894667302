package tcp

import (
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/wire"
)

// fuzzed is a Mux that bytes play with: they are segments, the passing of time, and what applications do.
type fuzzed struct {
	*testing.T
	m         *Mux
	now       clock.Time
	in        []byte
	full      bool
	cookie    []byte // of Fast Open
	listeners []*Listener
	conns     []*Conn
	last      [10]wire.TCP // what was sent last, by tuple
}

func (f *fuzzed) MTU(*wire.Tuple) int     { return 1500 }
func (f *fuzzed) LinkMTU(*wire.Tuple) int { return 1500 }
func (f *fuzzed) Offload() int            { return 1 << 16 }

func (f *fuzzed) Send(now clock.Time, o *Outgoing) bool {
	if f.full {
		return false
	}
	seg := wire.TCP(append(append(wire.AppendTCP(nil, &o.Header), o.Payload[0]...), o.Payload[1]...))
	n := len(o.Payload[0]) + len(o.Payload[1])
	if o.Sign != nil && n <= 1460 {
		o.Sign(seg)
	}
	var opts wire.TCPOptions
	if !seg.ParseOptions(&opts) || len(o.Header.Options) > wire.TCPMaxOptions {
		f.Fatalf("options %x", o.Header.Options)
	}
	if size := o.SegmentSize; n > 0 && (size <= 0 || size+len(seg.Options()) > 1460) {
		f.Fatalf("segments of %d bytes and %d of options", size, len(seg.Options()))
	}
	f.last[slotOf(o.Tuple)] = seg
	return true
}

func (f *fuzzed) byte() byte {
	if len(f.in) == 0 {
		return 0
	}
	b := f.in[0]
	f.in = f.in[1:]
	return b
}

func (f *fuzzed) bytes(n int) []byte {
	n = min(n, len(f.in))
	b := f.in[:n:n]
	f.in = f.in[n:]
	return b
}

func slotOf(t *wire.Tuple) int { return int(t.LocalPort%5*2 + t.RemotePort%2) }

// tuple is one of 2 clients of one of 4 listeners, or of a port where nobody listens, from which connections are begun.
func (f *fuzzed) tuple(b byte) wire.Tuple {
	return wire.Tuple{
		Local: wire.AddrFrom4([4]byte{192, 0, 2, 1}), Remote: wire.AddrFrom4([4]byte{198, 18, 0, 1}),
		LocalPort: 80 + uint16(b>>1%5), RemotePort: 1000 + uint16(b%2),
	}
}

// raw gives the Mux bytes as they are.
func (f *fuzzed) raw(t wire.Tuple, b []byte) {
	if seg := wire.TCP(b); seg.Valid() {
		deliver(f.now, f.m, t, seg, wire.ECN(len(b)&3))
	}
}

// flags are mostly those that get far.
func (f *fuzzed) flags() wire.TCPFlags {
	usual := [...]wire.TCPFlags{
		wire.FlagSYN, wire.FlagACK, wire.FlagACK, wire.FlagACK | wire.FlagPSH, wire.FlagACK | wire.FlagFIN, wire.FlagACK,
		wire.FlagRST, wire.FlagACK | wire.FlagURG,
	}
	b := f.byte()
	if b >= 0xe0 {
		return wire.TCPFlags(f.byte())
	}
	return usual[b%8]
}

// near gives the Mux a segment whose numbers are near those that the tuple's connection uses.
func (f *fuzzed) near(t wire.Tuple) {
	h := wire.TCPHeader{Flags: f.flags(), Window: uint16(f.byte()) << 4}
	if last := f.last[slotOf(&t)]; last != nil {
		h.Seq, h.Ack = last.Ack(), last.Seq()+uint32(len(last.Payload()))
		if last.Flags().Any(wire.FlagSYN | wire.FlagFIN) {
			h.Ack++
		}
	}
	if d := int32(int8(f.byte())); d < -16 || d > 80 {
		h.Seq += uint32(d * 20)
	}
	if d := int32(int8(f.byte())); d < -16 || d > 80 {
		h.Ack += uint32(d)
	}
	k := f.byte()
	switch k & 3 {
	case 1:
		h.Options = wire.AppendTimestamps(wire.AppendNOP(nil, 2), uint32(k)*16, uint32(f.byte()))
	case 2:
		h.Options = (&synOptions{mss: uint16(k) * 8, scaling: true, scale: k & 15, sack: true, timestamps: true, tsVal: uint32(k), fastOpen: k&4 != 0, fastOpenCookie: f.bytes(int(k>>3) & 14)}).appendTo(nil)
	case 3:
		h.Options = f.bytes(int(k>>2) & 36)
	}
	h.Urgent = uint16(k)
	n := int(f.byte())
	if n < 128 {
		n = 0
	}
	f.send(t, &h, (n-n/2)*8)
}

// fuzzKeys sign on one of the ports.
var fuzzKeys = auth.Keys{MD5: []byte("x")}

// send gives the Mux a segment with n bytes of payload, signed where that is asked for.
func (f *fuzzed) send(t wire.Tuple, h *wire.TCPHeader, n int) {
	h.SrcPort, h.DstPort = t.RemotePort, t.LocalPort
	if t.LocalPort == 82 {
		rev := t.Reverse()
		a := auth.New(&fuzzKeys, &rev, 0)
		if h.Options = a.AppendOption(h.Options); len(h.Options) > wire.TCPMaxOptions {
			return
		}
		b := append(wire.AppendTCP(nil, h), make([]byte, n)...)
		a.Sign(b)
		f.raw(t, b)
		return
	}
	f.raw(t, append(wire.AppendTCP(nil, h), make([]byte, n)...))
}

// handshake opens a connection as peers do.
func (f *fuzzed) handshake(t wire.Tuple, k byte) {
	slot := slotOf(&t)
	if t.LocalPort == 84 {
		if c, err := f.m.Connect(f.now, t, nil, nil); err == nil {
			f.conns = append(f.conns, c)
			f.m.Poll(f.now)
		}
	}
	o := synOptions{mss: uint16(k) * 10, scaling: k&1 != 0, scale: 3, sack: k&2 != 0 && t.LocalPort != 82, timestamps: k&4 != 0 && t.LocalPort != 82, tsVal: 9, fastOpen: k&8 != 0 && t.LocalPort != 82, fastOpenCookie: f.cookie}
	h := wire.TCPHeader{Seq: uint32(k) << 24, Flags: wire.FlagSYN, Window: 5000, Options: o.appendTo(nil)}
	if k&16 != 0 {
		h.Flags |= wire.FlagECE | wire.FlagCWR
	}
	if last := f.last[slot]; last != nil && t.LocalPort == 84 {
		h.Ack = last.Seq() + 1
		h.Flags |= wire.FlagACK
	}
	f.last[slot] = nil
	f.send(t, &h, int(k&8)*10)
	f.m.Poll(f.now)
	if last := f.last[slot]; last != nil && k < 240 {
		var opts wire.TCPOptions
		last.ParseOptions(&opts)
		if opts.HasFastOpen {
			f.cookie = append([]byte(nil), opts.FastOpen...)
		}
		a := wire.TCPHeader{Seq: last.Ack(), Ack: last.Seq() + 1, Flags: wire.FlagACK, Window: 5000}
		if opts.HasTimestamps {
			a.Options = wire.AppendTimestamps(nil, 9, opts.TSVal)
		}
		f.send(t, &a, 0)
	}
}

// app has an application do something.
func (f *fuzzed) app(b byte) {
	for _, l := range f.listeners {
		if c := l.Accept(); c != nil {
			f.conns = append(f.conns, c)
		}
	}
	if len(f.conns) == 0 {
		return
	}
	i := int(b>>4) % len(f.conns)
	c := f.conns[i]
	var buf [3000]byte
	switch b & 7 {
	case 0:
		c.Write(f.now, buf[:])
	case 1:
		c.Read(f.now, buf[:])
	case 2:
		c.CloseWrite(f.now)
	case 3:
		c.CloseRead(f.now)
	case 4:
		c.Close(f.now)
		f.conns = append(f.conns[:i], f.conns[i+1:]...)
	case 5:
		c.Abort(f.now)
		f.conns = append(f.conns[:i], f.conns[i+1:]...)
	case 6:
		c.WriteUrgent(f.now, buf[:1])
	case 7:
		c.WriteZeroCopy(f.now, buf[:], func() {})
	}
}

// step does what the next byte says.
func (f *fuzzed) step() {
	op := f.byte()
	switch op >> 5 {
	case 0:
		f.handshake(f.tuple(f.byte()), f.byte())
	case 1, 2:
		f.near(f.tuple(f.byte()))
	case 3:
		f.raw(f.tuple(f.byte()), f.bytes(int(op&31)*4))
	case 4:
		f.app(f.byte())
	case 5:
		f.now = f.now.Add(time.Duration(op&31) * time.Duration(op&31) * 10 * time.Millisecond)
	case 6:
		t := f.tuple(f.byte())
		f.m.ICMP(f.now, &t, uint32(f.byte()), ip.ICMPError{Kind: ip.ErrorKind(op & 7), MTU: int(f.byte()) * 8, Tuple: t})
	case 7:
		f.full = op&3 == 0
	}
	f.m.Poll(f.now)
	f.check()
}

// check looks for what must hold at any time.
func (f *fuzzed) check() {
	fr, half, st := &f.m.passive, 0, f.m.Stats()
	for _, l := range f.listeners {
		half += l.halfOpen
		if l.halfOpen < 0 || l.Waiting() > l.backlog || l.fastOpenPending < 0 || l.fastOpenPending > l.backlog {
			f.Fatalf("%d half-open, %d wait, %d open fast", l.halfOpen, l.Waiting(), l.fastOpenPending)
		}
	}
	if half != fr.synQueue.used || fr.synQueue.used > fr.synQueue.limit || fr.timeWait.used > fr.timeWait.limit {
		f.Fatalf("%d half-open, listeners have %d; %d wait", fr.synQueue.used, half, fr.timeWait.used)
	}
	if st.Memory < 0 || st.Memory > f.m.cfg.Budget || st.Conns < len(f.conns) || st.Conns > f.m.cfg.MaxConns {
		f.Fatalf("%d bytes, %d connections", st.Memory, st.Conns)
	}
}

// end gives everything back and sees that nothing is left.
func (f *fuzzed) end() {
	f.full = false
	for _, l := range f.listeners {
		l.Close(f.now)
	}
	for _, c := range f.conns {
		c.Close(f.now)
	}
	for range 40 {
		f.now = f.now.Add(time.Minute)
		for range 40 {
			f.now = f.now.Add(time.Second / 4)
			f.m.Poll(f.now)
		}
	}
	if st := f.m.Stats(); st.Conns != 0 || st.HalfOpen != 0 || st.TimeWait != 0 || st.Memory != 0 {
		f.Fatalf("left: %d connections, %d half-open, %d in TIME-WAIT, %d bytes", st.Conns, st.HalfOpen, st.TimeWait, st.Memory)
	}
}

func runFuzzed(t *testing.T, in []byte) {
	f := &fuzzed{T: t, now: clock.Time(time.Hour), in: in}
	f.m = NewMux(Config{Output: f, Now: f.now, Seed: 1, Budget: 1 << 20, MaxConns: 6, MaxHalfOpen: 4, MaxTimeWait: 3})
	for i, o := range []Options{
		{}, {FastOpen: true, ECN: ECNAccurate}, {Keys: &fuzzKeys}, {NoTimestamps: true, Congestion: "reno", NoDelay: true},
	} {
		l, err := f.m.Listen(wire.Addr{}, 80+uint16(i), 3, &o, nil)
		if err != nil {
			t.Fatal(err)
		}
		f.listeners = append(f.listeners, l)
	}
	for len(f.in) > 0 {
		f.step()
	}
	f.end()
}

// FuzzListen has any bytes come as segments in any state.
func FuzzListen(f *testing.F) {
	syn := []byte{0, 0, 7}
	ack := []byte{32, 0, 1, 100, 0, 0, 1, 0, 0}
	data := []byte{32, 0, 1, 100, 0, 0, 1, 0, 200}
	fin := []byte{32, 0, 4, 100, 0, 0, 1, 0, 0}
	join := func(all ...[]byte) (b []byte) {
		for _, x := range all {
			b = append(b, x...)
		}
		return b
	}
	read, shut := []byte{128, 1}, []byte{128, 2}
	f.Add(join(syn, data, read, fin, []byte{128, 0, 128, 4}, ack))
	f.Add(join(syn, read, shut, fin, fin, []byte{175}, syn, []byte{175}))
	f.Add(join(syn, syn, []byte{175, 175}, data, data, []byte{128, 5}))
	f.Add(join([]byte{0, 8, 7}, data, []byte{128, 4, 32, 8, 4, 100, 0, 0, 1, 0, 0}))
	f.Add([]byte{0, 2, 15, 0, 2, 15, 0, 4, 7, 128, 0, 224, 0, 2, 7, 225, 170, 170})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 4096 {
			return
		}
		runFuzzed(t, in)
	})
}

// TestAnyBytesInAnyState runs what the fuzzer would, from random seeds.
func TestAnyBytesInAnyState(t *testing.T) {
	rounds := 300
	if os.Getenv("MILLRACE_SOAK") != "" {
		rounds = 30000
	}
	for seed := range rounds {
		d := newSecrets(&[32]byte{byte(seed), byte(seed >> 8)})
		in := make([]byte, 0, 600)
		for i := range 75 {
			x := d.isn.addrs(&wire.Addr{}, &wire.Addr{}, uint64(i))
			for range 8 {
				in = append(in, byte(x))
				x >>= 8
			}
		}
		runFuzzed(t, in)
	}
}
