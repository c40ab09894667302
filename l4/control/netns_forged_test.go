package control_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/wire"
)

// forger is an attacker on the link of an interface who sees the segments of one TCP port, and sends others in their
// name: from another link address, to the gateway.
type forger struct {
	fd   int
	port uint16
	seed uint64
	sent atomic.Uint64
	err  error
	done chan struct{}
}

// forge starts an attacker in ns. A segment of the connections in question has the port as its destination where it leaves
// ns as a client's, as its source where it leaves as a backend's.
func (s *site) forge(ns *testnet.Namespace, port int, seed uint64) *forger {
	s.t.Helper()
	f := &forger{port: uint16(port), seed: seed, done: make(chan struct{})}
	s.must(ns.Do(func() (err error) {
		const allIP = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // what leaves, too
		if f.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		dev, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		if err := unix.SetsockoptTimeval(f.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}); err != nil {
			return err
		}
		return unix.Bind(f.fd, &unix.SockaddrLinklayer{Protocol: allIP, Ifindex: dev.Index})
	}))
	return f
}

// run forges until stop is closed: for every few segments that leave, one that names the same connection.
func (f *forger) run(stop chan struct{}) {
	defer close(f.done)
	defer unix.Close(f.fd)
	r := rand.New(rand.NewPCG(f.seed, 1))
	b := make([]byte, 1<<16)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, from, err := unix.Recvfrom(f.fd, b, 0)
		if err != nil || n < wire.EthernetLen+wire.IPv4Len+wire.TCPLen {
			continue
		}
		link, ok := from.(*unix.SockaddrLinklayer)
		p := b[:n]
		ip := wire.IPv4(p[wire.EthernetLen:])
		if !ok || link.Pkttype != unix.PACKET_OUTGOING || wire.Ethernet(p).EtherType() != wire.EtherTypeIPv4 || ip.Proto() != wire.ProtoTCP {
			continue
		}
		tcp := wire.TCP(ip[ip.HeaderLen():])
		if tcp.SrcPort() != f.port && tcp.DstPort() != f.port || wire.Ethernet(p).Src() == forgedMAC || tcp.Flags().Has(wire.FlagSYN) {
			continue
		}
		if r.IntN(4) == 0 {
			if f.err = unix.Send(f.fd, forgedSegment(r, p, ip, tcp), 0); f.err != nil {
				return
			}
			f.sent.Add(1)
		}
	}
}

var forgedMAC = wire.MAC{2, 6, 6, 6, 6, 6}

// forgedSegment returns a segment that names the connection of another, without data. It is one that the other end does not
// take (RFC 9293 3.10.7.4, RFC 5961 3 to 5): its number is off by some, or its acknowledgement is of what was never sent.
// A FIN inside the window would take effect once the data before it has come, so FINs are outside.
func forgedSegment(r *rand.Rand, p []byte, ip wire.IPv4, tcp wire.TCP) []byte {
	const farther = 1 << 27 // than any window
	h := wire.TCPHeader{SrcPort: tcp.SrcPort(), DstPort: tcp.DstPort(), Seq: tcp.Seq(), Ack: tcp.Ack(), Window: uint16(r.Uint32())}
	outside := farther + r.Uint32N(1<<31-2*farther)
	switch r.IntN(6) {
	case 0: // a reset in the window and near the exact number: challenged. No side's next write is as short.
		h.Seq, h.Flags = h.Seq+2+r.Uint32N(50), wire.FlagRST
		if int(ip.TotalLen()) > ip.HeaderLen()+tcp.DataOffset() {
			h.Seq += 1 << 17 // beyond what is on its way
		}
	case 1: // a blind reset
		h.Seq, h.Flags = h.Seq+outside, wire.FlagRST|wire.FlagACK
	case 2: // an acknowledgement of what was never sent, in the window
		h.Ack, h.Flags = h.Ack+outside, wire.FlagACK
	case 3:
		h.Seq, h.Flags = h.Seq+outside, wire.FlagFIN|wire.FlagACK
	case 4: // no host sends both
		h.Seq, h.Flags = h.Seq+outside, wire.FlagFIN|wire.FlagSYN
	case 5: // challenged
		h.Seq, h.Flags = r.Uint32(), wire.FlagSYN
	}
	out := wire.AppendEthernet(nil, wire.Ethernet(p).Dst(), forgedMAC, wire.EtherTypeIPv4)
	out = wire.AppendIPv4(out, &wire.IPv4Header{Src: ip.Src(), Dst: ip.Dst(), Proto: wire.ProtoTCP, TTL: 64, DontFragment: true, PayloadLen: wire.TCPLen})
	out = wire.AppendTCP(out, &h)
	wire.TCP(out[wire.EthernetLen+wire.IPv4Len:]).FillChecksum(wire.IPv4(out[wire.EthernetLen:]).Pseudo())
	return out
}

// TestForgedSegmentsHarmNoTransfer has attackers forge segments into transfers, from both sides where the gateway sees both:
// every byte arrives, and replies go where they went.
func TestForgedSegmentsHarmNoTransfer(t *testing.T) {
	t.Parallel()
	testnet.Program(t, "curl")
	const size = 4 << 20
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			s, _ := layOutModes(t, "mr-gwforge-"+driver, driver)
			s.startModes()
			for i := range passages {
				p := &passages[i]
				attackers := []*forger{s.forge(s.client, p.port, uint64(i))}
				if p.nat() {
					attackers = append(attackers, s.forge(s.backends[0], p.port, uint64(i)), s.forge(s.backends[1], p.port, uint64(i)))
				}
				stop := make(chan struct{})
				for _, f := range attackers {
					go f.run(stop)
				}
				start := time.Now()
				url := fmt.Sprintf("http://198.18.1.1:%d/", p.port)
				s.forgetMTU()
				s.upload(t, url+"hash", size)
				out, err := s.client.Run("sh", "-c", fmt.Sprintf("curl -sS -m 20 '%sstream?n=%d' | sha256sum", url, size))
				want := sha256.New()
				_, _ = io.CopyN(want, sequence(), size)
				if sum := fmt.Sprintf("%x", want.Sum(nil)); err != nil || len(out) < len(sum) || out[:len(sum)] != sum {
					t.Errorf("%s: downloaded %s, want %s: %v", p.name, out, sum, err)
				}
				close(stop)
				n := uint64(0)
				for _, f := range attackers {
					<-f.done
					if f.err != nil {
						t.Error(f.err)
					}
					n += f.sent.Load()
				}
				t.Logf("%s: %d forged segments in %v", p.name, n, time.Since(start).Round(time.Millisecond))
				if n < 50 {
					t.Errorf("%s: only %d segments were forged", p.name, n)
				}
			}
			s.stop()
		})
	}
}
