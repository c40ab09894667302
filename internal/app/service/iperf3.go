package service

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// The states of the control connection, one byte each. The client of iperf3 is the only definition that there is.
const (
	stateTestStart       int8 = 1
	stateTestRunning     int8 = 2
	stateTestEnd         int8 = 4
	stateParamExchange   int8 = 9
	stateCreateStreams   int8 = 10
	stateServerTerminate int8 = 11
	stateClientTerminate int8 = 12
	stateExchangeResults int8 = 13
	stateDisplayResults  int8 = 14
	stateDone            int8 = 16
	stateAccessDenied    int8 = -1
	stateServerError     int8 = -2
)

// The client words these in answer to stateServerError.
const (
	errDuration   = 5   // "test duration too long"
	errStreams    = 6   // "number of parallel streams too large"
	errParams     = 114 // "unable to receive parameters from client"
	errMSS        = 123 // "unable to set TCP/SCTP MSS"
	errWindow     = 124 // "unable to set socket buffer size"
	errProtocol   = 131 // "protocol does not exist"
	errCongestion = 134 // "unable to set TCP_CONGESTION"
)

// Limits of iperf3 tests.
const (
	cookieSize   = 37 // 36 characters and a zero, the same on every connection of a test
	maxTests     = 16
	maxParallel  = 128
	maxDuration  = 24 * time.Hour
	maxMessage   = 1 << 20 // of JSON
	maxBlock     = 1 << 20 // bytes written at once
	controlLimit = 15 * time.Second
)

// cookie names a test.
type cookie [cookieSize]byte

// iperf is the iperf3 service: several tests at once, unlike the original, distinguished by their cookies.
type iperf struct {
	s     *Server
	mu    sync.Mutex
	tests map[cookie]*test
	order []*test // of their beginning
	flows map[flow]*stream
}

// flow is a UDP stream as datagrams name it.
type flow struct {
	pc   net.PacketConn
	peer netip.AddrPort
}

func newIperf(s *Server) *iperf {
	return &iperf{s: s, tests: map[cookie]*test{}, flows: map[flow]*stream{}}
}

// params are the settings that the client requests, as it writes them.
type params struct {
	TCP           bool    `json:"tcp"`
	UDP           bool    `json:"udp"`
	Omit          float64 `json:"omit"` // seconds that do not count
	Time          float64 `json:"time"` // seconds; 0 with Num or Blocks
	Num           int64   `json:"num"`  // bytes
	Blocks        int64   `json:"blockcount"`
	Parallel      int     `json:"parallel"`
	Reverse       bool    `json:"reverse"`
	Bidirectional bool    `json:"bidirectional"`
	Len           int     `json:"len"`       // bytes of a block or datagram
	Bandwidth     float64 `json:"bandwidth"` // bits per second of each stream; 0 is no limit
	Counters64    int     `json:"udp_counters_64bit"`
	NoDelay       bool    `json:"nodelay"`
	Congestion    string  `json:"congestion"`
	Window        int     `json:"window"`
	MSS           int     `json:"MSS"`
}

// refusal names a setting that a test cannot have.
type refusal struct {
	code int32
	why  string
}

func (r *refusal) Error() string { return r.why }

// check refuses what cannot be done, and bounds the rest.
func (p *params) check(tunable bool) error {
	switch {
	case p.TCP == p.UDP:
		return &refusal{errProtocol, "neither TCP nor UDP"}
	case p.Parallel < 1 || p.Parallel > maxParallel:
		return &refusal{errStreams, "too many streams"}
	case !(p.Time >= 0 && p.Omit >= 0 && p.Time+p.Omit <= maxDuration.Seconds()):
		return &refusal{errDuration, "too long"}
	case p.Len < 0 || p.Len > maxBlock || p.UDP && p.Len > maxDatagram-1 || p.Num < 0 || p.Blocks < 0 || p.Bandwidth < 0:
		return &refusal{errParams, "a parameter out of range"}
	case p.Congestion != "" && !tunable:
		return &refusal{errCongestion, "no choice of congestion control"}
	case p.Window != 0 && !tunable:
		return &refusal{errWindow, "no choice of buffers"}
	case p.MSS != 0 && !tunable:
		return &refusal{errMSS, "no choice of MSS"}
	}
	if p.Len == 0 {
		p.Len = 128 << 10
		if p.UDP {
			p.Len = 1460
		}
	}
	if p.UDP {
		p.Len = max(p.Len, 16) // room for the header
	}
	return nil
}

// limit is the number of bytes that the whole test sends; 0 is as many as the time allows.
func (p *params) limit() int64 {
	if p.Blocks > 0 {
		return p.Blocks * int64(p.Len)
	}
	return p.Num
}

// streams returns which of the streams we send on, in the order in which the client makes them: of a test in
// both directions those on which it sends come first.
func (p *params) streams() (sends []bool) {
	for range p.Parallel {
		sends = append(sends, p.Reverse && !p.Bidirectional)
	}
	if p.Bidirectional {
		for range p.Parallel {
			sends = append(sends, true)
		}
	}
	return sends
}

// streamID is the number that the client gives to its stream i: 2 is left out.
func streamID(i int) int {
	if i == 0 {
		return 1
	}
	return i + 2
}

// serve serves a connection: a test's control connection, or one of its streams.
func (p *iperf) serve(c *conn) {
	var id cookie
	_ = c.Conn.SetReadDeadline(time.Now().Add(controlLimit))
	if _, err := io.ReadFull(c.Conn, id[:]); err != nil {
		return
	}
	_ = c.Conn.SetReadDeadline(time.Time{})
	p.s.in.Add(cookieSize)
	if t := p.test(id); t != nil {
		if st := t.attach(&stream{conn: c}); st != nil {
			t.beginIfFull()
			st.run(t)
		}
		return
	}
	t := p.begin(id, c)
	if t == nil {
		_ = sendState(c, stateAccessDenied)
		return
	}
	defer p.forget(t)
	t.control()
}

func (p *iperf) test(id cookie) *test {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tests[id]
}

// begin makes a test; nil where there are too many.
func (p *iperf) begin(id cookie, c *conn) *test {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.tests) >= maxTests || p.tests[id] != nil {
		return nil
	}
	t := &test{
		p: p, id: id, c: c, peer: addrPort(c.RemoteAddr()).Addr(),
		full: make(chan struct{}), start: make(chan struct{}), stop: make(chan struct{}),
	}
	p.tests[id] = t
	p.order = append(p.order, t)
	return t
}

// forget ends a test and what is left of its streams.
func (p *iperf) forget(t *test) {
	t.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tests, t.id)
	for i, o := range p.order {
		if o == t {
			p.order = append(p.order[:i], p.order[i+1:]...)
			break
		}
	}
	for f, st := range p.flows {
		if st.t == t {
			delete(p.flows, f)
		}
	}
}

// sendState writes a state to the control connection.
func sendState(c net.Conn, state int8) error {
	_, err := c.Write([]byte{byte(state)})
	return err
}

// sendRefusal tells the client why its test cannot be.
func sendRefusal(c net.Conn, code int32) {
	msg := []byte{0xfe, 0, 0, 0, 0, 0, 0, 0, 0} // stateServerError, its error, the system's
	binary.BigEndian.PutUint32(msg[1:], uint32(code))
	_, _ = c.Write(msg)
}

// readMessage reads a length and as much JSON.
func readMessage(c net.Conn, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage {
		return fmt.Errorf("a message of %d bytes", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(c, text); err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// sendMessage writes JSON with its length before it.
func sendMessage(c net.Conn, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// errEnded reports that the client has gone.
var errEnded = errors.New("the client ended the test")
