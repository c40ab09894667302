package afxdp

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// childEnv makes the test binary a process that opens dev, says how that went and polls until it
// is killed: for what cannot be tested from inside.
const childEnv = "MILLRACE_AFXDP_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
	}
	os.Exit(m.Run())
}

func child() {
	fail := func(err error) {
		fmt.Println("error:", err)
		for _, e := range []error{pmd.ErrPermission, pmd.ErrBusy} {
			if errors.Is(err, e) {
				fmt.Println("is:", e)
			}
		}
		os.Exit(1)
	}
	a, err := ring.NewArena(ring.ArenaConfig{Frames: 512, Huge: ring.HugeOff})
	if err != nil {
		fail(err)
	}
	p, err := a.Cut(0)
	if err != nil {
		fail(err)
	}
	cfg := Config{Interface: dev, Pools: []*ring.Pool{p}, All: true}
	if os.Getenv(childEnv) == "rules" {
		cfg.All, cfg.Rules = false, []Rule{{Addr: ourAddr}}
	}
	d, err := Open(cfg)
	if err != nil {
		fail(err)
	}
	fmt.Println("open")
	b := packet.NewBatch(a.View(), 64)
	for {
		if n, _ := d.Queues[0].Rx(clock.Time(time.Now().UnixNano()), b); n == 0 {
			time.Sleep(time.Millisecond)
		}
		p.PutBatch(b)
	}
}

// startChild starts a child on the host, behind the words of a wrapper, and returns its first lines.
func (w *network) startChild(t testing.TB, wrapper ...string) (*exec.Cmd, string) {
	t.Helper()
	args := append(wrapper, "/proc/self/exe")
	if len(wrapper) > 0 {
		exe, err := os.Executable()
		must(t, err)
		args[len(args)-1] = exe
		testnet.Program(t, wrapper[0])
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), childEnv+"=all")
	if slices.Contains(wrapper, "setpriv") {
		cmd.Env = append(os.Environ(), childEnv+"=rules") // the program that looks into packets wants more rights
	}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, w.host.Start(cmd))
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	var lines []string
	for s := bufio.NewScanner(out); s.Scan(); {
		if lines = append(lines, s.Text()); s.Text() == "open" {
			break
		}
	}
	return cmd, strings.Join(lines, "\n")
}
