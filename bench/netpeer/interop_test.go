package netpeer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	gstack "gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/tcp"
)

// pump carries frames between a driver and gVisor, one goroutine for both directions.
func pump(ctx context.Context, d pmd.Driver, pool *ring.Pool, g *channel.Endpoint) {
	in := packet.NewBatch(pool.Arena().View(), packet.BatchSize)
	out := packet.NewBatch(pool.Arena().View(), packet.BatchSize)
	for ctx.Err() == nil {
		now := stack.Now()
		n, _ := d.Rx(now, in)
		for i := range in.D {
			p := gstack.NewPacketBuffer(gstack.PacketBufferOptions{Payload: buffer.MakeWithData(in.Bytes(i))})
			g.InjectInbound(0, p)
			p.DecRef()
		}
		pool.PutBatch(in)
		for out.Room() > 0 {
			p := g.Read()
			if p == nil {
				break
			}
			if off, ok := pool.Get(); ok { // else it is lost, as on a wire
				b := p.ToView().AsSlice()
				out.Append(packet.Desc{Off: off, Len: uint16(copy(pool.Arena().View().Mem[off:], b))})
			}
			p.DecRef()
		}
		sent, _ := d.Tx(now, out)
		out.Consume(sent)
		if n == 0 && sent == 0 {
			time.Sleep(20 * time.Microsecond)
		}
	}
	pool.PutBatch(out)
}

// A mixture is our stack and gVisor's on one wire.
type mixture struct {
	name   string
	ours   tcp.Options
	noSACK bool
	v6     bool
	mtu    int
	impair string
	size   int
}

func (x mixture) addrs() (ours, theirs netip.Prefix) {
	if x.v6 {
		return netip.MustParsePrefix("2001:db8::1/64"), netip.MustParsePrefix("2001:db8::2/64")
	}
	return serverAddr, clientAddr
}

// open joins both stacks.
func (x mixture) open(t *testing.T) (ours, theirs Net) {
	t.Helper()
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 2 * framesOf, FrameSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	var pools [2]*ring.Pool
	for i := range pools {
		if pools[i], err = arena.Cut(framesOf); err != nil {
			t.Fatal(err)
		}
	}
	a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: pools[0], B: pools[1], MTU: x.mtu, Slots: 4096})
	if err != nil {
		t.Fatal(err)
	}
	profile, err := pmd.ParseProfile(x.impair)
	if err != nil {
		t.Fatal(err)
	}
	bad, err := pmd.NewImpair(b, pmd.ImpairConfig{Profile: profile, Pool: pools[1]})
	if err != nil {
		t.Fatal(err)
	}
	mine, his := x.addrs()
	m, err := newMillrace(mine, x.ours, []stack.Config{loopOver(a, pools[0])}, arena.Close, a.Close, bad.Close)
	if err != nil {
		t.Fatal(err)
	}
	ch := channel.New(4096, uint32(x.mtu)+header.EthernetMinimumSize, macB) // its MTU counts the link header
	g, err := newGVisor(ethernet.New(ch), nil, Config{Addr: his, NoSACK: x.noSACK})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { pump(ctx, bad, pools[1], ch); close(done) }()
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, g
}

var mixtures = []mixture{
	{name: "IPv4", size: 4 << 20},
	{name: "IPv6", v6: true, size: 4 << 20},
	{name: "no timestamps", ours: tcp.Options{NoTimestamps: true}, size: 2 << 20},
	{name: "no SACK of ours", ours: tcp.Options{NoSACK: true}, size: 1 << 20, impair: "loss=0.5% seed=2"},
	{name: "no SACK of theirs", noSACK: true, size: 1 << 20, impair: "loss=0.5% seed=3"},
	{name: "no window scaling", ours: tcp.Options{NoScaling: true}, size: 2 << 20},
	{name: "MTU 576", mtu: 576, size: 1 << 20},
	{name: "IPv6, MTU 1280", v6: true, mtu: 1280, size: 1 << 20},
	{name: "loss and reordering", size: 2 << 20, impair: "loss=2% reorder=2%,1ms delay=1ms dup=0.5% seed=1"},
	{name: "corruption", size: 1 << 20, impair: "corrupt=1% seed=5"},
	{name: "BBR over loss", ours: tcp.Options{Congestion: "bbr"}, size: 2 << 20, impair: "loss=2% delay=1ms seed=6"},
}

// TestGVisorAsPeer moves bytes both ways over connections that each side has opened, and compares hashes.
func TestGVisorAsPeer(t *testing.T) {
	for _, x := range mixtures {
		if x.mtu == 0 {
			x.mtu = 1500
		}
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := x.open(t)
			mine, his := x.addrs()
			exchange(t, ours, theirs, netip.AddrPortFrom(his.Addr(), 7001), x.size)
			exchange(t, theirs, ours, netip.AddrPortFrom(mine.Addr(), 7002), x.size)
		})
	}
}

// exchange has client connect to server, and each send size bytes to the other and end its direction.
func exchange(t *testing.T, client, server Net, to netip.AddrPort, size int) {
	t.Helper()
	l, err := server.Listen(to.Port())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	type end struct {
		sum [2][32]byte // sent, received
		err error
	}
	ends := make(chan end, 2)
	talk := func(c net.Conn, seed uint64) {
		var e end
		e.sum, e.err = bothWays(c, seed, size)
		ends <- e
	}
	go func() {
		c, err := l.Accept()
		if err != nil {
			ends <- end{err: err}
			return
		}
		talk(c, 1)
	}()
	c, err := client.Dial(ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	go talk(c, 2)
	a, b := <-ends, <-ends
	if a.err != nil || b.err != nil {
		t.Fatal(a.err, b.err)
	}
	if a.sum[0] != b.sum[1] || a.sum[1] != b.sum[0] {
		t.Error("the streams differ")
	}
}

// bothWays sends size random bytes on c while it reads to the end, and returns the hashes of both.
func bothWays(c net.Conn, seed uint64, size int) (sums [2][32]byte, err error) {
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
		return sums, err
	}
	sent := make(chan error, 1)
	go func() {
		h := sha256.New()
		_, err := io.CopyN(io.MultiWriter(h, c), noise{rand.NewPCG(seed, 0)}, int64(size))
		copy(sums[0][:], h.Sum(nil))
		if err == nil {
			err = c.(interface{ CloseWrite() error }).CloseWrite()
		}
		sent <- err
	}()
	h := sha256.New()
	n, err := io.Copy(h, c)
	copy(sums[1][:], h.Sum(nil))
	if e := <-sent; e != nil {
		return sums, fmt.Errorf("send: %w", e)
	}
	if err == nil && n != int64(size) {
		err = fmt.Errorf("%d of %d bytes", n, size)
	}
	return sums, err
}

// noise reads as random bytes.
type noise struct{ r *rand.PCG }

func (n noise) Read(b []byte) (int, error) {
	for i := 0; i < len(b); i += 8 {
		v := n.r.Uint64()
		for j := i; j < min(i+8, len(b)); j++ {
			b[j] = byte(v)
			v >>= 8
		}
	}
	return len(b), nil
}
