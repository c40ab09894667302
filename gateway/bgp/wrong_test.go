package bgp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTransitions lists what the table of states permits; all else is an error of the peer.
func TestTransitions(t *testing.T) {
	permitted := map[State]map[event]State{
		Idle:        {eventDial: Connect, eventAdopt: Established},
		Connect:     {eventConnected: OpenSent},
		OpenSent:    {eventOpen: OpenConfirm},
		OpenConfirm: {eventKeepalive: Established},
		Established: {eventKeepalive: Established, eventUpdate: Established},
		Stopped:     {},
	}
	for s := range states {
		for e := range events {
			want, ok := permitted[s][e]
			switch {
			case e == eventStop || s == Stopped && e == eventEnd:
				want, ok = Stopped, true
			case e == eventEnd:
				want, ok = Idle, true
			}
			if got, is := s.next(e); is != ok || is && got != want {
				t.Errorf("%v by event %d: %v %v, want %v %v", s, e, got, is, want, ok)
			}
		}
	}
}

// message returns a message of a type with a body.
func message(t messageType, body ...byte) []byte {
	return endMessage(append(beginMessage(nil, t), body...), 0)
}

// TestMalformedMessages sends what no router may, in each state, and wants the error that RFC 4271 6 has for it.
func TestMalformedMessages(t *testing.T) {
	edit := func(b []byte, at int, v ...byte) []byte { b = slices.Clone(b); copy(b[at:], v); return b }
	good := routerOpen().append(nil)
	inOpenSent := []struct {
		name string
		send []byte
		code code
		sub  uint8
	}{
		{"marker", edit(good, 3, 0), codeHeader, 1},
		{"too long", edit(good, 16, 0x10, 0x01), codeHeader, 2},
		{"shorter than a header", edit(good, 16, 0, 18), codeHeader, 2},
		{"OPEN without its fields", message(typeOpen, 4, 0), codeHeader, 2},
		{"KEEPALIVE with a body", message(typeKeepalive, 0), codeHeader, 2},
		{"type 0", message(0), codeHeader, 3},
		{"type 6", message(6), codeHeader, 3},
		{"version 3", edit(good, 19, 3), codeOpen, openVersion},
		{"hold time of a second", edit(good, 22, 0, 1), codeOpen, openHoldTime},
		{"identifier 0", edit(good, 24, 0, 0, 0, 0), codeOpen, openIdentifier},
		{"our identifier", edit(good, 24, 192, 0, 2, 1), codeOpen, openIdentifier},
		{"parameters longer than the message", edit(good, 28, 200), codeOpen, 0},
		{"a parameter longer than its room", edit(good, 30, 200), codeOpen, 0},
		{"a parameter that is none", edit(good, 29, 1), codeOpen, openParameter},
		{"a capability longer than its room", edit(good, 32, 200), codeOpen, 0},
		{"KEEPALIVE instead of OPEN", message(typeKeepalive), codeState, 1},
		{"UPDATE instead of OPEN", message(typeUpdate, 0, 0, 0, 0), codeState, 1},
		{"another AS", (&open{AS: 65001, HoldTime: 90, ID: netip.MustParseAddr("192.0.2.2"), FourAS: true}).append(nil), codeOpen, openPeerAS},
		{"no family of ours", edit(good, 34, 0, 9), codeOpen, openCapability}, // see below
	}
	for _, c := range inOpenSent {
		t.Run(c.name, func(t *testing.T) {
			p := testPeer()
			if c.sub == openCapability {
				p.Families = []Family{IPv4}
			}
			with(t, testConfig(p), func(r *router) {
				r.s.Announce(nil)
				r.accept()
				go r.send(c.send)
				r.wantNotification(c.code, c.sub)
				if st := r.status(); st.State != Idle || st.Failed != 1 || st.LastError == "" {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
	reach := func(b ...byte) []byte { return append([]byte{flagOptional, attrReach, byte(len(b))}, b...) }
	update := func(withdrawn, attrs, nlri []byte) []byte {
		b := append(binary.BigEndian.AppendUint16(nil, uint16(len(withdrawn))), withdrawn...)
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(attrs))), attrs...)
		return message(typeUpdate, append(b, nlri...)...)
	}
	for _, c := range []struct {
		name string
		send []byte
		code code // 0: the session goes on
		sub  uint8
	}{
		{"withdrawn longer than the message", message(typeUpdate, 0, 9, 0, 0), codeUpdate, updateAttributes},
		{"attributes longer than the message", message(typeUpdate, 0, 0, 0, 9), codeUpdate, updateAttributes},
		{"prefix of 33 bits", update(nil, nil, []byte{33, 1, 2, 3, 4, 5}), codeUpdate, updateField},
		{"prefix cut short", update(nil, nil, []byte{24, 1, 2}), codeUpdate, updateField},
		{"withdrawn prefix cut short", update([]byte{24, 1, 2}, nil, nil), codeUpdate, updateField},
		{"MP_REACH_NLRI without a family", update(nil, reach(0), nil), codeUpdate, 9},
		{"MP_REACH_NLRI without its next hop", update(nil, reach(0, 2, 1, 16, 0), nil), codeUpdate, 9},
		{"prefix of 129 bits", update(nil, reach(0, 2, 1, 0, 0, 129), nil), codeUpdate, 9},
		{"MP_REACH_NLRI twice", update(nil, append(reach(0, 2, 1, 0, 0), reach(0, 2, 1, 0, 0)...), nil), codeUpdate, updateAttributes},
		{"an OPEN", good, codeState, 3},
		{"attribute cut short", update(nil, []byte{0x40, 1}, []byte{24, 1, 2, 3}), 0, 0},
		{"attribute longer than its room", update(nil, []byte{0x40, 1, 200, 0}, []byte{24, 1, 2, 3}), 0, 0},
		{"a family that is not ours", update(nil, reach(0, 25, 70, 0, 0, 200, 1), nil), 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			with(t, testConfig(testPeer()), func(r *router) {
				r.s.Announce(nil)
				r.establish(routerOpen())
				r.wantEnd()
				go r.send(c.send)
				if c.code == 0 {
					if st := r.status(); st.State != Established || st.Received != 0 || st.UpdatesReceived != 1 || strings.HasPrefix(c.name, "attribute") != (st.Malformed == 1) {
						t.Errorf("status %+v", st)
					}
					return
				}
				r.wantNotification(c.code, c.sub)
				if st := r.status(); st.State != Idle || st.Lost != 1 || (st.Malformed != 1) != (c.code == codeState) {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

// TestAFloodOfRoutes has a peer that announces 100 000 prefixes: the session ends at max_prefixes, by the reason that the peer's
// operator looks for, and memory stays as it is.
func TestAFloodOfRoutes(t *testing.T) {
	with(t, testConfig(testPeer()), func(r *router) {
		r.s.Announce(nil)
		r.establish(routerOpen())
		r.wantEnd()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		go func() {
			var b []byte
			for i := range 100_000 {
				b = append(b[:0], 0, 0, 0, 0, 32, 10, byte(i>>16), byte(i>>8), byte(i))
				if _, err := r.conn.Write(message(typeUpdate, b...)); err != nil {
					return
				}
			}
		}()
		n := r.wantNotification(codeCease, ceasePrefixes)
		if !bytes.Equal(n.Data, []byte{0, 1, 1, 0, 0, 3, 0xe8}) {
			t.Errorf("data %x (RFC 4486 4)", n.Data)
		}
		st := r.status()
		if st.Refused != 1 || st.UpdatesReceived != 1000 || !strings.Contains(st.LastError, "raise max_prefixes") {
			t.Errorf("status %+v", st)
		}
		if runtime.ReadMemStats(&after); after.HeapAlloc > before.HeapAlloc+8<<20 {
			t.Errorf("the heap grew by %d bytes", after.HeapAlloc-before.HeapAlloc)
		}
	})
}

// TestRoutesThatComeAndGo counts each prefix once, and forgets what is withdrawn.
func TestRoutesThatComeAndGo(t *testing.T) {
	with(t, testConfig(testPeer()), func(r *router) {
		r.s.Announce(nil)
		r.establish(routerOpen())
		r.wantEnd()
		for i := range 5000 {
			r.send(message(typeUpdate, 0, 0, 0, 0, 32, 10, 0, 0, byte(i)))
			r.send(message(typeUpdate, 0, 0, 0, 0, 32, 10, 1, byte(i>>8), byte(i)))
			r.send(message(typeUpdate, 0, 5, 32, 10, 1, byte(i>>8), byte(i), 0, 0))
		}
		if st := r.status(); st.State != Established || st.Received != 256 {
			t.Errorf("status %+v", st)
		}
	})
}

// TestAPeerThatFlaps is dialled less and less often, and again soon once a session was steady.
func TestAPeerThatFlaps(t *testing.T) {
	with(t, testConfig(testPeer()), func(r *router) {
		r.s.Announce(nil)
		for range 8 {
			r.establish(routerOpen())
			r.wantEnd()
			r.conn.Close()
		}
		times := r.times()
		for i := 1; i < len(times); i++ {
			most := min(5*time.Second<<(i-1), time.Minute)
			if d := times[i].Sub(times[i-1]); d > most || d < most*3/4 {
				t.Errorf("dial %d after %v, want %v", i, d, most)
			}
		}
		r.establish(routerOpen())
		r.wantEnd()
		for range 10 {
			r.send(appendKeepalive(nil))
			time.Sleep(7 * time.Second)
		}
		r.conn.Close()
		began := time.Now()
		r.accept()
		if d := r.since(began); d > 5*time.Second {
			t.Errorf("after a steady session the peer was dialled after %v", d)
		}
		if n := strings.Count(r.log.String(), "state=down"); n != 9 {
			t.Errorf("%d lines for 9 sessions that broke", n)
		}
	})
}

// TestAPeerThatIsAway says so once in the log.
func TestAPeerThatIsAway(t *testing.T) {
	with(t, testConfig(testPeer()), func(r *router) {
		r.refused.Store(true)
		time.Sleep(time.Hour)
		if n := strings.Count(r.log.String(), "state=down"); n > 1 {
			t.Errorf("%d lines:\n%s", n, r.log)
		}
		if st := r.status(); st.Failed < 50 || st.LastError != "connection refused" {
			t.Errorf("status %+v", st)
		}
	})
}

// TestAPeerThatDoesNotRead does not hold the speaker: the session ends.
func TestAPeerThatDoesNotRead(t *testing.T) {
	with(t, testConfig(testPeer()), func(r *router) {
		r.s.Announce([]Route{{Prefix: vip4}})
		r.establish(routerOpen())
		time.Sleep(2 * openLimit)
		if st := r.status(); st.Lost != 1 || st.State == Established {
			t.Errorf("status %+v", st)
		}
	})
}

// TestAPeerThatSaysNothing is left after a while, with what an operator may look at.
func TestAPeerThatSaysNothing(t *testing.T) {
	with(t, testConfig(testPeer()), func(r *router) {
		r.accept()
		r.wantNotification(codeHold, 0)
		if st := r.status(); st.Failed != 1 {
			t.Errorf("status %+v", st)
		}
	})
}

// TestRefusals has the reasons of peers, and what an operator reads.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		n    Notification
		want string
	}{
		{Notification{Code: codeOpen, Subcode: openPeerAS}, "the peer has sent: bad peer AS (it expects another AS of this gateway: compare bgp.as with its `neighbor remote-as`)"},
		{Notification{Code: codeCease, Subcode: ceaseShutdown, Data: []byte("\x05night")}, `the peer has sent: administrative shutdown ("night")`},
		{Notification{Code: codeCease, Subcode: ceaseShutdown, Data: []byte("\xffnight")}, "the peer has sent: administrative shutdown"},
		{Notification{Code: codeCease, Subcode: ceaseShutdown, Data: []byte("\x02\xff\xff")}, "the peer has sent: administrative shutdown"},
		{Notification{Code: codeCease, Subcode: 77}, "the peer has sent: cease, subcode 77"},
		{Notification{Code: 77, Subcode: 7}, "the peer has sent: error code 77, subcode 7"},
	} {
		with(t, testConfig(testPeer()), func(r *router) {
			r.accept()
			r.send(c.n.append(nil))
			if st := r.status(); st.LastError != c.want {
				t.Errorf("%+v: %q, want %q", c.n, st.LastError, c.want)
			}
		})
	}
}

// TestExtendedParameters are those of an OPEN with many capabilities (RFC 9072).
func TestExtendedParameters(t *testing.T) {
	caps := []byte{capMultiprotocol, 4, 0, 2, 0, 1, capFourOctetAS, 4, 0, 1, 0, 0}
	caps = append(caps, bytes.Repeat([]byte{200, 1, 9}, 150)...) // unknown ones
	body := append([]byte{4, 0x5b, 0xa0, 0, 90, 192, 0, 2, 2, 255, 255}, byte((len(caps)+3)>>8), byte(len(caps)+3), paramCapabilities, byte(len(caps)>>8), byte(len(caps)))
	o, err := parseOpen(append(body, caps...))
	if err != nil || o.AS != 65536 || !o.Families.has(IPv6) || o.Families.has(IPv4) {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := parseOpen(append(body, caps[1:]...)); err == nil {
		t.Error("a parameter that is cut short is accepted")
	}
}

// FuzzReceive gives the bytes of a peer to all that parses them. What the parsers accept survives being written again.
func FuzzReceive(f *testing.F) {
	f.Add(routerOpen().append(nil))
	f.Add(message(typeUpdate, 0, 5, 32, 10, 0, 0, 1, 0, 4, 0x40, 1, 1, 0, 24, 1, 2, 3))
	f.Add(appendAnnouncements(nil, IPv6, netip.MustParseAddr("2001:db8::1"), []byte{0x40, 1, 1, 0}, []netip.Prefix{vip6}))
	f.Add(appendWithdrawals(nil, IPv6, []netip.Prefix{vip6}))
	f.Add(shutdown(ceaseShutdown, "night").append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := reader{from: bytes.NewReader(b)}
		var ch change
		for {
			kind, body, err := r.next()
			if err != nil {
				return
			}
			switch kind {
			case typeOpen:
				o, wrong := parseOpen(body)
				if wrong != nil {
					continue
				}
				if again, wrong := parseOpen(o.append(nil)[headerLen:]); wrong != nil || o.Restart == again.Restart && fmt.Sprint(*o) != fmt.Sprint(*again) {
					t.Fatalf("%+v became %+v, %v", o, again, wrong)
				}
			case typeUpdate:
				if parseUpdate(body, &ch) != nil {
					continue
				}
				if len(ch.announced)+len(ch.withdrawn) > maxMessage {
					t.Fatalf("%d prefixes of one message", len(ch.announced)+len(ch.withdrawn))
				}
				for _, p := range slices.Concat(ch.announced, ch.withdrawn) {
					if !p.IsValid() || p != p.Masked() {
						t.Fatalf("prefix %v", p)
					}
				}
			case typeNotification:
				_ = parseNotification(body).Error()
			}
		}
	})
}
