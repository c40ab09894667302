package service

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// test is one run of a client.
type test struct {
	p    *iperf
	id   cookie
	c    *conn
	peer netip.Addr
	params

	full  chan struct{} // all streams have come, and those of UDP were answered
	start chan struct{} // they may begin
	stop  chan struct{} // they must end
	begun time.Time
	cpu   usage
	sent  atomic.Int64 // bytes, of all streams: against limit
	got   atomic.Int64

	mu      sync.Mutex
	open    bool // streams are awaited
	isFull  bool // full is closed
	stopped bool
	streams []*stream
}

// control leads the client through a test.
func (t *test) control() {
	err := t.prepare()
	if refused := new(refusal); errors.As(err, &refused) {
		sendRefusal(t.c, refused.code)
		return
	}
	if err != nil {
		return
	}
	if err := t.transfer(); err != nil {
		if !errors.Is(err, errEnded) {
			_ = sendState(t.c, stateServerTerminate)
		}
		return
	}
	t.exchange()
}

// prepare learns what is wanted and waits for the streams.
func (t *test) prepare() error {
	_ = t.c.Conn.SetDeadline(time.Now().Add(controlLimit))
	if err := sendState(t.c, stateParamExchange); err != nil {
		return err
	}
	if err := readMessage(t.c.Conn, &t.params); err != nil {
		return &refusal{errParams, err.Error()}
	}
	if err := t.check(t.p.s.cfg.Tune != nil); err != nil {
		return err
	}
	t.mu.Lock()
	t.open = true
	t.mu.Unlock()
	if err := sendState(t.c, stateCreateStreams); err != nil {
		return err
	}
	patience := time.NewTimer(controlLimit)
	defer patience.Stop()
	select {
	case <-t.full:
		return nil
	case <-patience.C:
		return errEnded
	case <-t.p.s.ctx.Done():
		return t.p.s.ctx.Err()
	}
}

// attach gives the test its next stream; nil where it waits for none of this protocol. beginIfFull follows.
func (t *test) attach(st *stream) *stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open || t.UDP != (st.conn == nil) {
		return nil
	}
	sends, n := t.params.streams(), len(t.streams)
	st.t, st.id, st.sends = t, streamID(n), sends[n]
	st.over = make(chan struct{})
	t.streams = append(t.streams, st)
	if len(t.streams) == len(sends) {
		t.number(sends)
		t.open = false
	}
	return st
}

// beginIfFull lets the test begin once it has all its streams.
func (t *test) beginIfFull() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isFull && len(t.streams) == len(t.params.streams()) {
		t.isFull = true
		close(t.full)
	}
}

// number gives TCP streams their numbers in the order in which the client connected; their goroutines may have
// read the cookies in another.
func (t *test) number(sends []bool) {
	if t.UDP {
		return
	}
	slices.SortFunc(t.streams, func(a, b *stream) int { return cmp.Compare(a.conn.number, b.conn.number) })
	for i, st := range t.streams {
		st.id, st.sends = streamID(i), sends[i]
	}
}

// transfer lets the streams run until the client says that it is over. Its time, and grace beyond, is all
// that it gets.
func (t *test) transfer() error {
	if err := errors.Join(sendState(t.c, stateTestStart), sendState(t.c, stateTestRunning)); err != nil {
		return err
	}
	t.begun, t.cpu = time.Now(), cpuTime()
	close(t.start)
	_ = t.c.Conn.SetDeadline(t.deadline())
	if t.Omit > 0 {
		omit := time.AfterFunc(time.Duration(t.Omit*float64(time.Second)), t.omit)
		defer omit.Stop()
	}
	var state [1]byte
	if _, err := t.c.Conn.Read(state[:]); err != nil {
		return err
	}
	t.p.s.in.Add(1)
	if int8(state[0]) != stateTestEnd {
		return errEnded
	}
	return nil
}

// deadline is when the client must have said that it is over.
func (t *test) deadline() time.Time {
	limit := maxDuration
	if t.limit() == 0 {
		limit = time.Duration((t.Time+t.Omit)*float64(time.Second)) + controlLimit
	}
	return t.begun.Add(limit)
}

// omit forgets what the streams have counted so far: connections were still speeding up.
func (t *test) omit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, st := range t.streams {
		st.omit()
	}
}

// exchange swaps results with the client.
func (t *test) exchange() {
	_ = t.c.Conn.SetDeadline(time.Now().Add(controlLimit))
	t.settle()
	t.end()
	mine := t.results()
	if sendState(t.c, stateExchangeResults) != nil {
		return
	}
	var theirs json.RawMessage // nothing in it is needed here
	if readMessage(t.c.Conn, &theirs) != nil {
		return
	}
	if sendMessage(t.c, &mine) != nil || sendState(t.c, stateDisplayResults) != nil {
		return
	}
	var state [1]byte
	_, _ = t.c.Conn.Read(state[:]) // stateDone, or the end: there is nothing more to do
}

// settleLimit is the time that what a client has sent of a test by bytes may be on its way when it says that it is over.
const settleLimit = 2 * time.Second

// settle waits until the bytes of a test by bytes have come.
func (t *test) settle() {
	limit := t.limit()
	if limit == 0 || t.UDP || t.Reverse || t.Bidirectional {
		return
	}
	for end := time.Now().Add(settleLimit); t.got.Load() < limit && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// end ends the streams and waits for them.
func (t *test) end() {
	t.mu.Lock()
	t.open = false
	if !t.stopped {
		t.stopped = true
		close(t.stop)
	}
	streams := t.streams
	t.mu.Unlock()
	for _, st := range streams {
		st.interrupt()
	}
	for _, st := range streams {
		<-st.over
	}
}

// usage is CPU time of the process, seconds.
type usage struct{ user, system float64 }

func cpuTime() usage {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return usage{}
	}
	return usage{float64(u.Utime.Nano()) / 1e9, float64(u.Stime.Nano()) / 1e9}
}
