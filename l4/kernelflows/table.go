package kernelflows

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/fastpath"
	"github.com/millrace/millrace/wire"
)

// Limits of a Table.
const (
	DefaultSlots = 65536
	MaxSlots     = 1 << 20
	maxLoops     = 64
	maxDevices   = 64
)

// Options describe a Table.
type Options struct {
	Loops int               // 1 to 64
	Slots int               // connections of all loops together, each 384 bytes and two keys; 0 is DefaultSlots
	Now   func() clock.Time // the loops' clock, for Traffic.Last; required
}

// Table is the flows of all loops, and the programs that forward them. Attach, Detach, Stats and Close may be called by
// any goroutine.
type Table struct {
	objs        flowsMaps
	memory      [][]byte // mapped
	slots       []slot
	generations []*atomic.Uint32
	loops       []*Loop
	offset      int64 // of CLOCK_MONOTONIC from the loops' clock, ns

	mu      sync.Mutex
	devices [maxDevices]device
	paths   [maxDevices]atomic.Uint64 // as path
}

// path is an interface that has a program: its index, and in bit 32 whether packets are given to its peer. 0 is none.
type path uint64

func (p path) index() uint32 { return uint32(p) }
func (p path) toPeer() bool  { return p>>32 != 0 }

// Open makes the maps. No program is attached yet.
func Open(o Options) (*Table, error) {
	o.Slots = cmp.Or(o.Slots, DefaultSlots)
	if o.Loops < 1 || o.Loops > maxLoops || o.Slots < o.Loops || o.Slots > MaxSlots || o.Now == nil {
		return nil, fmt.Errorf("kernel flows: %d loops and %d slots: want 1 to %d loops, at most %d slots, and a clock", o.Loops, o.Slots, maxLoops, MaxSlots)
	}
	t := &Table{}
	if err := t.open(&o); err != nil {
		return nil, errors.Join(explain(err), t.Close())
	}
	return t, nil
}

func (t *Table) open(o *Options) error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("raise the limit of locked memory for BPF maps: %w", err)
	}
	spec, err := specFor(o.Slots)
	if err != nil {
		return err
	}
	if err := spec.LoadAndAssign(&t.objs, nil); err != nil {
		return err
	}
	if t.slots, err = mapped[slot](t, t.objs.Slots, o.Slots); err != nil {
		return err
	}
	// An array of 4-byte values has them 8 bytes apart.
	words, err := mapped[[2]atomic.Uint32](t, t.objs.Generations, maxLoops)
	if err != nil {
		return err
	}
	t.generations = make([]*atomic.Uint32, maxLoops)
	for i := range words {
		t.generations[i] = &words[i][0]
	}
	per := o.Slots / o.Loops
	for i := range o.Loops {
		t.generations[i].Store(1)
		t.loops = append(t.loops, newLoop(t, i, uint32(i*per), t.slots[i*per:(i+1)*per]))
	}
	return t.synchronize(o.Now)
}

// specFor returns the programs and maps for so many slots.
func specFor(slots int) (*ebpf.CollectionSpec, error) {
	spec, err := loadFlows()
	if err != nil {
		return nil, err
	}
	spec.Maps[flowsMapFlows4].MaxEntries = uint32(2 * slots)
	spec.Maps[flowsMapFlows6].MaxEntries = uint32(2 * slots)
	spec.Maps[flowsMapSlots].MaxEntries = uint32(slots)
	return spec, nil
}

// mapped maps the values of an array into the process.
func mapped[T any](t *Table, m *ebpf.Map, n int) ([]T, error) {
	size := n * int(unsafe.Sizeof(*new(T)))
	page := unix.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of a BPF array: %w", size, err)
	}
	t.memory = append(t.memory, b)
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n), nil
}

// synchronize notes how far the loops' clock is from the one that programs read.
func (t *Table) synchronize(now func() clock.Time) error {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
	}
	t.offset = ts.Nano() - int64(now())
	return nil
}

// timeOf returns a time of a program as one of the loops' clock.
func (t *Table) timeOf(ns uint64) clock.Time {
	if ns == 0 {
		return 0
	}
	return clock.Time(int64(ns) - t.offset)
}

// Loop returns the part of loop i.
func (t *Table) Loop(i int) *Loop { return t.loops[i] }

// pathsOf returns the interfaces by which both directions come and leave, and reports whether the programs can forward
// the flow.
func (t *Table) pathsOf(f *fastpath.Flow) (in, out [2]path, ok bool) {
	if f.Proto != wire.ProtoTCP && f.Proto != wire.ProtoUDP {
		return in, out, false
	}
	four := is4(&f.Directions[0].Src)
	for side := range f.Directions {
		d := &f.Directions[side]
		if d.VLAN != 0 || d.OutVLAN != 0 || int(d.Dev) >= maxDevices || int(d.OutDev) >= maxDevices {
			return in, out, false
		}
		for _, a := range []*[16]byte{&d.Src, &d.Dst, &d.NewSrc, &d.NewDst} {
			if is4(a) != four {
				return in, out, false
			}
		}
		in[side], out[side] = path(t.paths[d.Dev].Load()), path(t.paths[d.OutDev].Load())
		if in[side] == 0 || out[side] == 0 {
			return in, out, false
		}
	}
	return in, out, true
}

// Close detaches all programs and returns the memory. The loops have stopped.
func (t *Table) Close() error {
	var errs []error
	for i := range t.devices {
		errs = append(errs, t.Detach(i))
	}
	for _, b := range t.memory {
		errs = append(errs, unix.Munmap(b))
	}
	t.memory, t.slots, t.generations = nil, nil, nil
	return errors.Join(append(errs, t.objs.Close())...)
}
