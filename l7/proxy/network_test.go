package proxy

import (
	"context"
	ctls "crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack/host"
)

// network is where the gateway of a test has its sockets, and where its clients and backends have theirs: nil are the kernel's.
type network struct {
	gateway, peers *socket.Stack
	port           uint16
	ran            *transport.StackLoop
}

// over is the network of the test that runs: tests of rigs run one after the other.
var over network

// onTheStack runs a test with two userspace stacks that are joined in memory: that of the gateway, and that of all others.
func onTheStack(t *testing.T, test func(t *testing.T)) {
	peers, gateway, err := socket.Pair(netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("198.18.0.2/24"))
	must(t, err)
	over = network{gateway: gateway, peers: peers, port: 1000}
	defer func() {
		over = network{}
		left := 0
		_ = gateway.Group().Each(func(_ clock.Time, h *host.Host) error { left += h.UDP.Stats().Sockets; return nil })
		if left > 0 {
			t.Errorf("%d sockets of the gateway are left", left)
		}
		must(t, gateway.Close())
		must(t, peers.Close())
	}()
	t.Run("stack", test) // with its cleanups
}

// loop opens the loop of a gateway, which runs until the test ends, and returns what calls functions on it before it may run.
func (n *network) loop(t *testing.T) (l transport.Loop, hold func(f func()), run func()) {
	t.Helper()
	if n.gateway != nil {
		if n.ran != nil { // of an earlier rig of the test: a host has one loop
			must(t, n.ran.Close())
		}
		l := transport.NewStackLoop(n.gateway.Group().Hosts[0])
		n.ran = l
		t.Cleanup(func() { must(t, l.Close()) })
		return l, l.Hold, func() {}
	}
	l0, err := transport.NewEpollLoop()
	must(t, err)
	return l0, func(f func()) { f() }, func() {
		done := make(chan error, 1)
		go func() { done <- l0.Run(context.Background()) }()
		t.Cleanup(func() {
			_ = l0.Close()
			must(t, <-done)
		})
	}
}

// opener opens sockets of gateways.
func (n *network) opener() quicconn.Opener {
	if n.gateway != nil {
		return quicconn.OverStack(n.gateway)
	}
	return quicconn.OverKernel
}

// free returns an address of the gateway at which nothing listens, over TCP and UDP.
func (n *network) free(t *testing.T) netip.AddrPort {
	t.Helper()
	if n.gateway != nil {
		n.port++
		return netip.AddrPortFrom(netip.MustParseAddr("198.18.0.2"), n.port)
	}
	return testport.Hold(t)
}

// listen opens a socket of TCP for a backend.
func (n *network) listen(t testing.TB) (l net.Listener) {
	t.Helper()
	var err error
	if n.peers != nil {
		l, err = n.peers.Listen("tcp", "198.18.0.1:0")
	} else {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// noBackend returns an address of no backend.
func noBackend(t *testing.T) string {
	tr := quicSocket(t)
	defer tr.Close()
	return tr.LocalAddr().String()
}

// taken reports whether the gateway has a UDP socket at an address.
func (n *network) taken(address string) bool {
	listen := net.ListenPacket
	if n.gateway != nil {
		listen = n.gateway.ListenPacket
	}
	pc, err := listen("udp", address)
	if err == nil {
		_ = pc.Close()
	}
	return err != nil
}

// dial opens a connection of TCP from a client.
func (n *network) dial(ctx context.Context, name, address string) (net.Conn, error) {
	if n.peers != nil {
		return n.peers.DialContext(ctx, name, address)
	}
	return (&net.Dialer{}).DialContext(ctx, name, address)
}

// quicSocket opens a UDP socket of a client or a backend.
func quicSocket(t testing.TB) *quic.Transport {
	t.Helper()
	open, at := quicconn.OverKernel, netip.MustParseAddrPort("127.0.0.1:0")
	if over.peers != nil {
		open, at = quicconn.OverStack(over.peers), netip.MustParseAddrPort("198.18.0.1:0")
	}
	tr, err := open(at, quic.TransportConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

// client3 returns a client of HTTP/3. tr may have settings.
func (n *network) client3(t testing.TB, tr *http3.Transport) *http.Client {
	if n.peers != nil {
		from := quicSocket(t)
		tr.Dial = func(ctx context.Context, to string, tc *ctls.Config, c *quic.Config) (*quic.Conn, error) {
			addr, err := net.ResolveUDPAddr("udp", to)
			if err != nil {
				return nil, err
			}
			return from.Dial(ctx, addr, tc, c)
		}
	}
	t.Cleanup(func() { _ = tr.Close() })
	return &http.Client{Transport: tr, Timeout: patience}
}

// unstarted is a backend that is not started yet.
func unstarted(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := &httptest.Server{Listener: over.listen(t), Config: &http.Server{Handler: h}}
	t.Cleanup(s.Close)
	return s
}

// served is a backend.
func served(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := unstarted(t, h)
	s.Start()
	return s
}

// onEither are the tests of what is the same code over the kernel's sockets and the userspace stack.
var onEither = map[string]func(t *testing.T){
	"TestAClientOfHTTP3ThatTakesNoAnswerIsCut":     TestAClientOfHTTP3ThatTakesNoAnswerIsCut,
	"TestRequestsOfHTTP3ThatEndLateAreLookedUp":    TestRequestsOfHTTP3ThatEndLateAreLookedUp,
	"TestRelaysHTTP3":                              TestRelaysHTTP3,
	"TestHeadersOfHTTP3":                           TestHeadersOfHTTP3,
	"TestWrongHeadersOfHTTP3":                      TestWrongHeadersOfHTTP3,
	"TestRequestsOfHTTP3AreInspected":              TestRequestsOfHTTP3AreInspected,
	"TestHelloOfHTTP3HasJA4":                       TestHelloOfHTTP3HasJA4,
	"TestFailedHandshakesOfHTTP3AreRecorded":       TestFailedHandshakesOfHTTP3AreRecorded,
	"TestConnectionsOfHTTP3AreLimited":             TestConnectionsOfHTTP3AreLimited,
	"TestDeniedConnectionsOfHTTP3AreRecorded":      TestDeniedConnectionsOfHTTP3AreRecorded,
	"TestRequestsWaitForTheSocketOfHTTP3":          TestRequestsWaitForTheSocketOfHTTP3,
	"TestCriticalStreamsOfHTTP3ThatAreStopped":     TestCriticalStreamsOfHTTP3ThatAreStopped,
	"TestClientsOfHTTP3ThatCloseAreNotRefused":     TestClientsOfHTTP3ThatCloseAreNotRefused,
	"TestRelaysToHTTP3":                            TestRelaysToHTTP3,
	"TestWebSocketsOverHTTP3":                      TestWebSocketsOverHTTP3,
	"TestHTTP3Features":                            TestHTTP3Features,
	"TestHTTP3RulesOnTheHello":                     TestHTTP3RulesOnTheHello,
	"TestHTTP3TenThousand":                         TestHTTP3TenThousand,
	"TestScriptsGetRequestsOfHTTP3":                TestScriptsGetRequestsOfHTTP3,
	"TestCodesByWhichRequestsOfHTTP3End":           TestCodesByWhichRequestsOfHTTP3End,
	"TestHTTP3SlowReader":                          TestHTTP3SlowReader,
	"TestHTTP3SlowBackend":                         TestHTTP3SlowBackend,
	"TestHTTP3ClientGivesUp":                       TestHTTP3ClientGivesUp,
	"TestHTTP3BackendGivesUp":                      TestHTTP3BackendGivesUp,
	"TestHTTP3BackendShutsDown":                    TestHTTP3BackendShutsDown,
	"TestHTTP3BackendUnreachable":                  TestHTTP3BackendUnreachable,
	"TestHTTP3Drain":                               TestHTTP3Drain,
	"TestHTTP3MigrationAndReload":                  TestHTTP3MigrationAndReload,
	"TestHTTP3EarlyData":                           TestHTTP3EarlyData,
	"TestHTTP3Limits":                              TestHTTP3Limits,
	"TestHTTP3Timeouts":                            TestHTTP3Timeouts,
	"TestHTTP3RejectsAfterGoAway":                  TestHTTP3RejectsAfterGoAway,
	"TestHTTP3RejectedRequestIsSentAgain":          TestHTTP3RejectedRequestIsSentAgain,
	"TestHTTP3SlowReaders":                         TestHTTP3SlowReaders,
	"TestHTTP3ControlStreamsThatAreNotRead":        TestHTTP3ControlStreamsThatAreNotRead,
	"TestHTTP3BackendThatTakesNothing":             TestHTTP3BackendThatTakesNothing,
	"TestHTTP3SuiteAgainstFronts":                  TestHTTP3SuiteAgainstFronts,
	"TestHTTP3SuiteAgainstBacks":                   TestHTTP3SuiteAgainstBacks,
	"TestTheBackendGetsThePathThatWasMatchedHTTP3": TestTheBackendGetsThePathThatWasMatchedHTTP3,
	"TestHostsLeadWhereTheyAreReadHTTP3":           TestHostsLeadWhereTheyAreReadHTTP3,
	"TestWrongInputHTTP3":                          TestWrongInputHTTP3,
	"TestBackendWithoutStreams":                    TestBackendWithoutStreams,
	"TestRequestsWaitForStreamsOfHTTP3":            TestRequestsWaitForStreamsOfHTTP3,
	"TestWebSocketAtTheEndOfHTTP3":                 TestWebSocketAtTheEndOfHTTP3,
	"TestCanceledRequestOfHTTP3KeepsItsEnd":        TestCanceledRequestOfHTTP3KeepsItsEnd,
	"TestNoSpellingOfAFieldGoesAroundRulesInHTTP3": TestNoSpellingOfAFieldGoesAroundRulesInHTTP3,
}

// The tests of HTTP/3 pass over the userspace stack too.
func TestOnTheUserspaceStack(t *testing.T) {
	for name, test := range onEither {
		t.Run(name, func(t *testing.T) { onTheStack(t, test) })
	}
}

// No test of HTTP/3 is missing there.
func TestAllOfHTTP3IsTestedOnTheStack(t *testing.T) {
	files, err := os.ReadDir(".")
	must(t, err)
	name := regexp.MustCompile(`(?m)^func (Test\w*HTTP3\w*)\(`)
	for _, f := range files {
		text, err := os.ReadFile(f.Name())
		if err != nil {
			continue // a folder
		}
		for _, m := range name.FindAllSubmatch(text, -1) {
			if onEither[string(m[1])] == nil && string(m[1]) != "TestAllOfHTTP3IsTestedOnTheStack" && !kernelAlone[string(m[1])] {
				t.Errorf("%s: %s is not run on the stack: add it to onEither, with sockets of over", f.Name(), m[1])
			}
		}
	}
}

// kernelAlone are tests with HTTP/3 in their names that are not run on the stack.
var kernelAlone = map[string]bool{
	"TestAListenerThatBecomesHTTP3Alone": true, // its subject is the socket of TCP
	"TestHTTP3ResponsesAreSentByUrgency": true, // it waits for what the gateway holds, which depends on the buffers of TCP: now and then for too long
}
