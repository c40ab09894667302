package service

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"time"
)

// stream is one stream of a test: a TCP connection, or a UDP flow. Over UDP what is received comes by
// iperf.datagrams.
type stream struct {
	t     *test
	id    int
	sends bool
	conn  *conn         // TCP
	flow  flow          // UDP
	addr  net.Addr      // of flow
	over  chan struct{} // run has returned; of a UDP stream that receives, never begun

	mu      sync.Mutex
	bytes   int64
	base    uint64 // retransmits before what counts
	udp     loss
	info    Inspection
	infoOK  bool
	ignored loss // before what counts
}

// add counts bytes.
func (st *stream) add(n int) {
	st.mu.Lock()
	st.bytes += int64(n)
	st.mu.Unlock()
	if st.sends {
		st.t.sent.Add(int64(n))
	} else {
		st.t.got.Add(int64(n))
	}
}

// omit begins to count anew.
func (st *stream) omit() {
	info, _ := st.inspect()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.bytes, st.base = 0, info.Retransmits
	st.ignored = st.udp
	st.udp.jitter = 0
}

// inspect asks what is known of the connection.
func (st *stream) inspect() (Inspection, bool) {
	if ask := st.t.p.s.cfg.Inspect; ask != nil && st.conn != nil {
		return ask(st.conn.Conn)
	}
	return Inspection{}, false
}

// run serves the stream from the start of the test to its end.
func (st *stream) run(t *test) {
	defer close(st.over)
	if st.tune() != nil {
		t.c.Conn.Close() // the client would believe that it had what it asked for
		return
	}
	select {
	case <-t.start:
	case <-t.stop:
		return
	}
	switch {
	case st.sends && st.conn != nil:
		st.send(st.conn.Write)
	case st.sends:
		st.sendDatagrams()
	default:
		st.receive()
	}
}

// tune sets the options that the client asked for.
func (st *stream) tune() error {
	p := &st.t.params
	want := Tuning{NoDelay: p.NoDelay, Congestion: p.Congestion, Window: p.Window, MSS: p.MSS}
	if st.conn == nil || want == (Tuning{}) {
		return nil
	}
	if tune := st.t.p.s.cfg.Tune; tune != nil {
		return tune(st.conn.Conn, want)
	}
	if c, ok := st.conn.Conn.(interface{ SetNoDelay(bool) error }); ok {
		return c.SetNoDelay(true)
	}
	return errors.ErrUnsupported
}

// receive counts what comes until the end.
func (st *stream) receive() {
	buf := make([]byte, st.t.Len)
	for {
		n, err := st.conn.Read(buf)
		st.add(n)
		if err != nil {
			return
		}
	}
}

// send sends blocks until the end, not faster than asked for.
func (st *stream) send(write func([]byte) (int, error)) {
	t := st.t
	buf := make([]byte, t.Len)
	(&pattern{size: int64(len(buf))}).Read(buf) //nolint:errcheck // it cannot fail
	pace := pacer{rate: t.Bandwidth / 8, begun: time.Now()}
	limit := t.limit()
	for limit == 0 || t.sent.Load() < limit {
		if !pace.wait(t.stop) {
			return
		}
		n, err := write(buf)
		st.add(n)
		pace.sent += float64(n)
		if err != nil {
			return
		}
	}
	<-t.stop // the client reads to the end, and says so
}

// interrupt ends what run waits for. A connection is looked at once more before it goes.
func (st *stream) interrupt() {
	if st.conn == nil {
		return
	}
	info, ok := st.inspect()
	st.mu.Lock()
	if ok || !st.infoOK {
		st.info, st.infoOK = info, ok // the second time there is no connection any more
	}
	st.mu.Unlock()
	st.conn.Conn.Close()
}

// catchUp bounds the time that a sender makes good after it was held up: more would be a burst that
// overruns the receiver's buffer, and be taken for a loss of the network.
const catchUp = 5 * time.Millisecond

// pacer spreads bytes over time.
type pacer struct {
	rate  float64 // bytes per second; 0 is no limit
	begun time.Time
	sent  float64
	turns int
}

// wait returns when the next block may go; false when stop is closed.
func (p *pacer) wait(stop <-chan struct{}) bool {
	p.turns++
	if p.turns%64 == 0 {
		runtime.Gosched()
	}
	for {
		select {
		case <-stop:
			return false
		default:
		}
		ahead := time.Duration(0)
		if p.rate > 0 {
			ahead = time.Duration((p.sent/p.rate)*float64(time.Second)) - time.Since(p.begun)
		}
		if ahead <= 0 {
			p.begun = p.begun.Add(max(0, -ahead-catchUp))
			return true
		}
		time.Sleep(min(ahead, 50*time.Millisecond))
	}
}
