package statesync

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/millrace/millrace/l4/datapath"
)

// acceptLoop serves the peer's streams, one at a time: a new one ends the one before.
func (p *Peer) acceptLoop(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan bool, 4) // handshakes at once
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			time.Sleep(redialFirst)
			continue
		}
		if a, ok := netip.AddrFromSlice(conn.RemoteAddr().(*net.TCPAddr).IP); !ok || a.Unmap() != p.cfg.Peer.Addr() {
			conn.Close()
			continue
		}
		select {
		case slots <- true:
		default:
			conn.Close()
			continue
		}
		all.Go(func() {
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			s, err := newSession(conn, p.cfg.Key, false, version)
			if err == nil {
				err = s.agree(p.cfg.Agreement)
			}
			if err != nil {
				<-slots
				p.failed(ctx, err)
				return
			}
			r := p.begin(conn)
			<-slots
			select {
			case p.back <- true:
			default:
			}
			p.end(ctx, r, p.receiveFrom(s))
		})
	}
}

// begin makes a stream the one that is received. The one before ends first: its records are older.
func (p *Peer) begin(conn net.Conn) *received {
	r := &received{conn, make(chan struct{})}
	p.mu.Lock()
	before := p.current
	p.current = r
	p.mu.Unlock()
	if before != nil {
		before.conn.Close()
		<-before.ended
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == r {
		p.changed(&p.receive, "receive", true, nil)
	}
	return r
}

// end ends a stream. If another has replaced it, the peer is not gone.
func (p *Peer) end(ctx context.Context, r *received, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(r.ended)
	if p.current == r {
		p.current = nil
		if ctx.Err() == nil {
			p.changed(&p.receive, "receive", false, cause)
		}
	}
}

// failed reports a handshake that failed, unless the peer is received: then it was not the peer's.
func (p *Peer) failed(ctx context.Context, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil && ctx.Err() == nil {
		p.changed(&p.receive, "receive", false, cause)
	}
}

// receiveFrom enters what a stream brings.
func (p *Peer) receiveFrom(s *session) error {
	var list []datapath.Record
	defer p.receive.heard.Store(0)
	for {
		b, err := s.read()
		if err != nil {
			return err
		}
		if p.receive.heard.Load() != 0 {
			p.receive.heard.Store(time.Now().UnixNano())
		}
		switch {
		case b[0] == typeHeartbeat && len(b) == 10:
			if b[1] == 1 {
				if !p.receive.first.Swap(true) {
					p.receive.transfers.Add(1)
				}
				p.receive.heard.Store(time.Now().UnixNano())
			} else {
				p.receive.heard.Store(0) // changes were lost, and all connections come again
			}
			if err := s.write(append([]byte{typeEcho}, b[2:]...)); err != nil {
				return err
			}
		case b[0] == typeRecords:
			p.receive.bytes.Add(uint64(len(b) + s.recv.Overhead() + 2))
			if list, err = parseRecords(list[:0], b[1:], s.version); err != nil {
				return err
			}
			p.cfg.Table.Import(list)
			p.receive.records.Add(uint64(len(list)))
		default:
			return fmt.Errorf("%w of type %d", ErrFormat, b[0])
		}
	}
}

// parseRecords reads the records of a message.
func parseRecords(list []datapath.Record, b []byte, version byte) ([]datapath.Record, error) {
	for len(b) > 0 {
		r, rest, err := parseRecord(b, version)
		if err != nil {
			return nil, err
		}
		list, b = append(list, r), rest
	}
	return list, nil
}
