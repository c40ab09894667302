package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// childEnv makes the test binary a lab that has started one program in the namespace named, and
// waits to be killed.
const childEnv = "LAB_TEST_NAMESPACE"

func TestMain(m *testing.M) {
	name := os.Getenv(childEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	cmd := detach(exec.Command("sleep", "60"))
	if err := start(&testnet.Namespace{Name: name}, cmd); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(cmd.Process.Pid)
	_ = cmd.Wait()
}

func TestAKilledLabTakesItsProgramsAlong(t *testing.T) {
	ns := testnet.For(t, "mr-example").Namespace("host")
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+ns.Name)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, bad := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || bad != nil {
		t.Fatalf("%q: %v", line, err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // if it is still there
	inside, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	home, err2 := os.Readlink("/proc/self/ns/net")
	if err != nil || err2 != nil || inside == home {
		t.Errorf("the program runs in %s, the test in %s: %v, %v", inside, home, err, err2)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	for range 100 {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("the program outlives the lab")
}
