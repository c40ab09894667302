package kernelflows_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/kernelflows"
	"github.com/millrace/millrace/stack"
)

// childEnv makes the test binary a process that attaches to lo of its namespace until it is killed.
const childEnv = "MILLRACE_KERNELFLOWS_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	table, err := kernelflows.Open(kernelflows.Options{Loops: 1, Slots: 4, Now: stack.Now})
	if err == nil {
		_, err = table.Attach(0, 1, kernelflows.HookSocket)
	}
	fmt.Println("attached:", err)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed, or the test has ended
}

// Nothing stays at the hook of a process that was killed: what the kernel would go on forwarding belongs to no one.
func TestNothingStaysAfterSIGKILL(t *testing.T) {
	ns := testnet.For(t, "mr-kflows").Namespace("host")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	in, err := cmd.StdinPipe()
	must(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, ns.Start(cmd))
	line, _ := bufio.NewReader(out).ReadString('\n')
	before := attached(t, ns)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if line != "attached: <nil>\n" || before != 1 {
		t.Fatalf("the child says %q; %d programs are attached, want 1", line, before)
	}
	for end := time.Now().Add(20 * time.Second); attached(t, ns) != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the program is attached still")
		}
	}
}

// attached returns how many programs are at the ingress hook of lo.
func attached(t *testing.T, ns *testnet.Namespace) (n int) {
	t.Helper()
	must(t, ns.Do(func() error {
		r, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			n = len(r.Programs)
		}
		return err
	}))
	return n
}
