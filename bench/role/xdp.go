package role

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// liveFrames makes BPF_PROG_TEST_RUN send what the program returns (BPF_F_TEST_XDP_LIVE_FRAMES).
const liveFrames = 1 << 1

// repeats is the number of packets that one call of the source sends: half a second or more, since the kernel
// waits for some 20 ms at the end of each.
const repeats = 1 << 22

// openSource is the fast sender: the kernel itself makes frames, an XDP program numbers them and
// redirects them out of the device. It sends three times as fast as a socket can, so that what
// receives is what limits.
func openSource(o roleOptions) (roleWork, error) {
	nic, err := net.InterfaceByName(o.dev)
	if err != nil {
		return roleWork{}, err
	}
	p, err := o.stream.Probe(o.size)
	if err != nil {
		return roleWork{}, err
	}
	count, err := newCounter("source")
	if err != nil {
		return roleWork{}, err
	}
	ended, err := newCounter("ended")
	if err != nil {
		return roleWork{}, err
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "source", Type: ebpf.XDP, License: "Apache-2.0",
		Instructions: sourceProgram(count.FD(), ended.FD(), nic.Index, o.stream.headers(p)),
	})
	if err != nil {
		return roleWork{}, fmt.Errorf("load the source program: %w", err)
	}
	return roleWork{
		version: "BPF_PROG_TEST_RUN, live frames",
		step: func() error {
			_, err := prog.Run(&ebpf.RunOptions{Data: p, Repeat: repeats, Flags: liveFrames})
			return err
		},
		counts: func() (map[string]uint64, error) { return readCounter(count, "packets") },
		stop: func() error {
			set := make([]byte, 8*len(sinkFields))
			set[0] = 1
			return ended.Put(uint32(0), set)
		},
	}, nil
}

func newCounter(name string) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(8 * len(sinkFields)), MaxEntries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("create the counters: %w", err)
	}
	return m, nil
}

// readCounter returns the first words of the counters under the given names.
func readCounter(m *ebpf.Map, names ...string) (map[string]uint64, error) {
	words := make([]byte, 8*len(sinkFields))
	if err := m.Lookup(uint32(0), &words); err != nil {
		return nil, fmt.Errorf("read the counters: %w", err)
	}
	c := map[string]uint64{}
	for i, name := range names {
		c[name] = binary.NativeEndian.Uint64(words[8*i:])
	}
	return c, nil
}

// within jumps to out unless the packet holds a probe; then R2 is its first byte, R3 its end.
func within(out string) asm.Instructions { return withinAt(0, out) }

// withinAt is within for a context that has the packet's bounds at off (linux/bpf.h: 0 in struct
// xdp_md, skbData in struct __sk_buff).
func withinAt(off int16, out string) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, off, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, off+4, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, probeMin),
		asm.JGT.Reg(asm.R4, asm.R3, out),
	}
}

// sourceProgram writes the count of packets so far into the packet, has headers write what they will,
// and sends it out of the device, until ended is set: then the rest of the call drops.
func sourceProgram(counter, ended, ifindex int, headers asm.Instructions) asm.Instructions {
	p := within("drop")
	p = append(p,
		asm.LoadMapValue(asm.R5, ended, 0),
		asm.LoadMem(asm.R6, asm.R5, 0, asm.DWord),
		asm.JNE.Imm(asm.R6, 0, "drop"),
		asm.LoadMapValue(asm.R5, counter, 0),
		asm.LoadMem(asm.R6, asm.R5, 0, asm.DWord),
		asm.StoreMem(asm.R2, seqAt, asm.R6, asm.DWord),
	)
	p = append(p, headers...)
	p = append(p,
		asm.Add.Imm(asm.R6, 1),
		asm.StoreMem(asm.R5, 0, asm.R6, asm.DWord),
		asm.Mov.Imm(asm.R1, int32(ifindex)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
	)
	return append(p, xdpDrop("drop")...)
}

func xdpDrop(label string) asm.Instructions { return returns(label, 1) } // XDP_DROP

func returns(label string, verdict int32) asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, verdict).WithSymbol(label), asm.Return()}
}

const skbData = 76 // of data in struct __sk_buff

// sinkFields are the words of the sink's counters, in their order.
var sinkFields = []string{"packets", "bytes", "gaps", "reordered", "next"}

// openSink is the cheapest receiver: a program that counts the probes, checks their sequence numbers
// and drops them. -as xdp, the default, sits in the device's driver; -as tc behind it, which spares
// packets that a socket made the copy that XDP on veth wants, and costs frames of XDP an skb.
func openSink(o roleOptions) (roleWork, error) {
	nic, err := net.InterfaceByName(o.dev)
	if err != nil {
		return roleWork{}, err
	}
	count, err := newCounter("sink")
	if err != nil {
		return roleWork{}, err
	}
	version, attach := "XDP_DROP", attachXDP
	if o.as == "tc" {
		version = "TC_ACT_SHOT"
		attach = func(counter, ifindex int) (link.Link, error) { return attachTC(counter, ifindex, o.answer) }
	}
	at, err := attach(count.FD(), nic.Index)
	if err != nil {
		return roleWork{}, fmt.Errorf("the sink program: %w", err)
	}
	return roleWork{
		version: version,
		counts:  func() (map[string]uint64, error) { return readCounter(count, sinkFields[:4]...) },
		close:   at.Close,
	}, nil
}

func attachXDP(counter, ifindex int) (link.Link, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "sink", Type: ebpf.XDP, License: "Apache-2.0", Instructions: sinkProgram(counter),
	})
	if err != nil {
		return nil, err
	}
	return link.AttachXDP(link.XDPOptions{Program: prog, Interface: ifindex, Flags: link.XDPDriverMode})
}

func attachTC(counter, ifindex int, answer uint) (link.Link, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "sink", Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: tcSinkProgram(counter, ifindex, answer),
	})
	if err != nil {
		return nil, err
	}
	return link.AttachTCX(link.TCXOptions{Program: prog, Interface: ifindex, Attach: ebpf.AttachTCXIngress})
}

// sinkProgram counts IPv4 packets as tally.saw does and drops everything.
func sinkProgram(counter int) asm.Instructions {
	return append(append(within("drop"), countProbe(counter, asm.Instructions{asm.Mov.Imm(asm.R9, 1)})...), xdpDrop("drop")...)
}

// tcSinkProgram is sinkProgram behind the driver. It answers one of so many probes; 0: none.
func tcSinkProgram(counter, ifindex int, answer uint) asm.Instructions {
	p := append(linear(), withinAt(skbData, "drop")...)
	if answer != 0 {
		p = append(p, answering(ifindex, answer)...)
	}
	p = append(p, countProbe(counter, datagramsOf())...)
	return append(p, returns("drop", 2)...) // TC_ACT_SHOT
}

// answering sends one of n UDP probes of IPv4 at R2 back where they came from, n a power of two: addresses and ports change
// places, which changes no checksum.
func answering(ifindex int, n uint) asm.Instructions {
	p := asm.Instructions{
		asm.LoadMem(asm.R4, asm.R2, 12, asm.Half),
		asm.JNE.Imm(asm.R4, 0x0008, "answered"), // as in countProbe
		asm.LoadMem(asm.R6, asm.R2, seqAt, asm.DWord),
		asm.And.Imm(asm.R6, int32(n-1)),
		asm.JNE.Imm(asm.R6, 0, "answered"),
	}
	for _, f := range []struct {
		at, with int16
		size     asm.Size
	}{{0, 6, asm.Word}, {4, 10, asm.Half}, {26, 30, asm.Word}, {34, 36, asm.Half}} {
		p = append(p,
			asm.LoadMem(asm.R7, asm.R2, f.at, f.size), asm.LoadMem(asm.R8, asm.R2, f.with, f.size),
			asm.StoreMem(asm.R2, f.at, asm.R8, f.size), asm.StoreMem(asm.R2, f.with, asm.R7, f.size),
		)
	}
	return append(p,
		asm.Mov.Imm(asm.R1, int32(ifindex)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
		asm.Mov.Reg(asm.R1, asm.R1).WithSymbol("answered"),
	)
}

// linear has the kernel put a probe's first bytes where a program can read them: a large packet has only its headers there.
func linear() asm.Instructions {
	p := withinAt(skbData, "pull")
	return append(p,
		asm.Ja.Label("linear"),
		asm.Mov.Reg(asm.R6, asm.R1).WithSymbol("pull"),
		asm.Mov.Imm(asm.R2, probeMin),
		asm.FnSkbPullData.Call(),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R1, asm.R1).WithSymbol("linear"),
	)
}

const skbGSOSize = 176 // of gso_size in struct __sk_buff

// datagramsOf leaves in R9 how many probes the packet of R1 is: more than one where it is still to be segmented. gso_segs does
// not say so where a packet socket has sent it.
func datagramsOf() asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R9, 1),
		asm.LoadMem(asm.R4, asm.R1, skbGSOSize, asm.Word),
		asm.JEq.Imm(asm.R4, 0, "counted"),
		asm.LoadMem(asm.R9, asm.R1, 0, asm.Word), // the length
		asm.Sub.Imm(asm.R9, seqAt+1),
		asm.Add.Reg(asm.R9, asm.R4),
		asm.Div.Reg(asm.R9, asm.R4),
		asm.Mov.Reg(asm.R9, asm.R9).WithSymbol("counted"),
	}
}

// countProbe counts the IPv4 packet between R2 and R3 and goes on, or to "drop", in any case. probes leaves in R9 how many it
// is.
func countProbe(counter int, probes asm.Instructions) asm.Instructions {
	var p asm.Instructions
	p = append(p,
		asm.LoadMem(asm.R4, asm.R2, 12, asm.Half),
		asm.JNE.Imm(asm.R4, 0x0008, "drop"), // IPv4 in network order, on a little-endian CPU
		asm.LoadMapValue(asm.R5, counter, 0),
	)
	p = append(p, probes...)
	p = append(p, bump(0, asm.Mov.Reg(asm.R7, asm.R9))...)
	p = append(p, bump(8, asm.Mov.Reg(asm.R7, asm.R3), asm.Sub.Reg(asm.R7, asm.R2))...)
	p = append(p,
		asm.LoadMem(asm.R6, asm.R2, seqAt, asm.DWord),
		asm.LoadMem(asm.R8, asm.R5, 32, asm.DWord),
		asm.JLT.Reg(asm.R6, asm.R8, "back"),
		asm.Add.Reg(asm.R9, asm.R6),
		asm.StoreMem(asm.R5, 32, asm.R9, asm.DWord),
	)
	p = append(p, bump(16, asm.Mov.Reg(asm.R7, asm.R6), asm.Sub.Reg(asm.R7, asm.R8))...)
	p = append(p, asm.Ja.Label("drop"))
	back := bump(24, asm.Mov.Imm(asm.R7, 1))
	back[0] = back[0].WithSymbol("back")
	return append(p, back...)
}

// bump adds what amount leaves in R7 to the counter at off of R5.
func bump(off int16, amount ...asm.Instruction) asm.Instructions {
	return append(amount,
		asm.LoadMem(asm.R0, asm.R5, off, asm.DWord),
		asm.Add.Reg(asm.R0, asm.R7),
		asm.StoreMem(asm.R5, off, asm.R0, asm.DWord),
	)
}

// floodMark is the TOS byte of a flood's packets.
const FloodMark = 0x04

// openGuard drops the packets of a flood before the kernel sees them, by their mark, and counts them.
func openGuard(o roleOptions) (roleWork, error) {
	nic, err := net.InterfaceByName(o.dev)
	if err != nil {
		return roleWork{}, err
	}
	count, err := newCounter("guard")
	if err != nil {
		return roleWork{}, err
	}
	p := within("pass")
	p = append(p,
		asm.LoadMem(asm.R4, asm.R2, 15, asm.Byte),
		asm.JNE.Imm(asm.R4, FloodMark, "pass"),
		asm.LoadMapValue(asm.R5, count.FD(), 0),
	)
	p = append(p, bump(0, asm.Mov.Imm(asm.R7, 1))...)
	p = append(p, asm.Mov.Imm(asm.R0, 1), asm.Return(), asm.Mov.Imm(asm.R0, 2).WithSymbol("pass"), asm.Return())
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "guard", Type: ebpf.XDP, License: "Apache-2.0", Instructions: p})
	if err != nil {
		return roleWork{}, fmt.Errorf("load the guard program: %w", err)
	}
	at, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: nic.Index, Flags: link.XDPDriverMode})
	if err != nil {
		return roleWork{}, fmt.Errorf("attach the guard program: %w", err)
	}
	return roleWork{
		version: "XDP_DROP of marked packets",
		counts:  func() (map[string]uint64, error) { return readCounter(count, "packets") },
		close:   at.Close,
	}, nil
}
