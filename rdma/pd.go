package rdma

import (
	"fmt"
	"unsafe"

	"github.com/millrace/millrace/rdma/memory"
)

// PD is a protection domain: queue pairs reach regions of their own domain alone.
type PD struct {
	ctx  *Context
	id   memory.PD
	uses int // regions, queue pairs, shared queues and address handles; guarded by the loop's lock

	events func(Event) // takes the events of its objects; nil is Context.Events
}

// AllocPD returns a new protection domain.
func (c *Context) AllocPD() *PD {
	c.lock.Enter()
	defer c.lock.ExitUnchanged()
	c.pds++
	return &PD{ctx: c, id: c.pds}
}

// AllocPDFor is AllocPD with a function for the events of the domain's objects, instead of Context.Events. The holder of the
// context's loop calls it; it must not block.
func (c *Context) AllocPDFor(events func(Event)) *PD {
	p := c.AllocPD()
	p.events = events
	return p
}

// report passes on an event of an object of the domain.
func (p *PD) report(e Event) {
	if p.events != nil {
		p.events(e)
		return
	}
	p.ctx.report(e)
}

// Dealloc ends the domain. It fails with ErrBusy while objects of it exist.
func (p *PD) Dealloc() error {
	p.ctx.lock.Enter()
	defer p.ctx.lock.ExitUnchanged()
	if p.uses > 0 {
		return fmt.Errorf("%w: the protection domain has %d objects", ErrBusy, p.uses)
	}
	return nil
}

// MR is a memory region.
type MR struct {
	pd  *PD
	mem []byte
	va  uint64
	key uint32
}

// RegMR registers memory, whose virtual address is its address in the process. It borrows mem until Dereg: peers with the
// key read and write it at any time, as access permits.
func (p *PD) RegMR(mem []byte, access Access) (*MR, error) {
	return p.RegMRAt(mem, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))), access)
}

// RegMRAt is RegMR with a virtual address of the caller's choice, which requests name.
func (p *PD) RegMRAt(mem []byte, va uint64, access Access) (*MR, error) {
	p.ctx.lock.Enter()
	defer p.ctx.lock.ExitUnchanged()
	key, err := p.ctx.table.Register(p.id, mem, va, access)
	if err != nil {
		return nil, err
	}
	p.uses++
	return &MR{pd: p, mem: mem, va: va, key: key}, nil
}

// Remote is memory of another process: see RegRemote.
type Remote = memory.Remote

// RegRemote registers size bytes from addr on of another process, with the virtual address va. The methods of r are called by the
// holder of the context's loop, and must not block for long.
func (p *PD) RegRemote(r Remote, addr, size, va uint64, access Access) (*MR, error) {
	p.ctx.lock.Enter()
	defer p.ctx.lock.ExitUnchanged()
	key, err := p.ctx.table.RegisterRemote(p.id, r, addr, size, va, access)
	if err != nil {
		return nil, err
	}
	p.uses++
	return &MR{pd: p, va: va, key: key}, nil
}

// Dereg ends the region: no request that arrives later reaches the memory.
func (m *MR) Dereg() error {
	c := m.pd.ctx
	c.lock.Enter()
	defer c.lock.ExitUnchanged()
	if err := c.table.Deregister(m.key); err != nil {
		return err
	}
	m.pd.uses--
	return nil
}

// LKey returns the key that lists of this side name.
func (m *MR) LKey() uint32 { return m.key }

// RKey returns the key that peers name.
func (m *MR) RKey() uint32 { return m.key }

// Addr returns the virtual address of the first byte.
func (m *MR) Addr() uint64 { return m.va }

// Bytes borrows the memory; nil of another process's.
func (m *MR) Bytes() []byte { return m.mem }

// SGE returns the list element for n bytes from byte off on.
func (m *MR) SGE(off, n int) SGE {
	return SGE{Addr: m.va + uint64(off), Length: uint32(n), LKey: m.key}
}
