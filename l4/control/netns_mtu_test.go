package control_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/wire"
)

// mtuServices are a service of every kind of way to the backends, with the HTTP ports of their passages.
var mtuServices = []string{"nat gateway", "ipip to IPv4", "ipip to IPv6", "gue to IPv4", "gue to IPv6"}

// mtuSite lays a site of all modes out, where the link to the client has an MTU of its own before the gateway starts.
func mtuSite(t *testing.T, prefix, driver, mtu string) *site {
	t.Helper()
	testnet.Program(t, "curl")
	s, _ := layOutModes(t, prefix, driver)
	for _, i := range []int{0, 1} {
		s.run(s.backends[i], "ip link set decap0 mtu "+mtu)
		s.run(s.backends[i], "ip link set lo mtu 65535")
	}
	s.run(s.client, "ip link set eth0 mtu "+mtu)
	s.run(s.gate, "ip link set front mtu "+mtu)
	return s
}

// bigMSS makes the backends announce an MSS for jumbo frames to the client, so that it sends packets that only its own
// link takes.
func (s *site) bigMSS(mtu string) {
	for i, ns := range s.backends {
		for _, dev := range []string{"eth0", "ret"} {
			s.run(ns, "ip link set "+dev+" mtu "+mtu)
		}
		s.run(s.gate, fmt.Sprintf("ip link set back%d mtu 1500", i+1))
		s.run(s.client, fmt.Sprintf("ip link set ret%d mtu %s", i+1, mtu))
	}
}

// passageOf returns the passage of a name.
func passageOf(t *testing.T, name string) *passage {
	t.Helper()
	for i := range passages {
		if passages[i].name == name {
			return &passages[i]
		}
	}
	t.Fatal(name)
	return nil
}

// Packets of 9000 bytes span several frames. Their senders are told that the way to the backends takes 1500.
func TestJumboFramesAreAnswered(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			s := mtuSite(t, "mr-gwjmb", driver, "9000")
			s.bigMSS("9000")
			s.startModes()
			for _, name := range mtuServices {
				p := passageOf(t, name)
				for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]"} {
					s.forgetMTU()
					s.upload(t, fmt.Sprintf("http://%s:%d/hash", host, p.port), 200_000)
				}
			}
			sum := s.stop()
			if n := sum.Gateway.Answers["too_big"]; n < uint64(2*len(mtuServices)) {
				t.Errorf("told %d times that a packet is too big", n)
			}
		})
	}
}

// flood sends 30 000 echo requests a second to an address, until stop is called.
func (s *site) flood(address string) (stop func()) {
	s.t.Helper()
	var c net.Conn
	s.must(s.client.Do(func() (err error) {
		c, err = net.Dial("ip4:icmp", address)
		return err
	}))
	request := append([]byte{wire.ICMPEcho, 0, 0, 0, 0, 9, 0, 1}, make([]byte, 24)...)
	wire.ICMP(request).FillChecksum()
	end, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-end:
				tick.Stop()
				c.Close()
				return
			case <-tick.C:
				for range 300 {
					c.Write(request)
				}
			}
		}
	}()
	return func() { close(end); <-ended }
}

// A client that pings as fast as it can is not the reason that an upload stalls: the answers to both have budgets of
// their own.
func TestAFloodOfPingsDelaysNoUpload(t *testing.T) {
	t.Parallel()
	s := mtuSite(t, "mr-gwpng", "afxdp", "1500")
	s.startModes()
	stop := s.flood("198.18.1.1")
	for _, name := range []string{"ipip to IPv4", "gue to IPv6"} {
		for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]"} {
			s.forgetMTU()
			s.upload(t, fmt.Sprintf("http://%s:%d/hash", host, passageOf(t, name).port), 200_000)
		}
	}
	stop()
	sum := s.stop()
	if a := sum.Gateway.Answers; a["rate_limited"] == 0 || a["too_big"] < 4 || a["echo_reply"] == 0 {
		t.Errorf("answers %v: the flood was none, or no packet was too big", a)
	}
}

// pathConfig has a service of each tunnel and family of backends; the backend is behind a router.
const pathConfig = `
devices: [{name: front, driver: %[1]s}, {name: back1, driver: %[1]s}]
tunnel: {source: [198.18.5.0/24, "2001:db8:5::/64"], too_big: %[2]s}
admin: {socket: ""}
services:
  - {name: ipip4, mode: ipip, address: [198.18.1.1:8120, "[2001:db8:1::1]:8120"], backends: [{address: 198.18.6.2}]}
  - {name: ipip6, mode: ipip, address: [198.18.1.1:8130, "[2001:db8:1::1]:8130"], backends: [{address: "2001:db8:6::2"}]}
  - {name: gue4, mode: gue, address: [198.18.1.1:8140, "[2001:db8:1::1]:8140"], backends: [{address: 198.18.6.2}]}
  - {name: gue6, mode: gue, address: [198.18.1.1:8150, "[2001:db8:1::1]:8150"], backends: [{address: "2001:db8:6::2"}]}
`

// layOutPath makes a site in which the first backend is a router, and the real one lies behind it on a link of a
// smaller MTU.
func layOutPath(t *testing.T, prefix, driver, tooBig, mtu string) *site {
	t.Helper()
	testnet.Program(t, "curl")
	s, n := layOut(t, prefix)
	router, far := s.backends[0], n.Namespace("far")
	s.must(far.Sysctl("net.ipv6.conf.default.accept_dad", "0"))
	s.must(n.Link(router, "behind", far, "eth0"))
	s.must(n.Link(far, "ret", s.client, "ret"))
	for _, l := range []struct {
		ns  *testnet.Namespace
		dev string
		net int
		me  int
	}{{router, "behind", 6, 1}, {far, "eth0", 6, 2}, {far, "ret", 13, 2}, {s.client, "ret", 13, 1}} {
		s.must(l.ns.NoOffload(l.dev))
		s.must(l.ns.Up(l.dev, fmt.Sprintf("198.18.%d.%d/24", l.net, l.me), fmt.Sprintf("2001:db8:%d::%d/64", l.net, l.me)))
	}
	s.run(router, "ip link set behind mtu "+mtu)
	s.run(far, "ip link set eth0 mtu "+mtu)
	for _, ns := range []*testnet.Namespace{s.client, router, far} {
		s.must(ns.Sysctl("net.ipv4.conf.all.rp_filter", "0"))
		s.must(ns.Sysctl("net.ipv4.conf.default.rp_filter", "0"))
	}
	s.must(router.Sysctl("net.ipv4.ip_forward", "1"))
	s.must(router.Sysctl("net.ipv6.conf.all.forwarding", "1"))
	s.must(s.gate.Route("198.18.6.0/24", "198.18.3.2"))
	s.must(s.gate.Route("2001:db8:6::/64", "2001:db8:3::2"))
	s.must(far.Up("lo", "198.18.1.1/32", "2001:db8:1::1/128"))
	s.must(far.Route("default", "198.18.13.1"))
	s.must(far.Route("default", "2001:db8:13::1"))
	s.decap[0] = receiveTunnels(t, far, 6080)
	s.must(far.Sysctl("net.ipv4.conf.decap0.rp_filter", "0"))
	for _, port := range []int{8120, 8130, 8140, 8150} {
		s.must(far.Do(func() error {
			l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				return err
			}
			srv := &http.Server{Handler: backendMux("far")}
			go srv.Serve(l)
			t.Cleanup(func() { srv.Close() })
			return nil
		}))
	}
	s.must(os.WriteFile(s.file, fmt.Appendf(nil, pathConfig, driver, tooBig), 0o644))
	s.start("http://198.18.1.1:8120/", "http://[2001:db8:1::1]:8120/", "http://198.18.1.1:8130/", "http://[2001:db8:1::1]:8150/")
	return s
}

// A router between gateway and backend takes 1300 bytes: uploads arrive by every tunnel, from both families, whether
// clients are asked for smaller packets or the outer ones are fragmented. Linux puts the fragments together.
func TestUploadsPassANarrowPathBehindATunnel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ driver, tooBig string }{{"afxdp", "answer"}, {"afxdp", "fragment"}, {"afpacket", "fragment"}} {
		t.Run(c.driver+" "+c.tooBig, func(t *testing.T) {
			s := layOutPath(t, "mr-gwpth", c.driver, c.tooBig, "1300")
			for _, port := range []int{8120, 8130, 8140, 8150} {
				for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]"} {
					s.forgetMTU()
					s.upload(t, fmt.Sprintf("http://%s:%d/hash", host, port), 200_000)
				}
			}
			sum := s.stop()
			if c.tooBig == "fragment" && (sum.Gateway.Answers["too_big"] > 0 || sum.Originated < 8*100) {
				t.Errorf("fragment: %d fragments, answers %v", sum.Originated, sum.Gateway.Answers)
			}
			if c.tooBig == "answer" && (sum.Gateway.Answers["too_big"] < 8 || sum.Originated < 2*100) { // IPv6 by tunnels over IPv6
				t.Errorf("answer: %d fragments, answers %v", sum.Originated, sum.Gateway.Answers)
			}
		})
	}
}

// An MTU that is raised beyond what the driver takes is in the log: what is longer would be lost without a word. Back
// below it, everything passes.
func TestAnMTUBeyondTheDriversMemoryIsInTheLog(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			s := newWire(t, driver)
			s.echoes("198.18.0.100:53", 1400) // it runs
			s.run(s.gate, "ip link set front mtu 1800")
			s.journalSays("set_mtu=1800 takes_mtu=1500")
			s.run(s.gate, "ip link set front mtu 1500")
			s.echoes("198.18.0.100:53", 1400)
			s.stop()
		})
	}
}
