package netpeer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/millrace/millrace/internal/app/rdmaperf"
	"github.com/millrace/millrace/rdma"
	"github.com/millrace/millrace/rdma/transport"
)

// RDMAPort is the port of RDMA-CM that ServeRDMA listens at.
const RDMAPort = 9020

// rdmaDepth is the number of requests that are outstanding.
const rdmaDepth = 64

// RDMA is a context of package rdma on a device.
type RDMA struct{ dev *rdmaperf.Device }

// OpenRDMA opens a context on the device over AF_XDP, for an address that the kernel has there.
func OpenRDMA(device string, addr netip.Addr) (*RDMA, error) {
	d, err := rdmaperf.Open(device, "afxdp", addr)
	if err != nil {
		return nil, err
	}
	return &RDMA{d}, nil
}

// Close ends the context.
func (r *RDMA) Close() error { return r.dev.Close() }

// rdmaSide is a connected queue pair, and the region that the peer has the key of.
type rdmaSide struct {
	ctx *rdma.Context
	mr  *rdma.MR
	cq  *rdma.CQ
	qp  *rdma.QP

	far  uint64 // address of the peer's region
	rkey uint32
}

// regionSize is the size of a region: a message of the longest kind and, behind it, one of the other direction.
const regionSize = 2 * chunk

func newRDMASide(c *rdma.Context) (*rdmaSide, error) {
	pd := c.AllocPD()
	mr, err1 := pd.RegMR(make([]byte, regionSize), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	cq, err2 := c.CreateCQ(4 * rdmaDepth)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	qp, err := pd.CreateQP(rdma.QPConfig{Service: rdma.RC, SendCQ: cq, RecvCQ: cq, SendDepth: rdmaDepth, RecvDepth: rdmaDepth})
	if err != nil {
		return nil, err
	}
	return &rdmaSide{ctx: c, mr: mr, cq: cq, qp: qp}, qp.Modify(rdma.Init, rdma.Attr{}, netip.Addr{})
}

// private is the region's place for the peer.
func (s *rdmaSide) private() []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, s.mr.Addr()), s.mr.RKey())
}

// peer reads the private data of the other side.
func (s *rdmaSide) peer(b []byte) error {
	if len(b) < 12 {
		return errors.New("the peer names no region")
	}
	s.far, s.rkey = binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])
	return nil
}

// receive is the buffer of messages with immediate data, which have no other bytes.
func (s *rdmaSide) receive() *rdma.RecvWR { return &rdma.RecvWR{List: []rdma.SGE{s.mr.SGE(chunk, 8)}} }

// answer posts a receive and a request, as one entry to the loop: they leave together.
func (s *rdmaSide) answer(w *rdma.SendWR) error {
	h := s.ctx.Enter()
	defer h.Exit()
	return errors.Join(h.PostRecv(s.qp, s.receive()), h.PostSend(s.qp, w))
}

// write returns a WRITE of n bytes.
func (s *rdmaSide) write(op rdma.Op, n int) rdma.SendWR {
	return rdma.SendWR{Op: op, Flags: rdma.Signaled, List: []rdma.SGE{s.mr.SGE(0, n)}, RemoteAddr: s.far, RKey: s.rkey}
}

// ServeRDMA lets peers write to a region. It answers each WRITE with immediate data by one of 8 bytes.
func (r *RDMA) ServeRDMA(ctx context.Context, c *Counters) error {
	l, err := r.dev.Context.ListenCM(RDMAPort, 0)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		for {
			q, err := l.GetRequest(ctx)
			if err != nil {
				return
			}
			go func() {
				if err := r.answer(ctx, q, &c.loop[0]); err != nil {
					c.loop[0].Failed.Add(1)
				}
			}()
		}
	}()
	return nil
}

func (r *RDMA) answer(ctx context.Context, q *rdma.ConnRequest, c *LoopCounters) error {
	s, err := newRDMASide(r.dev.Context)
	if err == nil {
		err = s.peer(q.Private())
	}
	for i := 0; i < rdmaDepth/2 && err == nil; i++ {
		err = s.qp.PostRecv(s.receive())
	}
	if err == nil {
		_, err = q.Accept(ctx, s.qp, rdma.ConnParam{Private: s.private()})
	}
	if err != nil {
		return err
	}
	c.Conns.Add(1)
	w := s.write(rdma.OpWriteImm, 8)
	return s.completions(ctx, func(k *rdma.Completion) error {
		if k.Op != rdma.OpRecvImm {
			return nil
		}
		c.Ops.Add(1)
		return s.answer(&w)
	})
}

// completions calls each for what completes, until ctx ends or a request fails.
func (s *rdmaSide) completions(ctx context.Context, each func(*rdma.Completion) error) error {
	var wc [rdmaDepth]rdma.Completion
	for {
		n, err := s.cq.Next(ctx, wc[:])
		if err != nil {
			return nil // ctx has ended
		}
		for i := range wc[:n] {
			if k := &wc[i]; k.Status != transport.Success {
				return errors.New(k.Status.String())
			}
			if err := each(&wc[i]); err != nil {
				return err
			}
		}
	}
}

// DriveRDMA has load "write" write 64 KiB again and again, as many at once as the queue holds, and "echo" write 8 bytes and
// wait for as many back.
func (r *RDMA) DriveRDMA(ctx context.Context, l Load, c *Counters) (wait func(), err error) {
	s, err := newRDMASide(r.dev.Context)
	for i := 0; i < rdmaDepth/2 && err == nil; i++ {
		err = s.qp.PostRecv(s.receive())
	}
	if err != nil {
		return nil, err
	}
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	id, err := r.dev.Context.ConnectCM(dialing, netip.AddrPortFrom(l.To, RDMAPort), s.qp, rdma.ConnParam{Private: s.private()})
	if err == nil {
		err = s.peer(id.Private())
	}
	if err != nil {
		return nil, fmt.Errorf("RDMA: %w", err)
	}
	work := map[string]func(context.Context, *LoopCounters) error{"write": s.bulk, "echo": s.pingPong}[l.Op]
	if work == nil {
		return nil, fmt.Errorf("RDMA: no operation %q", l.Op)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := work(ctx, &c.loop[0]); err != nil && ctx.Err() == nil {
			c.loop[0].Failed.Add(1)
		}
	}()
	return func() { <-ended }, nil
}

func (s *rdmaSide) bulk(ctx context.Context, c *LoopCounters) error {
	w := s.write(rdma.OpWrite, chunk)
	for range rdmaDepth {
		if err := s.qp.PostSend(&w); err != nil {
			return err
		}
	}
	return s.completions(ctx, func(*rdma.Completion) error {
		c.Bytes.Add(chunk)
		c.Ops.Add(1)
		return s.qp.PostSend(&w)
	})
}

func (s *rdmaSide) pingPong(ctx context.Context, c *LoopCounters) error {
	w := s.write(rdma.OpWriteImm, 8)
	begin := time.Now()
	if err := s.qp.PostSend(&w); err != nil {
		return err
	}
	return s.completions(ctx, func(k *rdma.Completion) error {
		if k.Op != rdma.OpRecvImm {
			return nil
		}
		now := time.Now()
		c.Latency.Record(uint64(now.Sub(begin)))
		c.Ops.Add(1)
		begin = now
		return s.answer(&w)
	})
}
