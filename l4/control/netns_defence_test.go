package control_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/defence"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/control"
)

const defenceConfig = `
limits: {packets: 200, burst: 100ms}
admin: {socket: %q}
defence:
  devices: [front]
  drop: [203.0.113.0/24, blocked.txt]
  accept: [198.18.0.3]
  time: 1m
  limits: {excess: 300, action: %s, time: %s}
`

// defended is a site whose gateway has a defence at the device of the client.
type defended struct {
	*site
	g   *admin.Client
	net *testnet.Net
}

// defendedNets numbers the networks, so that tests run beside each other.
var defendedNets atomic.Uint32

// newDefended starts the gateway, after before.
func newDefended(t *testing.T, driver, action, last, more string, before ...func(*defended)) *defended {
	t.Helper()
	s, n := layOut(t, fmt.Sprint("mr-gwdef", defendedNets.Add(1)))
	for i := range s.backends {
		s.listen(i)
	}
	for i := range 8 {
		s.must(s.client.Up("eth0", fmt.Sprintf("198.18.0.%d/24", 3+i)))
	}
	s.admin = true
	socket := filepath.Join(filepath.Dir(s.file), "gw.sock")
	d := &defended{s, admin.NewClient(socket), n}
	d.block("198.51.100.7")
	s.must(os.WriteFile(s.file, []byte(more+fmt.Sprintf(defenceConfig, socket, action, last)+fmt.Sprintf(siteConfig, driver, "")), 0o644))
	for _, f := range before {
		f(d)
	}
	s.start()
	d.until("the gateway runs", func() bool { _, err := d.g.Defence(context.Background()); return err == nil })
	d.until("the service answers", func() bool { return d.asked("198.18.0.5", "198.18.1.1:53", 1) })
	return d
}

// block writes the list file.
func (d *defended) block(lines ...string) {
	d.must(os.WriteFile(filepath.Join(filepath.Dir(d.file), "blocked.txt"), []byte(strings.Join(lines, "\n")), 0o644))
}

func (d *defended) status() defence.Status {
	d.t.Helper()
	st, err := d.g.Defence(context.Background())
	d.must(err)
	return st
}

// dropped returns what a rule has dropped.
func (d *defended) dropped(rule string) uint64 {
	for _, r := range d.status().Rules {
		if r.Rule == rule {
			return r.Packets
		}
	}
	return 0
}

// until waits for a condition.
func (d *defended) until(what string, ok func() bool) {
	d.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			st, err := d.g.Defence(context.Background())
			d.t.Fatalf("%s: not in 30 s: %+v, %v", what, st, err)
		}
	}
}

// answers reports whether the service answers a source by UDP: within 2 s, and silent within half a second that it does not.
func (d *defended) answers(source, service string) bool { return d.asked(source, service, 20) }
func (d *defended) silent(source, service string) bool  { return !d.asked(source, service, 5) }

func (d *defended) asked(source, service string, times int) bool {
	d.t.Helper()
	c := d.from(source, service)
	defer c.Close()
	b := make([]byte, 100)
	for range times {
		_, err := c.Write([]byte("?"))
		d.must(err)
		c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := c.Read(b); err == nil {
			return true
		}
	}
	return false
}

// from opens a socket of the client.
func (d *defended) from(source, service string) (c net.Conn) {
	d.t.Helper()
	d.must(d.client.Do(func() (err error) {
		c, err = (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(source)}}).Dial("udp", service)
		return err
	}))
	return c
}

// flood sends datagrams from a source until ok.
func (d *defended) flood(source, service, what string, ok func() bool) {
	d.t.Helper()
	c := d.from(source, service)
	defer c.Close()
	d.until(what, func() bool {
		for range 2000 {
			_, _ = c.Write([]byte("!"))
		}
		return ok()
	})
}

// received is what the loops of the gateway have got so far.
func (d *defended) received() uint64 {
	st, err := d.g.Status(context.Background(), control.Selection{})
	d.must(err)
	return st.Counts.Received
}

var defenceDrivers = []struct{ driver, more, how string }{
	{"afxdp", "", "before the driver's program"},
	{"afxdp", "kernel_flows: on\n", "before the driver's program"},
	{"afpacket", "kernel_flows: on\n", "alone, in native mode"},
}

// A source beyond the limits is dropped in XDP: its packets do not come to the loops any more, and those of others do.
func TestFloodIsDroppedInXDP(t *testing.T) {
	t.Parallel()
	for _, c := range defenceDrivers {
		t.Run(c.driver+" "+c.more, func(t *testing.T) {
			t.Parallel()
			testnet.Program(t, "curl")
			d := newDefended(t, c.driver, "drop", "1m", c.more)
			if dev := d.status().Devices; len(dev) != 1 || !dev[0].On || dev[0].How != c.how {
				t.Fatalf("devices %+v, want %s", dev, c.how)
			}
			for _, f := range []struct{ source, service, verdict string }{
				{"198.18.0.4", "198.18.1.1:53", "198.18.0.4/32"}, {"2001:db8::2", "[2001:db8:1::1]:53", "2001:db8::/64"},
			} {
				before := d.dropped("limits")
				d.flood(f.source, f.service, "drops in XDP", func() bool { return d.dropped("limits") > before+1000 })
				if v := d.status().Verdicts; v[len(v)-1].Source.String() != f.verdict || v[len(v)-1].Action != "drop" || v[len(v)-1].Left > 60 {
					t.Errorf("verdicts %+v", v)
				}
				if !d.silent(f.source, f.service) {
					t.Errorf("%s is answered", f.source)
				}
				got := d.received()
				d.flood(f.source, f.service, "more drops in XDP", func() bool { return d.dropped("limits") > before+5000 })
				if n := d.received() - got; n > 1000 { // probes, ARP and neighbours' messages
					t.Errorf("%d packets came to the loops while XDP dropped 4000", n)
				}
			}
			if !d.answers("198.18.0.5", "198.18.1.1:53") {
				t.Error("another source is not answered")
			}
			d.served("http://198.18.1.1/", 20*time.Second)
			d.must(d.g.RemoveVerdict(context.Background(), admin.DefenceSource{Source: netip.MustParsePrefix("198.18.0.4/32")}))
			if !d.answers("198.18.0.4", "198.18.1.1:53") {
				t.Error("the source is not answered after its verdict was removed")
			}
			d.stop()
		})
	}
}

// With `action: limit` a source keeps what the limit gives it, and verdicts end by themselves.
func TestFloodIsLimitedInXDP(t *testing.T) {
	t.Parallel()
	d := newDefended(t, "afxdp", "limit", "2s", "")
	d.flood("198.18.0.4", "198.18.1.1:53", "drops in XDP", func() bool { return d.dropped("limits") > 1000 })
	if v := d.status().Verdicts; len(v) != 1 || v[0].Action != "limit" || v[0].Packets != 200 {
		t.Errorf("verdicts %+v", v)
	}
	if !d.answers("198.18.0.4", "198.18.1.1:53") {
		t.Error("the source is not answered within its limit")
	}
	d.until("the verdict ends", func() bool { return len(d.status().Verdicts) == 0 })
	d.flood("198.18.0.3", "198.18.1.1:53", "the verdict on an accepted source is refused", func() bool { return d.status().Refused["accepted"] > 0 })
	if !d.answers("198.18.0.3", "198.18.1.1:53") {
		t.Error("the accepted source is not answered")
	}
}

// Verdicts of the operator, and lists, which a reload changes.
func TestOperatorAndListsDrop(t *testing.T) {
	t.Parallel()
	d := newDefended(t, "afxdp", "drop", "1m", "")
	ctx, source := context.Background(), netip.MustParsePrefix
	add := func(s string, v admin.DefenceVerdict) error {
		v.Source = source(s)
		return d.g.AddVerdict(ctx, v)
	}
	code := func(err error) int {
		e := new(admin.Error)
		errors.As(err, &e)
		return e.Code
	}
	const service = "198.18.1.1:53"
	d.must(add("198.18.0.6/32", admin.DefenceVerdict{Rule: "scan"}))
	if !d.silent("198.18.0.6", service) || d.dropped("operator scan") == 0 {
		t.Error("the operator's verdict drops nothing")
	}
	for err, want := range map[error]int{
		add("198.18.0.3/32", admin.DefenceVerdict{}):                                                http.StatusConflict, // accepted
		add("203.0.113.0/24", admin.DefenceVerdict{}):                                               http.StatusConflict, // on a list
		d.g.RemoveVerdict(ctx, admin.DefenceSource{Source: source("198.51.100.7/32")}):              http.StatusConflict, // the list's
		d.g.RemoveVerdict(ctx, admin.DefenceSource{Source: source("192.0.2.1/32")}):                 http.StatusNotFound,
		add("192.0.2.2/32", admin.DefenceVerdict{Packets: -1}):                                      http.StatusBadRequest,
		add("192.0.2.2/32", admin.DefenceVerdict{Forever: true, Time: admin.Duration(time.Second)}): http.StatusBadRequest,
	} {
		if code(err) != want {
			t.Errorf("%v, want %d", err, want)
		}
	}
	d.must(d.g.RemoveVerdict(ctx, admin.DefenceSource{Source: source("198.18.0.6/32")}))
	if !d.answers("198.18.0.6", service) {
		t.Error("the source is not answered after the verdict was removed")
	}
	d.must(add("198.18.0.6/32", admin.DefenceVerdict{Time: admin.Duration(time.Second)}))
	d.until("the verdict ends", func() bool { return d.answers("198.18.0.6", service) })
	d.block("198.18.0.7", "2001:db8::/64")
	_, err := d.g.Reload(ctx, false)
	d.must(err)
	if !d.silent("198.18.0.7", service) || !d.silent("2001:db8::2", "[2001:db8:1::1]:53") || d.dropped("drop blocked.txt") == 0 {
		t.Error("the list drops nothing after a reload")
	}
	d.block()
	_, err = d.g.Reload(ctx, false)
	d.must(err)
	if !d.answers("198.18.0.7", service) || !d.answers("2001:db8::2", "[2001:db8:1::1]:53") {
		t.Error("sources are dropped that were taken off the list")
	}
}

// What holds the hook of a device already is named, and the gateway does not start without its defence.
func TestDefenceRefusesForeignProgram(t *testing.T) {
	t.Parallel()
	s, _ := layOut(t, fmt.Sprint("mr-gwdef", defendedNets.Add(1)))
	_, err := s.gate.Run("ip", "link", "set", "front", "xdp", "obj", "../../filter/ebpf/testdata/objects/drop.o", "sec", "xdp.frags")
	s.must(err)
	c := fmt.Sprintf(defenceConfig, "", "drop", "1m") + fmt.Sprintf(siteConfig, "afpacket", "")
	s.must(os.WriteFile(filepath.Join(filepath.Dir(s.file), "blocked.txt"), nil, 0o644))
	s.must(os.WriteFile(s.file, []byte(c), 0o644))
	s.start()
	if err := s.cmd.Wait(); err == nil || !strings.Contains(s.log.String(), "defence: device front") || !strings.Contains(s.log.String(), `"drop_all"`) || strings.Contains(s.log.String(), "pid") {
		t.Errorf("%v: %s", err, s.log.String())
	}
}

// The program comes to an interface again that is made anew, and verdicts count there.
func TestDefenceComesBackWithItsInterface(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			testnet.Program(t, "curl")
			d := newDefended(t, driver, "drop", "1m", "")
			d.must(d.g.AddVerdict(context.Background(), admin.DefenceVerdict{DefenceSource: admin.DefenceSource{Source: netip.MustParsePrefix("198.18.0.6/32")}}))
			d.deleted("front")
			d.until("the device is off", func() bool { return !d.status().Devices[0].On })
			d.link(d.net, d.client, "front", 0)
			d.must(d.client.Up("eth0", "198.18.0.5/24", "198.18.0.6/24"))
			d.until("the device is on again", func() bool { return d.status().Devices[0].On })
			d.served("http://198.18.1.1/", 20*time.Second)
			if !d.silent("198.18.0.6", "198.18.1.1:53") || d.dropped("operator") == 0 {
				t.Error("the verdict does not count at the new interface")
			}
			if !d.answers("198.18.0.5", "198.18.1.1:53") {
				t.Error("another source is not answered")
			}
		})
	}
}

// A client of a listener whose requests are malformed again and again is dropped in XDP.
func TestMalformedRequestsAreDroppedInXDP(t *testing.T) {
	t.Parallel()
	d := newDefended(t, "afxdp", "drop", "1m", `
listeners: [{name: l7, address: "198.18.0.1:8090", protocol: HTTP}]
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, backends: [{address: "198.18.3.2:8080"}]}]
`, func(d *defended) {
		b, err := os.ReadFile(d.file)
		d.must(err)
		d.must(os.WriteFile(d.file, []byte(strings.Replace(string(b), "  limits: {excess", "  clients: {refused: 5}\n  limits: {excess", 1)), 0o644))
	})
	say := func(source, text string) (answer string) {
		var c net.Conn
		d.must(d.client.Do(func() (err error) {
			c, err = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: time.Second}).Dial("tcp", "198.18.0.1:8090")
			if err != nil {
				answer = err.Error()
			}
			return nil
		}))
		if c == nil {
			return answer
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = c.Write([]byte(text))
		b := make([]byte, 64)
		n, _ := c.Read(b)
		return string(b[:n])
	}
	// Each of the two workers counts for itself: one of them has refused five after nine at most.
	for i := range 9 {
		a := say("198.18.0.6", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
		if i >= 5 && strings.Contains(a, "timeout") {
			break
		}
		if !strings.HasPrefix(a, "HTTP/1.1 400") {
			t.Fatalf("answer %d: %q", i+1, a)
		}
	}
	if a := say("198.18.0.6", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.Contains(a, "timeout") {
		t.Errorf("after five malformed requests: %q", a)
	}
	if v := d.status().Verdicts; len(v) != 1 || v[0].Rule != "clients" || d.dropped("clients") == 0 {
		t.Errorf("verdicts %+v", v)
	}
	if a := say("198.18.0.5", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasPrefix(a, "HTTP/1.1 200") {
		t.Errorf("another client: %q", a)
	}
}

// The client of a packet that a rule of inspection drops is dropped in XDP.
func TestInspectedSourceIsDroppedInXDP(t *testing.T) {
	t.Parallel()
	d := newDefended(t, "afxdp", "drop", "1m", "inspection: {policies: [{name: p, mode: prevent, rules: [drop.rules]}]}\n", func(d *defended) {
		d.must(os.WriteFile(filepath.Join(filepath.Dir(d.file), "drop.rules"), []byte(`drop udp any any -> any any (msg:"x"; content:"attack"; sid:7;)`+"\n"), 0o644))
		b, err := os.ReadFile(d.file)
		d.must(err)
		d.must(os.WriteFile(d.file, []byte(strings.Replace(string(b), "  limits: {excess", "  inspection: {}\n  limits: {excess", 1)), 0o644))
	})
	const service = "198.18.1.1:53"
	c := d.from("198.18.0.6", service)
	defer c.Close()
	d.until("the verdict", func() bool {
		_, _ = c.Write([]byte("an attack"))
		return len(d.status().Verdicts) == 1
	})
	if v := d.status().Verdicts[0]; v.Source.String() != "198.18.0.6/32" || v.Rule != "inspection 1:7" || v.Action != "drop" {
		t.Errorf("%+v", v)
	}
	if !d.silent("198.18.0.6", service) || d.dropped("inspection 1:7") == 0 {
		t.Error("XDP drops nothing")
	}
	if !d.answers("198.18.0.5", service) {
		t.Error("another source is not answered")
	}
}
