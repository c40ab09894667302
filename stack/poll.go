package stack

import (
	"errors"
	"io"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// Poll does one iteration: commands, receive from each device, engine, handler, packets that other
// loops hand over, loopback, files, pollers, timers, transmit. It returns the descriptors that it moved and the calls for files,
// 0 for an iteration in vain. The runners call it; tests in virtual time call it themselves, with
// times that never go back.
func (l *Loop) Poll(now clock.Time) int {
	if l.handler == nil {
		panic(errNoHandler)
	}
	moved := l.poll(now)
	l.publish()
	return moved
}

// poll is Poll without publishing the counters.
func (l *Loop) poll(now clock.Time) int {
	l.out.now = now
	if l.commands.run() {
		l.out.rearm()
	}
	moved := 0
	for i := range l.devices {
		moved += l.receive(now, (l.first+i)%len(l.devices))
	}
	if l.waiting != nil { // the engine was full before all devices were polled: another one is first next time
		l.first = (l.first + 1) % len(l.devices)
	}
	moved += l.finish(now)
	moved += l.exchange(now)
	moved += l.deliverLoopback(now)
	if l.files != nil {
		moved += l.files.serve(now, moved > 0)
	}
	if l.pollers != nil {
		moved += l.pollAll(now)
	}
	if now >= l.out.tick {
		l.out.tick = l.handler.Tick(now)
	}
	for i := range l.out.queues { // flush, inlined: its call is 2 % of an iteration
		moved += l.out.transmit(i)
	}
	if l.out.external {
		l.out.keepExternal()
		l.out.external = false
	}
	if len(l.after) > 0 {
		l.runAfter()
	}
	moved += l.out.loopback.Len()
	l.count.Iterations++
	if moved > 0 {
		l.count.Busy++
	}
	return moved
}

// publish shows the counters to other goroutines.
func (l *Loop) publish() {
	l.published.store(&l.count)
	l.unpublished = 0
}

// receive takes one burst from device i and submits it to the engine.
func (l *Loop) receive(now clock.Time, i int) int {
	p := &l.devices[i]
	if !l.resubmit() || len(l.free) == 0 || p.ended || now < p.retry {
		return 0
	}
	if l.paused = l.congested(now); l.paused {
		return 0
	}
	b := l.free[len(l.free)-1]
	l.externalFrames = 0
	n, err := p.drv.Rx(now, b)
	if err != nil {
		l.deviceFailed(now, i, err)
	} else {
		p.err = nil
	}
	if n == 0 {
		return 0
	}
	l.free = l.free[:len(l.free)-1]
	l.account(b, uint8(i))
	l.onePacket = n == 1
	l.waiting = b
	l.resubmit()
	return n
}

// account stamps the device on a received burst and counts it.
func (l *Loop) account(b *packet.Batch, dev uint8) {
	bytes, more, placed := 0, 0, 0
	for i := range b.D {
		d := &b.D[i]
		d.Port = dev
		d.Verdict = packet.Undecided
		bytes += int(d.Len)
		if d.Flags.Has(packet.FlagMore) {
			more++
		}
		if d.Flags.Has(packet.FlagOffload) {
			if n := b.Arena.Placed(d); n > 0 {
				bytes += n
				placed++
				l.out.external = l.out.external || b.Arena.External(d) != nil
			}
		}
	}
	l.count.Placed += uint64(placed)
	l.count.Received += uint64(len(b.D) - more)
	l.count.ReceivedBytes += uint64(bytes)
}

// resubmit submits the batch that waits for the engine, and reports whether none waits any longer.
// A batch that the engine rejects for another reason than ErrFull is dropped: it would not take it
// later either.
func (l *Loop) resubmit() bool {
	b := l.waiting
	if b == nil {
		return true
	}
	err := l.cfg.Engine.Submit(b)
	if errors.Is(err, gpukern.ErrFull) {
		return false
	}
	l.waiting = nil
	if err == nil {
		l.inside++
		return true
	}
	l.out.drop(b.D, packet.DropEngine)
	b.Reset()
	l.free = append(l.free, b)
	return true
}

// finish takes batches out of the engine and passes them to the handler.
func (l *Loop) finish(now clock.Time) int {
	moved := 0
	n := l.cfg.Engine.Poll(l.done)
	for _, b := range l.done[:n] {
		l.inside--
		moved += b.Len()
		if l.verifies || l.completes {
			l.checksums(b)
		}
		if join := GRO(l.joins.Load()); join != GRONone {
			l.gro.udp = join == GROAll
			l.count.Merged += l.gro.merge(b)
		}
		l.handle(now, b)
		b.Reset()
		l.free = append(l.free, b)
	}
	return moved
}

// deliverLoopback passes what the handler sent to itself back to it, a burst at a time.
func (l *Loop) deliverLoopback(now clock.Time) int {
	n := l.out.loopback.Len()
	if n == 0 {
		return 0
	}
	b := l.out.takeLoopback()
	b.Base = int64(now)
	for at := 0; at < n; {
		part := packet.Batch{Arena: b.Arena, Base: b.Base, D: b.D[at : at+packet.Whole(b.D[at:], l.cfg.Burst)]}
		l.handle(now, &part)
		at += len(part.D)
	}
	b.Reset()
	return n
}

// handle passes a batch to the handler and carries out its verdicts.
func (l *Loop) handle(now clock.Time, b *packet.Batch) {
	l.handler.Handle(now, b)
	l.out.rearm()
	l.dispose(b.D)
}

// dispose moves each packet of d by its verdict, in runs of packets with the same verdict:
// in ordinary traffic there are far fewer runs than packets.
func (l *Loop) dispose(d []packet.Desc) {
	for len(d) > 0 {
		n := run(d)
		v := d[0].Verdict
		switch {
		case v == packet.Forward && int(d[0].Port) < len(l.devices):
			l.out.forward(int(d[0].Port), d[:n])
		case v == packet.Handover:
			l.handOver(d[:n])
		case v == packet.Deliver:
			l.count.Delivered += packet.Packets(d[:n])
		case v.Dropped():
			l.out.drop(d[:n], v)
		case v == packet.Hold: // in flight until Resume
		case v == packet.Release:
			l.out.release(d[:n])
		default:
			l.out.drop(d[:n], packet.DropUnsupported)
		}
		d = d[n:]
	}
	l.flushPeers()
}

// run returns the number of leading descriptors that belong to packets with the verdict and the
// device of the first. A descriptor that continues a packet (the one before has FlagMore) belongs
// to it whatever its verdict.
func run(d []packet.Desc) int {
	v, out := d[0].Verdict, d[0].Port
	n := 1
	for n < len(d) && (d[n].Verdict == v && d[n].Port == out || d[n-1].Flags.Has(packet.FlagMore)) {
		n++
	}
	return n
}

// deviceFailed notes an error of Rx: a device whose link is down is polled again after a while, any other
// error is final.
func (l *Loop) deviceFailed(now clock.Time, i int, err error) {
	p := &l.devices[i]
	p.err = err
	p.retry = now.Add(retryAfter)
	if p.ended = !errors.Is(err, pmd.ErrDown); p.ended {
		l.failed[i].Store(&err)
	}
}

// ended reports whether no packet will ever come: every device has ended, in the other loops of the
// mesh too, and none is left inside.
func (l *Loop) ended() bool {
	for i := range l.devices {
		if p := &l.devices[i]; !p.ended || l.cfg.Replaceable && !errors.Is(p.err, io.EOF) {
			return false
		}
	}
	if l.inside > 0 || l.waiting != nil || l.out.waiting() > 0 {
		return false
	}
	if l.mesh == nil {
		return true
	}
	l.activity.idle()
	return l.mesh.quiescence.reached(l.activity)
}

// lastError returns the error of a device that is gone; the end of a file is none.
func (l *Loop) lastError() error {
	var errs []error
	for i := range l.devices {
		if p := &l.devices[i]; p.ended && !errors.Is(p.err, io.EOF) {
			errs = append(errs, p.err)
		}
	}
	return errors.Join(errs...)
}

// drain ends a loop: it waits for the engine, leaves the mesh, sends what the devices take and drops
// the rest. After it no packet is in flight and the counters balance.
func (l *Loop) drain() {
	l.out.now = Now()
	for l.inside > 0 || l.waiting != nil {
		l.resubmit()
		l.finish(l.out.now)
	}
	for _, f := range l.out.atEnd {
		f()
	}
	l.leave()
	l.out.close()
	l.publish()
}
