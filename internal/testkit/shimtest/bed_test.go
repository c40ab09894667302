package shimtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/stackpair"
	"github.com/millrace/millrace/shim"
	"github.com/millrace/millrace/socket"
)

// limit is how long a test waits for what is to happen.
const limit = 30 * time.Second

// A node that runs in a process of its own has these in its environment: the path of its socket.
const nodeVariable = "MILLRACE_SHIMTEST_NODE"

// built are the files that TestMain makes.
var built struct {
	folder, library, life string
	err                   error
}

func TestMain(m *testing.M) {
	if path := os.Getenv(nodeVariable); path != "" {
		os.Exit(serveAsProcess(path))
	}
	built.err = build()
	code := m.Run()
	os.RemoveAll(built.folder)
	os.Exit(code)
}

// build compiles the library as it is in the tree, and the test's program.
func build() (err error) {
	if built.folder, err = os.MkdirTemp("", "mr-shimtest-"); err != nil {
		return err
	}
	if err := os.Chmod(built.folder, 0o755); err != nil { // programs change their user
		return err
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		return fmt.Errorf("no C compiler: %w", err)
	}
	library, _ := filepath.Glob("../../../shim/preload/*.c")
	life, _ := filepath.Glob("testdata/*.c")
	// The test's cache has what was read.
	for _, f := range append(append([]string{}, library...), life...) {
		if _, err := os.ReadFile(f); err != nil {
			return err
		}
	}
	built.library, built.life = filepath.Join(built.folder, "libmillrace.so"), filepath.Join(built.folder, "life")
	compile := func(args ...string) error {
		if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cc, err, out)
		}
		return nil
	}
	warn := []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"}
	return errors.Join(
		compile(append(append(warn, "-fPIC", "-shared", "-fvisibility=hidden", "-o", built.library), append(library, "-ldl")...)...),
		compile(append(append(warn, "-pthread", "-o", built.life), life...)...))
}

// bed is a node, and a peer on the network.
type bed struct {
	*stackpair.Pair
	*shim.Server
	t    testing.TB
	path string
	env  []string // of programs
}

// compiled skips a test where there is no C compiler. What does not compile is a failure.
func compiled(t testing.TB) {
	t.Helper()
	switch {
	case errors.Is(built.err, exec.ErrNotFound):
		t.Skip(built.err)
	case built.err != nil:
		t.Fatal(built.err)
	}
}

func newBed(t testing.TB, loops int, change func(*shim.Config)) *bed {
	t.Helper()
	compiled(t)
	p, err := stackpair.New(loops)
	if err != nil {
		t.Fatal(err)
	}
	cfg := shim.Config{Stack: p.A, Path: socketPath(t), Name: "stack"}
	if change != nil {
		change(&cfg)
	}
	s, err := shim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{p, s, t, cfg.Path, nil}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bed) stacks() []*socket.Stack { return []*socket.Stack{b.A, b.B} }

// with returns the bed for another test, whose programs have more in their environment.
func (b *bed) with(t testing.TB, env []string) *bed {
	c := *b
	c.t, c.env = t, env
	return &c
}

// tiers are the environments of programs on both: the kernel's sockets, and rings in shared memory.
var tiers = map[string][]string{"sockets": nil, "rings": {"MILLRACE_SHIM_RINGS=1"}}

// onTiers runs f for each tier.
func onTiers(t *testing.T, f func(t *testing.T, env []string)) {
	for name, env := range tiers {
		t.Run(name, func(t *testing.T) { f(t, env) })
	}
}

// socketPath returns a path that every user may reach.
func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mr-life-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "shim.sock")
}

// process is a program that runs with the library.
type process struct {
	*exec.Cmd
	t   testing.TB
	out output
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

// start runs a part of the test's program with the library.
func (b *bed) start(args ...string) *process {
	b.t.Helper()
	return start(b.t, b.path, b.env, args...)
}

func start(t testing.TB, path string, env []string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(built.life, args...), t: t}
	p.Env = append(os.Environ(), "LD_PRELOAD="+built.library, "MILLRACE_SHIM="+path)
	if n, err := shim.Hello(path); err == nil {
		p.Env = append(p.Env, "MILLRACE_SHIM_TOKEN="+n.Token, fmt.Sprint("MILLRACE_SHIM_UID=", n.UID))
	}
	p.Env = append(p.Env, env...)
	p.Stdout, p.Stderr, p.WaitDelay = &p.out, &p.out, 5*time.Second
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	return p
}

// ends waits for a program, which must have found what it expects.
func (p *process) ends() {
	p.t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			p.t.Fatalf("%v: %v\n%s", p.Args[1:], err, &p.out)
		}
	case <-time.After(p.most()):
		_ = p.Process.Kill()
		p.t.Fatalf("%v goes on\n%s", p.Args[1:], &p.out)
	}
}

// most is how long the program may take.
func (p *process) most() time.Duration {
	if p.Args[1] == "many" {
		return 24 * time.Hour // the test's own limit ends it
	}
	return 2 * limit
}

// says waits until a program has written something.
func (p *process) says(what string) {
	p.t.Helper()
	until(p.t, fmt.Sprintf("%v says %q", p.Args[1:], what), func() bool { return strings.Contains(p.out.String(), what) }, &p.out)
}

// saidOnly checks what the library has said on the program's standard error: one line, or none for "".
func (p *process) saidOnly(line string) {
	p.t.Helper()
	said := p.out.String()
	if n := strings.Count(said, "millrace: "); !strings.Contains(said, line) || n > 1 || n == 1 && line == "" {
		p.t.Errorf("%v said %q", p.Args[1:], said)
	}
}

// runs is start and ends.
func (b *bed) runs(args ...string) *process {
	b.t.Helper()
	p := b.start(args...)
	p.ends()
	return p
}

// until waits for f to hold.
func until(t testing.TB, what string, f func() bool, more ...any) {
	t.Helper()
	for end := time.Now().Add(limit); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s %v", limit, what, more)
		}
	}
}

// clean waits until the node has nothing of any program left.
func (b *bed) clean() {
	b.t.Helper()
	until(b.t, "all sockets are released", func() bool { return b.Stats().Sockets == 0 })
}
