package tcp

import (
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// wantText checks that all of the peer's stream up to n bytes can be read, and nothing else.
func (p *peer) wantText(n int) {
	p.t.Helper()
	b := make([]byte, n+1)
	got := p.c.Read(p.now, b)
	if got != n {
		p.t.Fatalf("%d bytes can be read, want %d", got, n)
	}
	for i := range n {
		if b[i] != pattern(i) {
			p.t.Fatalf("byte %d is %d, want %d", i, b[i], pattern(i))
		}
	}
}

// TestSynAckWithText is RFC 9293 3.10.7.3, fourth: other controls and text of a SYN-ACK are processed from
// the sixth step of 3.10.7.4 on. The SYN has SEG.SEQ, the text begins behind it (3.4).
func TestSynAckWithText(t *testing.T) {
	for name, c := range map[string]struct {
		flags wire.TCPFlags
		n     int
		ack   uint32 // of the answer
		state State
	}{
		"nothing":  {0, 0, 1, StateEstablished},
		"text":     {psh, 3, 4, StateEstablished},
		"FIN":      {fin, 0, 2, StateCloseWait},
		"text+FIN": {fin, 3, 5, StateCloseWait},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, bare())
			p.expect(seg{flags: syn})
			p.send(seg{flags: syn | ackF | c.flags, ack: 1, win: 1000, n: c.n})
			p.expect(seg{flags: ackF, seq: 1, ack: c.ack})
			p.quiet()
			p.state(c.state, nil)
			// The peer sends the text again, and more behind it.
			if c.flags.Has(fin) {
				p.send(seg{flags: ackF | fin, seq: 1, ack: 1, win: 1000, n: c.n})
				p.expect(seg{flags: ackF, seq: 1, ack: c.ack})
				p.wantText(c.n)
				return
			}
			p.send(seg{flags: ackF, seq: 1, ack: 1, win: 1000, n: c.n + 6})
			p.expect(seg{flags: ackF, seq: 1, ack: c.ack + 6})
			p.wantText(c.n + 6)
		})
	}
	t.Run("beyond the window", func(t *testing.T) {
		o := bare()
		o.ReceiveBuffer = 10
		p := newPeer(t, o)
		p.expect(seg{flags: syn})
		p.send(seg{flags: syn | ackF | fin, ack: 1, win: 1000, n: 20})
		p.expect(seg{flags: ackF, seq: 1, ack: 11})
		p.state(StateEstablished, nil)
		p.wantText(10)
	})
	t.Run("urgent", func(t *testing.T) { // sixth: the pointer counts from SEG.SEQ, which the SYN has
		p := newPeer(t, bare())
		p.expect(seg{flags: syn})
		p.send(seg{flags: syn | ackF | urg, ack: 1, win: 1000, n: 10, urg: 5})
		if n, ok := p.c.ToMark(); n != 3 || !ok || p.app.events&Urgent == 0 {
			t.Errorf("%d bytes before the mark, %v", n, ok)
		}
	})
}

// fastOpenChild is a connection of a listener in SYN-RECEIVED: the SYN had the right cookie and n bytes. The
// SYN-ACK was sent.
func fastOpenChild(t *testing.T, n int) *peer {
	p := &peer{t: t, e: newEnd(t, clock.Time(time.Hour), 1), now: clock.Time(time.Hour), app: &app{}, irs: peerISS}
	l, err := p.e.m.Listen(wire.Addr{}, testPort, 4, &Options{FastOpen: true, NoTimestamps: true, NoSACK: true, NoScaling: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.tuple = wire.Tuple{Local: addrA, Remote: addrB, LocalPort: testPort, RemotePort: 5000}
	cookie := p.e.m.passive.secrets.fastOpenCookie(p.now, &p.tuple, 0)
	p.send(seg{flags: syn, win: 10000, n: n, opts: wire.AppendNOP(wire.AppendFastOpen(wire.AppendMSS(nil, 1000), cookie[:]), 2)})
	if p.c = l.Accept(); p.c == nil {
		t.Fatal("no connection")
	}
	p.c.SetOwner(p.app)
	p.iss = p.c.una
	p.expect(seg{flags: syn | ackF, ack: 1 + uint32(n)})
	return p
}

// TestResetOfFastOpenChild is RFC 9293 3.10.7.4, second, in SYN-RECEIVED by a passive open: the application has
// accepted the connection, so that its end is a reset. Only an active open can be refused.
func TestResetOfFastOpenChild(t *testing.T) {
	for _, opened := range []bool{false, true} {
		p := fastOpenChild(t, 10)
		if opened {
			p.send(seg{flags: ackF, seq: 11, ack: 1, win: 10000})
		}
		p.send(seg{flags: rst, seq: 11})
		p.state(StateClosed, ErrReset)
		p.wantText(10) // what came before can be read
		if p.e.m.passive.listeners[0].fastOpenPending != 0 {
			t.Error("the child still counts as opening")
		}
	}
}

// TestResetOutsideOfTheWindow is RFC 5961 3.2: a RST whose number is outside of the window is not answered,
// though the segment may have text in it.
func TestResetOutsideOfTheWindow(t *testing.T) {
	for name, s := range map[string]func(p *peer) seg{
		"at the right edge":         func(p *peer) seg { return seg{flags: rst, seq: p.c.rcvAdv - p.irs} },
		"before, with text in it":   func(p *peer) seg { return seg{flags: rst, seq: 1, n: 20} },
		"before, with a FIN in it":  func(p *peer) seg { return seg{flags: rst | fin, seq: 10, n: 1} },
		"behind, with text behind":  func(p *peer) seg { return seg{flags: rst, seq: p.c.rcvAdv - p.irs, n: 20} },
		"before, exactly text left": func(p *peer) seg { return seg{flags: rst, seq: 1, n: 10} },
	} {
		p := established(t, bare())
		p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 10})
		p.e.out = nil
		if v := p.send(s(p)); v != packet.DropSequence {
			t.Errorf("%s: %v", name, v)
		}
		p.quiet()
		p.state(StateEstablished, nil)
	}
}

// TestUrgentBehindFIN is RFC 9293 3.10.7.4, sixth: after the peer's FIN there is no urgent data.
func TestUrgentBehindFIN(t *testing.T) {
	for _, s := range []State{StateCloseWait, StateClosing, StateLastAck} {
		p := inState(t, s)
		p.app.events = 0
		p.send(seg{flags: ackF | urg, seq: p.c.rcvNxt - p.irs, ack: 1, win: 10000, urg: 5})
		if _, ok := p.c.ToMark(); ok || p.app.events&Urgent != 0 {
			t.Errorf("%v: urgent data behind the end", s)
		}
	}
}

// TestHalfOpenRecoveryWithoutTimestamps is RFC 9293 3.5.1 and RFC 5961 4.2: a peer that has begun anew may have
// other options. Its SYN is challenged, and its RST ends the old connection.
func TestHalfOpenRecoveryWithoutTimestamps(t *testing.T) {
	p := stampedPeer(t)
	p.stamps = false
	p.send(seg{flags: syn, seq: 5000, win: 1000})
	b := p.expect(seg{flags: ackF, seq: 1, ack: p.c.rcvNxt - p.irs})
	p.send(seg{flags: rst, seq: b.Ack() - p.irs})
	p.state(StateClosed, ErrReset)
}

// TestAnnouncedMSSIsTheInterfaces is RFC 9293 3.7.1, MUST-14 and MUST-67, and RFC 6691 2: whatever the path to the
// peer takes, every SYN and SYN-ACK announces what the interface receives.
func TestAnnouncedMSSIsTheInterfaces(t *testing.T) {
	const path, link = 1300, 1500
	announces := func(r reply, flags wire.TCPFlags) {
		t.Helper()
		want := uint16(link - 40)
		if !r.tuple.Remote.Is4() {
			want = link - 60
		}
		if r.seg.Flags() != flags || r.opts.MSS != want {
			t.Errorf("%v announces %d, want %v, %d", r.seg.Flags(), r.opts.MSS, flags, want)
		}
	}
	mux := func(o *Options, change ...func(*Config)) *muxTest {
		d := newMuxTest(t, change...)
		d.mtu, d.link = path, link
		d.listen(5, o)
		return d
	}
	for _, tuple := range []wire.Tuple{from(1), six(1)} {
		active := tuple
		active.LocalPort = 7000
		d := mux(nil)
		if _, err := d.m.Connect(d.now, active, nil, nil); err != nil {
			t.Fatal(err)
		}
		d.m.Poll(d.now)
		announces(d.one(), syn)
		d.after(1500 * ms)
		announces(d.one(), syn) // again
		d.input(active, linuxSYN(1000))
		d.m.Poll(d.now)
		announces(d.one(), syn|ackF) // of a simultaneous open

		d = mux(nil)
		d.input(tuple, linuxSYN(1000))
		announces(d.one(), syn|ackF)
		d.after(1500 * ms)
		announces(d.one(), syn|ackF)

		d = mux(nil, func(c *Config) { c.MaxHalfOpen = -1 })
		d.input(tuple, linuxSYN(1000)) // answered by a SYN cookie
		announces(d.one(), syn|ackF)

		d = mux(&Options{FastOpen: true})
		cookie := d.m.passive.secrets.fastOpenCookie(d.now, &tuple, 0)
		s := linuxSYN(1000)
		s.Options.HasFastOpen, s.Options.FastOpen = true, cookie[:]
		d.input(tuple, s, "data")
		d.m.Poll(d.now)
		announces(d.one(), syn|ackF)
		d.after(1500 * ms)
		announces(d.one(), syn|ackF)
	}
}

// TestAnnouncedMSSDoesNotBoundTheSender: what is announced is of the interface, what is sent is of the path.
func TestAnnouncedMSSDoesNotBoundTheSender(t *testing.T) {
	n := newNet(t)
	n.a.mtu, n.a.link = 1300, 1500
	n.b.mtu, n.b.link = 1300, 1500
	a, b, _, _ := n.open(t, nil, nil)
	if a.peerMSS != 1460 || b.peerMSS != 1460 || a.segment != 1260 || b.segment != 1260 {
		t.Errorf("announced %d and %d, segments of %d and %d", b.peerMSS, a.peerMSS, a.segment, b.segment)
	}
	n.pour(t, a, b, 1<<20, 10*time.Second) // no segment exceeds the path's MTU, which Send checks
}

// TestFastOpenSynAckTimeout is RFC 6298 2.1: the SYN-ACK of a Fast Open connection waits a second, since no round
// trip was measured when it leaves; its ACK gives the first measurement. No tail loss probe takes the place of the
// timeout, with SACK or without.
func TestFastOpenSynAckTimeout(t *testing.T) {
	for _, options := range []wire.TCPOptions{{}, linuxSYN(0).Options} {
		d := newMuxTest(t)
		l := d.listen(5, &Options{FastOpen: true})
		tuple := from(1)
		cookie := d.m.passive.secrets.fastOpenCookie(d.now, &tuple, 0)
		s := linuxSYN(1000)
		s.Options = options
		s.Options.HasFastOpen, s.Options.FastOpen = true, cookie[:]
		d.input(tuple, s, "data")
		began := d.now
		var at []time.Duration
		for d.now < began.Add(8*time.Second) {
			d.after(100 * ms)
			for range d.sent {
				at = append(at, d.now.Sub(began))
			}
			d.sent = nil
		}
		if len(at) != 4 || at[1] != time.Second || at[2] != 3*time.Second || at[3] != 7*time.Second {
			t.Errorf("sent after %v, want 0, 1, 3 and 7 s", at)
		}
		if c := l.Accept(); c.Info().RTT != 0 {
			t.Errorf("the round trip took %v", c.Info().RTT)
		}
	}
	p := fastOpenChild(t, 10)
	p.after(70 * ms)
	p.send(seg{flags: ackF, seq: 11, ack: 1, win: 10000})
	if rtt := p.c.Info().RTT; rtt != 70*ms {
		t.Errorf("the round trip took %v, want 70 ms", rtt)
	}
}

// TestSynAckOfAnotherConnection: a SYN-ACK that echoes a timestamp which was not sent is reset, as one with a wrong
// ACK is (RFC 9293 3.10.7.3, first), and the right one connects.
func TestSynAckOfAnotherConnection(t *testing.T) {
	p := newPeer(t, &Options{NoSACK: true, NoScaling: true})
	b := p.expect(seg{flags: syn})
	var o wire.TCPOptions
	b.ParseOptions(&o)
	answer := func(echo uint32) {
		p.send(seg{flags: syn | ackF, ack: 1, win: 1000, opts: wire.AppendTimestamps(wire.AppendNOP(nil, 2), 700, echo)})
	}
	answer(o.TSVal + 1000)
	p.expect(seg{flags: rst, seq: 1})
	answer(o.TSVal - 1<<21)
	p.expect(seg{flags: rst, seq: 1})
	p.state(StateSynSent, nil)
	answer(o.TSVal)
	p.expect(seg{flags: ackF, seq: 1, ack: 1})
	p.state(StateEstablished, nil)
}

// fastOpenClient is a peer whose SYN had n bytes of data, and a cookie that was known.
func fastOpenClient(t *testing.T, n int) *peer {
	p := &peer{t: t, e: newEnd(t, clock.Time(time.Hour), 1), now: clock.Time(time.Hour), app: &app{}, irs: peerISS}
	remote := addrB
	p.e.m.passive.fastOpenCache.store(&remote, []byte{1, 2, 3, 4}, 1460)
	o := bare()
	o.FastOpen = true
	var err error
	if p.c, err = p.e.m.Connect(p.now, wire.Tuple{Local: addrA, Remote: addrB, RemotePort: testPort}, o, p.app); err != nil {
		t.Fatal(err)
	}
	p.tuple, p.iss = p.c.Tuple(), p.c.una
	p.write(n)
	p.expect(seg{flags: syn, n: n})
	return p
}

// TestFastOpenSynTooBig is RFC 7413 4.1.3.1 with RFC 1191: a SYN that was too long is sent again at once without
// data, and the path is not taken for one that drops Fast Open.
func TestFastOpenSynTooBig(t *testing.T) {
	for _, timeout := range []bool{false, true} {
		p := fastOpenClient(t, 1000)
		if timeout {
			p.after(1100 * ms)
		} else {
			p.e.m.ICMP(p.now, &p.tuple, p.iss, ip.ICMPError{Kind: ip.TooBig, MTU: 600})
			p.poll()
		}
		p.expect(seg{flags: syn})
		p.send(seg{flags: syn | ackF, ack: 1, win: 10000, opts: wire.AppendMSS(nil, 1460)})
		if _, _, ok := p.e.m.passive.fastOpenCache.cookie(p.now, &p.tuple.Remote); ok == timeout {
			t.Errorf("to be tried again: %v", ok)
		}
	}
}

// TestFastOpenCountsWhereAllIsTaken: Info says FastOpen where the server has taken all data of the SYN.
func TestFastOpenCountsWhereAllIsTaken(t *testing.T) {
	for ack, want := range map[uint32]bool{1: false, 500: false, 1001: true} {
		p := fastOpenClient(t, 1000)
		p.send(seg{flags: syn | ackF, ack: ack, win: 10000, opts: wire.AppendMSS(nil, 1460)})
		if p.c.Info().FastOpen != want {
			t.Errorf("ACK %d: %v", ack, !want)
		}
		if ack < 1001 {
			p.expect(seg{flags: ackF, seq: ack, ack: 1, n: int(1001 - ack)})
		}
	}
}

// TestSYNWithText is RFC 9293 3.10.7.2 and RFC 7413 4.2.2: a listener takes the text of a SYN with a Fast Open cookie;
// otherwise, with a record or a SYN cookie, the peer sends it again. In each case the stream begins behind the SYN, and
// what overlaps is the same bytes.
func TestSYNWithText(t *testing.T) {
	for name, c := range map[string]struct {
		fastOpen, wrong, cookies bool
		ack                      uint32 // of the SYN-ACK
	}{
		"a record":             {false, false, false, 1},
		"a SYN cookie":         {false, false, true, 1},
		"Fast Open":            {true, false, false, 11},
		"a wrong cookie":       {true, true, false, 1},
		"wrong, then a cookie": {true, true, true, 1},
	} {
		for _, again := range []uint32{0, 4, 10} { // bytes of the text that are not sent again
			p := &peer{t: t, e: newEnd(t, clock.Time(time.Hour), 1), now: clock.Time(time.Hour), app: &app{}, irs: peerISS}
			if c.cookies {
				p.e.m = NewMux(Config{Output: p.e, Now: p.now, MaxHalfOpen: -1})
			}
			o := bare()
			o.FastOpen = c.fastOpen
			l, err := p.e.m.Listen(wire.Addr{}, testPort, 4, o, nil)
			if err != nil {
				t.Fatal(err)
			}
			p.tuple = wire.Tuple{Local: addrA, Remote: addrB, LocalPort: testPort, RemotePort: 5000}
			var opts []byte
			if c.fastOpen {
				k := p.e.m.passive.secrets.fastOpenCookie(p.now, &p.tuple, 0)
				if c.wrong {
					k[0]++
				}
				opts = wire.AppendNOP(wire.AppendFastOpen(nil, k[:]), 2)
			}
			p.send(seg{flags: syn, win: 10000, n: 10, opts: opts})
			b := wire.TCP(p.e.out[0].bytes)
			p.iss = b.Seq()
			p.expect(seg{flags: syn | ackF, ack: c.ack})
			if c.ack == 1 && again > 0 {
				continue // the peer has to send all of it
			}
			p.send(seg{flags: ackF, seq: 1 + again, ack: 1, win: 10000, n: int(30 - again)})
			if p.c = l.Accept(); p.c == nil {
				t.Fatalf("%s: no connection", name)
			}
			p.expect(seg{flags: ackF, seq: 1, ack: 31})
			p.wantText(30)
		}
	}
}

// TestWindowUpdateAfterCrossing is RFC 9293 3.10.7.4, fifth: the ACK that ends SYN-RECEIVED sets SND.WL1 and SND.WL2,
// wherever in the sequence space our numbers are, so that a window update with the same numbers counts.
func TestWindowUpdateAfterCrossing(t *testing.T) {
	halves := map[bool]bool{}
	for hour := range 12 {
		now := clock.Time(time.Duration(1+hour) * 20 * time.Minute)
		p := &peer{t: t, e: newEnd(t, now, 1), now: now, app: &app{}, irs: peerISS}
		var err error
		if p.c, err = p.e.m.Connect(now, wire.Tuple{Local: addrA, Remote: addrB, LocalPort: 7000, RemotePort: testPort}, bare(), p.app); err != nil {
			t.Fatal(err)
		}
		p.tuple, p.iss = p.c.Tuple(), p.c.una
		halves[p.iss>>31 != 0] = true
		p.poll()
		p.expect(seg{flags: syn})
		p.send(seg{flags: syn, win: 10})
		p.expect(seg{flags: syn | ackF, ack: 1})
		p.send(seg{flags: ackF, seq: 1, ack: 1, win: 20})
		if w := p.c.Info().SendWindow; w != 20 {
			t.Errorf("window %d, want 20", w)
		}
		p.send(seg{flags: ackF, seq: 1, ack: 1, win: 5000})
		if w := p.c.Info().SendWindow; w != 5000 {
			t.Errorf("ISS %d: window %d after an update to 5000", p.iss, w)
		}
	}
	if len(halves) != 2 {
		t.Error("all numbers are in one half of the sequence space")
	}
}

// TestSACKCountsOnceEstablished is RFC 6675 5: three segments SACKed behind a hole show at once that it is lost, on
// connections of either side, by SYN-ACK, by crossing SYNs and by Fast Open.
func TestSACKCountsOnceEstablished(t *testing.T) {
	offer := wire.AppendSACKPermitted(wire.AppendNOP(wire.AppendMSS(nil, 1000), 2))
	active := func() *peer {
		o := bare()
		o.NoSACK = false
		p := newPeer(t, o)
		p.expect(seg{flags: syn})
		return p
	}
	for name, open := range map[string]func() *peer{
		"SYN-ACK": func() *peer {
			p := active()
			p.send(seg{flags: syn | ackF, ack: 1, win: 10000, opts: offer})
			return p
		},
		"crossing SYNs": func() *peer {
			p := active()
			p.send(seg{flags: syn, win: 10000, opts: offer})
			p.send(seg{flags: syn | ackF, ack: 1, win: 10000, opts: offer})
			return p
		},
		"crossing SYNs and an ACK": func() *peer {
			p := active()
			p.send(seg{flags: syn, win: 10000, opts: offer})
			p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000})
			return p
		},
	} {
		p := open()
		if p.c.State() != StateEstablished {
			t.Fatalf("%s: %v", name, p.c.State())
		}
		p.write(4000)
		p.after(20 * ms)
		p.e.out = nil
		sack := wire.AppendSACK(wire.AppendNOP(nil, 2), wire.SACKBlock{Left: p.iss + 1001, Right: p.iss + 4001})
		p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, opts: sack})
		if len(p.e.out) == 0 {
			t.Errorf("%s: nothing is sent again", name)
			continue
		}
		p.expect(seg{flags: ackF, seq: 1, ack: 1, n: 1000})
	}
}

// TestSecondFIN: the first FIN says where the stream ends; another one elsewhere brings nothing.
func TestSecondFIN(t *testing.T) {
	p := established(t, bare())
	p.send(seg{flags: ackF, seq: 1, ack: 1, win: 10000, n: 10})
	if v := p.send(seg{flags: ackF | fin, seq: 21, ack: 1, win: 10000, n: 10}); v != packet.Deliver {
		t.Errorf("the FIN behind a hole: %v", v)
	}
	if v := p.send(seg{flags: ackF | fin, seq: 1, ack: 1, win: 10000, n: 10}); v != packet.DropSequence {
		t.Errorf("a FIN before it, with old text: %v", v)
	}
	p.send(seg{flags: ackF, seq: 11, ack: 1, win: 10000, n: 10})
	p.state(StateCloseWait, nil)
	p.wantText(30)
}
