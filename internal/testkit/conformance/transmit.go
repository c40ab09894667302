package conformance

import (
	"testing"

	"github.com/millrace/millrace/packet"
)

func sendsAll(t testing.TB, s *Subject) {
	const total = 3000
	b := open(t, s, 1024, 0, nil)
	out := b.batch(600)
	b.eventually("Tx to take all", func() bool {
		for int(b.number) < total && b.add(out, s.mixed(int(b.number))) {
		}
		b.send(out)
		b.audit(out)
		b.receiveFar()
		b.receive()
		return b.number == total && out.Len() == 0
	})
	b.waitFarTotal(total)
	if st := b.Queue.Info().Stats; st.TxInvalid > 0 {
		t.Errorf("refused without need: %+v", st)
	}
}

// sendsThePool gives the device every frame at once, where it takes so many, and wants all back while it is open.
func sendsThePool(t testing.TB, s *Subject) {
	const frames = 256
	b := open(t, s, frames, 0, nil)
	for range 3 {
		out := b.batch(frames)
		for b.add(out, 300) {
		}
		b.sendAll(out)
		if b.AfterClose {
			continue
		}
		b.waitFarTotal(int(b.number))
		b.eventually("frames to be returned", func() bool {
			b.receive()
			b.receiveFar() // what pays for frames may come from there
			b.send(out)
			return b.pool.Free() >= frames/2 // the others wait for packets to receive
		})
		b.audit()
	}
	b.waitFarTotal(int(b.number))
}

func leavesIncomplete(t testing.TB, s *Subject) {
	b := open(t, s, 64, 0, nil)
	out := b.batch(8)
	b.add(out, 300)
	b.fill(out, make([]byte, 300))
	b.fill(out, make([]byte, 300))
	out.D[1].Flags, out.D[2].Flags = packet.FlagMore, packet.FlagMore
	for range 50 {
		b.send(out)
		b.audit(out)
	}
	if out.Len() != 2 || b.tx.TxPackets != 1 {
		t.Errorf("%d descriptors are left of an unfinished packet of 2", out.Len())
	}
	b.pool.PutBatch(out)
	b.waitFarTotal(1)
}

func rejectsInvalidLengths(t testing.TB, s *Subject) {
	b := open(t, s, 256, 0, nil)
	out := b.batch(64)
	b.add(out, s.longest())
	b.add(out, s.longest()+100)
	b.add(out, s.longest())
	b.fill(out, stub)
	b.add(out, shortest)
	if packets := packet.Packets(out.D); packets != 5 {
		t.Fatalf("%d packets of up to %d bytes do not fit frames of %d", packets, s.longest()+100, s.frameSize())
	}
	pass, want := 3, uint64(0)
	for _, passes := range []bool{s.AnyLength, s.Runts} {
		if passes {
			pass++
		} else {
			want++
		}
	}
	b.sendAll(out)
	if b.AfterClose {
		b.close()
	}
	b.eventually("5 packets to arrive or to be counted", func() bool {
		if !b.closed {
			b.receive()
		}
		b.receiveFar()
		return b.far.n+b.far.odd >= pass && b.Queue.Info().Stats.TxInvalid >= want
	})
	if n := b.Queue.Info().Stats.TxInvalid; b.far.n+b.far.odd != pass || n != want {
		t.Errorf("%d arrived, %d were refused; want %d and %d", b.far.n+b.far.odd, n, pass, want)
	}
	b.audit()
}

func rejectsChains(t testing.TB, s *Subject) {
	b := open(t, s, 64, 0, nil)
	out := b.batch(16)
	b.add(out, 200)
	first := out.Len()
	b.fill(out, newPacket(b.number, 700))
	b.fill(out, newPacket(b.number, 700))
	out.D[first].Flags = packet.FlagMore
	b.number++
	b.add(out, 200)
	b.sendAll(out)
	b.waitFarTotal(2)
	if st := b.Queue.Info().Stats; st.TxInvalid != 1 || st.TxInvalidBytes != 1400 || st.TxPackets != b.tx.TxPackets {
		t.Errorf("%+v, want 1 invalid of %d packets", st, b.tx.TxPackets)
	}
	b.audit()
}

func countsBothWays(t testing.TB, s *Subject) {
	const total = 1000
	b := open(t, s, 512, total, s.mixed)
	out := b.batch(64)
	for b.got.n < total {
		b.offer(min(InFlight, total-b.sent))
		for range InFlight {
			b.add(out, s.mixed(int(b.number)))
		}
		b.sendAll(out)
		b.receiveAll(b.sent)
	}
	b.waitFarTotal(int(b.number))
	st := b.Queue.Info().Stats
	if st.RxPackets != uint64(b.sent+b.extra)-b.lost() || st.RxMissed+st.RxInvalid != 0 {
		t.Errorf("%d packets were sent to it: %+v", b.sent+b.extra, st)
	}
	if st.TxPackets != b.far.all || st.TxBytes != b.far.bytes || st.TxInvalid != 0 {
		t.Errorf("%d packets, %d bytes arrived: %+v", b.far.all, b.far.bytes, st)
	}
}
