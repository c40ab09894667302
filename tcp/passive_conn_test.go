package tcp

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/wire"
)

// text reads all that waits at c.
func text(n *net, c *Conn) string {
	var b [4096]byte
	return string(b[:c.Read(n.now, b[:])])
}

func (n *net) listen(t *testing.T, backlog int, o *Options) (*Listener, *app) {
	t.Helper()
	a := &app{}
	l, err := n.b.m.Listen(wire.Addr{}, testPort, backlog, o, a)
	if err != nil {
		t.Fatal(err)
	}
	return l, a
}

func (n *net) dial(t *testing.T, o *Options) *Conn {
	t.Helper()
	c, err := n.a.m.Connect(n.now, wire.Tuple{Local: addrA, Remote: addrB, RemotePort: testPort}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFastOpenTakesDataWithTheSYN(t *testing.T) { // RFC 7413 4.2
	n := newNet(t)
	fast := &Options{FastOpen: true}
	l, _ := n.listen(t, 5, fast)
	first := n.dial(t, fast)
	first.Write(n.now, []byte("first"))
	n.run(100 * time.Millisecond)
	s := l.Accept()
	if s == nil || text(n, s) != "first" || s.Info().FastOpen || first.Info().FastOpen {
		t.Fatal("the first connection has no cookie, and no data with its SYN")
	}
	c := n.dial(t, fast)
	c.Write(n.now, []byte("second"))
	n.run(6 * time.Millisecond) // one way, not yet back
	s = l.Accept()
	if s == nil || s.State() != StateSynReceived || text(n, s) != "second" {
		t.Fatalf("after half a round trip the server has %v", s)
	}
	if l.fastOpenPending != 1 || n.b.m.Stats().FastOpens != 1 {
		t.Errorf("%d are opening, %d were taken", l.fastOpenPending, n.b.m.Stats().FastOpens)
	}
	s.Write(n.now, []byte("answer"))
	n.run(100 * time.Millisecond)
	if text(n, c) != "answer" || s.State() != StateEstablished || !c.Info().FastOpen || !s.Info().FastOpen || l.fastOpenPending != 0 {
		t.Errorf("%v, %v, %d are opening", c.State(), s.State(), l.fastOpenPending)
	}
	if n.a.m.Stats().Retransmits != 0 || n.b.m.Stats().Retransmits != 0 {
		t.Error("something was sent twice")
	}
	n.pour(t, c, s, 1<<20, 10*time.Second)
}

// A server answers data in a SYN with a whole initial window, ten segments (RFC 6928 2), before its SYN-ACK is acknowledged: the
// octet of the SYN is no data and takes no segment's place (RFC 7413 4.2.2).
func TestFastOpenServerSendsAWholeInitialWindow(t *testing.T) {
	for _, control := range []string{"reno", "cubic", "bbr"} {
		n := newNet(t)
		fast := &Options{FastOpen: true, Congestion: control}
		l, _ := n.listen(t, 5, fast)
		first := n.dial(t, fast)
		first.Write(n.now, []byte("first"))
		n.run(100 * time.Millisecond)
		l.Accept()
		c := n.dial(t, fast)
		c.Write(n.now, []byte("second"))
		n.run(6 * time.Millisecond)
		s := l.Accept()
		if s == nil || s.State() != StateSynReceived {
			t.Fatalf("%s: after half a round trip the server has %v", control, s)
		}
		full := 0
		n.b.lose = func(_ int, seg wire.TCP) bool {
			if len(seg.Payload()) == s.mss() {
				full++
			}
			return false
		}
		s.Write(n.now, make([]byte, 1<<20))
		n.run(3 * time.Millisecond)
		if s.State() != StateSynReceived || full != 10 {
			t.Errorf("%s: %d full segments in the first flight, in %v", control, full, s.State())
		}
	}
}

func TestFastOpenFallsBack(t *testing.T) { // RFC 7413 4.1.3.1, 4.2
	for name, spoil := range map[string]func(n *net, l *Listener){
		"a cookie of another server": func(n *net, l *Listener) { n.b.m.passive.secrets.fastOpen[0]++ },
		"the server has given it up": func(n *net, l *Listener) { l.opts = &Options{} },
		"too many are opening":       func(n *net, l *Listener) { l.fastOpenPending = l.backlog },
		"the SYN is lost": func(n *net, l *Listener) {
			n.a.lose = func(k int, s wire.TCP) bool { return len(s.Payload()) > 0 && s.Flags().Has(wire.FlagSYN) }
		},
	} {
		n := newNet(t)
		fast := &Options{FastOpen: true}
		l, _ := n.listen(t, 5, fast)
		n.dial(t, fast)
		n.run(100 * time.Millisecond)
		l.Accept()
		spoil(n, l)
		c := n.dial(t, fast)
		data := strings.Repeat("0123456789", 300)
		c.Write(n.now, []byte(data))
		n.run(3 * time.Second)
		s := l.Accept()
		if s == nil {
			t.Fatalf("%s: no connection", name)
		}
		if got := text(n, s); got != data || s.Info().FastOpen || c.Info().FastOpen {
			t.Errorf("%s: %d bytes, want %d; fast %v %v", name, len(got), len(data), s.Info().FastOpen, c.Info().FastOpen)
		}
		lost := name == "the SYN is lost"
		if _, _, ok := n.a.m.passive.fastOpenCache.cookie(n.now, &c.tuple.Remote); ok == lost {
			t.Errorf("%s: to be tried again: %v", name, ok)
		}
	}
}

func TestFastOpenConnectionsThatNeverOpenAreFew(t *testing.T) { // RFC 7413 5.1
	d := newMuxTest(t)
	l := d.listen(3, &Options{FastOpen: true})
	for i := range 10 {
		tuple := from(1)
		tuple.RemotePort += uint16(i)
		s := linuxSYN(1000)
		c := d.m.passive.secrets.fastOpenCookie(d.now, &tuple, 0)
		s.Options.HasFastOpen, s.Options.FastOpen = true, c[:]
		d.input(tuple, s, "data")
		l.Accept()
	}
	if l.fastOpenPending != 3 || d.m.Stats().Conns != 3 || d.m.passive.synQueue.used != 7 {
		t.Errorf("%d are opening, %d connections, %d half-open", l.fastOpenPending, d.m.Stats().Conns, d.m.passive.synQueue.used)
	}
	d.after(10 * time.Minute)
	if l.fastOpenPending != 0 {
		t.Errorf("%d are opening after all have given up", l.fastOpenPending)
	}
}

func TestAcceptedConnectionsHaveTheListenersOptions(t *testing.T) {
	n := newNet(t)
	o := &Options{NoDelay: true, TTL: 9, Congestion: "reno", KeepAlive: KeepAlive{Idle: time.Hour}, UserTimeout: time.Minute}
	_, s, _, _ := n.open(t, nil, o)
	if s.Options() != *o {
		t.Errorf("%+v, want %+v", s.Options(), *o)
	}
	if i := s.Info(); !i.SACK || !i.Timestamps || i.PeerMSS != 1460 || i.SendScale == 0 || i.ReceiveScale == 0 {
		t.Errorf("%+v", i)
	}
	if rtt := s.Info().RTT; rtt < 10*time.Millisecond || rtt > 12*time.Millisecond {
		t.Errorf("the handshake took %v, want 10 ms", rtt)
	}
}

func TestOwnersAreCalledOncePerPoll(t *testing.T) {
	n := newNet(t)
	l, a := n.listen(t, 50, nil)
	calls := 0
	l.owner = ownerFunc(func(e Events) { a.Ready(e); calls++ })
	for range 20 {
		n.dial(t, nil)
	}
	n.run(100 * time.Millisecond)
	if a.events != Acceptable || l.Waiting() != 20 || calls != 1 {
		t.Errorf("%v, %d wait, told %d times", a.events, l.Waiting(), calls)
	}
	ports := map[uint16]bool{}
	for c := l.Accept(); c != nil; c = l.Accept() {
		ports[c.Tuple().RemotePort] = true
	}
	if len(ports) != 20 {
		t.Errorf("%d connections", len(ports))
	}
}

type ownerFunc func(Events)

func (f ownerFunc) Ready(e Events) { f(e) }

func TestAcceptIsFirstInFirstOut(t *testing.T) {
	d := newMuxTest(t)
	l := d.listen(64, nil)
	next, taken := 0, 0
	for round := range 200 {
		for range 1 + round%3 {
			d.sent = nil
			d.input(from(next), linuxSYN(1))
			d.input(from(next), ackOf(d.one()))
			next++
		}
		for range 1 + (round+1)%3 {
			if c := l.Accept(); c != nil {
				if c.Tuple() != from(taken) {
					t.Fatalf("connection %v, want %v", c.Tuple(), from(taken))
				}
				taken++
				c.Abort(d.now)
				d.m.Poll(d.now)
			}
		}
	}
	if taken < 390 || cap(l.queue) > 64 {
		t.Errorf("%d accepted, the queue has %d places", taken, cap(l.queue))
	}
}

func TestTheACKOfAHandshakeMayHaveData(t *testing.T) { // RFC 9293 3.10.7.4
	for name, resent := range map[string]bool{"at once": false, "after SYN-ACKs": true} {
		d := newMuxTest(t)
		l := d.listen(1, nil)
		d.input(from(1), linuxSYN(1000))
		ack := ackOf(d.one())
		if resent {
			d.after(4 * time.Second)
			d.sent = nil
		}
		ack.Flags |= wire.FlagFIN
		d.want(name, d.input(from(1), ack, "data"), packet.Deliver)
		c := l.Accept()
		if c == nil || c.State() != StateCloseWait || c.Readable() != 4 {
			t.Fatalf("%s: %v", name, c)
		}
		if rtt := c.Info().RTT; resent && rtt > time.Second {
			t.Errorf("%s: a round trip of %v was measured (RFC 6298 3)", name, rtt)
		}
	}
}

func TestAFullQueueKeepsHandshakesWaiting(t *testing.T) {
	d := newMuxTest(t)
	l := d.listen(1, nil)
	var acks []Segment
	for i := range 3 {
		d.input(from(i), linuxSYN(1000))
		acks = append(acks, ackOf(d.one()))
	}
	d.want("the first", d.input(from(0), acks[0]), packet.Deliver)
	d.want("the second", d.input(from(1), acks[1]), packet.DropBacklog)
	d.want("a new one", d.input(from(9), linuxSYN(1)), packet.DropBacklog)
	l.Accept()
	d.want("the second again", d.input(from(1), acks[1]), packet.Deliver)
	if d.m.Stats().AcceptOverflow != 2 || d.m.passive.synQueue.used != 1 {
		t.Errorf("%d overflowed, %d half-open", d.m.Stats().AcceptOverflow, d.m.passive.synQueue.used)
	}
}

func TestCookiesKeepNegotiatedOptions(t *testing.T) { // RFC 4987 3.6
	for name, c := range map[string]struct {
		change func(*Segment)
		o      Options
		want   Info
	}{
		"all":             {func(s *Segment) {}, Options{}, Info{Timestamps: true, SACK: true, SendScale: 7, PeerMSS: 1460}},
		"no scaling":      {func(s *Segment) { s.Options.HasWindowScale = false }, Options{}, Info{Timestamps: true, SACK: true, PeerMSS: 1460}},
		"no sack":         {func(s *Segment) { s.Options.SACKPermitted = false }, Options{}, Info{Timestamps: true, SendScale: 7, PeerMSS: 1460}},
		"no timestamps":   {func(s *Segment) { s.Options.HasTimestamps = false }, Options{}, Info{PeerMSS: 1460}},
		"smaller mss":     {func(s *Segment) { s.Options.MSS = 1300 }, Options{}, Info{Timestamps: true, SACK: true, SendScale: 7, PeerMSS: 1220}},
		"ecn":             {func(s *Segment) { s.Flags |= wire.FlagECE | wire.FlagCWR }, Options{}, Info{Timestamps: true, SACK: true, SendScale: 7, PeerMSS: 1460, ECN: true}},
		"accurate ecn":    {func(s *Segment) { s.Flags |= wire.FlagECE | wire.FlagCWR; s.AE = true }, Options{}, Info{Timestamps: true, SACK: true, SendScale: 7, PeerMSS: 1460, ECN: true, AccECN: true}},
		"none taken here": {func(s *Segment) {}, Options{NoTimestamps: true}, Info{PeerMSS: 1460}},
	} {
		d := newMuxTest(t, func(c *Config) { c.MaxHalfOpen = 1 })
		l := d.listen(5, &c.o)
		d.input(from(1), linuxSYN(1))
		d.sent = nil
		s := linuxSYN(1000)
		c.change(&s)
		d.input(from(2), s)
		r := d.one()
		if d.m.Stats().CookiesSent != 1 {
			t.Fatalf("%s: no cookie", name)
		}
		d.now = d.now.Add(30 * time.Second)
		ack := ackOf(r)
		if c.want.AccECN { // the counter of marked packets begins at 5, by which the server knows (RFC 9768 5.1)
			ack.AE, ack.Flags = true, ack.Flags|wire.FlagECE
		}
		d.want(name, d.input(from(2), ack, "data"), packet.Deliver)
		got := l.Accept()
		if got == nil || got.Readable() != 4 {
			t.Fatalf("%s: %v", name, got)
		}
		i := got.Info()
		if i.Timestamps != c.want.Timestamps || i.SACK != c.want.SACK || i.SendScale != c.want.SendScale || i.PeerMSS != c.want.PeerMSS || i.ECN != c.want.ECN || i.AccECN != c.want.AccECN {
			t.Errorf("%s: %+v", name, i)
		}
		d.want("twice", d.input(from(2), ackOf(r)), packet.DropSequence)
	}
}

func TestTimeWaitOfTwoEnds(t *testing.T) {
	n := newNet(t)
	c, s, _, _ := n.open(t, nil, nil)
	tuple := c.Tuple()
	s.Close(n.now)
	n.run(50 * time.Millisecond)
	c.Close(n.now)
	n.run(50 * time.Millisecond)
	if st := n.b.m.Stats(); st.TimeWait != 1 || st.Conns != 0 || n.a.m.Stats().Conns != 0 {
		t.Fatalf("%+v", st)
	}
	n.run(2 * time.Second)
	again, err := n.a.m.Connect(n.now, tuple, nil, nil) // the same ports, before the time is over
	if err != nil {
		t.Fatal(err)
	}
	n.run(50 * time.Millisecond)
	if again.State() != StateEstablished || n.b.m.Stats().TimeWaitReused != 1 {
		t.Errorf("%v, %d reused", again.State(), n.b.m.Stats().TimeWaitReused)
	}
}

func keysOf(name string) (c, s *auth.Keys) {
	switch name {
	case "md5":
		return &auth.Keys{MD5: []byte("secret")}, &auth.Keys{MD5: []byte("secret")}
	case "sha1":
		return &auth.Keys{AO: []auth.AOKey{{SendID: 1, ReceiveID: 2, Secret: []byte("secret")}}}, &auth.Keys{AO: []auth.AOKey{{SendID: 2, ReceiveID: 1, Secret: []byte("secret")}}}
	}
	return &auth.Keys{AO: []auth.AOKey{{SendID: 1, ReceiveID: 2, Secret: []byte("secret"), Algorithm: auth.AOAES128, SkipOptions: true}}},
		&auth.Keys{AO: []auth.AOKey{{SendID: 2, ReceiveID: 1, Secret: []byte("secret"), Algorithm: auth.AOAES128, SkipOptions: true}}}
}

func TestSignedConnections(t *testing.T) { // RFC 2385, RFC 5925
	for _, name := range []string{"md5", "sha1", "aes"} {
		n := newNet(t)
		kc, ks := keysOf(name)
		c, s, _, _ := n.open(t, &Options{Keys: kc}, &Options{Keys: ks})
		n.pour(t, c, s, 1<<18, 10*time.Second)
		n.pour(t, s, c, 1<<18, 10*time.Second)
		forged := Segment{Seq: s.rcvNxt, Flags: wire.FlagRST, Packets: 1}
		tuple := s.Tuple()
		if v := n.b.m.Input(n.now, &tuple, &forged); v != packet.DropAuth || s.State() != StateEstablished {
			t.Errorf("%s: a RST without signature: %v, %v", name, v, s.State())
		}
		s.Close(n.now)
		n.run(50 * time.Millisecond)
		c.Close(n.now)
		n.run(50 * time.Millisecond)
		if st := n.b.m.Stats(); st.TimeWait != 1 || st.AuthFailed != 1 || n.a.m.Stats().AuthFailed != 0 {
			t.Errorf("%s: %+v", name, st)
		}
		fin := Segment{Seq: s.rcvNxt, Flags: wire.FlagACK | wire.FlagFIN, Packets: 1}
		if v := n.b.m.Input(n.now, &tuple, &fin); v != packet.DropAuth {
			t.Errorf("%s: in TIME-WAIT: %v", name, v)
		}
		n.run(2 * time.Minute)
		if w := &n.b.m.passive.timeWait; w.used != 0 || len(w.signers) != 0 {
			t.Errorf("%s: %d records and %d keys are left", name, w.used, len(w.signers))
		}
	}
}

func TestSignaturesThatDoNotMatchConnectNothing(t *testing.T) {
	kc, ks := keysOf("sha1")
	_, other := keysOf("md5")
	wrong := &auth.Keys{AO: []auth.AOKey{{SendID: 1, ReceiveID: 2, Secret: []byte("Secret")}}}
	for name, c := range map[string][2]*auth.Keys{
		"none, keys":    {nil, ks},
		"keys, none":    {kc, nil},
		"another":       {wrong, ks},
		"another kind":  {kc, other},
		"another id":    {&auth.Keys{AO: []auth.AOKey{{SendID: 9, ReceiveID: 2, Secret: []byte("secret")}}}, ks},
		"another again": {other, ks},
	} {
		n := newNet(t)
		l, _ := n.listen(t, 5, &Options{Keys: c[1]})
		x := n.dial(t, &Options{Keys: c[0]})
		n.run(10 * time.Second)
		if l.Accept() != nil || x.State() != StateSynSent {
			t.Errorf("%s: %v", name, x.State())
		}
		if n.a.m.Stats().AuthFailed+n.b.m.Stats().AuthFailed == 0 {
			t.Errorf("%s: nothing was counted", name)
		}
	}
}

func TestSignedConnectionsUnderCookies(t *testing.T) {
	for _, name := range []string{"md5", "sha1", "aes"} {
		n := newNet(t)
		n.b.m.passive.synQueue.limit = 1
		kc, ks := keysOf(name)
		n.listen(t, 5, &Options{Keys: ks})
		n.b.m.passive.synQueue.add(n.now, &wire.Tuple{RemotePort: 1}) // takes the room
		c := n.dial(t, &Options{Keys: kc})
		n.run(100 * time.Millisecond)
		if st := n.b.m.Stats(); c.State() != StateEstablished || st.CookiesGood != 1 || st.Conns != 1 {
			t.Errorf("%s: %v, %d cookies were good", name, c.State(), st.CookiesGood)
		}
	}
}

func TestKeysRollOverWhileDataFlows(t *testing.T) { // RFC 5925 6.1
	n := newNet(t)
	a := auth.AOKey{SendID: 1, ReceiveID: 1, Secret: []byte("old")}
	b := auth.AOKey{SendID: 2, ReceiveID: 2, Secret: []byte("new"), Algorithm: auth.AOAES128}
	c, s, _, _ := n.open(t, &Options{Keys: &auth.Keys{AO: []auth.AOKey{a}}}, &Options{Keys: &auth.Keys{AO: []auth.AOKey{a}}})
	set := func(c *Conn, keys ...auth.AOKey) {
		o := c.Options()
		o.Keys = &auth.Keys{AO: keys}
		if err := c.SetOptions(n.now, &o); err != nil {
			t.Fatal(err)
		}
	}
	n.pour(t, c, s, 1<<16, 10*time.Second)
	set(s, b, a)
	n.pour(t, c, s, 1<<16, 10*time.Second)
	set(c, b, a)
	n.pour(t, c, s, 1<<16, 10*time.Second)
	n.pour(t, s, c, 1<<16, 10*time.Second)
	if c.auth.Key() != 0 || s.auth.Key() != 0 { // of {b, a}
		t.Error("the old key still signs")
	}
	set(c, b)
	set(s, b)
	n.pour(t, c, s, 1<<16, 10*time.Second)
	if n.a.m.Stats().AuthFailed+n.b.m.Stats().AuthFailed != 0 {
		t.Errorf("%d and %d were refused", n.a.m.Stats().AuthFailed, n.b.m.Stats().AuthFailed)
	}
}

// synData returns the SYNs with data that end a sends from now on.
func (n *net) synData() *[]wire.TCP {
	var syns []wire.TCP
	n.a.lose = func(_ int, s wire.TCP) bool {
		if s.Flags().Has(wire.FlagSYN) {
			syns = append(syns, s)
		}
		return false
	}
	return &syns
}

// TestFastOpenFillsTheServersMSS is RFC 7413 4.1.3: the client knows the server's MSS by the cookie's connection, so
// that its SYN is as long as any segment may be. Without it 536 bytes, or 1220 over IPv6, were the limit.
func TestFastOpenFillsTheServersMSS(t *testing.T) {
	for name, c := range map[string]struct {
		linkA, pathA, linkB, mss int
		size                     int // of the IP packet of the SYN
	}{
		"ethernet":              {1500, 1500, 1500, 0, 1500},
		"the server's is less":  {1500, 1500, 1000, 0, 1000},
		"the path's is less":    {1500, 1280, 1500, 0, 1280},
		"the client's is less":  {1400, 1400, 9000, 0, 1400},
		"the application's":     {1500, 1500, 1500, 700, 740},
		"jumbo frames":          {9000, 9000, 9000, 0, 9000},
		"the server's is small": {1500, 1500, 576, 0, 576},
	} {
		n := newNet(t)
		n.a.link, n.a.mtu, n.b.mtu = c.linkA, c.pathA, c.linkB
		fast := &Options{FastOpen: true, MSS: c.mss}
		l, _ := n.listen(t, 5, &Options{FastOpen: true})
		n.dial(t, fast)
		n.run(100 * time.Millisecond)
		l.Accept()
		syns := n.synData()
		x := n.dial(t, fast)
		data := strings.Repeat("0123456789", 2000)
		x.Write(n.now, []byte(data))
		n.run(time.Second)
		if len(*syns) != 1 || 20+len((*syns)[0]) != c.size || len((*syns)[0].Payload()) == 0 {
			t.Errorf("%s: %d SYNs, of %d bytes, want one of %d", name, len(*syns), 20+len((*syns)[0]), c.size)
		}
		s := l.Accept()
		if s == nil || !s.Info().FastOpen {
			t.Fatalf("%s: not opened at once", name)
		}
		b := make([]byte, len(data)+1)
		if got := string(b[:s.Read(n.now, b)]); got != data || n.a.m.Stats().Retransmits != 0 {
			t.Errorf("%s: %d bytes arrived of %d, %d sent again", name, len(got), len(data), n.a.m.Stats().Retransmits)
		}
	}
}

// TestFastOpenMSSIsOfTheLastSynAck: a server whose MTU has changed keeps its cookies.
func TestFastOpenMSSIsOfTheLastSynAck(t *testing.T) {
	n := newNet(t)
	fast := &Options{FastOpen: true}
	n.listen(t, 9, fast)
	syns := n.synData()
	for i, mtu := range []int{1500, 1000, 1400, 1400} {
		n.b.mtu = mtu
		x := n.dial(t, fast)
		x.Write(n.now, make([]byte, 5000))
		n.run(time.Second)
		want := []int{0, 1500, 1000, 1400}[i]
		last := (*syns)[len(*syns)-1]
		if len(last.Payload()) > 0 != (i > 0) || i > 0 && 20+len(last) != want {
			t.Errorf("connection %d: a SYN of %d bytes, want %d", i, 20+len(last), want)
		}
	}
}

// TestHeldSYN is RFC 7413 4.2.1: the SYN waits for the first Write, and only where it can carry data.
func TestHeldSYN(t *testing.T) {
	n := newNet(t)
	fast := &Options{FastOpen: true}
	l, _ := n.listen(t, 9, fast)
	first := n.dial(t, fast)
	if first.HoldSYN(n.now) {
		t.Error("a SYN without a cookie waits")
	}
	n.run(100 * time.Millisecond)
	l.Accept()
	if first.HoldSYN(n.now) {
		t.Error("the SYN of a connection that is open waits")
	}
	if c := n.dial(t, nil); c.HoldSYN(n.now) {
		t.Error("a SYN without Fast Open waits")
	}
	n.run(100 * time.Millisecond)
	l.Accept()
	syns := n.synData()
	held := func() *Conn {
		t.Helper()
		*syns = nil
		c := n.dial(t, fast)
		if !c.HoldSYN(n.now) {
			t.Fatal("the SYN does not wait")
		}
		n.run(10 * time.Second)
		if len(*syns) != 0 || c.State() != StateSynSent || c.Writable() == 0 {
			t.Fatalf("%d SYNs, %v, room for %d", len(*syns), c.State(), c.Writable())
		}
		return c
	}

	c := held()
	c.Write(n.now, []byte("request"))
	n.run(6 * time.Millisecond)
	s := l.Accept()
	if s == nil || text(n, s) != "request" || len(*syns) != 1 {
		t.Fatal("the first Write did not leave with the SYN")
	}
	n.run(time.Second)
	if c.State() != StateEstablished {
		t.Errorf("%v", c.State())
	}

	c = held() // the application reads first
	c.ReleaseSYN()
	n.run(time.Second)
	if s = l.Accept(); s == nil || c.State() != StateEstablished || len((*syns)[0].Payload()) != 0 {
		t.Errorf("released: %v", c.State())
	}

	c = held() // it writes nothing
	c.CloseWrite(n.now)
	n.run(time.Second)
	if s = l.Accept(); s == nil || !s.Finished() || c.State() != StateFinWait2 {
		t.Errorf("closed for writing: %v", c.State())
	}

	c = held()
	conns := n.a.m.Stats().Conns
	c.Close(n.now)
	n.run(time.Second)
	if len(*syns) != 0 || n.a.m.Stats().Conns != conns-1 {
		t.Error("closed without a Write: something is left")
	}

	c = held() // Write and Close, as on an open connection
	c.Write(n.now, []byte(strings.Repeat("x", 4000)))
	c.Close(n.now)
	n.run(time.Second)
	if s = l.Accept(); s == nil || len(text(n, s)) != 4000 || !s.Finished() {
		t.Error("closed after a Write: the data did not arrive")
	}

	c = held() // nobody answers
	n.a.lose = func(int, wire.TCP) bool { return true }
	c.Write(n.now, []byte("x"))
	n.run(4 * time.Minute)
	if c.Err() != ErrTimeout {
		t.Errorf("unanswered: %v", c.Err())
	}
}
