package afpacket_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testpackets"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/afpacket"
)

// pairOf are two devices at the ends of a veth, both with Offload; far sends to the rig's.
type pairOf struct {
	*rig
	far *afpacket.Device
}

func newPairOf(t *testing.T, frames int, change func(*afpacket.Config)) *pairOf {
	t.Helper()
	p := &pairOf{rig: newRig(t, 1, frames, func(c *afpacket.Config) {
		c.Offload = true
		if change != nil {
			change(c)
		}
	})}
	must(t, p.linux.Sysctl("net.ipv6.conf.eth0.disable_ipv6", "1")) // its reports would come between the packets
	must(t, p.linux.Do(func() (err error) {
		p.far, err = afpacket.Open(afpacket.Config{Interface: "eth0", Pools: p.pools, Offload: true})
		return err
	}))
	t.Cleanup(func() { must(t, p.far.Close()) })
	must(t, p.dev.SetOffload(true))
	return p
}

// send sends a packet of tagged, a large one where it has more than 1000 bytes.
func (p *pairOf) send(t *testing.T, payload int) []byte {
	t.Helper()
	frame := tagged(payload)
	b := packet.NewBatch(p.arena.View(), 64)
	p.put(t, b, frame, 64)
	if payload > 1000 {
		at := uint16(p.arena.Headroom(&b.D[0]))
		b.D[0].Flags |= packet.FlagOffload
		p.arena.SetOffload(&b.D[0], &packet.Offload{
			Flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, GSO: unix.VIRTIO_NET_HDR_GSO_TCPV4, HeadersEnd: at + 58,
			SegmentSize: 1000, ChecksumFrom: at + 38, ChecksumAt: 16,
		})
	}
	n, err := p.far.Queues[0].Tx(now(), b)
	if n != b.Len() || err != nil {
		t.Fatalf("Tx = %d, %v", n, err)
	}
	return frame
}

// receive returns the packets of tagged, until it has want of them or none came for a second, and frees their frames.
func (p *pairOf) receive(t *testing.T, want, room int) (got [][]byte) {
	t.Helper()
	b := packet.NewBatch(p.arena.View(), room)
	for end := time.Now().Add(10 * time.Second); len(got) < want && time.Now().Before(end); {
		_, err := p.dev.Queues[0].Rx(now(), b)
		if err != nil {
			continue // a link that was down
		}
		for _, f := range testpackets.Split(b) {
			if bytes.HasPrefix(f, tagged(0)[:18]) {
				got = append(got, f)
				end = time.Now().Add(time.Second)
			}
		}
		p.pools[0].PutBatch(b)
	}
	return got
}

func TestQueuedPacketsKeepTheirPlace(t *testing.T) {
	p := newPairOf(t, 512, nil)
	var want [][]byte
	for _, n := range []int{100, 5000, 200, 60_000, 7000, 1000, 2500} {
		want = append(want, p.send(t, n))
	}
	got := p.receive(t, len(want), 64)
	if len(got) != len(want) {
		t.Fatalf("%d packets of %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("packet %d: %d bytes, not the %d that were sent", i, len(got[i]), len(want[i]))
		}
	}
	if s := p.dev.Queues[0].Info().Stats; s.RxInvalid+s.RxMissed != 0 || s.Wakeups != 4 {
		t.Errorf("%+v: want 4 system calls, for the large packets", s)
	}
	p.audit(t)
}

// A packet that no batch can hold is taken from the queue: the next one must not be mistaken for it.
func TestQueuedPacketThatNeverFitsIsSkipped(t *testing.T) {
	p := newPairOf(t, 512, nil)
	p.send(t, 9000)
	want := [][]byte{p.send(t, 3000), p.send(t, 40)}
	got := p.receive(t, 2, 3)
	if len(got) != 2 || !bytes.Equal(got[0], want[0]) || !bytes.Equal(got[1], want[1]) {
		t.Fatalf("%d packets, or not those that fit", len(got))
	}
	if s := p.dev.Queues[0].Info().Stats; s.RxInvalid != 1 {
		t.Errorf("%+v", s)
	}
	p.audit(t)
}

func TestQueuedPacketWaitsForRoom(t *testing.T) {
	p := newPairOf(t, 512, nil)
	want := p.send(t, 5000)
	var taken []uint32
	for p.pools[0].Free() > 2 {
		off, _ := p.pools[0].Get()
		taken = append(taken, off)
	}
	b := packet.NewBatch(p.arena.View(), 16)
	for range 100 {
		if n, err := p.dev.Queues[0].Rx(now(), b); n > 0 && len(testpackets.Split(b)[0]) > 1000 || err != nil {
			t.Fatalf("Rx = %d, %v without frames", n, err)
		}
		p.pools[0].PutBatch(b)
	}
	for _, off := range taken {
		p.pools[0].Put(off)
	}
	if got := p.receive(t, 1, 16); len(got) != 1 || !bytes.Equal(got[0], want) {
		t.Fatal("not received once there were frames")
	}
	p.audit(t)
}

// Large packets for which the socket's queue has no room are counted as missed, and what comes after them is right.
func TestFullReceiveQueueIsCounted(t *testing.T) {
	const sent = 64 // of 60 KB, in a queue of 512 KiB, which the kernel doubles
	p := newPairOf(t, 512, func(c *afpacket.Config) { c.Ring = 512 << 10 })
	for range sent {
		p.send(t, 60_000)
	}
	got := p.receive(t, sent, 64)
	missed := p.dev.Queues[0].Info().Stats.RxMissed
	if missed == 0 || len(got)+int(missed) != sent {
		t.Errorf("%d packets came and %d were missed of %d", len(got), missed, sent)
	}
	want := p.send(t, 50_000)
	if got := p.receive(t, 1, 64); len(got) != 1 || !bytes.Equal(got[0], want) {
		t.Error("the next packet is not right")
	}
	p.audit(t)
}

// A link that goes down leaves an error in the socket, which must not take the place of a packet.
func TestQueuedPacketOutlivesALinkThatWasDown(t *testing.T) {
	p := newPairOf(t, 512, nil)
	want := p.send(t, 5000)
	for _, state := range []string{"down", "up"} {
		_, err := p.here.Run("ip", "link", "set", "mr0", state)
		must(t, err)
	}
	if got := p.receive(t, 1, 16); len(got) != 1 || !bytes.Equal(got[0], want) {
		t.Errorf("%d packets, or not what was sent: %+v", len(got), p.dev.Queues[0].Info().Stats)
	}
	p.audit(t)
}

// SetOffload may change between the arrival of a packet and its Rx, which then cuts it.
func TestQueuedPacketsAreCut(t *testing.T) {
	p := newPairOf(t, 512, nil)
	must(t, p.dev.SetOffload(false))
	p.send(t, 60_000)
	got := p.receive(t, 60, 64)
	if len(got) != 60 {
		t.Fatalf("%d segments", len(got))
	}
	for i, f := range got {
		if len(f) != 58+1000 || f[58] != byte(i) || !checksumOK(f) {
			t.Fatalf("segment %d: %d bytes, first %d, checksum right: %v", i, len(f), f[58], checksumOK(f))
		}
	}
	p.audit(t)
}

// Without CAP_NET_ADMIN the socket's queue cannot be large, and blocks hold large packets.
func TestOffloadWithoutNetAdminUsesBlocks(t *testing.T) {
	p := newPairOf(t, 512, nil)
	if n := p.dev.Queues[0].Info().Negotiated; !strings.HasPrefix(n, "TPACKET_V2") {
		t.Errorf("with all capabilities: %s", n)
	}
	must(t, p.dev.Close())
	must(t, p.here.Do(func() (err error) {
		defer dropNetAdmin(t)()
		p.dev, err = afpacket.Open(afpacket.Config{Interface: "mr0", Pools: p.pools, All: true, Offload: true})
		return err
	}))
	if n := p.dev.Queues[0].Info().Negotiated; !strings.HasPrefix(n, "TPACKET_V3") {
		t.Errorf("without CAP_NET_ADMIN: %s", n)
	}
	must(t, p.dev.SetOffload(true))
	want := p.send(t, 60_000)
	if got := p.receive(t, 1, 64); len(got) != 1 || !bytes.Equal(got[0], want) {
		t.Error("not what was sent")
	}
	p.audit(t)
}

// dropNetAdmin takes CAP_NET_ADMIN from the calling thread until the result is called.
func dropNetAdmin(t *testing.T) (restore func()) {
	t.Helper()
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	must(t, unix.Capget(&h, &all[0]))
	fewer := all
	fewer[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	must(t, unix.Capset(&h, &fewer[0]))
	return func() { must(t, unix.Capset(&h, &all[0])) }
}

// More packets than the ring has slots: each slot goes back to the kernel, and the first follows the last.
func TestSlotsAreReused(t *testing.T) {
	p := newPairOf(t, 512, func(c *afpacket.Config) { c.Ring = 1 }) // one block, 64 slots
	for range 10 {
		var want [][]byte
		for i := range 25 {
			want = append(want, p.send(t, 40+i))
		}
		got := p.receive(t, len(want), 64)
		for i := range want {
			if i >= len(got) || !bytes.Equal(got[i], want[i]) {
				t.Fatalf("%d packets, and packet %d is not what was sent", len(got), i)
			}
		}
	}
	p.audit(t)
}
