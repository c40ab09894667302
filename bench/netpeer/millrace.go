package netpeer

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

func init() {
	openers = append(
		openers,
		opener{"millrace", func(c Config) (Net, error) { return openMillrace(c, device.AFXDP) }},
		opener{"millrace-gso", func(c Config) (Net, error) { return openMillrace(c, device.AFPacket) }},
	)
	packetPairs["millrace"] = millracePackets
}

// millrace is our stack.
type millrace struct {
	*socket.Stack
	addr netip.Addr
	undo []func() error // in reverse order
}

// budget is of buffers, for each loop: as many as the tests' connections may want.
const budget = 1 << 30

// newMillrace starts a stack over loops; undo is done when it is closed.
func newMillrace(addr netip.Prefix, o tcp.Options, loops []stack.Config, undo ...func() error) (*millrace, error) {
	s, err := socket.New(socket.Config{
		Loops: loops,
		Host: host.Config{TCP: tcp.Config{
			Budget: budget, MaxConns: 1 << 19, Defaults: o,
		}},
		Addrs:     []socket.Address{{Prefix: addr}},
		Backlog:   4096,
		KeepAlive: -1, // the other stacks in user space have none by default
	})
	if err != nil {
		return nil, err
	}
	return &millrace{s, addr.Addr(), undo}, nil
}

func (m *millrace) Listen(port uint16) (net.Listener, error) {
	return m.Stack.Listen("tcp", netip.AddrPortFrom(m.addr, port).String())
}

func (m *millrace) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	return m.DialContext(ctx, "tcp", to.String())
}

// loopOf returns the index of the loop that has conn.
func (m *millrace) loopOf(conn net.Conn) int {
	if len(m.Group().Hosts) == 1 {
		return 0
	}
	local, remote := conn.LocalAddr().(*net.TCPAddr).AddrPort(), conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	return m.Group().Owner(&wire.Tuple{
		Local: wire.AddrFrom(local.Addr()), LocalPort: local.Port(),
		Remote: wire.AddrFrom(remote.Addr()), RemotePort: remote.Port(),
	}).Index()
}

func (m *millrace) Close() error {
	err := m.Stack.Close()
	for i := len(m.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, m.undo[i]())
	}
	return err
}

// openMillrace opens a stack over all queues of a device, each a loop.
func openMillrace(c Config, driver device.Driver) (Net, error) {
	n := cmp.Or(c.Loops, 1)
	arena, pools, err := device.NewArena(n, device.Config{Name: c.Device})
	if err != nil {
		return nil, err
	}
	dev, err := device.Open(device.Config{Name: c.Device, Driver: driver, Pools: pools, All: true})
	if err != nil {
		return nil, errors.Join(err, arena.Close())
	}
	if device.CanOffload(dev) {
		err = device.SetOffload(driver == device.AFPacket, dev)
	}
	var loops []stack.Config
	for i, q := range dev.Queues {
		loops = append(loops, loopOver(q, pools[i]))
	}
	if err == nil {
		var m *millrace
		if m, err = newMillrace(c.Addr, tcp.Options{Congestion: c.CC}, loops, arena.Close, dev.Close); err == nil {
			return m, nil
		}
	}
	return nil, errors.Join(err, dev.Close(), arena.Close())
}

func loopOver(d pmd.Driver, p *ring.Pool) stack.Config {
	return stack.Config{Devices: []pmd.Driver{d}, Pool: p, Engine: gpukern.NewCPU(gpukern.Config{})}
}

// framesOf is the number of frames that each loop of a pair has.
const framesOf = 8192

// MillracePair returns two of our stacks over our wire in memory, one for each loop.
func MillracePair(mtu, loops int) (*Pair, error) { return millracePair(mtu, loops, false) }

// millracePair is MillracePair. With offload the wires pass large packets whole, as the kernel's loopback does.
func millracePair(mtu, loops int, offload bool) (*Pair, error) {
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 2 * loops * framesOf})
	if err != nil {
		return nil, err
	}
	var sides [2][]stack.Config
	undo := []func() error{arena.Close}
	for i := range loops {
		var pools [2]*ring.Pool
		for j := range pools {
			if pools[j], err = arena.Cut(framesOf); err != nil {
				return nil, err
			}
		}
		a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: pools[0], B: pools[1], MTU: mtu, Name: "wire" + strconv.Itoa(i), Offload: offload})
		if err != nil {
			return nil, err
		}
		sides[0], sides[1] = append(sides[0], loopOver(a, pools[0])), append(sides[1], loopOver(b, pools[1]))
		undo = append(undo, a.Close, b.Close)
	}
	client, err := newMillrace(clientAddr, tcp.Options{}, sides[0])
	if err != nil {
		return nil, err
	}
	server, err := newMillrace(serverAddr, tcp.Options{}, sides[1], undo...)
	if err != nil {
		return nil, err
	}
	return &Pair{Client: client, Server: server, ServerAddr: serverAddr.Addr()}, nil
}

// MillraceLoopback returns one of our stacks, over loops, as both ends of a pair. Both ends of a connection are on
// one loop, since both directions of a flow hash alike. So loops share no packet.
//
// A second loop has to be measured so. Between two stacks there is a loop at each end of a wire, and Go's scheduler
// puts both on one core or not, by chance. Where it does not, each frame and each connection's state moves between cores.
func MillraceLoopback(loops int) (*Pair, error) {
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 2 * loops * framesOf})
	if err != nil {
		return nil, err
	}
	var configs []stack.Config
	undo := []func() error{arena.Close}
	for range loops {
		pool, err := arena.Cut(2 * framesOf)
		if err != nil {
			return nil, err
		}
		a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: pool, B: pool}) // a loop needs a device; nothing is sent on it
		if err != nil {
			return nil, err
		}
		configs = append(configs, loopOver(a, pool))
		undo = append(undo, a.Close, b.Close)
	}
	m, err := newMillrace(serverAddr, tcp.Options{}, configs, undo...)
	if err != nil {
		return nil, err
	}
	return &Pair{Client: m, Server: m, ServerAddr: serverAddr.Addr()}, nil
}

// millracePackets are two UDP conns over a wire in memory, which passes trains of datagrams whole.
func millracePackets() (*PacketPair, error) {
	p, err := millracePair(1500, 1, true)
	if err != nil {
		return nil, err
	}
	server, err := p.Server.(*millrace).ListenPacket("udp", netip.AddrPortFrom(p.ServerAddr, 443).String())
	if err != nil {
		return nil, err
	}
	client, err := p.Client.(*millrace).ListenPacket("udp", netip.AddrPortFrom(clientAddr.Addr(), 4433).String())
	if err != nil {
		return nil, err
	}
	return &PacketPair{client, server, p.Close}, nil
}
