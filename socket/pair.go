package socket

import (
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// pairFrames is the number of frames of each stack of a Pair: 8 MiB.
const pairFrames = 4096

// link is the memory link of a Pair. The stack that closes last frees it, because both have frames in one
// arena.
type link struct {
	arena *ring.Arena
	ends  [2]*pmd.Memory
	pools [2]*ring.Pool
	open  atomic.Int32 // stacks
}

// Pair returns two stacks of this process with a link in memory between them, as net.Pipe returns two
// connections. It is for tests of programs: it needs neither an interface nor privileges.
func Pair(a, b netip.Prefix) (*Stack, *Stack, error) {
	l, err := newLink()
	if err != nil {
		return nil, nil, err
	}
	x, err := l.stack(0, a)
	if err != nil {
		return nil, nil, errors.Join(err, l.close())
	}
	y, err := l.stack(1, b)
	if err != nil {
		return nil, nil, errors.Join(err, x.Close(), l.close())
	}
	l.open.Store(2)
	x.release, y.release = l.release, l.release
	return x, y, nil
}

func newLink() (l *link, err error) {
	l = &link{}
	if l.arena, err = ring.NewArena(ring.ArenaConfig{Frames: 2 * pairFrames}); err != nil {
		return nil, err
	}
	for i := range l.pools {
		if l.pools[i], err = l.arena.Cut(pairFrames); err != nil {
			return nil, errors.Join(err, l.arena.Close())
		}
	}
	l.ends[0], l.ends[1], err = pmd.NewMemory(pmd.MemoryConfig{A: l.pools[0], B: l.pools[1]})
	if err != nil {
		return nil, errors.Join(err, l.arena.Close())
	}
	return l, nil
}

// stack starts the stack of one end.
func (l *link) stack(i int, addr netip.Prefix) (*Stack, error) {
	loop := stack.Config{Devices: []pmd.Driver{l.ends[i]}, Pool: l.pools[i], Engine: gpukern.NewCPU(gpukern.Config{})}
	return New(Config{
		Loops: []stack.Config{loop},
		Addrs: []Address{{Prefix: addr}},
	})
}

// release is called by each stack when its loop has ended.
func (l *link) release() error {
	if l.open.Add(-1) > 0 {
		return nil
	}
	return l.close()
}

func (l *link) close() error {
	return errors.Join(l.ends[0].Close(), l.ends[1].Close(), l.arena.Close())
}
