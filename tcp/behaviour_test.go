package tcp

import (
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

const ms = time.Millisecond

// TestNagle is RFC 9293 3.7.4: a short segment waits while one is unacknowledged.
func TestNagle(t *testing.T) {
	p := established(t, bare())
	p.write(10)
	p.expect(seg{flags: ackF, seq: 1, ack: 1, n: 10})
	p.write(10)
	p.write(20)
	p.quiet()
	p.write(980) // a full segment does not wait
	p.expect(seg{flags: ackF, seq: 11, ack: 1, n: 1000})
	p.quiet()
	p.send(seg{flags: ackF, seq: 1, ack: 1011, win: 10000})
	p.expect(seg{flags: ackF, seq: 1011, ack: 1, n: 10})

	o := bare()
	o.NoDelay = true
	p = established(t, o)
	p.write(10)
	p.write(10)
	p.expect(seg{flags: ackF, seq: 1, ack: 1, n: 10})
	p.expect(seg{flags: ackF, seq: 11, ack: 1, n: 10})
	p.c.CloseWrite(p.now) // nor does a FIN
	p.poll()
	p.expect(seg{flags: fin | ackF, seq: 21, ack: 1})
}

// TestCork keeps back what does not fill a segment, for 200 ms at most.
func TestCork(t *testing.T) {
	for _, more := range []bool{false, true} {
		o := bare()
		o.Cork = !more
		p := established(t, o)
		write := func(n int) {
			if more {
				p.c.WriteMore(p.now, make([]byte, n))
				p.poll()
			} else {
				p.write(n)
			}
		}
		write(10)
		p.after(190 * ms)
		p.quiet()
		write(1000)
		p.expect(seg{flags: ackF, seq: 1, ack: 1, n: 1000})
		p.quiet()
		p.after(11 * ms)
		p.expect(seg{flags: ackF, seq: 1001, ack: 1, n: 10})
		if more {
			write(5)
			p.quiet()
			p.send(seg{flags: ackF, seq: 1, ack: 1011, win: 10000})
			p.write(5) // no more to come
			p.expect(seg{flags: ackF, seq: 1011, ack: 1, n: 10})
			continue
		}
		p.send(seg{flags: ackF, seq: 1, ack: 1011, win: 10000})
		write(5)
		p.quiet()
		open := p.c.Options()
		open.Cork = false
		if err := p.c.SetOptions(p.now, &open); err != nil {
			t.Fatal(err)
		}
		p.poll()
		p.expect(seg{flags: ackF, seq: 1011, ack: 1, n: 5})
	}
}

// TestDelayedAck is RFC 9293 3.8.6.3: within half a second, and for every second full segment at once.
func TestDelayedAck(t *testing.T) {
	p := established(t, bare())
	p.c.quickACKs = 0
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 1000})
	p.quiet()
	p.send(seg{flags: ackF, seq: 1001, ack: 1, win: 10000, n: 1000})
	p.expect(seg{flags: ackF, seq: 1, ack: 2001})
	p.send(seg{flags: ackF, seq: 2001, ack: 1, win: 10000, n: 1})
	p.after(delayedAck - ms)
	p.quiet()
	p.after(2 * ms)
	p.expect(seg{flags: ackF, seq: 1, ack: 2002})
	p.send(seg{flags: ackF, seq: 2002, ack: 1, win: 10000, n: 1})
	p.write(5) // an answer carries it
	p.expect(seg{flags: ackF, seq: 1, ack: 2003, n: 5})
	p.after(10 * ms)
	p.quiet()

	p = established(t, bare()) // at the start the window is to grow
	for i := range uint32(initialQuickACKs) {
		p.send(seg{flags: ackF, seq: 1 + i, ack: 1, win: 10000, n: 1})
		p.expect(seg{flags: ackF, seq: 1, ack: 2 + i})
	}
	p.send(seg{flags: ackF, seq: 1 + initialQuickACKs, ack: 1, win: 10000, n: 1})
	p.quiet()
}

// TestZeroWindow is RFC 9293 3.8.6.1: probes of one byte, further and further apart, as long as they
// are answered.
func TestZeroWindow(t *testing.T) {
	p := established(t, bare())
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 0})
	p.write(100)
	p.quiet()
	var gaps []time.Duration
	last := p.now
	for range 8 {
		for len(p.e.out) == 0 {
			p.after(10 * ms)
		}
		p.expect(seg{flags: ackF, seq: 1, ack: 1, n: 1})
		gaps = append(gaps, p.now.Sub(last))
		last = p.now
		p.send(seg{flags: ackF, seq: 1, ack: 1, win: 0})
	}
	for i := 1; i < len(gaps); i++ {
		if gaps[i] < gaps[i-1] || i > 1 && gaps[i] < maxProbeInterval-time.Second && gaps[i] < gaps[i-1]*3/2 {
			t.Errorf("gaps %v", gaps)
		}
	}
	for range 20 { // hours, when it is answered
		p.after(maxProbeInterval + time.Second)
		p.send(seg{flags: ackF, seq: 1, ack: 1, win: 0})
	}
	p.state(StateEstablished, nil)
	p.e.out = nil
	p.send(seg{flags: ackF, seq: 1, ack: 2, win: 1000}) // the byte was taken
	p.expect(seg{flags: ackF, seq: 2, ack: 1, n: 99})
	p.send(seg{flags: ackF, seq: 1, ack: 101, win: 0})
	p.write(10)
	p.after(retransmitLimit + 2*maxProbeInterval)
	p.state(StateClosed, ErrTimeout)
}

// TestSillyWindowOfTheSender is RFC 9293 3.8.6.2.1: little is sent into a window only when that is half
// of the largest, or after a while.
func TestSillyWindowOfTheSender(t *testing.T) {
	p := established(t, bare())
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 100})
	p.write(500)
	p.quiet()
	p.after(250 * ms)
	p.expect(seg{flags: ackF, seq: 1, ack: 1, n: 100})
	p.send(seg{flags: ackF, seq: 1, ack: 101, win: 5000})
	p.expect(seg{flags: ackF, seq: 101, ack: 1, n: 400})
}

// TestSillyWindowOfTheReceiver is RFC 9293 3.8.6.2.2: the window's edge moves by a segment or half of
// the buffer.
func TestSillyWindowOfTheReceiver(t *testing.T) {
	o := bare()
	o.ReceiveBuffer = 4000
	p := established(t, o)
	for i := range uint32(4) {
		p.send(seg{flags: ackF, seq: 1 + 1000*i, ack: 1, win: 10000, n: 1000})
	}
	p.e.out = nil
	p.send(seg{flags: ackF, seq: 4001, ack: 1, win: 10000, n: 1}) // a probe
	if b := p.expect(seg{flags: ackF, seq: 1, ack: 4001}); b.Window() != 0 {
		t.Fatalf("window %d", b.Window())
	}
	var buf [4000]byte
	p.c.Read(p.now, buf[:900])
	p.send(seg{flags: ackF, seq: 4001, ack: 1, win: 10000, n: 1})
	if b := p.expect(seg{flags: ackF, seq: 1, ack: 4001}); b.Window() != 0 {
		t.Fatalf("window %d after 900 bytes were read", b.Window())
	}
	p.c.Read(p.now, buf[:1200])
	p.poll()
	p.expect(seg{flags: ackF, seq: 1, ack: 4001, win: 2100})
	for i := range 1900 {
		if buf[0] = 0; p.c.Read(p.now, buf[:1]) != 1 || buf[0] != pattern(2100+i) {
			t.Fatalf("byte %d is %d", i, buf[0])
		}
	}
}

// TestSmallReceiveBufferOpensByHalf: with a buffer of less than two segments the window moves by half of the buffer
// (RFC 9293 3.8.6.2.2), or a peer that fills half of it would never see more.
func TestSmallReceiveBufferOpensByHalf(t *testing.T) {
	for n, window := range map[int]uint16{499: 501, 500: 1000, 700: 1000} {
		o := bare()
		o.ReceiveBuffer = 1000
		p := established(t, o)
		p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: n})
		p.c.Discard(p.now, n)
		p.send(seg{flags: ackF, seq: uint32(n), ack: 1, win: 10000}) // keepalive
		last := p.e.out[len(p.e.out)-1]
		if b := wire.TCP(last.bytes); b.Window() != window || b.Ack()-p.irs != uint32(1+n) {
			t.Errorf("%d of 1000 bytes were read: window %d, want %d", n, b.Window(), window)
		}
	}
}

// TestKeepAlive is RFC 9293 3.8.4.
func TestKeepAlive(t *testing.T) {
	o := bare()
	o.KeepAlive = KeepAlive{Idle: time.Minute, Interval: 10 * time.Second, Count: 3}
	p := established(t, o)
	p.after(59 * time.Second)
	p.quiet()
	p.after(2 * time.Second)
	p.expect(seg{flags: ackF, seq: 0, ack: 1})
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 100})
	p.after(61 * time.Second)
	p.expect(seg{flags: ackF, seq: 0, ack: 1})
	p.after(20 * time.Second)
	p.expect(seg{flags: ackF, seq: 0, ack: 1})
	p.expect(seg{flags: ackF, seq: 0, ack: 1})
	p.state(StateEstablished, nil)
	p.after(11 * time.Second)
	p.state(StateClosed, ErrTimeout)
}

// TestUserTimeout is RFC 5482, and R2 of RFC 9293 3.8.3 without it.
func TestUserTimeout(t *testing.T) {
	for _, limit := range []time.Duration{0, 5 * time.Second} {
		o := bare()
		o.UserTimeout = limit
		p := established(t, o)
		p.after(time.Hour)
		p.write(10)
		want := limit
		if limit == 0 {
			want = retransmitLimit
		}
		p.after(want - ms)
		p.state(StateEstablished, nil)
		p.after(2 * ms)
		p.state(StateClosed, ErrTimeout)
	}
}

// TestUserTimeoutOfAClosedWindow: the limit holds to the millisecond though the next probe is due later.
func TestUserTimeoutOfAClosedWindow(t *testing.T) {
	o := bare()
	o.UserTimeout = 5 * time.Second
	p := established(t, o)
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 0})
	p.write(10)
	for p.c.probeAt < p.c.progressAt.Add(o.UserTimeout) {
		p.now = max(p.next, p.now+1)
		p.poll()
	}
	p.after(p.c.progressAt.Add(o.UserTimeout).Sub(p.now) - ms)
	p.state(StateEstablished, nil)
	p.after(2 * ms)
	p.state(StateClosed, ErrTimeout)
}

// stampedPeer is a peer with timestamps.
func stampedPeer(t *testing.T) *peer {
	p := newPeer(t, &Options{NoSACK: true, NoScaling: true})
	b := p.expect(seg{flags: syn})
	var o wire.TCPOptions
	b.ParseOptions(&o)
	p.send(seg{flags: syn | ackF, ack: 1, win: 10000, opts: wire.AppendTimestamps(wire.AppendNOP(nil, 2), 1000, o.TSVal+5)})
	p.expect(seg{flags: rst, seq: 1})
	p.state(StateSynSent, nil) // it echoes what was not sent
	p.send(seg{flags: syn | ackF, ack: 1, win: 10000, opts: wire.AppendTimestamps(wire.AppendNOP(nil, 2), 1000, o.TSVal)})
	p.stamp, p.stamps = 1000, true
	p.state(StateEstablished, nil)
	p.expect(seg{flags: ackF, seq: 1, ack: 1})
	return p
}

// TestPAWS is RFC 7323 5.
func TestPAWS(t *testing.T) {
	p := stampedPeer(t)
	p.stamp = 999
	if v := p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 10}); v != packet.DropSequence {
		t.Errorf("an old segment: %v", v)
	}
	p.expect(seg{flags: ackF, seq: 1, ack: 1})
	p.stamps = false
	if v := p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 10}); v.Dropped() == false {
		t.Errorf("a segment without timestamps: %v", v)
	}
	p.stamps, p.stamp = true, 1000
	p.e.out = nil
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 10})
	p.expect(seg{flags: ackF, seq: 1, ack: 11})
	p.after(25 * 24 * time.Hour)
	p.stamp = 1000 + 1<<31 + 5 // older by the numbers, but nothing was heard for 25 days
	p.send(seg{flags: ackF, seq: 11, ack: 1, win: 10000, n: 10})
	p.expect(seg{flags: ackF, seq: 1, ack: 21})
	p.stamp = 1
	p.stamps = false
	p.send(seg{flags: rst, seq: 21})
	p.state(StateClosed, ErrReset)
}

// A segment that was overtaken is not taken for one of 2^32 bytes ago, and does not move TS.Recent back.
func TestPAWSAcceptsWhatWasOvertaken(t *testing.T) {
	hole := func() *peer {
		p := stampedPeer(t)
		p.send(seg{flags: ackF, seq: 21, ack: 1, win: 10000, n: 10})
		p.e.out = nil
		p.stamp = 1000 - reorderedTicks
		return p
	}
	p := hole()
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 10})
	if p.c.rcvNxt != p.irs+11 || p.c.tsRecent != 1000 {
		t.Errorf("RCV.NXT %d, TS.Recent %d, want 11, 1000", p.c.rcvNxt-p.irs, p.c.tsRecent)
	}
	p = hole()
	p.stamp--
	if v := p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 10}); v != packet.DropSequence {
		t.Errorf("too old for an overtaken segment: %v", v)
	}
	p = stampedPeer(t)
	p.stamp = 1000 - reorderedTicks
	if v := p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000}); v != packet.Deliver {
		t.Errorf("an overtaken ACK: %v", v)
	}
	if v := p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 10}); v != packet.DropSequence {
		t.Errorf("old data without a hole: %v", v)
	}
}

// TestTimestampToEcho is RFC 7323 4.3: the one of the segment that the last ACK has asked for.
func TestTimestampToEcho(t *testing.T) {
	p := stampedPeer(t)
	p.c.quickACKs = 0
	echo := func(want uint32) {
		t.Helper()
		var o wire.TCPOptions
		b := wire.TCP(p.e.out[0].bytes)
		b.ParseOptions(&o)
		if p.e.out = p.e.out[1:]; o.TSEcr != want {
			t.Errorf("echoes %d, want %d", o.TSEcr, want)
		}
	}
	p.stamp = 1001
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 500})
	p.stamp = 1002
	p.send(seg{flags: ackF, seq: 501, ack: 1, win: 10000, n: 500})
	echo(1001) // the first of two that one ACK answers
	p.stamp = 1003
	p.send(seg{flags: ackF, seq: 1501, ack: 1, win: 10000, n: 500})
	echo(1001) // what lies behind a hole does not count
	p.stamp = 1004
	p.send(seg{flags: ackF, seq: 1001, ack: 1, win: 10000, n: 500})
	echo(1004) // what fills it does
}

// TestUrgent is RFC 9293 3.8.5 and RFC 6093.
func TestUrgent(t *testing.T) {
	p := established(t, bare())
	p.send(seg{flags: ackF | urg, seq: 1, ack: 1, win: 10000, n: 10, urg: 5})
	if p.app.events&Urgent == 0 {
		t.Error("the owner was not told")
	}
	if n, ok := p.c.ToMark(); n != 4 || !ok || p.c.AtMark() {
		t.Errorf("%d before the mark, %v", n, ok)
	}
	var buf [10]byte
	p.c.Read(p.now, buf[:4])
	if !p.c.AtMark() {
		t.Error("not at the mark")
	}
	p.c.Read(p.now, buf[:1])
	if _, ok := p.c.ToMark(); ok || p.c.AtMark() {
		t.Error("the mark is still ahead")
	}
	p.e.out = nil
	p.c.WriteUrgent(p.now, buf[:3])
	p.poll()
	b := p.expect(seg{flags: ackF | urg, seq: 1, ack: 11, n: 3})
	if b.Urgent() != 3 {
		t.Errorf("urgent pointer %d", b.Urgent())
	}
	p.send(seg{flags: ackF, seq: 11, ack: 4, win: 10000})
	p.write(5)
	p.expect(seg{flags: ackF, seq: 4, ack: 11, n: 5})
}

// TestScalingDoesNotShrinkTheWindow is RFC 7323 2.4 and RFC 9293 3.8.6: whatever comes, the right edge
// that the peer is told stays or moves right.
func TestScalingDoesNotShrinkTheWindow(t *testing.T) {
	p := newPeer(t, &Options{NoTimestamps: true, NoSACK: true, ReceiveBuffer: 1 << 20})
	p.expect(seg{flags: syn})
	p.send(seg{flags: syn | ackF, ack: 1, win: 1000, opts: wire.AppendWindowScale(wire.AppendMSS(nil, 1000), 0)})
	edge, next := uint32(0), uint32(1)
	for i := range 300 {
		for _, w := range p.e.out {
			b := wire.TCP(w.bytes)
			if e := b.Ack() - p.irs + uint32(b.Window())<<p.c.rcvScale; e < edge {
				t.Fatalf("the edge moves from %d to %d", edge, e)
			} else {
				edge = e
			}
		}
		p.e.out = nil
		n := 1 + i*7%23
		p.send(seg{flags: ackF, seq: next, ack: 1, win: 1000, n: n})
		next += uint32(n)
		if i%50 == 0 {
			p.c.Discard(p.now, p.c.Readable()/2)
		}
		p.after(50 * ms)
	}
}

// TestWindowScaling is RFC 7323 2.
func TestWindowScaling(t *testing.T) {
	p := newPeer(t, &Options{NoTimestamps: true, NoSACK: true, ReceiveBuffer: 1 << 20})
	b := p.expect(seg{flags: syn})
	var o wire.TCPOptions
	b.ParseOptions(&o)
	if !o.HasWindowScale || 0xffff<<o.WindowScale < 1<<20 || 0xffff<<(o.WindowScale-1) >= 1<<20 {
		t.Errorf("shift %d for a megabyte", o.WindowScale)
	}
	p.send(seg{flags: syn | ackF, ack: 1, win: 1000, opts: wire.AppendWindowScale(wire.AppendMSS(nil, 1000), 3)})
	if w := p.c.Info().SendWindow; w != 1000 { // of a SYN it is not scaled
		t.Errorf("window %d", w)
	}
	if b := p.expect(seg{flags: ackF, seq: 1, ack: 1}); uint32(b.Window())<<o.WindowScale < 1<<20-1<<o.WindowScale {
		t.Errorf("announces %d << %d", b.Window(), o.WindowScale)
	}
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 1000})
	if w := p.c.Info().SendWindow; w != 8000 {
		t.Errorf("window %d", w)
	}
}
