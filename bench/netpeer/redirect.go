package netpeer

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// redirect attaches an XDP program that gives every packet of queue 0 to an AF_XDP socket. gVisor's
// endpoint brings none.
func redirect(ifindex, fd int) (detach func(), err error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("XSKMAP: %w", err)
	}
	if err := m.Put(uint32(0), uint32(fd)); err != nil {
		return nil, errors.Join(fmt.Errorf("XSKMAP: %w", err), m.Close())
	}
	const xdpPass = 2
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 16, asm.Word), // xdp_md.rx_queue_index
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Imm(asm.R3, xdpPass),
		asm.FnRedirectMap.Call(),
		asm.Return(),
	}})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("XDP program: %w", err), m.Close())
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: ifindex})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach: %w", err), p.Close(), m.Close())
	}
	return func() { l.Close(); p.Close(); m.Close() }, nil
}
