package rdmaperf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/millrace/millrace/rdma"
	"github.com/millrace/millrace/rdma/transport"
)

// mostClients bounds the connections that a server has, each with up to twice MaxSize of memory.
const mostClients = 16

// Serve answers clients until ctx ends.
func Serve(ctx context.Context, c *rdma.Context, port uint16, log *slog.Logger) error {
	l, err := c.ListenCM(port, 0)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer l.Close()
	slots := make(chan struct{}, mostClients)
	for {
		r, err := l.GetRequest(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = r.Reject([]byte("too many clients"))
			continue
		}
		all.Add(1)
		go func() {
			defer all.Done()
			if err := serve(ctx, c, r); err != nil {
				log.Warn("rdma", "client", r.Remote(), "error", err)
			}
			<-slots
		}()
	}
}

// session is one side of a measurement.
type session struct {
	ctx *rdma.Context
	pd  *rdma.PD
	mr  *rdma.MR
	cq  *rdma.CQ
	qp  *rdma.QP
	id  *rdma.CMID
}

// depth is the number of requests that a session has outstanding, as perftest's --tx-depth.
const depth = 128

// newSession makes the objects with a region of n bytes.
func newSession(c *rdma.Context, n int) (*session, error) {
	s := &session{ctx: c, pd: c.AllocPD()}
	var err1, err2, err3 error
	s.mr, err1 = s.pd.RegMR(make([]byte, n), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	s.cq, err2 = c.CreateCQ(3 * depth)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	s.qp, err3 = s.pd.CreateQP(rdma.QPConfig{Service: rdma.RC, SendCQ: s.cq, RecvCQ: s.cq, SendDepth: depth, RecvDepth: depth})
	if err3 == nil {
		err3 = s.qp.Modify(rdma.Init, rdma.Attr{}, netip.Addr{}) // receives are posted before the connection
	}
	return s, err3
}

func (s *session) close() {
	if s.id != nil {
		_ = s.id.Disconnect()
	}
	if s.qp != nil {
		_ = s.qp.Destroy()
	}
	_ = s.mr.Dereg()
}

// postRecv posts a receive of n bytes at off.
func (s *session) postRecv(off, n int) error {
	return s.qp.PostRecv(&rdma.RecvWR{List: []rdma.SGE{s.mr.SGE(off, n)}})
}

// handshakeTimeout bounds the wait for a client's confirmation.
const handshakeTimeout = 10 * time.Second

// serve serves one client until it disconnects.
func serve(ctx context.Context, c *rdma.Context, r *rdma.ConnRequest) error {
	q, ok := parseRequest(r.Private())
	if !ok {
		return errors.Join(r.Reject([]byte("another protocol")), errProtocol)
	}
	size := int(q.size)
	s, err := newSession(c, 2*size)
	if err != nil {
		return errors.Join(err, r.Reject(nil))
	}
	defer s.close()
	if q.mode != memory {
		for range depth {
			if err := s.postRecv(size, size); err != nil {
				return err
			}
		}
	}
	hello, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	own := reply{s.mr.Addr(), s.mr.RKey()}
	if s.id, err = r.Accept(hello, s.qp, rdma.ConnParam{Private: own.append(nil)}); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-s.id.Done():
		case <-ctx.Done():
		}
		stop()
	}()
	if q.mode == memory {
		<-ctx.Done()
		return nil
	}
	return s.answer(ctx, &q)
}

// answer takes messages, and echoes them if the client wants it.
func (s *session) answer(ctx context.Context, q *request) error {
	size := int(q.size)
	w := rdma.SendWR{Op: rdma.OpSend, List: []rdma.SGE{s.mr.SGE(0, size)}, Flags: rdma.Signaled}
	var wc [depth]rdma.Completion
	for {
		n, err := s.next(ctx, wc[:])
		if err != nil {
			return nil // the client has gone
		}
		for _, c := range wc[:n] {
			if c.Status != transport.Success {
				return nil
			}
			if c.Op != rdma.OpRecv && c.Op != rdma.OpRecvImm {
				continue
			}
			if err := s.postRecv(size, size); err != nil {
				return fmt.Errorf("receive: %w", err)
			}
			if q.mode != echo {
				continue
			}
			if w.Op = rdma.OpSend; c.Op == rdma.OpRecvImm {
				w.Op, w.RemoteAddr, w.RKey = rdma.OpWriteImm, q.va, q.rkey
			}
			if err := s.qp.PostSend(&w); err != nil {
				return fmt.Errorf("answer: %w", err)
			}
		}
	}
}

// next polls for completions, and sleeps when none has come for spin: the way of perftest, which polls without end, would take a processor from
// the loop that moves the packets.
func (s *session) next(ctx context.Context, wc []rdma.Completion) (int, error) {
	const spin = 50 * time.Microsecond
	for end := time.Now().Add(spin); ; {
		if n, err := s.cq.Poll(wc); n > 0 || err != nil {
			return n, err
		}
		if time.Now().After(end) {
			return s.cq.Next(ctx, wc)
		}
	}
}
