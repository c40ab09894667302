package kernelflows

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Run has the kernel run the program of device dev on a frame, as if it had come by lo, and returns the result and the
// frame after it. gso is the segment size of a large packet; 0: it is none.
func (t *Table) Run(tb testing.TB, dev int, frame []byte, gso uint32) (result uint32, out []byte) {
	tb.Helper()
	out = make([]byte, len(frame)+256)
	o := &ebpf.RunOptions{Data: frame, DataOut: out, Repeat: 1}
	if gso != 0 {
		o.Context = &skb{GSOSize: gso, GSOSegs: 2}
	}
	result, err := t.devices[dev].programs.Forward.Run(o)
	if err != nil {
		tb.Fatalf("%d bytes, gso %d: %v", len(frame), gso, err)
	}
	return result, o.DataOut
}

// skb is struct __sk_buff (linux/bpf.h) as far as a test run reads it.
type skb struct {
	_       [164]byte
	GSOSegs uint32
	_       [8]byte
	GSOSize uint32
	_       [12]byte
}

// Keys returns how many keys the maps have.
func (t *Table) Keys(tb testing.TB) (four, six int) {
	tb.Helper()
	var k4 key4
	var k6 key6
	var v entry
	for it := t.objs.Flows4.Iterate(); it.Next(&k4, &v); {
		four++
	}
	for it := t.objs.Flows6.Iterate(); it.Next(&k6, &v); {
		six++
	}
	return four, six
}

// CountLate counts packets of a slot as a program would.
func (t *Table) CountLate(slot uint32, n uint64) { t.slots[slot].p[1].packets.Add(n) }

// Translated loads a classic program as eBPF and returns what runs it on a frame, as a packet socket would.
func Translated(tb testing.TB, classic []unix.SockFilter) func(frame []byte) uint32 {
	tb.Helper()
	code, err := translate(classic)
	if err != nil {
		tb.Fatal(err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, Instructions: code, License: "Dual BSD/GPL"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { prog.Close() })
	link := []byte{12: 0x88, 13: 0xb5} // a test run of a socket filter begins behind the link header
	return func(frame []byte) uint32 {
		tb.Helper()
		result, err := prog.Run(&ebpf.RunOptions{Data: append(link, frame...), Repeat: 1})
		if err != nil {
			tb.Fatal(err)
		}
		return result
	}
}

// TranslateError returns the error of a program that cannot be translated.
func TranslateError(classic []unix.SockFilter) error { _, err := translate(classic); return err }

// RemoveKey removes one key of a connection of IPv4 behind the loop's back.
func (t *Table) RemoveKey(tb testing.TB, slot uint32) {
	tb.Helper()
	if err := t.objs.Flows4.Delete(t.loops[0].known[slot].keys[0].four()); err != nil {
		tb.Fatal(err)
	}
}

// Repeat has the kernel run the program of device dev so many times on a frame.
func (t *Table) Repeat(tb testing.TB, dev int, frame []byte, times int) {
	if _, err := t.devices[dev].programs.Forward.Run(&ebpf.RunOptions{Data: frame, Repeat: uint32(times)}); err != nil {
		tb.Error(err)
	}
}

// Steered puts a program that drops behind the XDP program of device dev, and returns what has the kernel run both on a
// frame and reports whether the packet was left to tc.
func (t *Table) Steered(tb testing.TB, dev int) func(frame []byte) bool {
	tb.Helper()
	drop, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
	})
	if err != nil {
		tb.Fatal(err)
	}
	defer drop.Close()
	if _, err := t.xdp(dev, drop.FD(), false); err != nil {
		tb.Fatal(err)
	}
	return func(frame []byte) bool {
		tb.Helper()
		result, err := t.devices[dev].programs.Steer.Run(&ebpf.RunOptions{Data: frame, Context: &xdpMD{DataEnd: uint32(len(frame)), Ifindex: 1}})
		if err != nil {
			tb.Fatal(err)
		}
		return result == 2 // XDP_PASS
	}
}

// xdpMD is struct xdp_md (linux/bpf.h).
type xdpMD struct{ Data, DataEnd, DataMeta, Ifindex, Queue, Egress uint32 }

// ForgetPeers has packets of flows that are entered from now on be sent by the devices, also where these are ends of veth pairs.
func (t *Table) ForgetPeers() {
	for i := range t.paths {
		t.paths[i].Store(uint64(path(t.paths[i].Load()).index()))
	}
}
