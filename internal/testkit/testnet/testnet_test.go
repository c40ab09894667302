package testnet

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pair returns two namespaces joined by a link, both ends up.
func pair(t *testing.T, n *Net) (a, b *Namespace) {
	t.Helper()
	a, b = n.Namespace("a"), n.Namespace("b")
	if err := n.LinkQueues(a, "va", b, "vb", 2); err != nil {
		t.Fatal(err)
	}
	for ns, args := range map[*Namespace][]string{
		a: {"va", "198.18.0.1/24", "2001:db8::1/64"}, b: {"vb", "198.18.0.2/24", "2001:db8::2/64"},
	} {
		if err := ns.Up(args[0], args[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

func TestTwoNamespacesSpeak(t *testing.T) {
	a, b := pair(t, For(t, "mr-testnet"))
	for _, addr := range []string{"198.18.0.2:7", "[2001:db8::2]:7"} {
		var l net.Listener
		if err := b.Do(func() (err error) { l, err = net.Listen("tcp", addr); return }); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			if c, err := l.Accept(); err == nil {
				_, _ = c.Write([]byte("hello"))
				c.Close()
			}
		}()
		var c net.Conn
		if err := a.Do(func() (err error) { c, err = net.DialTimeout("tcp", addr, 5*time.Second); return }); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 5)
		if n, err := c.Read(buf); err != nil || string(buf[:n]) != "hello" {
			t.Errorf("%s: read %q, %v", addr, buf[:n], err)
		}
		c.Close()
	}
}

func TestNoOffloadSwitchesChecksumsAndSegmentationOff(t *testing.T) {
	Program(t, "ethtool")
	a, _ := pair(t, For(t, "mr-testnet"))
	if err := a.NoOffload("va"); err != nil {
		t.Fatal(err)
	}
	out, err := a.Run("ethtool", "-k", "va")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"tx-checksumming", "tx-tcp-segmentation", "tx-tcp6-segmentation", "generic-segmentation-offload"} {
		if !strings.Contains(out, f+": off") {
			t.Errorf("%s is still on", f)
		}
	}
	if err := a.NoOffload("nothing"); err == nil {
		t.Error("no error for an interface that does not exist")
	}
}

func TestDoStaysInsideAndOthersOutside(t *testing.T) {
	n := For(t, "mr-testnet")
	a := n.Namespace("a")
	inside, err := "", error(nil)
	if err = a.Do(func() (err error) { inside, err = os.Readlink("/proc/thread-self/ns/net"); return }); err != nil {
		t.Fatal(err)
	}
	outside, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil || inside == outside {
		t.Errorf("inside %s, outside %s, %v", inside, outside, err)
	}
}

// childEnv makes the test binary a process that has a network mr-testnet until it is killed.
const childEnv = "MILLRACE_TESTNET_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	n, err := New("mr-testnet")
	if err == nil {
		err = n.Namespace("a").Do(func() error { return nil })
	}
	fmt.Println("made", err)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed, or its parent is
}

// startChild starts a process that has the network and returns it.
func startChild(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	_, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "made <nil>\n" {
		t.Fatalf("the child says %q", line)
	}
	return cmd
}

func TestTheNetworkOfALivingProcessStaysAndOfAKilledOneIsRemoved(t *testing.T) {
	if err := For(t, "mr-testnet").Close(); err != nil { // skips without root
		t.Fatal(err)
	}
	child := startChild(t)
	_, err := New("mr-testnet")
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", child.Process.Pid)) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat("/run/netns/mr-testnet-a"); err != nil {
		t.Error(err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	n, err := New("mr-testnet")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Link(n.Namespace("a"), "x", n.Namespace("b"), "y"); err != nil {
		t.Errorf("the old namespace is in the way: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func TestALaterNetworkOfTheProcessReplacesTheEarlier(t *testing.T) {
	first := For(t, "mr-testnet")
	first.Namespace("a")
	second, err := New("mr-testnet")
	if err != nil {
		t.Fatal(err)
	}
	a, b := second.Namespace("a"), second.Namespace("b")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := second.Link(a, "x", b, "y"); err != nil {
		t.Errorf("the old namespace is in the way: %v", err)
	}
	if _, err := os.Stat("/run/netns/mr-testnet-a"); err != nil {
		t.Errorf("closing the first has taken the second's name: %v", err)
	}
	for range 2 {
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := filepath.Glob("/run/netns/mr-testnet-*"); len(left) > 0 {
		t.Errorf("Close left %v", left)
	}
	if l, err := lock("mr-testnet"); err != nil {
		t.Errorf("the prefix is not free: %v", err)
	} else {
		l.Close()
	}
}

func TestANamespaceThatCouldNotBeMadeSaysSo(t *testing.T) {
	n := For(t, "mr-testnet")
	a := n.Namespace("a")
	again := n.Namespace("a") // the name is taken
	b := n.Namespace("b")
	_, run := again.Run("true")
	for name, err := range map[string]error{
		"Up": again.Up("lo"), "Do": again.Do(func() error { return nil }), "Run": run,
		"Link from it": n.Link(again, "x", b, "y"), "Link to it": n.Link(b, "x", again, "y"),
		"Start": again.Start(exec.Command("true")), "Sysctl": again.Sysctl("net.ipv4.ip_forward", "1"),
	} {
		if !errors.Is(err, os.ErrExist) || !strings.Contains(err.Error(), "namespace mr-testnet-a") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := n.Link(a, "x", b, "y"); err != nil {
		t.Errorf("the others: %v", err)
	}
}

func TestProgramsThatFailTellWhatTheySaid(t *testing.T) {
	a := For(t, "mr-testnet").Namespace("a")
	if _, err := a.Run("ip", "link", "show", "nothing"); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("error %v", err)
	}
}

// The first `ip netns` of a machine makes the folder of names a mount of its own.
func TestNamesSurviveAnIPNetnsBesideThem(t *testing.T) {
	Program(t, "ip")
	n := For(t, "mr-testnet")
	a := n.Namespace("a")
	const other = "mr-testnet-beside"
	if out, err := exec.Command("ip", "netns", "add", other).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer func() {
		if out, err := exec.Command("ip", "netns", "del", other).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}()
	if out, err := exec.Command("ip", "netns", "exec", a.Name, "true").CombinedOutput(); err != nil {
		t.Errorf("the namespace has lost its name: %v: %s", err, out)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, a.Name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the name is left: %v", err)
	}
}

// TestPrefixesAreForOneTest: tests that run in parallel wait for each other where they have the same prefix.
func TestPrefixesAreForOneTest(t *testing.T) {
	const prefix = "mr-testnet-prefix"
	other := &named{TB: t, name: "TestAnother"}
	if !use(t, prefix) || use(other, prefix) || !use(&named{TB: t, name: t.Name() + "/part"}, prefix) {
		t.Error("another test gets the prefix of this one, or a part of this one does not")
	}
	unuse(prefix)
	if use(other, prefix) {
		t.Error("another test gets the prefix while a network is open")
	}
	unuse(prefix)
	if !use(other, prefix) {
		t.Error("the prefix is not free once its networks are closed")
	}
	unuse(prefix)
}

// named is a test of another name.
type named struct {
	testing.TB
	name string
}

func (n *named) Name() string { return n.name }
