package kernelflows

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/fastpath"
	"github.com/millrace/millrace/metrics"
)

// rest is the time that a slot is not used again after Leave: far longer than a program runs that has found it before.
const rest = 50 * time.Millisecond

// Loop is one loop's part of a Table: slots of its own. It implements fastpath.Forwarder, and only that loop calls it.
type Loop struct {
	table  *Table
	number uint32
	first  uint32
	slots  []slot
	known  []known  // what the loop knows of its slots
	free   []uint32 // indices of slots
	serial uint32
	toAdd  []uint32
	toDel  [2][]key6 // IPv4, IPv6
	left   []leaving
	batch  batches

	entered, refused, failed, late metrics.Counter
}

// known describes the use of a slot.
type known struct {
	keys    [2]key6
	serial  uint32 // 0: not in use
	six     bool
	pending bool // the keys are not in the map yet
}

// leaving is a slot that rests.
type leaving struct {
	index   uint32
	since   clock.Time // 0: since the next Flush
	packets [2]uint64  // as Leave has returned them
}

// batches are the arrays of the batch operations.
type batches struct {
	keys4   []key4
	keys6   []key6
	values4 []entry
	values6 []entry
}

func newLoop(t *Table, number int, first uint32, slots []slot) *Loop {
	l := &Loop{table: t, number: uint32(number), first: first, slots: slots, known: make([]known, len(slots))}
	for i := range slots {
		l.free = append(l.free, uint32(len(slots)-1-i)) // the lowest first
	}
	return l
}

// generation is the loop's, in the memory that programs read.
func (l *Loop) generation() *atomic.Uint32 { return l.table.generations[l.number] }

// Enter implements fastpath.Forwarder.
func (l *Loop) Enter(f *fastpath.Flow) (uint32, bool) {
	generation := l.generation().Load() // before the devices: see Table.Detach
	in, out, ok := l.table.pathsOf(f)
	if !ok || len(l.free) == 0 {
		l.refused.Add(1)
		return 0, false
	}
	i := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	if l.serial++; l.serial == 0 {
		l.serial++
	}
	s, k := &l.slots[i], &l.known[i]
	*k = known{serial: l.serial, six: !is4(&f.Directions[0].Src), pending: true}
	for side := range 2 {
		s.d[side].set(f, side, generation, l.number, out[side])
		s.p[side].set(f.Sequences[side])
		k.keys[side] = keyOf(&f.Directions[side], f.Proto, in[side].index())
	}
	for side := range 2 {
		s.d[side].serial.Store(l.serial)
	}
	l.toAdd = append(l.toAdd, i)
	l.entered.Add(1)
	return l.first + i, true
}

// Leave implements fastpath.Forwarder.
func (l *Loop) Leave(slot uint32) fastpath.Traffic {
	i := slot - l.first
	s, k := &l.slots[i], &l.known[i]
	if k.serial == 0 {
		panic("kernelflows: Leave of a slot that is not in use")
	}
	s.d[0].serial.Store(0)
	s.d[1].serial.Store(0)
	t := l.Read(slot)
	if !k.pending {
		six := bit(k.six)
		l.toDel[six] = append(l.toDel[six], k.keys[0], k.keys[1])
	}
	*k = known{}
	l.left = append(l.left, leaving{index: i, packets: t.Packets})
	l.entered.Add(^uint64(0))
	return t
}

// Read implements fastpath.Forwarder.
func (l *Loop) Read(slot uint32) (t fastpath.Traffic) {
	s := &l.slots[slot-l.first]
	for side := range 2 {
		p := &s.p[side]
		t.Packets[side], t.Bytes[side] = p.packets.Load(), p.bytes.Load()
		t.Last[side] = l.table.timeOf(p.last.Load())
		t.Sequences[side] = p.sequence()
	}
	t.Loose = s.d[0].loose != 0
	return t
}

// Raise implements fastpath.Forwarder.
func (l *Loop) Raise(slot uint32, to *[2]fastpath.Sequence) {
	s := &l.slots[slot-l.first]
	for side := range 2 {
		s.p[side].raise(&to[side])
	}
}

// Renew implements fastpath.Forwarder.
func (l *Loop) Renew() { l.generation().Add(1) }

// Flush implements fastpath.Forwarder. Keys are removed before others are entered: a connection may have left, and come
// again, since the last Flush.
func (l *Loop) Flush(now clock.Time) error {
	var err error
	if len(l.toDel[0])+len(l.toDel[1]) > 0 {
		err = l.removeKeys()
	}
	if len(l.toAdd) > 0 {
		err = errors.Join(err, l.enterKeys())
	}
	if len(l.left) > 0 {
		l.release(now)
	}
	return err
}

// removeKeys removes the keys of connections that have left.
func (l *Loop) removeKeys() error {
	b := &l.batch
	b.keys4 = b.keys4[:0]
	for i := range l.toDel[0] {
		b.keys4 = append(b.keys4, l.toDel[0][i].four())
	}
	err := errors.Join(remove(l.table.objs.Flows4, b.keys4), remove(l.table.objs.Flows6, l.toDel[1]))
	l.toDel[0], l.toDel[1] = l.toDel[0][:0], l.toDel[1][:0]
	return err
}

// remove removes keys from a map. The kernel ends a batch with the first key that is not there, which is no error.
func remove[K any](m *ebpf.Map, keys []K) error {
	for len(keys) > 0 {
		n, err := m.BatchDelete(keys, nil)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			return fmt.Errorf("remove %d flows: %w", len(keys)-n, err)
		}
		keys = keys[min(n+1, len(keys)):]
	}
	return nil
}

// enterKeys enters the keys of connections that have not left again.
func (l *Loop) enterKeys() error {
	b := &l.batch
	b.keys4, b.keys6, b.values4, b.values6 = b.keys4[:0], b.keys6[:0], b.values4[:0], b.values6[:0]
	for _, i := range l.toAdd {
		k := &l.known[i]
		if !k.pending {
			continue
		}
		k.pending = false
		for side := range uint32(2) {
			v := entry{Slot: (l.first+i)<<1 | side, Serial: k.serial}
			if k.six {
				b.keys6, b.values6 = append(b.keys6, k.keys[side]), append(b.values6, v)
			} else {
				b.keys4, b.values4 = append(b.keys4, k.keys[side].four()), append(b.values4, v)
			}
		}
	}
	l.toAdd = l.toAdd[:0]
	return errors.Join(enter(l, l.table.objs.Flows4, b.keys4, b.values4), enter(l, l.table.objs.Flows6, b.keys6, b.values6))
}

// enter enters keys in a map. The kernel ends a batch with the first key that it cannot enter: the packets of that
// direction, and of those behind it, go on coming to the loop.
func enter[K any](l *Loop, m *ebpf.Map, keys []K, values []entry) error {
	if len(keys) == 0 {
		return nil
	}
	n, err := m.BatchUpdate(keys, values, nil)
	if err != nil {
		l.failed.Add(uint64(len(keys) - n))
		return fmt.Errorf("enter flows: %d of %d keys: %w", n, len(keys), err)
	}
	return nil
}

// release makes slots free that have rested for long enough. Packets that a program has counted, or taken back, after
// Leave has read the counters are in no connection's: their number is kept.
func (l *Loop) release(now clock.Time) {
	done := 0
	for i := range l.left {
		e := &l.left[i]
		if e.since == 0 {
			e.since = max(now, 1)
		}
		if now.Sub(e.since) < rest {
			continue
		}
		if done != i { // slots leave in the order of time
			break
		}
		done++
		for side := range 2 {
			if d := int64(l.slots[e.index].p[side].packets.Load() - e.packets[side]); d != 0 {
				l.late.Add(uint64(max(d, -d)))
			}
		}
		l.free = append(l.free, e.index)
	}
	l.left = append(l.left[:0], l.left[done:]...)
}
