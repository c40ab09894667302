package bgp

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestARouteIsAnnouncedAndWithdrawn(t *testing.T) {
	with(t, testConfig(testPeer()), func(r *router) {
		var c Communities
		for _, s := range []string{"64512:7", "64512:1:2", "no-export"} {
			if err := c.Parse(s); err != nil {
				t.Fatal(err)
			}
		}
		r.s.Announce([]Route{{Prefix: vip4, MED: 50, HasMED: true, Communities: c, Prepend: 1}, {Prefix: vip6}})
		o := r.establish(routerOpen())
		if o.AS != 64512 || o.HoldTime != 9 || o.ID != netip.MustParseAddr("192.0.2.1") || !o.FourAS || !o.Refresh || o.Restart || !o.Families.has(IPv4) || !o.Families.has(IPv6) {
			t.Errorf("OPEN is %+v", o)
		}
		u := r.wantUpdate()
		if !slices.Equal(u.announced, []netip.Prefix{vip4}) {
			t.Errorf("announced %v", u.announced)
		}
		for kind, want := range map[byte][]byte{
			attrOrigin: {0}, attrASPath: {2, 2, 0, 0, 0xfc, 0, 0, 0, 0xfc, 0}, attrNextHop: {192, 0, 2, 1}, attrMED: {0, 0, 0, 50},
			attrCommunities: {0xfc, 0, 0, 7, 0xff, 0xff, 0xff, 1}, attrLarge: {0, 0, 0xfc, 0, 0, 0, 0, 1, 0, 0, 0, 2},
		} {
			if !bytes.Equal(u.attrs[kind], want) {
				t.Errorf("attribute %d is %x, want %x", kind, u.attrs[kind], want)
			}
		}
		if u.attrs[attrLocalPref] != nil {
			t.Error("LOCAL_PREF leaves the AS")
		}
		u = r.wantUpdate()
		if !slices.Equal(u.announced, []netip.Prefix{vip6}) || !bytes.Equal(u.attrs[attrReach][4:20], netip.MustParseAddr("2001:db8::1").AsSlice()) {
			t.Errorf("announced %v with %x", u.announced, u.attrs[attrReach])
		}
		r.wantEnd()
		r.s.Announce([]Route{{Prefix: vip6}})
		if u := r.wantUpdate(); !slices.Equal(u.withdrawn, []netip.Prefix{vip4}) || len(u.announced) > 0 {
			t.Errorf("got %v, want %v withdrawn", u.change, vip4)
		}
		r.s.Announce([]Route{{Prefix: vip6, MED: 9, HasMED: true}})
		if u := r.wantUpdate(); !slices.Equal(u.announced, []netip.Prefix{vip6}) || !bytes.Equal(u.attrs[attrMED], []byte{0, 0, 0, 9}) {
			t.Errorf("got %v, want %v with another MED", u.change, vip6)
		}
		r.s.Announce(nil)
		if u := r.wantUpdate(); !slices.Equal(u.withdrawn, []netip.Prefix{vip6}) {
			t.Errorf("got %v, want %v withdrawn", u.change, vip6)
		}
		if st := r.status(); st.State != Established || st.Prefixes != 0 || st.HoldTime != 9 {
			t.Errorf("status %+v", st)
		}
		for _, want := range []string{"state=\"waits for a session\" routers=\"0 of 1\" prefixes=\"[198.18.1.1/32 2001:db8:1::1/128]\"", "state=announced routes=2", "state=withdrawn routers=\"1 of 1\" prefixes=[198.18.1.1/32]", "state=established"} {
			if !strings.Contains(r.log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, r.log)
			}
		}
	})
}

// TestInsideTheAS has no path and a local preference (RFC 4271 5.1.2, 5.1.5).
func TestInsideTheAS(t *testing.T) {
	p := testPeer()
	p.AS = 64512
	with(t, testConfig(p), func(r *router) {
		r.s.Announce([]Route{{Prefix: vip4, LocalPref: 150, Prepend: 3}})
		o := routerOpen()
		o.AS = 64512
		r.establish(o)
		u := r.wantUpdate()
		if len(u.attrs[attrASPath]) != 0 || !bytes.Equal(u.attrs[attrLocalPref], []byte{0, 0, 0, 150}) {
			t.Errorf("path %x, local preference %x", u.attrs[attrASPath], u.attrs[attrLocalPref])
		}
		r.s.Announce([]Route{{Prefix: vip4, LocalPref: 150, Shutdown: true}})
		r.wantEnd()
		if u := r.wantUpdate(); !bytes.Equal(u.attrs[attrLocalPref], []byte{0, 0, 0, 0}) {
			t.Errorf("local preference %x, want 0 (RFC 8326 4.3)", u.attrs[attrLocalPref])
		}
	})
}

// TestOldPeer has two octets for an AS number (RFC 6793 4.2.2) and one family.
func TestOldPeer(t *testing.T) {
	c := testConfig(testPeer())
	c.AS = 4_200_000_000
	with(t, c, func(r *router) {
		r.s.Announce([]Route{{Prefix: vip4}, {Prefix: vip6}})
		o := routerOpen()
		o.FourAS, o.Families = false, families(0).with(IPv4)
		r.establish(o)
		u := r.wantUpdate()
		if !bytes.Equal(u.attrs[attrASPath], []byte{2, 1, 0x5b, 0xa0}) || !bytes.Equal(u.attrs[attrAS4Path], binary.BigEndian.AppendUint32([]byte{2, 1}, c.AS)) {
			t.Errorf("path %x, AS4_PATH %x", u.attrs[attrASPath], u.attrs[attrAS4Path])
		}
		if st := r.status(); st.Prefixes != 1 || !slices.Equal(st.Families, []string{"ipv4"}) {
			t.Errorf("status %+v", st)
		}
		if !strings.Contains(r.log.String(), "family=ipv6 state=\"not announced\"") {
			t.Errorf("the log does not name the family:\n%s", r.log)
		}
	})
}

func TestGracefulShutdown(t *testing.T) {
	with(t, testConfig(testPeer()), func(r *router) {
		r.s.Announce([]Route{{Prefix: vip4}})
		r.establish(routerOpen())
		r.wantUpdate()
		r.wantEnd()
		r.s.Announce([]Route{{Prefix: vip4, Shutdown: true}})
		began := time.Now()
		if u := r.wantUpdate(); !bytes.Equal(u.attrs[attrCommunities], []byte{0xff, 0xff, 0, 0}) || u.attrs[attrLocalPref] != nil {
			t.Errorf("attributes %x, want the community 65535:0", u.attrs)
		}
		r.s.Announce([]Route{{Prefix: vip4, Shutdown: true}}) // again: the time does not begin anew
		if u := r.wantUpdate(); !slices.Equal(u.withdrawn, []netip.Prefix{vip4}) || r.since(began) != 2*time.Second {
			t.Errorf("%v withdrawn after %v, want 2s", u.withdrawn, r.since(began))
		}
		r.s.Announce([]Route{{Prefix: vip4}}) // the drain is over
		if u := r.wantUpdate(); !slices.Equal(u.announced, []netip.Prefix{vip4}) || u.attrs[attrCommunities] != nil {
			t.Errorf("got %v %x", u.change, u.attrs)
		}
		r.s.Announce([]Route{{Prefix: vip4, Shutdown: true}})
		if u := r.wantUpdate(); !slices.Equal(u.announced, []netip.Prefix{vip4}) {
			t.Errorf("got %v: a second drain has its time again", u.change)
		}
	})
}

func TestShutdown(t *testing.T) {
	with(t, testConfig(testPeer()), func(r *router) {
		r.s.Announce([]Route{{Prefix: vip4}})
		r.establish(routerOpen())
		r.wantUpdate()
		r.wantEnd()
		began, done := time.Now(), make(chan time.Duration, 1)
		go func() { r.s.Shutdown(context.Background(), "good night"); done <- r.since(began) }()
		if u := r.wantUpdate(); !bytes.Equal(u.attrs[attrCommunities], []byte{0xff, 0xff, 0, 0}) {
			t.Errorf("attributes %x, want the community 65535:0", u.attrs)
		}
		if u := r.wantUpdate(); !slices.Equal(u.withdrawn, []netip.Prefix{vip4}) || r.since(began) != 2*time.Second {
			t.Errorf("%v withdrawn after %v", u.withdrawn, r.since(began))
		}
		if n := r.wantNotification(codeCease, ceaseShutdown); n.communication() != "good night" {
			t.Errorf("communication %q", n.communication())
		}
		if took := <-done; took != 2*time.Second {
			t.Errorf("took %v", took)
		}
		if st := r.status(); st.State != Stopped {
			t.Errorf("state %v", st.State)
		}
	})
}

// TestShutdownWithoutASession does not wait: no router has a route.
func TestShutdownWithoutASession(t *testing.T) {
	with(t, testConfig(testPeer()), func(r *router) {
		r.s.Announce([]Route{{Prefix: vip4}})
		r.accept()
		began := time.Now()
		go r.s.Shutdown(context.Background(), "")
		r.wantNotification(codeCease, ceaseShutdown)
		if r.since(began) != 0 {
			t.Errorf("took %v", r.since(began))
		}
	})
}

func TestKeepalivesAndTheHoldTime(t *testing.T) {
	with(t, testConfig(testPeer()), func(r *router) {
		r.s.Announce(nil)
		o := routerOpen()
		o.HoldTime = 6 // the shorter one counts
		r.establish(o)
		r.wantEnd()
		began := time.Now()
		for i := range 2 {
			r.want(typeKeepalive)
			if d := r.since(began); d != time.Duration(i+1)*2*time.Second {
				t.Errorf("KEEPALIVE %d after %v", i, d)
			}
		}
		r.send(appendKeepalive(nil)) // after 4 s
		r.want(typeKeepalive)
		r.want(typeKeepalive)
		r.wantNotification(codeHold, 0)
		if d := r.since(began); d != 10*time.Second {
			t.Errorf("the hold timer expired after %v, want 4s and 6s", d)
		}
		if st := r.status(); st.Lost != 1 || !strings.Contains(st.LastError, "hold timer expired") {
			t.Errorf("status %+v", st)
		}
	})
}

func TestNoHoldTime(t *testing.T) {
	with(t, testConfig(testPeer()), func(r *router) {
		r.s.Announce(nil)
		o := routerOpen()
		o.HoldTime = 0
		r.establish(o)
		r.wantEnd()
		time.Sleep(time.Hour)
		if st := r.status(); st.State != Established || st.HoldTime != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

// TestManyRoutes packs routes of the same attributes in messages of at most 4096 octets.
func TestManyRoutes(t *testing.T) {
	with(t, testConfig(testPeer()), func(r *router) {
		var list []Route
		for i := range 4096 {
			a := netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
			b := netip.MustParseAddr("2001:db8::").As16()
			b[14], b[15] = byte(i>>8), byte(i)
			list = append(list, Route{Prefix: netip.PrefixFrom(a, 32)}, Route{Prefix: netip.PrefixFrom(netip.AddrFrom16(b), 128)})
		}
		r.s.Announce(list)
		r.establish(routerOpen())
		got, messages := map[netip.Prefix]bool{}, 0
		for len(got) < len(list) {
			messages++
			for _, p := range r.wantUpdate().announced {
				got[p] = true
			}
		}
		if messages > 6+18 {
			t.Errorf("%d messages", messages)
		}
		r.wantEnd()
		r.s.Announce(nil)
		for len(got) > 0 {
			for _, p := range r.wantUpdate().withdrawn {
				delete(got, p)
			}
		}
	})
}

// TestConfigureKeepsSessions ends those whose settings have changed, and no other.
func TestConfigureKeepsSessions(t *testing.T) {
	c := testConfig(testPeer())
	with(t, c, func(r *router) {
		r.s.Announce([]Route{{Prefix: vip4}})
		r.establish(routerOpen())
		r.wantUpdate()
		r.wantEnd()
		c.Drain = time.Minute
		r.s.Configure(c)
		if st := r.status(); st.State != Established || len(r.times()) != 1 {
			t.Fatalf("another drain ended the session: %+v", st)
		}
		p := testPeer()
		p.HoldTime = 30 * time.Second
		c = testConfig(p)
		r.s.Configure(c)
		r.wantNotification(codeCease, ceaseReconfig)
		if o := r.establish(routerOpen()); o.HoldTime != 30 {
			t.Errorf("OPEN %+v", o)
		}
		r.wantUpdate()
		r.wantEnd()
		r.s.Configure(testConfig())
		r.wantNotification(codeCease, ceaseUnconfig)
		synctest.Wait()
		if n := len(r.s.Status().Peers); n != 0 {
			t.Errorf("%d peers", n)
		}
	})
}

// TestRouteRefresh has a peer that asks for the routes again (RFC 2918), and again and again.
func TestRouteRefresh(t *testing.T) {
	with(t, testConfig(testPeer()), func(r *router) {
		r.s.Announce([]Route{{Prefix: vip4}, {Prefix: vip6}})
		r.establish(routerOpen())
		r.wantUpdate()
		r.wantUpdate()
		r.wantEnd()
		refresh := endMessage(append(beginMessage(nil, typeRefresh), 0, 1, 0, 1), 0)
		r.send(refresh)
		if u := r.wantUpdate(); !slices.Equal(u.announced, []netip.Prefix{vip4}) {
			t.Errorf("got %v", u.change)
		}
		began := time.Now()
		for range 1000 {
			r.send(refresh)
		}
		if r.wantUpdate(); r.since(began) != time.Second {
			t.Errorf("the routes came again after %v, want a second", r.since(began))
		}
		r.send(endMessage(append(beginMessage(nil, typeRefresh), 0, 25, 0, 70), 0)) // a family that is not ours
		if st := r.status(); st.State != Established || st.Updates != 3 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestCommunities(t *testing.T) {
	for _, s := range []string{"1:2", "65535:65535", "4294967295:0:1", "no-export", "no-advertise", "blackhole", "no-export-subconfed"} {
		var c Communities
		if err := c.Parse(s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
		for _, v := range c.Standard {
			if v.String() != s {
				t.Errorf("%s is %v", s, v)
			}
		}
		for _, v := range c.Large {
			if v.String() != s {
				t.Errorf("%s is %v", s, v)
			}
		}
	}
	for _, s := range []string{"", "1", "65536:1", "1:65536", "+1:2", "1:", ":", "1:2:3:4", "4294967296:1:1", "65535:0", "a:b", "NO-EXPORT"} {
		if err := new(Communities).Parse(s); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}
