package control_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/l4/inspection"
)

// The environment of the tests of inspection with a GPU.
const (
	mustGPU   = "MILLRACE_MUST_GPU"          // any value: on the GPU of the machine; else on a driver that runs kernels on the CPU
	gpuEnv    = "MILLRACE_TEST_GPU"          // of the gateway: "fake" or "real"
	gpuDriver = "MILLRACE_INSPECTION_DRIVER" // of the devices, default afxdp
	nLiterals = 10_000
)

// faultyGPU returns how a gateway of a test opens its GPU. SIGUSR1 has it given up, as if it had stopped. SIGUSR2 has a kernel
// read where nothing is, after which the driver of a real one refuses every call of the process.
func faultyGPU() (o cuda.Options) {
	kind := os.Getenv(gpuEnv)
	if kind == "" {
		return o
	}
	fault, asked := make(chan struct{}), make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		if <-asked == syscall.SIGUSR2 {
			fmt.Fprintln(os.Stderr, "the kernel that fails:", crashGPU())
			return
		}
		close(fault)
	}()
	if kind == "fake" {
		o.Patience = time.Minute // a CPU runs the kernels
	}
	o.Fault = fault
	return o
}

// crashGPU makes the device fail for the whole process, whose engines share its context.
func crashGPU() error {
	d, err := cuda.Open(cuda.Options{})
	if err != nil {
		return err
	}
	s, err := d.NewStream(cuda.Urgent)
	if err != nil {
		return err
	}
	k, err := d.Kernel("gk_literals")
	if err != nil {
		return err
	}
	var wrong [10]uint64 // as long as struct gk_literal_pass, or the launch is refused
	for i := range wrong {
		wrong[i] = 16 // where nothing is
	}
	if err := cuda.Launch(s, k, cuda.Grid{Blocks: 1, Threads: 32, Shared: 32 << 10}, &wrong); err != nil {
		return err
	}
	return s.Wait()
}

// crashEnv makes the test's binary run the kernel of crashGPU and no more.
const crashEnv = "MILLRACE_TEST_CRASH"

func runCrash(string) error { return crashGPU() }

// The kernel that the loss of a GPU is tested with is run: on a CPU what it reads ends the process, in place of the device.
func TestKernelThatFailsIsRun(t *testing.T) {
	t.Parallel()
	driver := hostkern.OpenDriver(t).Path
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"=1", "LD_LIBRARY_PATH="+filepath.Dir(driver))
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(err.Error(), "segmentation fault") {
		t.Errorf("%v: %.300s", err, out)
	}
}

// literalOf is the content of rule n: letters and digits as no other text here has them.
func literalOf(n int) string {
	r := rand.New(rand.NewPCG(7, uint64(n)))
	b := make([]byte, 6+n%20)
	for i := range b {
		b[i] = "bcdfghjkmnpqrstvwxz23456789"[r.IntN(27)]
	}
	return fmt.Sprintf("%s%04x", b, n)
}

// Of ten rules one drops, in `prevent`.
func drops(n int) bool { return n%10 == 9 }

// literalRules are the rules of the test, one content each.
func literalRules() string {
	var b strings.Builder
	for n := range nLiterals {
		action := "alert"
		if drops(n) {
			action = "drop"
		}
		fmt.Fprintf(&b, "%s ip any any -> 198.18.1.1 any (msg:\"literal %d\"; content:\"%s\"; sid:%d;)\n", action, n, literalOf(n), n+1)
	}
	return b.String()
}

// gpuConfig is a gateway with one policy over 10 000 literals; its arguments are the engine and the section of the inspection.
const gpuConfig = `
engine: %s
inspection:
  alerts: {file: alerts.json, buffer: 67108864, payload: 64}
  policies: [{name: all, mode: %s, rules: live.rules}]
`

// gpuSite runs a gateway with an engine.
func gpuSite(t *testing.T, driver, engine, inspection string) *site {
	t.Helper()
	s := gpuFile(t, driver, engine, inspection)
	s.start()
	s.echoed(t)
	return s
}

// gpuFile is gpuSite before the start.
func gpuFile(t *testing.T, driver, engine, inspection string) *site {
	t.Helper()
	s, _ := layOut(t, "mr-gwgpu")
	for i := range s.backends {
		s.listen(i)
	}
	s.rules(literalRules())
	text := fmt.Sprintf(siteConfig, driver, "")
	if inspection != "" {
		text += fmt.Sprintf(gpuConfig, engine, inspection)
	} else {
		text += "engine: " + engine + "\n"
	}
	s.must(os.WriteFile(s.file, []byte(text), 0o644))
	if engine != "cpu" {
		if os.Getenv(mustGPU) != "" {
			s.env = append(s.env, gpuEnv+"=real")
		} else {
			s.env = append(s.env, gpuEnv+"=fake", "LD_LIBRARY_PATH="+filepath.Dir(hostkern.OpenDriver(t).Path))
		}
	}
	return s
}

// echoed waits until the service answers.
func (s *site) echoed(t *testing.T) {
	t.Helper()
	b := make([]byte, 100)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		c := s.dial("udp", "198.18.1.1:53")
		c.SetDeadline(time.Now().Add(500 * time.Millisecond))
		io.WriteString(c, "hello")
		if _, err := c.Read(b); err == nil {
			return
		}
	}
	t.Fatal("the service does not answer")
}

// message is a datagram of the test, and what is to become of it.
type message struct {
	text   string
	sids   []uint32 // alerts of it
	passes bool
}

// conversation is the datagrams of one flow.
func conversation(flow int) (list []message) {
	r := rand.New(rand.NewPCG(3, uint64(flow)))
	blocked := false
	for n := range 8 {
		m := message{text: fmt.Sprintf("flow %d message %d ", flow, n), passes: !blocked}
		put := func(n int) {
			m.text += literalOf(n) + " "
			m.sids = append(m.sids, uint32(n+1))
			if drops(n) {
				m.passes, blocked = false, true
			}
		}
		if n == 0 { // a matchless one first: the backend is found
			list = append(list, m)
			continue
		}
		decoys := []int{0, 0, 1, 3, 15, 16, 17, 40}[r.IntN(8)]
		at := r.IntN(nLiterals)
		for k := range decoys {
			if n := (at + k) % nLiterals; !drops(n) {
				put(n)
			}
		}
		m.text += strings.Repeat(". ", r.IntN(150))
		if r.IntN(6) == 0 { // the one that counts comes last
			put(10*r.IntN(nLiterals/10) + 9)
		}
		list = append(list, m)
	}
	stopped := false
	for i := range list { // of a flow that is blocked nothing is inspected any more
		if stopped {
			list[i].passes, list[i].sids = false, nil
		}
		stopped = stopped || !list[i].passes
	}
	return list
}

// dialFrom connects a port of the client to the service: each flow has its own, since one that is blocked stays so.
func (s *site) dialFrom(port int) net.Conn {
	s.t.Helper()
	var c net.Conn
	s.must(s.client.Do(func() (err error) {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(198, 18, 0, 2), Port: port}, Timeout: 20 * time.Second}
		c, err = d.Dial("udp", "198.18.1.1:53")
		return err
	}))
	return c
}

// converse sends the datagrams of flows and checks that those that pass are answered, and no others.
func (s *site) converse(t *testing.T, first, n int) {
	t.Helper()
	var all sync.WaitGroup
	gate := make(chan struct{}, 16)
	for flow := first; flow < first+n; flow++ {
		all.Add(1)
		gate <- struct{}{}
		c := s.dialFrom(20_000 + flow)
		go func() {
			defer func() { c.Close(); <-gate; all.Done() }()
			b := make([]byte, 4000)
			for _, m := range conversation(flow) {
				if _, err := io.WriteString(c, m.text); err != nil {
					t.Errorf("%q: %v", m.text[:20], err)
					return
				}
				if !m.passes {
					continue
				}
				c.SetReadDeadline(time.Now().Add(time.Minute))
				n, err := c.Read(b)
				if err != nil || !strings.HasSuffix(string(b[:n]), m.text) {
					t.Errorf("flow %d: %.40q is answered by %.40q, %v", flow, m.text, b[:n], err)
					return
				}
			}
			c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			if n, err := c.Read(b); err == nil {
				t.Errorf("flow %d: %.40q is answered, which is to be dropped", flow, b[:n])
			}
		}()
	}
	all.Wait()
}

// streamed sends contents that segments cut by TCP: n connections, of which every second one matches a rule that drops.
func (s *site) streamed(t *testing.T, n int) (sids []uint32) {
	t.Helper()
	for i := range n {
		rule := 10*(37*i%1000) + 2
		if i%2 == 1 {
			rule += 7
		}
		text := literalOf(rule)
		sids = append(sids, uint32(rule+1))
		c := s.dial("tcp", "198.18.1.1:80")
		cut := 1 + i%(len(text)-1)
		io.WriteString(c, "GET /"+text[:cut])
		time.Sleep(20 * time.Millisecond)
		io.WriteString(c, text[cut:]+" HTTP/1.0\r\n\r\n")
		wait := 20 * time.Second
		if drops(rule) {
			wait = 300 * time.Millisecond
		}
		c.SetReadDeadline(time.Now().Add(wait))
		b, _ := io.ReadAll(c)
		if served := bytes.Contains(b, []byte("200 OK")); served == drops(rule) {
			t.Errorf("connection %d with literal %d in two segments: served %v", i, rule, served)
		}
		c.Close()
	}
	return sids
}

// wantAlerts waits for the alerts and compares them, rule by rule. They are by flows of datagrams, and of streams.
func (s *site) wantAlerts(t *testing.T, flows int, streams []uint32) {
	t.Helper()
	want := map[uint32]int{}
	total := 0
	add := func(sid uint32) {
		want[sid]++
		total++
	}
	for flow := range flows {
		for _, m := range conversation(flow) {
			for _, sid := range m.sids {
				add(sid)
			}
		}
	}
	for _, sid := range streams {
		add(sid)
	}
	var list []inspection.Alert
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && len(list) < total; time.Sleep(50 * time.Millisecond) {
		list = s.alerts("alerts.json")
	}
	got := map[uint32]int{}
	for _, a := range list {
		if a.Rule == nil {
			t.Errorf("%+v", a)
			continue
		}
		got[a.Rule.SID]++
	}
	wrong := 0
	for n := range nLiterals {
		if sid := uint32(n + 1); got[sid] != want[sid] {
			if wrong++; wrong < 10 {
				t.Errorf("rule %d: %d alerts, want %d", sid, got[sid], want[sid])
				for _, a := range list {
					if a.Rule != nil && a.Rule.SID == sid {
						t.Logf("%s %v:%d flow %d %s %.30q", a.Action, a.Src, a.SrcPort, a.Flow, a.Direction, a.Text)
					}
				}
			}
		}
	}
	t.Logf("%d alerts, want %d; %d rules with another number", len(list), total, wrong)
	if total < flows {
		t.Errorf("only %d alerts are expected", total)
	}
}

// TestInspectionOnGPU inspects the same datagrams and streams by both engines, and by a GPU that is lost in the middle: each
// packet that no rule drops arrives, no other, and each match is reported once.
func TestInspectionOnGPU(t *testing.T) {
	t.Parallel()
	type run struct {
		name, engine string
		lose         syscall.Signal // in the middle; 0 is none
	}
	runs, flows, streams := []run{{"cpu", "cpu", 0}, {"cuda that is given up", "cuda", syscall.SIGUSR1}}, 10, 2
	if os.Getenv(mustGPU) != "" {
		flows, streams = 400, 20
		runs = append(runs, run{"cuda", "cuda", 0}, run{"auto", "auto", 0}, run{"cuda that fails", "cuda", syscall.SIGUSR2})
	}
	for _, r := range runs {
		t.Run(r.name, func(t *testing.T) {
			s := gpuSite(t, gpuDeviceDriver(), r.engine, "prevent")
			s.converse(t, 0, flows/2)
			if r.lose != 0 {
				s.must(s.cmd.Process.Signal(r.lose))
			}
			s.converse(t, flows/2, flows-flows/2)
			s.wantAlerts(t, flows, s.streamed(t, streams))
			s.checkEngine(t, r.engine, r.lose != 0)
		})
	}
}

func gpuDeviceDriver() string {
	if d := os.Getenv(gpuDriver); d != "" {
		return d
	}
	return "afxdp"
}

// Policies that a reload brings are searched for on the GPU as those of the start are: the loops search until it has the literals.
// With auto they go on, though there is a GPU.
func TestPoliciesOfAReloadAreSearchedOnGPU(t *testing.T) {
	t.Parallel()
	for engine, onGPU := range map[string]bool{"cuda": true, "auto": false} {
		t.Run(engine, func(t *testing.T) {
			s := gpuFile(t, gpuDeviceDriver(), engine, "")
			text, err := os.ReadFile(s.file)
			s.must(err)
			socket := filepath.Join(filepath.Dir(s.file), "gw.sock")
			policies := strings.Replace(fmt.Sprintf(gpuConfig, engine, "prevent"), "\nengine: "+engine+"\n", "\n", 1)
			s.admin = true
			plain := fmt.Appendf(text, "admin: {socket: %q}\n", socket)
			s.must(os.WriteFile(s.file, plain, 0o644))
			s.start()
			s.echoed(t)
			s.must(os.WriteFile(s.file, append(plain, policies...), 0o644))
			g := admin.NewClient(socket)
			_, err = g.Reload(context.Background(), false)
			s.must(err)
			s.converse(t, 0, 5)
			st, err := g.Rules(context.Background(), 1)
			s.must(err)
			if p := st.Policies[0]; p.Packets == 0 || (p.Searched > 0) != onGPU {
				t.Errorf("of %d packets the GPU has searched %d", p.Packets, p.Searched)
			}
			s.wantAlerts(t, 5, nil)
			s.checkEngine(t, engine, false)
		})
	}
}

// checkEngine ends the gateway and looks at who did the work.
func (s *site) checkEngine(t *testing.T, engine string, lost bool) {
	t.Helper()
	sum := s.stop()
	for _, b := range sum.Engine.Backends {
		t.Logf("engine %s: %s %d packets in %d batches; %d again after a loss; fault %q", engine, b.Name, b.Packets, b.Batches, sum.Engine.Redone, sum.Engine.Fault)
		if engine == "cuda" && b.Name == "cuda" && b.Packets == 0 {
			t.Error("the GPU has done nothing")
		}
	}
	if (sum.Engine.Fault != "") != lost {
		t.Errorf("fault %q", sum.Engine.Fault)
	}
	for _, why := range []string{"frame_lost", "no_frame", "inspection_full"} {
		if n := sum.Dropped[why]; n != 0 {
			t.Errorf("%d packets dropped: %s", n, why)
		}
	}
}
