package interop

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/route"
	sockets "github.com/millrace/millrace/l7/transport"
)

// iperf3Result is a part of what iperf3 says of a test.
type iperf3Result struct {
	End struct {
		Sent     struct{ Bytes float64 } `json:"sum_sent"`
		Received struct{ Bytes float64 } `json:"sum_received"`
	} `json:"end"`
}

func iperf3Run(t *testing.T, args []string) (r iperf3Result) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	out, err := exec.CommandContext(ctx, "iperf3", args...).Output()
	if wrong := json.Unmarshal(out, &r); wrong != nil {
		t.Logf("%v: %v", err, wrong)
	}
	return r
}

// TestIperf3ThroughTheGateway has iperf3 send through a listener of TCP, in both directions and with several connections at a
// time. Its server ends a test when the client says that all is sent, and may leave what is still on its way.
func TestIperf3ThroughTheGateway(t *testing.T) {
	needs(t, "iperf3", "make deps")
	server, front := freePort(t), freePort(t)
	_, port, _ := net.SplitHostPort(server)
	daemonOf(t, nil, "iperf3", "-s", "-B", "127.0.0.1", "-p", port, "--forceflush")
	p, err := pool.New(pool.Options{Name: "p"}, []pool.BackendOptions{{Address: netip.MustParseAddrPort(server)}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	to := &proxy.Pool{Pool: p}
	table, err := route.New([]route.Rule{{Name: "all"}})
	if err != nil {
		t.Fatal(err)
	}
	loop, err := sockets.NewEpollLoop()
	if err != nil {
		t.Fatal(err)
	}
	worker := proxy.NewWorker(loop, 0)
	err = worker.Apply(&proxy.Tree{Pools: []*proxy.Pool{to}, Listeners: []*proxy.Listener{{
		Name: "l", Address: netip.MustParseAddrPort(front), Stream: proxy.StreamTCP, Table: table, Timeouts: proxy.Timeouts{Write: time.Minute, Tunnel: time.Minute},
		Rules: []*proxy.Rule{{Name: "all", Backends: []proxy.Weighted{{Pool: to, Weight: 1}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- loop.Run(context.Background()) }()
	t.Cleanup(func() {
		loop.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	const size = 64 << 20
	_, port, _ = net.SplitHostPort(front)
	for _, more := range [][]string{nil, {"-R"}, {"-P", "4"}} {
		var result iperf3Result
		for end := time.Now().Add(30 * time.Second); result.End.Sent.Bytes == 0; time.Sleep(100 * time.Millisecond) {
			result = iperf3Run(t, append([]string{"-c", "127.0.0.1", "-p", port, "-n", "67108864", "-J"}, more...))
			if time.Now().After(end) { // the server is not up at once, and takes one test at a time
				t.Fatal("iperf3 does not reach its server")
			}
		}
		if got := result.End.Received.Bytes; got < size/8 || result.End.Sent.Bytes < size*0.9 {
			t.Errorf("%v: %v bytes are sent and %v received", more, result.End.Sent.Bytes, got)
		}
	}
	if s := worker.Stats().Stream; s.Up+s.Down < size {
		t.Errorf("%+v", s)
	}
}
