// Package stackpair makes two stacks with several loops each and links in memory between them, for tests that need more
// than socket.Pair has: several loops, and to see the pools of frames.
package stackpair

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

// Addresses of the stacks, in networks of 24 and 64 bits.
const (
	AddrA, AddrB   = "198.18.0.1", "198.18.0.2"
	AddrA6, AddrB6 = "2001:db8::1", "2001:db8::2"
)

// frames is how many each loop has.
const frames = 4096

// Pair is two stacks. Loop i of each is connected to loop i of the other.
type Pair struct {
	A, B *socket.Stack

	arena *ring.Arena
	wires []*pmd.Memory
	pools []*ring.Pool // of A and B in turn
}

// New starts two stacks of n loops.
func New(n int) (p *Pair, err error) {
	p = &Pair{}
	if p.arena, err = ring.NewArena(ring.ArenaConfig{Frames: 2 * n * frames}); err != nil {
		return nil, err
	}
	var a, b []stack.Config
	for range n {
		ca, cb, err := p.wire()
		if err != nil {
			return nil, err
		}
		a, b = append(a, ca), append(b, cb)
	}
	if p.A, err = start(a, AddrA, AddrA6); err != nil {
		return nil, err
	}
	p.B, err = start(b, AddrB, AddrB6)
	return p, err
}

// wire connects two loops.
func (p *Pair) wire() (a, b stack.Config, err error) {
	var pools [2]*ring.Pool
	for i := range pools {
		if pools[i], err = p.arena.Cut(frames); err != nil {
			return a, b, err
		}
	}
	x, y, err := pmd.NewMemory(pmd.MemoryConfig{A: pools[0], B: pools[1]})
	if err != nil {
		return a, b, err
	}
	p.pools, p.wires = append(p.pools, pools[:]...), append(p.wires, x, y)
	return config(x, pools[0]), config(y, pools[1]), nil
}

func config(d pmd.Driver, p *ring.Pool) stack.Config {
	return stack.Config{Devices: []pmd.Driver{d}, Pool: p, Engine: gpukern.NewCPU(gpukern.Config{})}
}

func start(loops []stack.Config, v4, v6 string) (*socket.Stack, error) {
	return socket.New(socket.Config{Loops: loops, Addrs: []socket.Address{
		{Prefix: netip.MustParsePrefix(v4 + "/24")},
		{Prefix: netip.MustParsePrefix(v6 + "/64")},
	}})
}

// Used returns how many frames of the pools are not free, those on their way included.
func (p *Pair) Used() (n int) {
	for i, pool := range p.pools {
		s := p.A
		if i%2 == 1 {
			s = p.B
		}
		s.EnterLoop(i/2, func(socket.LoopStack) { n += frames - pool.Free() })
	}
	return n
}

// Close ends both stacks. Frames that are not free then are an error.
func (p *Pair) Close() error {
	err := errors.Join(p.A.Close(), p.B.Close())
	for _, w := range p.wires {
		err = errors.Join(err, w.Close())
	}
	if n := p.Used(); n != 0 {
		err = errors.Join(err, fmt.Errorf("%d frames are not free", n))
	}
	return errors.Join(err, p.arena.Close())
}
