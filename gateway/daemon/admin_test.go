package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// controlled is a gateway on a device in memory, with a control socket.
func controlled(t *testing.T) (*Daemon, *admin.Client, string) {
	return controlledBy(t, nexthop.Static{})
}

func controlledBy(t *testing.T, r nexthop.Resolver) (*Daemon, *admin.Client, string) {
	return controlledWith(t, r, slog.New(slog.DiscardHandler))
}

func controlledWith(t *testing.T, r nexthop.Resolver, log *slog.Logger) (*Daemon, *admin.Client, string) {
	t.Helper()
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "gw.yaml"), filepath.Join(dir, "run", "gw.sock")
	write(t, file, adminConfig)
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	d := newDaemon(file, Options{Admin: true, Log: log})
	d.cfg = cfg
	if err := d.openInspection(cfg); err != nil {
		t.Fatal(err)
	}
	c := d.nodeConfig(cfg)
	c.OpenDevice, c.Control = inMemory, socket
	if d.node, err = node.Open(c); err != nil {
		t.Fatal(err)
	}
	d.inspection.SetLoops(len(d.node.Loops()))
	if d.gate, err = control.Open(cfg, control.Options{Devices: []datapath.Device{{Name: "gw0"}}, Resolver: r, Policy: d.inspection.Number, OnEvent: d.events.add}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.node.Add(d.service()), d.node.Start()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, d.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket stays behind: %v", err)
		}
	})
	return d, admin.NewClient(socket), socket
}

// inMemory opens a device whose other end nobody reads.
func inMemory(_ node.Device, pools []*ring.Pool) (*device.Device, error) {
	drv, other, err := pmd.NewMemory(pmd.MemoryConfig{A: pools[0], B: pools[0]})
	if err != nil {
		return nil, err
	}
	return device.New("memory", []pmd.Driver{drv}, func() error { return errors.Join(drv.Close(), other.Close()) }), nil
}

const adminConfig = `
devices: [{name: gw0}]
snat: 198.18.2.1
services:
  - name: web
    address: 198.18.1.1:80
    backends: [{name: b1, address: 198.18.2.11:8080}]
`

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTheControlSocketIsForItsOwnerOnly(t *testing.T) {
	_, _, socket := controlled(t)
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestASecondGatewayOnTheSocketIsRefused(t *testing.T) {
	_, _, socket := controlled(t)
	cfg, err := config.Load(filepath.Join(filepath.Dir(filepath.Dir(socket)), "gw.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	second := &Daemon{opt: Options{Admin: true, Log: slog.New(slog.DiscardHandler)}}
	c := second.nodeConfig(cfg)
	c.OpenDevice, c.Control = inMemory, socket
	if _, err := node.Open(c); err == nil || !strings.Contains(err.Error(), socket+": a gateway is running there") {
		t.Errorf("a second gateway on the socket: %v", err)
	}
}

func TestRequestsThatMakeNoSenseAreRefusedWithTheRightStatus(t *testing.T) {
	_, _, socket := controlled(t)
	c := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) },
	}}
	for _, tc := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/v1/status", "", 200, `"name":"web"`},
		{"POST", "/v1/status", "", 404, "no POST /v1/status here"},
		{"GET", "/", "", 404, "no GET / here"},
		{"POST", "/v1/drain", "{", 400, "EOF"},
		{"POST", "/v1/drain", `{"service": "web", "backend": "b1", "deadlin": "1s"}`, 400, "deadlin"},
		{"POST", "/v1/drain", `{"service": "web", "backend": "b1", "deadline": "soon"}`, 400, "soon"},
		{"POST", "/v1/drain", `{"service": "web", "backend": "b2"}`, 404, "b1"},
		{"POST", "/v1/undrain", `{"service": "wob", "backend": "b1"}`, 404, "web"},
		{"POST", "/v1/weight", `{"service": "web", "backend": "b1", "weight": 1001}`, 400, "between 0 and 1000"},
		{"POST", "/v1/weight", `{"service": "web", "backend": "b1", "weight": -1}`, 400, "between 0 and 1000"},
		{"POST", "/v1/weight", `{"service": "web", "backend": "b1", "weight": 3}`, 200, "{}"},
		{"POST", "/v1/weight", `{"service": "web", "backend": "b1", "weight": null}`, 200, "{}"},
		{"GET", "/v1/status?service=web", "", 200, `"name":"web"`},
		{"GET", "/v1/status?service=wbe", "", 404, `did you mean \"web\"`},
		{"GET", "/v1/status?servce=web", "", 400, "only service"},
		{"GET", "/v1/status?foremost=1", "", 200, `"name":"web"`},
		{"GET", "/v1/status?foremost=0", "", 400, "1 or more"},
		{"GET", "/v1/names", "", 200, `{"names":["web"]}`},
		{"GET", "/v1/names?service=web", "", 200, `{"names":["b1"]}`},
		{"GET", "/v1/names?service=", "", 200, `{"names":["b1"]}`},
		{"GET", "/v1/names?service=wbe", "", 404, `did you mean \"web\"`},
		{"GET", "/v1/names?service=web&service=web", "", 400, "one service"},
		{"GET", "/v1/names?backend=b1", "", 400, "one service"},
		{"POST", "/v1/drain", `{"service": "web", "backend": "b1", "deadline": "1h"}`, 409, "last backend"},
		{"POST", "/v1/weight", `{"service": "web", "backend": "b1", "weight": 0}`, 409, "last backend"},
		{"POST", "/v1/weight", `{"service": "web", "backend": "b1", "weight": 0, "force": true}`, 200, "{}"},
		{"POST", "/v1/weight", `{"service": "web", "backend": "b1", "weight": 1}`, 200, "{}"},
		{"POST", "/v1/drain", `{"service": "web", "backend": "b1", "deadline": "1h", "force": true}`, 200, "{}"},
		{"POST", "/v1/undrain", `{"service": "web", "backend": "b1"}`, 200, "{}"},
		{"GET", "/v1/connections?client=x", "", 400, "x"},
		{"GET", "/v1/connections?limit=x", "", 400, "x"},
		{"GET", "/v1/connections?limit=-1", "", 400, "0 for all"},
		{"GET", "/v1/connections?servce=web", "", 400, "servce"},
		{"GET", "/v1/connections?service=web&service=web", "", 400, "2 times"},
		{"GET", "/v1/connections?service=x", "", 404, "web"},
		{"POST", "/v1/drain", `{"service": "web", "backend": "b1", "deadline": "-1s"}`, 400, "must not be negative"},
		{"POST", "/v1/undrain", `{"service": "web", "backend": "b1"}{"service": "web"}`, 400, "more"},
		{"POST", "/v1/undrain", "", 400, "needs an object"},
		{"POST", "/v1/weight", `{"weight": ` + strings.Repeat(" ", 1<<17) + `3}`, 400, "too large"},
	} {
		req, err := http.NewRequest(tc.method, "http://gateway"+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tc.code || !strings.Contains(string(text), tc.want) {
			t.Errorf("%s %s %.60s: %d %s, want %d %q", tc.method, tc.path, tc.body, resp.StatusCode, text, tc.code, tc.want)
		}
	}
}

func TestAReloadOverTheSocketTellsWhatIsWrong(t *testing.T) {
	d, c, _ := controlled(t)
	for _, tc := range []struct {
		text string
		code int
		want string
	}{
		{adminConfig + "nonsense: 1\n", http.StatusUnprocessableEntity, `unknown key "nonsense"`},
		{strings.Replace(adminConfig, "gw0", "gw1", 1), http.StatusConflict, "restart"},
		{"", http.StatusUnprocessableEntity, "empty"},
	} {
		write(t, d.file, tc.text)
		_, err := c.Reload(t.Context(), false)
		e := new(admin.Error)
		if !errors.As(err, &e) || e.Code != tc.code || !strings.Contains(e.Message, tc.want) {
			t.Errorf("%q: %v, want %d %q", tc.text, err, tc.code, tc.want)
		}
		if st, err := c.Status(t.Context(), control.Selection{}); err != nil || !st.Reload.Failed || !strings.Contains(st.Reload.Error, tc.want) {
			t.Errorf("after a refused reload: %+v, %v", st.Reload, err)
		}
	}
	write(t, d.file, adminConfig)
	before := time.Now()
	if _, err := c.Reload(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	st, err := c.Status(t.Context(), control.Selection{})
	if err != nil || st.Reload.Failed || st.Reload.Error != "" || st.Reload.Succeeded.Before(before) || st.Reload.Succeeded.After(time.Now()) {
		t.Errorf("after a reload: %+v, %v", st.Reload, err)
	}
}

func TestStopOverTheSocketEndsRun(t *testing.T) {
	d, c, _ := controlled(t)
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.node.Ended():
	case <-time.After(5 * time.Second):
		t.Error("the loops go on")
	}
	d.Stop() // once more, when nothing runs
}

func TestWithoutAGatewayTheClientSaysSo(t *testing.T) {
	_, err := admin.NewClient("/nonexistent/gw.sock").Status(t.Context(), control.Selection{})
	if !errors.Is(err, admin.ErrNotRunning) {
		t.Error(err)
	}
}

// TestTheFileThatWasReadLastIsInUse has many change the file and reload at once: whose Reload has returned
// finds what it wrote, or later words, in use.
func TestTheFileThatWasReadLastIsInUse(t *testing.T) {
	d, _, _ := controlled(t)
	var mu sync.Mutex
	version := 0
	change := func() int {
		mu.Lock()
		defer mu.Unlock()
		version++
		next := d.file + ".next"
		write(t, next, strings.Replace(adminConfig, ":8080", fmt.Sprintf(":8080, weight: %d", version), 1))
		if err := os.Rename(next, d.file); err != nil {
			t.Error(err)
		}
		return version
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 60 {
				mine := change()
				if _, err := d.Reload(); err != nil {
					t.Error(err)
				}
				if got := d.gate.Status().Services[0].Backends[0].ConfigWeight; got < mine {
					t.Errorf("version %d is in use after version %d was read", got, mine)
				}
			}
		})
	}
	all.Wait()
}

// slowResolver keeps its second caller, a reload, until it is released.
type slowResolver struct {
	calls         int
	came, release chan struct{}
}

func (r *slowResolver) Watch([]netip.Addr, func(netip.Addr, nexthop.Hop)) {
	if r.calls++; r.calls == 2 {
		close(r.came)
		<-r.release
	}
}

func (r *slowResolver) Find([]netip.Addr, func(netip.Addr, nexthop.Hop)) {}

func (r *slowResolver) Close() error { return nil }

func TestCloseWaitsForAReload(t *testing.T) {
	r := &slowResolver{came: make(chan struct{}), release: make(chan struct{})}
	d, _, _ := controlledBy(t, r)
	reloaded, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := d.Reload()
		reloaded <- err
	}()
	<-r.came
	d.Stop()
	<-d.node.Ended()
	go func() { closed <- d.Close() }()
	select {
	case <-closed:
		t.Error("it was closed under a reload")
	case <-time.After(50 * time.Millisecond):
	}
	close(r.release)
	if err := <-reloaded; err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := d.Reload(); !errors.Is(err, control.ErrClosed) {
		t.Errorf("a reload after the end: %v", err)
	}
}

func TestEventsSayWhatChangedAndWhoDidIt(t *testing.T) {
	var log strings.Builder
	l := newEventLog(slog.New(slog.NewTextHandler(&log, nil)))
	l.add(control.Event{Service: "web", Backend: "b1", What: "weight", Why: "operator", Weight: 0})
	l.add(control.Event{Service: "web", Backend: "b1", What: "unhealthy", Cause: admin.ErrNotRunning})
	l.flush(true)
	for _, want := range []string{"state=weight weight=0 why=operator", "level=WARN", `cause="no gateway is running there"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not in\n%s", want, &log)
		}
	}
}

func TestAQueryChoosesByAllThatItNames(t *testing.T) {
	c := admin.Connection{Connection: control.Connection{
		Service: "web", Backend: "b1", Client: netip.MustParseAddrPort("198.18.0.1:4000"), Address: netip.MustParseAddrPort("198.18.1.1:80"),
	}}
	for _, tc := range []struct {
		q    admin.Query
		want bool
	}{
		{admin.Query{}, true},
		{admin.Query{Service: "web", Backend: "b1", Client: netip.MustParsePrefix("198.18.0.0/24")}, true},
		{admin.Query{Service: "dns"}, false},
		{admin.Query{Backend: "b2"}, false},
		{admin.Query{Service: "web", Backend: "b2"}, false},
		{admin.Query{Client: netip.MustParsePrefix("198.18.1.0/24")}, false},
		{admin.Query{Client: netip.MustParsePrefix("2001:db8::/32")}, false},
	} {
		if got := matches(&tc.q, &c); got != tc.want {
			t.Errorf("%+v: %v", tc.q, got)
		}
	}
}

func TestTheDefaultSpinIsThatOfALoop(t *testing.T) {
	cfg, err := config.Parse("gw.yaml", []byte(adminConfig))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Spin != stack.DefaultSpin {
		t.Errorf("a gateway's loop spins for %v, any other one for %v", cfg.Spin, stack.DefaultSpin)
	}
}

// TestRingReachesTheNode wants the bounds of a file to be those of the drivers.
func TestRingReachesTheNode(t *testing.T) {
	if config.MinRing != device.MinRing || config.DefaultRing != device.DefaultRing || config.MaxRing != device.MaxRing {
		t.Error("a gateway's file has other bounds than the drivers")
	}
	got := new(Daemon).nodeConfig(&config.Config{Devices: []config.Device{{Name: "gw0", Queues: 1, Ring: 512}, {Name: "gw1", Queues: 1, Ring: 4096}}})
	if got.Devices[0].Ring != 512 || got.Devices[1].Ring != 4096 {
		t.Errorf("%+v", got.Devices)
	}
}

// TestExtraProcessorReachesTheNode has the file or the program say so.
func TestExtraProcessorReachesTheNode(t *testing.T) {
	for i := range 4 {
		file, option := i&1 != 0, i&2 != 0
		d := &Daemon{opt: Options{ExtraProcessor: option}}
		if got := d.nodeConfig(&config.Config{ExtraProcessor: file, Devices: []config.Device{{Name: "gw0", Queues: 1}}}).ExtraProcessor; got != (file || option) {
			t.Errorf("file %v, option %v: %v", file, option, got)
		}
	}
}
