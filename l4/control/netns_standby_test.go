package control_test

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/wire"
)

// clientConns returns the client's open IPv4 connections to a port of the service: its own ends.
func (p *takeover) clientConns(port string) (list []netip.AddrPort) {
	p.t.Helper()
	out, err := p.client.Run("ss", "-tnH", "state", "established", "dst", "198.18.1.1:"+port)
	p.must(err)
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		at, err := netip.ParseAddrPort(fields[2])
		p.must(err)
		list = append(list, at)
	}
	return list
}

// forgeTo sends segments with random numbers in the name of the client's connections to a gateway, from another link
// address on the client's link dev: all that a stranger can make.
func (p *takeover) forgeTo(gate *testnet.Namespace, dev string, port uint16, conns []netip.AddrPort, rounds int) (sent int) {
	p.t.Helper()
	var to wire.MAC
	p.must(gate.Do(func() error {
		in, err := net.InterfaceByName("front")
		if err == nil {
			to = wire.MAC(in.HardwareAddr)
		}
		return err
	}))
	r := rand.New(rand.NewPCG(uint64(port), 11))
	var frames [][]byte
	for range rounds {
		for _, c := range conns {
			for _, flags := range []wire.TCPFlags{wire.FlagACK, wire.FlagACK | wire.FlagPSH, wire.FlagFIN | wire.FlagACK, wire.FlagRST, wire.FlagRST | wire.FlagACK, wire.FlagSYN} {
				f := wire.AppendEthernet(nil, to, forgedMAC, wire.EtherTypeIPv4)
				f = wire.AppendIPv4(f, &wire.IPv4Header{Src: c.Addr().As4(), Dst: [4]byte{198, 18, 1, 1}, Proto: wire.ProtoTCP, TTL: 64, PayloadLen: wire.TCPLen})
				f = wire.AppendTCP(f, &wire.TCPHeader{SrcPort: c.Port(), DstPort: port, Seq: r.Uint32(), Ack: r.Uint32(), Window: uint16(r.Uint32()), Flags: flags})
				wire.TCP(f[wire.EthernetLen+wire.IPv4Len:]).FillChecksum(wire.IPv4(f[wire.EthernetLen:]).Pseudo())
				frames = append(frames, f)
			}
		}
	}
	p.must(p.client.Do(func() error {
		in, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, f := range frames {
			if err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: in.Index}); err != nil {
				return err
			}
		}
		return nil
	}))
	return len(frames)
}

// TestForgedSegmentsBeforeATakeOver has a stranger send forged segments to the standby of a pair, and then kills the gateway
// that has the traffic: no download is lost. After a restart of a gateway with `source: client` forged segments come first.
func TestForgedSegmentsBeforeATakeOver(t *testing.T) {
	testnet.Program(t, "ss", "ip")
	p := newTakeover(t, "mr-gwfake", syncKeys())
	for _, port := range []struct {
		name   string
		number uint16
	}{{"80", 80}, {"81", 81}} {
		forged := 0
		lost := p.downloads(24, int(port.number), func() {
			forged = p.forgeTo(p.second.gate, "eth1", port.number, p.clientConns(port.name), 2)
			time.Sleep(50 * time.Millisecond) // until the standby has handled them
			p.kill()
		})
		if lost != 0 || forged < 100 {
			t.Errorf("port %s: %d of 24 downloads are lost after %d forged segments", port.name, lost, forged)
		}
		p.out.Reset()
		p.start()
		p.leadAll(0)
		p.awaitServed()
	}
	p.stop()
	p.second.stop()

	alone := newTakeover(t, "mr-gwfake2", [2]string{})
	lost := alone.downloads(12, 81, func() {
		conns := alone.clientConns("81")
		alone.must(alone.cmd.Process.Kill())
		alone.cmd.Wait()
		alone.forgeTo(alone.second.gate, "eth1", 81, conns, 1) // to the one that knows nothing
		time.Sleep(50 * time.Millisecond)
		alone.leadBackends(1)
		alone.forgeTo(alone.second.gate, "eth1", 81, conns, 1)
		time.Sleep(300 * time.Millisecond)
		alone.lead(1)
	})
	if lost != 0 {
		t.Errorf("without a peer: %d of 12 downloads are lost", lost)
	}
	alone.second.stop()
}

// TestARouteThatMovesWhileTheControlNetworkIsCut cuts the link between the gateways of a pair, opens downloads, and leads them
// to the other gateway for a while: that drops what it does not know, and all downloads go on when the route is back.
func TestARouteThatMovesWhileTheControlNetworkIsCut(t *testing.T) {
	testnet.Program(t, "ip")
	p := newTakeover(t, "mr-gwcut", syncKeys())
	p.awaitSynced()
	if out, err := p.gate.Run("ip", "link", "set", "sync", "down"); err != nil {
		t.Fatal(err, out)
	}
	time.Sleep(1500 * time.Millisecond) // until both miss the heartbeats
	lost := p.downloads(20, 80, func() {
		p.leadAll(1)
		time.Sleep(1500 * time.Millisecond)
		p.leadAll(0)
	})
	if lost != 0 {
		t.Errorf("%d of 20 downloads are lost", lost)
	}
	p.stop()
	st := p.second.stop().Gateway
	if st.Dropped["no_flow"] == 0 || st.Answers["reset_unknown"] != 0 {
		t.Errorf("the other gateway: %v dropped, %v answered", st.Dropped, st.Answers)
	}
}

// TestARouteThatMovesToARestartedGateway does the same while the other gateway has been restarted since the cut, and knows
// of its peer only that it has one.
func TestARouteThatMovesToARestartedGateway(t *testing.T) {
	testnet.Program(t, "ip")
	p := newTakeover(t, "mr-gwcutr", syncKeys())
	p.awaitSynced()
	if out, err := p.gate.Run("ip", "link", "set", "sync", "down"); err != nil {
		t.Fatal(err, out)
	}
	p.must(p.second.cmd.Process.Kill())
	_ = p.second.cmd.Wait() // says that it was killed
	p.second.start()
	time.Sleep(7 * time.Second) // it awaits its peer for 5 s
	lost := p.downloads(20, 80, func() {
		p.leadAll(1)
		time.Sleep(1500 * time.Millisecond)
		p.leadAll(0)
	})
	if lost != 0 {
		t.Errorf("%d of 20 downloads are lost", lost)
	}
	p.stop()
	st := p.second.stop().Gateway
	if st.Dropped["no_flow"] == 0 || st.Answers["reset_unknown"] != 0 {
		t.Errorf("the restarted gateway: %v dropped, %v answered", st.Dropped, st.Answers)
	}
}

// awaitSynced waits until each gateway has the connections of the other.
func (p *takeover) awaitSynced() {
	p.t.Helper()
	for _, s := range []*site{p.site, p.second} {
		for end := time.Now().Add(20 * time.Second); !strings.Contains(s.log.String(), "stream=receive state=up"); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				p.t.Fatal("the gateways do not share connections")
			}
		}
	}
	time.Sleep(time.Second) // a heartbeat behind the transfer
}
