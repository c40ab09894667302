package service

import (
	"encoding/binary"
	"math"
	"net"
	"time"
)

// What opens a UDP stream: a datagram of four bytes and its answer, of this machine's byte order, as the client
// writes them. Before iperf 3.14 they were other numbers.
const (
	udpHello      = 0x36373839
	udpWelcome    = 0x39383736
	udpHelloOld   = 123456789
	udpWelcomeOld = 987654321
)

// loss counts the datagrams of a stream.
type loss struct {
	packets  int64 // highest number seen, or sent
	lost     int64
	reorders int64
	jitter   float64 // seconds (RFC 3550 6.4.1)
	transit  float64 // of the last one, seconds
}

// take counts a datagram with the number n that was sent at sent.
func (l *loss) take(n int64, sent, now float64) {
	switch {
	case n > l.packets:
		l.lost += n - l.packets - 1
		l.packets = n
	default: // it was counted as lost when a later one came
		l.reorders++
		l.lost = max(l.lost-1, 0)
	}
	transit := now - sent
	if l.transit != 0 {
		l.jitter += (math.Abs(transit-l.transit) - l.jitter) / 16
	}
	l.transit = transit
}

// datagrams returns a function that takes what comes to pc.
func (p *iperf) datagrams(pc net.PacketConn) func([]byte, net.Addr) {
	return func(b []byte, from net.Addr) {
		f := flow{pc, addrPort(from)}
		p.mu.Lock()
		st := p.flows[f]
		p.mu.Unlock()
		switch {
		case st != nil && !st.sends:
			st.datagram(b)
		case len(b) == 4:
			p.hello(f, from, binary.NativeEndian.Uint32(b))
		default:
			p.s.unanswered.Add(1)
		}
	}
}

// hello gives a new flow to the test that waits for streams from its address. The answer is lost or late like
// any datagram: one more hello gets one more answer. The test begins after the answer to its last stream: the
// client drops datagrams that come before it, and reports them as lost.
func (p *iperf) hello(f flow, from net.Addr, word uint32) {
	welcome := map[uint32]uint32{udpHello: udpWelcome, udpHelloOld: udpWelcomeOld}[word]
	var st *stream
	if welcome != 0 {
		st = p.join(f, from)
	}
	if st == nil {
		p.s.unanswered.Add(1)
		return
	}
	if p.s.send(f.pc, binary.NativeEndian.AppendUint32(nil, welcome), from) {
		st.t.beginIfFull()
	}
}

// join makes a flow a stream of the oldest test that waits for it; nil where none does.
func (p *iperf) join(f flow, from net.Addr) *stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	if st := p.flows[f]; st != nil {
		return st
	}
	for _, t := range p.order {
		if t.peer != f.peer.Addr() {
			continue
		}
		if st := t.attach(&stream{flow: f, addr: from}); st != nil {
			p.flows[f] = st
			if st.sends {
				go st.run(t)
			} else {
				close(st.over) // nothing runs: the reader of pc does it
			}
			return st
		}
	}
	return nil
}

// datagram counts one that was received.
func (st *stream) datagram(b []byte) {
	n, at, ok := st.header(b)
	if !ok {
		return
	}
	now := float64(time.Now().UnixNano()) / 1e9
	st.mu.Lock()
	st.udp.take(n, at, now)
	st.mu.Unlock()
	st.add(len(b))
}

// header reads the number of a datagram and when it was sent: seconds, microseconds, number.
func (st *stream) header(b []byte) (n int64, at float64, ok bool) {
	if len(b) < 12 || st.t.Counters64 != 0 && len(b) < 16 {
		return 0, 0, false
	}
	at = float64(binary.BigEndian.Uint32(b)) + float64(binary.BigEndian.Uint32(b[4:]))/1e6
	if st.t.Counters64 != 0 {
		return int64(binary.BigEndian.Uint64(b[8:])), at, true
	}
	return int64(binary.BigEndian.Uint32(b[8:])), at, true
}

// sendDatagrams sends datagrams to the client until the end.
func (st *stream) sendDatagrams() {
	n := int64(0)
	st.send(func(b []byte) (int, error) {
		n++
		now := time.Now()
		binary.BigEndian.PutUint32(b, uint32(now.Unix()))
		binary.BigEndian.PutUint32(b[4:], uint32(now.Nanosecond()/1000))
		if st.t.Counters64 != 0 {
			binary.BigEndian.PutUint64(b[8:], uint64(n))
		} else {
			binary.BigEndian.PutUint32(b[8:], uint32(n))
		}
		st.mu.Lock()
		st.udp.packets = n
		st.mu.Unlock()
		if !st.t.p.s.send(st.flow.pc, b, st.addr) {
			return 0, nil // lost: the client sees a gap
		}
		return len(b), nil
	})
}
