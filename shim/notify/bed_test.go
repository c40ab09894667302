package notify

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/stackpair"
	"github.com/millrace/millrace/shim"
)

// limit is how long a test waits for what is to happen.
const limit = 30 * time.Second

// What the test's own program does, where these are in the environment.
const (
	startVariable = "MILLRACE_NOTIFY_START" // it installs the filter and becomes the program in its arguments
	partVariable  = "MILLRACE_NOTIFY_PART"  // it is a Go program of parts
)

// calls is the program of testdata/calls.
var calls struct {
	path string
	err  error
}

func TestMain(m *testing.M) {
	switch part := os.Getenv(partVariable); {
	case os.Getenv(startVariable) != "":
		os.Unsetenv(startVariable)
		fmt.Fprintln(os.Stderr, become(3, os.Args[1:]))
		os.Exit(99)
	case part != "":
		if err := parts[part](os.Args[1:]); err != nil {
			fmt.Println(err)
			os.Exit(9)
		}
		return
	}
	dir, err := os.MkdirTemp("", "mr-notify-")
	if err != nil {
		panic(err)
	}
	calls.path = filepath.Join(dir, "calls")
	sources, _ := filepath.Glob("testdata/calls/*.c")
	args := append([]string{"-std=gnu11", "-O1", "-Wall", "-Wextra", "-static", "-pthread", "-o", calls.path}, sources...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		calls.err = fmt.Errorf("cc -static: %w: %s", err, out)
	}
	for _, f := range sources {
		_, _ = os.ReadFile(f) // the test's cache has what was read
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// become hands the filter to the test at the other end of conn, and becomes a program.
func become(conn int, args []string) error {
	runtime.LockOSThread()
	unix.CloseOnExec(conn)
	fd, err := Install()
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(conn, []byte{0}, unix.UnixRights(fd), nil, Unsupervised); err != nil {
		return err
	}
	unix.Close(fd)
	if err := Probe(); err != nil {
		return err
	}
	return syscall.Exec(args[0], args, os.Environ())
}

// bed is a node, and a peer on the network.
type bed struct {
	*stackpair.Pair
	t      testing.TB
	server *shim.Server
	path   string
}

// servicePort is the port of a service of the node's own.
const servicePort = 99

func service(local netip.AddrPort) string {
	if local.Port() == servicePort {
		return "echo"
	}
	return ""
}

func newBed(t testing.TB) *bed {
	t.Helper()
	p, err := stackpair.New(1)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	s, err := shim.New(shim.Config{Stack: p.A, Path: path, Name: "stack", Service: service})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{p, t, s, path}
	t.Cleanup(func() {
		if err := errors.Join(b.server.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// restart ends the node, and starts another one at the same stack.
func (b *bed) restart() {
	b.t.Helper()
	if err := b.server.Close(); err != nil {
		b.t.Fatal(err)
	}
	s, err := shim.New(shim.Config{Stack: b.A, Path: b.path, Name: "stack", Service: service})
	if err != nil {
		b.t.Fatal(err)
	}
	b.server = s
}

// output is what a program has written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// process is a program with a filter, whose supervisor is the test.
type process struct {
	*exec.Cmd
	t          testing.TB
	out        output
	supervisor *Supervisor
	ended      chan error // what Run has returned
}

// start runs a part of this program, or a program where part is "".
func (b *bed) start(part string, args ...string) *process {
	b.t.Helper()
	return b.startWith(part, func(*Supervisor) {}, args...)
}

// startWith is start with a supervisor that set configures.
func (b *bed) startWith(part string, set func(*Supervisor), args ...string) *process {
	b.t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	end := os.NewFile(uintptr(pair[1]), "end")
	defer end.Close()
	defer unix.Close(pair[0])
	if part != "" {
		args = append([]string{os.Args[0]}, args...)
	}
	p := &process{Cmd: exec.Command(os.Args[0], args...), t: b.t, ended: make(chan error, 1)}
	p.Env = append(os.Environ(), startVariable+"=1")
	if part != "" {
		p.Env = append(p.Env, partVariable+"="+part)
	}
	p.Stdout, p.Stderr, p.WaitDelay, p.ExtraFiles = &p.out, &p.out, 5*time.Second, []*os.File{end}
	if err := p.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	end.Close()
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		_ = p.Wait()
		b.t.Fatalf("no filter came: %v; %s", err, &p.out)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		b.t.Fatal(err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		b.t.Fatal(err)
	}
	node, err := shim.Hello(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	if p.supervisor, err = New(fds[0], shim.NewClient(b.path, node)); err != nil {
		b.t.Fatal(err)
	}
	set(p.supervisor)
	go func() { p.ended <- p.supervisor.Run() }()
	return p
}

// wait waits for the end of the program, and of its supervisor after it. It returns the exit code, -1 for a signal.
func (p *process) wait() int {
	p.t.Helper()
	timer := time.AfterFunc(2*limit, func() { _ = p.Process.Signal(syscall.SIGQUIT) })
	defer timer.Stop()
	_ = p.Wait()
	select {
	case err := <-p.ended:
		if err != nil {
			p.t.Errorf("the supervisor ended with %v", err)
		}
	case <-time.After(limit):
		p.t.Error("the supervisor did not end with the program")
	}
	return p.ProcessState.ExitCode()
}

// run is start for programs that are to end well. It returns what they have written.
func (b *bed) run(part string, args ...string) string {
	b.t.Helper()
	p := b.start(part, args...)
	if code := p.wait(); code != 0 {
		b.t.Fatalf("%s %v: code %d, %s", part, args, code, &p.out)
	}
	return p.out.String()
}

// idle waits until no program has a socket.
func (b *bed) idle() {
	b.t.Helper()
	for end := time.Now().Add(limit); b.server.Stats().Sockets != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%d sockets are left", b.server.Stats().Sockets)
		}
	}
}

// says waits until the program has written something.
func (p *process) says(what string) {
	p.t.Helper()
	for end := time.Now().Add(limit); !strings.Contains(p.out.String(), what); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("it does not say %q: %s", what, &p.out)
		}
	}
}
