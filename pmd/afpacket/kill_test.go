package afpacket_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pmd/afpacket"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// childEnv makes the test binary a process that hides TCP port 80 of mr0 until it is killed.
const childEnv = "MILLRACE_AFPACKET_CHILD"

var webRule = afpacket.Rule{Addr: ourAddr, Proto: wire.ProtoTCP, PortLo: 80}

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	if err := child(); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	select {} // until it is killed
}

func child() error {
	a, err := ring.NewArena(ring.ArenaConfig{Frames: 64, Huge: ring.HugeOff})
	if err != nil {
		return err
	}
	p, err := a.Cut(0)
	if err != nil {
		return err
	}
	if _, err := afpacket.Open(afpacket.Config{
		Interface: "mr0", Pools: []*ring.Pool{p}, Rules: []afpacket.Rule{webRule}, Exclusive: true,
	}); err != nil {
		return err
	}
	fmt.Println("open")
	go func() { _, _ = os.Stdin.Read(make([]byte, 1)); os.Exit(0) }() // the test has ended without a kill
	return nil
}

// TestAfterSIGKILLTheFilterStaysUntilTheNextOpen shows what the package's page says of a killed
// process: what it hid stays hidden, and the next Open takes the filter over and Close removes it.
func TestAfterSIGKILLTheFilterStaysUntilTheNextOpen(t *testing.T) {
	r := bareRig(t)
	must(t, r.here.Up("mr0", "198.18.0.2/24"))
	for end := time.Now().Add(10 * time.Second); !r.connectionRefused("198.18.0.2:80"); { // a busy machine takes its time
		if time.Now().After(end) {
			t.Fatal("the kernel does not answer: the test shows nothing")
		}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	stdin, err := cmd.StdinPipe()
	must(t, err)
	defer stdin.Close()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, r.here.Start(cmd))
	line, _ := bufio.NewReader(out).ReadString('\n')
	hidden := !r.connectionRefused("198.18.0.2:80")
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if line != "open\n" || !hidden {
		t.Fatalf("the child says %q; port hidden: %v", line, hidden)
	}
	if r.connectionRefused("198.18.0.2:80") {
		t.Error("the filter is gone with the process: the package's page is wrong")
	}
	if !r.connectionRefused("198.18.0.2:81") {
		t.Error("the kernel has lost more than the rules named")
	}
	r.open(t, 1, 64, func(c *afpacket.Config) {
		c.All, c.Rules, c.Exclusive = false, []afpacket.Rule{webRule}, true
	})
	if r.connectionRefused("198.18.0.2:80") {
		t.Error("the new filter does not hide")
	}
	stale := func() (was bool) {
		t.Helper()
		must(t, r.here.Do(func() (err error) { was, err = afpacket.RemoveStale("mr0"); return err }))
		return was
	}
	if stale() || r.connectionRefused("198.18.0.2:80") {
		t.Error("the filter of a process that lives counts as stale")
	}
	must(t, r.dev.Close())
	if !r.connectionRefused("198.18.0.2:80") {
		t.Error("Close left a filter behind")
	}
	hook := func() string {
		t.Helper()
		out, err := r.here.Run("tc", "qdisc", "show", "dev", "mr0")
		must(t, err)
		return out
	}
	if out := hook(); strings.Contains(out, "clsact") {
		t.Errorf("Close left the hook of the killed process behind: %s", out)
	}
	if stale() {
		t.Error("a filter that is not there counts as stale")
	}
	for _, foreign := range []bool{false, true} { // the place of the filter, with and without another one
		must2 := func(args ...string) {
			t.Helper()
			if out, err := r.here.Run("tc", args...); err != nil {
				t.Fatal(err, out)
			}
		}
		must2("qdisc", "add", "dev", "mr0", "clsact")
		bpf := []string{"protocol", "all", "handle", "1", "bpf", "bytecode", "1,6 0 0 2,", "da"}
		must2(append([]string{"filter", "add", "dev", "mr0", "ingress", "prio", "49149"}, bpf...)...)
		if foreign {
			must2(append([]string{"filter", "add", "dev", "mr0", "ingress", "prio", "7"}, "protocol", "all", "handle", "1", "bpf", "bytecode", "1,6 0 0 4294967295,", "da")...)
		}
		if !stale() {
			t.Error("a filter without an owner is not stale")
		}
		if out := hook(); strings.Contains(out, "clsact") != foreign {
			t.Errorf("another filter %v: %s", foreign, out)
		}
		if !r.connectionRefused("198.18.0.2:80") {
			t.Error("the stale filter still hides")
		}
	}
}
