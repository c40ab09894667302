package gateway_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testnet"
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
