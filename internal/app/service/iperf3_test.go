package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// report is what the tests read of `iperf3 -J`.
type report struct {
	Error string `json:"error"`
	End   struct {
		Sent     sum `json:"sum_sent"`
		Received sum `json:"sum_received"`
		Sum      sum `json:"sum"`
		Back     sum `json:"sum_received_bidir_reverse"`
		CPU      struct {
			Remote float64 `json:"remote_total"`
		} `json:"cpu_utilization_percent"`
		Congestion string `json:"sender_tcp_congestion"`
		Streams    []struct {
			Sender, Receiver struct {
				Bytes int64 `json:"bytes"`
			}
		} `json:"streams"`
	} `json:"end"`
}

type sum struct {
	Bytes       int64   `json:"bytes"`
	Retransmits *int64  `json:"retransmits"`
	Jitter      float64 `json:"jitter_ms"`
	Packets     int64   `json:"packets"`
	Lost        int64   `json:"lost_packets"`
}

// iperf3 runs the client against addr.
func iperf3(t *testing.T, addr string, args ...string) report {
	t.Helper()
	testnet.Program(t, "iperf3")
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("iperf3", append([]string{"-J", "-c", "127.0.0.1", "-p", port}, args...)...)
	out, _ := cmd.Output() // an error is in the report
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %v in %s", cmd.Args, err, out)
	}
	return r
}

// inspected tells the same of all connections.
func inspected(net.Conn) (Inspection, bool) {
	return Inspection{Retransmits: 7, Congestion: "cubic"}, true
}

func TestTheClientOfIperf3MeasuresAllItsWays(t *testing.T) {
	_, addr := start(t, Iperf3, Config{Inspect: inspected})
	for _, tc := range []struct {
		args  string
		check func(r *report) error
	}{
		{"-n 20M", func(r *report) error {
			return both(r.End.Sent.Bytes, r.End.Received.Bytes)
		}},
		{"-R -n 20M", func(r *report) error {
			if r.End.Sent.Retransmits == nil || *r.End.Sent.Retransmits != 7 || r.End.Congestion != "cubic" {
				return fmt.Errorf("retransmits %v, congestion %q", r.End.Sent.Retransmits, r.End.Congestion)
			}
			return both(r.End.Sent.Bytes, r.End.Received.Bytes)
		}},
		{"-P 4 -n 20M", func(r *report) error {
			if len(r.End.Streams) != 4 {
				return fmt.Errorf("%d streams", len(r.End.Streams))
			}
			for _, s := range r.End.Streams {
				if err := both(s.Sender.Bytes, s.Receiver.Bytes); err != nil {
					return err
				}
			}
			return nil
		}},
		{"--bidir -P 2 -t 1", func(r *report) error {
			return errors.Join(both(r.End.Sent.Bytes, r.End.Received.Bytes), both(r.End.Back.Bytes, r.End.Back.Bytes))
		}},
		{"-n 5M", func(r *report) error {
			if r.End.Received.Bytes != r.End.Sent.Bytes || r.End.Sent.Bytes < 5<<20 {
				return fmt.Errorf("sent %d, received %d", r.End.Sent.Bytes, r.End.Received.Bytes)
			}
			return nil
		}},
		{"-R -k 10 -l 1000", func(r *report) error {
			if r.End.Sent.Bytes != 10_000 || r.End.Received.Bytes != 10_000 {
				return fmt.Errorf("sent %d, received %d", r.End.Sent.Bytes, r.End.Received.Bytes)
			}
			return nil
		}},
		{"-N -O 1 -t 1", func(r *report) error { // each side leaves its own first second out
			return both(r.End.Sent.Bytes, r.End.Received.Bytes*2/3)
		}},
		{"-R -b 8M -t 1", func(r *report) error { // a million bytes, and what goes at once at the start
			if n := r.End.Sent.Bytes; n < 300_000 || n > 1_400_000 {
				return fmt.Errorf("%d bytes in a second at 1 MB/s", n)
			}
			return nil
		}},
		{"-u -b 600k -l 1000 -t 1", datagrams},
		{"-u -R -b 600k -l 1000 -t 1", datagrams},
		{"-u --udp-counters-64bit -R -b 300k -l 1000 -P 2 -t 1", datagrams},
	} {
		t.Run(tc.args, func(t *testing.T) {
			if !strings.HasPrefix(tc.args, "-u") { // the hello of a UDP stream does not say of which test of an address it is
				t.Parallel()
			}
			r := iperf3(t, addr, strings.Fields(tc.args)...)
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			if err := tc.check(&r); err != nil {
				t.Error(err)
			}
		})
	}
}

// both wants that something came, and nothing that was not sent.
func both(sent, received int64) error {
	if received <= 0 || received > sent {
		return fmt.Errorf("sent %d bytes, received %d", sent, received)
	}
	return nil
}

// datagrams wants some, and none lost: all of them together fit a socket's buffer, however late their reader is.
func datagrams(r *report) error {
	s := r.End.Sum
	if s.Packets < 10 || s.Packets > 100 || s.Lost != 0 || s.Bytes == 0 || s.Jitter == 0 {
		return fmt.Errorf("%+v", s)
	}
	return nil
}

func TestTestsOfSeveralClientsRunAtOnce(t *testing.T) {
	s, addr := start(t, Iperf3, Config{})
	var clients sync.WaitGroup
	for i := range 3 {
		clients.Go(func() {
			r := iperf3(t, addr, "-n", "30M", []string{"-P1", "-R", "-P3"}[i])
			if r.Error != "" || r.End.Received.Bytes == 0 {
				t.Errorf("client %d: %q, %d bytes", i, r.Error, r.End.Received.Bytes)
			}
		})
	}
	clients.Wait()
	s.iperf.mu.Lock()
	defer s.iperf.mu.Unlock()
	if len(s.iperf.tests)+len(s.iperf.order)+len(s.iperf.flows) > 3 { // their handlers may be about to return
		t.Errorf("%d tests are left", len(s.iperf.tests))
	}
}

func TestTheClientIsToldWhatCannotBe(t *testing.T) {
	_, addr := start(t, Iperf3, Config{})
	tuned, with := start(t, Iperf3, Config{Tune: func(_ net.Conn, o Tuning) error {
		if o.Congestion != "reno" {
			return errors.New("no such thing")
		}
		return nil
	}})
	for _, tc := range []struct{ addr, args, want string }{
		{addr, "-C reno -n 1M", "TCP_CONGESTION"},
		{addr, "-M 1000 -n 1M", "MSS"},
		{addr, "-w 64k -n 1M", "socket buffer size"},
		{with, "-C reno -n 1M", ""},
		{with, "-C cubic -n 1M", "closed|Broken pipe|reset"}, // by when the client notices
	} {
		r := iperf3(t, tc.addr, strings.Fields(tc.args)...)
		if ok, err := regexp.MatchString(tc.want, r.Error); !ok || err != nil || (r.Error == "") != (tc.want == "") {
			t.Errorf("%s: %q, want %q", tc.args, r.Error, tc.want)
		}
	}
	if tuned.Stats().Active > 3 {
		t.Errorf("%d connections are left", tuned.Stats().Active)
	}
}

// TestStreamsAreNumberedAsTheyConnected has the cookies of streams read in another order than their connections
// were accepted in.
func TestStreamsAreNumberedAsTheyConnected(t *testing.T) {
	x := &test{p: &iperf{}, open: true, params: params{TCP: true, Parallel: 2, Bidirectional: true}, full: make(chan struct{})}
	byNumber := map[uint64]*stream{}
	for _, n := range []uint64{7, 5, 9, 6} {
		byNumber[n] = x.attach(&stream{conn: &conn{number: n}})
		x.beginIfFull()
	}
	<-x.full
	for i, n := range []uint64{5, 6, 7, 9} {
		st := byNumber[n]
		if st.id != streamID(i) || st.sends != (i >= 2) {
			t.Errorf("connection %d is stream %d, sends %v", n, st.id, st.sends)
		}
	}
}

// welcomeRecorder is a packet conn that records how often it is written to, and whether the test had all its
// streams by then.
type welcomeRecorder struct {
	net.PacketConn
	x       *test
	written int
	early   bool
}

func (w *welcomeRecorder) WriteTo(b []byte, _ net.Addr) (int, error) {
	w.written++
	select {
	case <-w.x.full:
		w.early = true
	default:
	}
	return len(b), nil
}

// TestAUDPStreamIsWelcomedBeforeTheTestBegins: the client takes what comes before the welcome of its last stream
// for datagrams out of order and drops them, so that the test would report them as lost.
func TestAUDPStreamIsWelcomedBeforeTheTestBegins(t *testing.T) {
	s, err := New(Iperf3, Config{})
	if err != nil {
		t.Fatal(err)
	}
	peer := netip.MustParseAddr("192.0.2.1")
	x := &test{
		p: s.iperf, peer: peer, open: true, params: params{UDP: true, Parallel: 2, Reverse: true},
		full: make(chan struct{}), start: make(chan struct{}), stop: make(chan struct{}),
	}
	defer close(x.stop)
	s.iperf.order = []*test{x}
	pc := &welcomeRecorder{x: x}
	hello := func(port uint16) {
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, port))
		s.iperf.hello(flow{pc, from.AddrPort()}, from, udpHello)
	}
	hello(4000)
	hello(4000) // the welcome was lost
	select {
	case <-x.full:
		t.Error("the test begins with one stream of two")
	default:
	}
	hello(4001)
	select {
	case <-x.full:
	default:
		t.Error("the test does not begin with all its streams")
	}
	if pc.written != 3 || pc.early {
		t.Errorf("%d welcomes; the test began before the last: %v", pc.written, pc.early)
	}
	hello(4001) // once more, after the beginning
}

func TestParametersHaveLimits(t *testing.T) {
	good := params{TCP: true, Parallel: 1, Time: 1}
	for name, tc := range map[string]struct {
		change func(*params)
		code   int32
	}{
		"as it is":        {func(*params) {}, 0},
		"no protocol":     {func(p *params) { p.TCP = false }, errProtocol},
		"two protocols":   {func(p *params) { p.UDP = true }, errProtocol},
		"no stream":       {func(p *params) { p.Parallel = 0 }, errStreams},
		"most streams":    {func(p *params) { p.Parallel = 128 }, 0},
		"many streams":    {func(p *params) { p.Parallel = 129 }, errStreams},
		"long":            {func(p *params) { p.Time = 86401 }, errDuration},
		"long with omit":  {func(p *params) { p.Time, p.Omit = 86400, 1 }, errDuration},
		"negative time":   {func(p *params) { p.Time = -1 }, errDuration},
		"negative length": {func(p *params) { p.Len = -1 }, errParams},
		"large blocks":    {func(p *params) { p.Len = 1<<20 + 1 }, errParams},
		"large datagrams": {func(p *params) { p.TCP, p.UDP, p.Len = false, true, 65536 }, errParams},
		"negative rate":   {func(p *params) { p.Bandwidth = -1 }, errParams},
		"negative bytes":  {func(p *params) { p.Num = -1 }, errParams},
	} {
		p := good
		tc.change(&p)
		refused := new(refusal)
		if err := p.check(false); errors.As(err, &refused) != (tc.code != 0) || refused.code != tc.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	tiny := params{UDP: true, Parallel: 1, Len: 1}
	if err := tiny.check(false); err != nil || tiny.Len != 16 {
		t.Errorf("datagrams of %d bytes hold no header (%v)", tiny.Len, err)
	}
}

func TestLossIsCountedAndTakenBack(t *testing.T) {
	for _, tc := range []struct {
		numbers             []int64
		lost, reorders, max int64
	}{
		{[]int64{1, 2, 3}, 0, 0, 3},
		{[]int64{1, 4}, 2, 0, 4},
		{[]int64{3}, 2, 0, 3},
		{[]int64{1, 3, 2, 4}, 0, 1, 4},
		{[]int64{1, 1}, 0, 1, 1},
	} {
		var l loss
		for _, n := range tc.numbers {
			l.take(n, 1, 1.5)
		}
		if l.lost != tc.lost || l.reorders != tc.reorders || l.packets != tc.max || l.jitter != 0 {
			t.Errorf("%v: %+v", tc.numbers, l)
		}
	}
	var l loss
	for i, transit := range []float64{0.010, 0.026, 0.010} { // RFC 3550 6.4.1: J += (|D| - J) / 16
		l.take(int64(i+1), 100, 100+transit)
	}
	if want := 0.001 + (0.016-0.001)/16; l.jitter < want-1e-9 || l.jitter > want+1e-9 {
		t.Errorf("jitter %v, want %v", l.jitter, want)
	}
}

func TestASenderThatWasHeldUpSendsNoBurst(t *testing.T) {
	stop := make(chan struct{})
	p := pacer{rate: 1e6, begun: time.Now().Add(-time.Second)} // behind by a second
	burst := 0
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); burst++ {
		if !p.wait(stop) {
			t.Fatal("stopped")
		}
		p.sent += 1000
	}
	if burst > 5+100+20 {
		t.Errorf("%d kB in 100 ms at 1 kB/ms", burst)
	}
	close(stop)
	if p.wait(stop) {
		t.Error("goes on after the end")
	}
}

// TestStrangersDoNotDisturb: connections that say nothing right are closed, and take no memory.
func TestStrangersDoNotDisturb(t *testing.T) {
	s, addr := start(t, Iperf3, Config{})
	talk := func(parts ...string) (answer string) {
		c := dial(t, "tcp", addr)
		for _, p := range parts {
			_, _ = io.WriteString(c, p)
			time.Sleep(10 * time.Millisecond)
		}
		_ = c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c)
		return string(b)
	}
	id := strings.Repeat("c", cookieSize)
	refused := "\x09\xfe\x00\x00\x00\x72\x00\x00\x00\x00" // PARAM_EXCHANGE, SERVER_ERROR, 113, 0
	for what, answer := range map[string][2]string{
		"half a cookie":   {talk("short"), ""},
		"a huge message":  {talk(id, "\xff\xff\xff\xff{}"), refused},
		"no JSON":         {talk(id, "\x00\x00\x00\x03{x}"), refused},
		"half a message":  {talk(id, "\x00\x00\x00\x09{}"), refused},
		"wrong types":     {talk(id, "\x00\x00\x00\x0b{\"tcp\":\"x\"}"), refused},
		"other parameter": {talk(id, "\x00\x00\x00\x02{}"), strings.Replace(refused, "\x72", "\x83", 1)},
	} {
		if answer[0] != answer[1] {
			t.Errorf("%s: answered %q, want %q", what, answer[0], answer[1])
		}
	}
	for end := time.Now().Add(5 * time.Second); s.Stats().Active > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if len(s.iperf.tests)+len(s.iperf.order) != 0 || s.Stats().Active != 0 {
		t.Errorf("%d tests, %d connections are left", len(s.iperf.tests), s.Stats().Active)
	}
}

func TestThereIsAnEndToHowManyTestsRun(t *testing.T) {
	_, addr := start(t, Iperf3, Config{})
	for i := range maxTests + 1 {
		c := dial(t, "tcp", addr)
		_, _ = io.WriteString(c, fmt.Sprintf("%037d", i))
		var state [1]byte
		if _, err := io.ReadFull(c, state[:]); err != nil {
			t.Fatal(err)
		}
		want := stateParamExchange
		if i == maxTests {
			want = stateAccessDenied
		}
		if int8(state[0]) != want {
			t.Errorf("test %d: state %d, want %d", i, int8(state[0]), want)
		}
	}
}
