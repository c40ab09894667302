package stack

import "sync/atomic"

// quiescence detects that a set of loops is done for good: all are idle and nothing is on its way
// between them. A loop whose devices have ended goes on for the others until then.
//
// Each loop has an epoch that changes whenever it turns idle or busy. A detection reads all epochs,
// then looks for packets between loops, then reads all epochs again. Where every epoch is that of an
// idle loop and none has changed, there was a moment at which all loops were idle and nothing was
// between them; and an idle loop begins nothing by itself, so the state is final.
type quiescence struct {
	loops   []*activity
	pending func() bool // packets are between two loops
}

// activity is the part of one loop in quiescence. Its owner calls busy and idle; any loop reads
// the epoch.
type activity struct {
	epoch atomic.Uint32 // odd while idle
	seen  []uint32      // scratch of the owner's detections: the epochs of all loops
}

func newQuiescence(loops int, pending func() bool) *quiescence {
	q := &quiescence{pending: pending}
	for range loops {
		q.loops = append(q.loops, &activity{seen: make([]uint32, loops)})
	}
	return q
}

// busy notes that the loop is about to take packets from another one. It must precede their removal
// from the ring: a detection that no longer finds them there then finds the epoch changed. It is one
// load as long as the loop has devices.
func (a *activity) busy() {
	if a.epoch.Load()&1 == 1 {
		a.epoch.Add(1)
	}
}

// idle notes that the loop has no work but what others may still hand over.
func (a *activity) idle() {
	if a.epoch.Load()&1 == 0 {
		a.epoch.Add(1)
	}
}

func (a *activity) isIdle() bool { return a.epoch.Load()&1 == 1 }

// reached reports whether no loop will ever have work again. The caller owns self, which lends its
// scratch, and has called idle.
func (q *quiescence) reached(self *activity) bool {
	for i, a := range q.loops {
		if self.seen[i] = a.epoch.Load(); self.seen[i]&1 == 0 {
			return false
		}
	}
	if q.pending() {
		return false
	}
	for i, a := range q.loops {
		if a.epoch.Load() != self.seen[i] {
			return false
		}
	}
	return true
}
