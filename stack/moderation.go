package stack

import (
	"math/bits"
	"time"
	"unsafe"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"golang.org/x/sys/unix"
)

// moderation makes a served loop pause between bursts, as NICs moderate interrupts: where many flows send
// a packet each now and then, a loop that polls without a break meets them one or two at a time. Each
// burst costs an iteration, a system call to send and a switch to each goroutine with cold caches. A
// pause of some microseconds collects a burst, and its thread sleeps instead of polling in vain.
//
// Only flows that wait for each other's turn gain. A flow whose next packet follows from our answer,
// such as a single connection, would be slowed down by every pause. So a pause is at most an eighth of
// the mean time between two packets of one flow: most flows do not notice it, and their senders have work
// meanwhile.
type moderation struct {
	flows    [flowBits / 64]uint64 // seen in this window, by hash
	since    clock.Time            // begin of this window
	received uint64                // packets before this window
	pause    time.Duration         // after a burst; 0 is none
}

const (
	// moderationWindow is the time over which flows and packets are counted: a pause is decided for the
	// next one, so this bounds how long a decision outlives the traffic that it was made for.
	moderationWindow = time.Millisecond

	// flowBits is the size of the set of flows. Flows that share a bit make the pause shorter.
	flowShift = 8
	flowBits  = 1 << flowShift

	// maxPause bounds what a packet waits. Longer ones saved nothing more.
	maxPause = 50 * time.Microsecond

	// minPause is the least pause that saves more than the timer of the sleep costs.
	minPause = 10 * time.Microsecond

	// pausePackets is how many packets a pause must collect, to be worth its price.
	pausePackets = 4

	// fullBurst is the size of a burst after which there is no pause: it has shared its costs, and
	// handling it took longer than a pause.
	fullBurst = 16
)

// note adds the flows of a received batch, which the engine has hashed. It borrows b. It takes the high
// bits of the hash, since all flows of one loop may agree in the low ones (Mesh).
func (m *moderation) note(b *packet.Batch) {
	for i := range b.D {
		h := b.D[i].Hash >> (32 - flowShift)
		m.flows[h/64] |= 1 << (h % 64)
	}
}

// update decides about pauses at the end of a window. received counts all packets of the loop so far.
func (m *moderation) update(now clock.Time, received uint64) {
	elapsed := now.Sub(m.since)
	if elapsed < moderationWindow {
		return
	}
	packets, flows := int(received-m.received), 0
	for _, w := range m.flows {
		flows += bits.OnesCount64(w)
	}
	*m = moderation{since: now, received: received}
	if packets == 0 {
		return
	}
	gap := elapsed / time.Duration(packets) // between two packets
	pause := min(gap*time.Duration(flows)/8, maxPause)
	if pause >= max(minPause, pausePackets*gap) {
		m.pause = pause
	}
}

// pauses reports whether the loop shall pause after a burst of n packets.
func (m *moderation) pauses(n uint64) bool { return m.pause > 0 && n > 0 && n < fullBurst }

// moderate returns the moderation of a loop, nil where it has none: with a fixed spin, whose user has
// decided about latency, and where a device has no file. Those are devices in memory, whose senders
// share the processor with the loop, and those that move packets only while they are polled.
func (l *Loop) moderate(now clock.Time) *moderation {
	if l.cfg.Spin != 0 {
		return nil
	}
	for i := range l.devices {
		if !l.hasFile(i) {
			return nil
		}
	}
	return &moderation{since: now, received: l.count.Received}
}

// pause sends what the goroutines of the last burst have written, and sleeps. Nothing wakes the loop
// early, so there is no protocol with notifiers: commands, packets of other loops and output of other
// goroutines wait for the end of the pause, as they would for that of a long iteration.
//
// RawSyscall keeps the processor (the runtime's P) for so short a time. With a system call that the runtime
// knows of, sysmon took the processor away in each pause, which was 7 % of the CPU time of a round trip.
// Other processors may still steal goroutines from this one, and a collection that wants it sends the
// thread a signal, which ends the sleep.
func (l *Loop) pause(d time.Duration) {
	if !l.flushBeforePause() {
		return
	}
	// The kernel would add the thread's timer slack, 50 us by default. A goroutine moves between threads, so
	// it is set each time. The runtime's own sleeps on this thread only become more exact.
	_, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 1, 0)
	ts := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0) // after EINTR an iteration follows, too
}

// flushBeforePause does the second half of an iteration, and reports whether the loop has nothing left
// to do but to receive.
func (l *Loop) flushBeforePause() bool {
	l.lock.mu.Lock()
	defer l.lock.mu.Unlock()
	now := max(l.out.now, l.cfg.Now())
	l.out.now = now
	if now >= l.out.tick {
		l.out.tick = l.handler.Tick(now)
	}
	l.out.flush()
	if l.out.waiting() > 0 || l.mayNotSleep() {
		return false
	}
	l.count.Sleeps++
	return true
}
