package shim

import (
	"errors"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

// ackDriver calls f when it has sent a segment of TCP over IPv4 that has the flag ACK alone.
type ackDriver struct {
	pmd.Driver
	f func()
}

const (
	ethernetHeader = 14
	typeAt         = 12                 // of an Ethernet header: 8, 0 is IPv4, and 8, 6 ARP
	protocolAt     = ethernetHeader + 9 // of an IPv4 header
	flagsAt        = 13                 // of a TCP header
	flagACK        = 0x10
)

func (d *ackDriver) Tx(now clock.Time, b *packet.Batch) (int, error) {
	acks := 0
	for i := range b.Len() {
		p := b.Bytes(i)
		tcp := ethernetHeader + int(p[ethernetHeader]&15)*4
		if len(p) > tcp+flagsAt && p[typeAt] == 8 && p[typeAt+1] == 0 && p[protocolAt] == syscall.IPPROTO_TCP && p[tcp+flagsAt] == flagACK {
			acks++
		}
	}
	n, err := d.Driver.Tx(now, b)
	for range acks {
		d.f()
	}
	return n, err
}

// pairWithACKs is socket.Pair, whose first stack calls sent with each ACK.
func pairWithACKs(t *testing.T, sent func()) (node, peer *socket.Stack) {
	t.Helper()
	const frames = 1024
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 2 * frames})
	if err != nil {
		t.Fatal(err)
	}
	var pools [2]*ring.Pool
	for i := range pools {
		if pools[i], err = arena.Cut(frames); err != nil {
			t.Fatal(err)
		}
	}
	x, y, err := pmd.NewMemory(pmd.MemoryConfig{A: pools[0], B: pools[1]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the stacks, which newBedOn closes
		if err := errors.Join(x.Close(), y.Close(), arena.Close()); err != nil {
			t.Error(err)
		}
	})
	start := func(d pmd.Driver, pool *ring.Pool, addr string) *socket.Stack {
		s, err := socket.New(socket.Config{
			Loops: []stack.Config{{Devices: []pmd.Driver{d}, Pool: pool, Engine: gpukern.NewCPU(gpukern.Config{})}},
			Addrs: []socket.Address{{Prefix: netip.MustParsePrefix(addr + "/24")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return start(&ackDriver{x, sent}, pools[0], nodeAddr), start(y, pools[1], peerAddr)
}

// connectOnLoop is connect(2) on the first loop, which does nothing else meanwhile. It shows the socket in k before, and replied is called in
// place of a reply that is delayed.
func (b *bed) connectOnLoop(p *program, to string, blocks int32, k *atomic.Pointer[sock], replied func()) (err error) {
	c := &channel{s: b.Server, user: b.userOf(uint32(os.Getuid())), owner: &socket.Process{}}
	b.cfg.Stack.EnterLoop(0, func(in socket.LoopStack) {
		var of *sock
		if of, err = b.findNow(c, p.fd); err != nil {
			return
		}
		k.Store(of)
		err = of.connect(c, &request{op: opConnect, addr: netip.MustParseAddrPort(to), arg: blocks}, &reply{}, p.fd, in.Connect, true)
		if err == errDelayed {
			of.mu.Lock()
			of.answer = func(error) { replied() }
			of.mu.Unlock()
		}
	})
	return err
}

// TestTheHandshakeIsSentBeforeConnectReturns: the ACK that ends the handshake has left when the reply to connect(2) is sent, and when a
// socket that does not block becomes writable. So the peer works while the program is woken.
func TestTheHandshakeIsSentBeforeConnectReturns(t *testing.T) {
	for name, blocks := range map[string]int32{"blocks": blocks, "does not block": 0} {
		t.Run(name, func(t *testing.T) {
			var connecting atomic.Pointer[sock]
			var acks, early atomic.Int32
			node, peer := pairWithACKs(t, func() {
				k := connecting.Load()
				if k == nil {
					return
				}
				k.mu.Lock()
				defer k.mu.Unlock()
				if k.small != nil && k.small.p < 0 && k.refilled == 0 { // it has its send buffer back, and was not filled in place of that
					early.Add(1)
				}
				acks.Add(1)
			})
			b := newBedOn(t, node, peer, nil)
			l := b.listenPeer(t, "0")
			c := b.dial(t)
			b.join(t, c) // the neighbour is known from now on
			p := c.socket(syscall.SOCK_STREAM, false)
			replied := make(chan int32, 1)
			err := b.connectOnLoop(p, peerPort(l), blocks, &connecting, func() { replied <- acks.Load() })
			if blocks != 0 {
				if err != errDelayed {
					t.Fatal(err)
				}
				select {
				case n := <-replied:
					if n == 0 {
						t.Error("the reply was sent before the ACK")
					}
				case <-time.After(limit):
					t.Fatal("no reply")
				}
				return
			}
			if err != syscall.EINPROGRESS {
				t.Fatal(err)
			}
			until(t, "the ACK is sent", func() bool { return acks.Load() > 0 })
			if early.Load() > 0 {
				t.Error("the socket was writable before the ACK was sent")
			}
		})
	}
}
