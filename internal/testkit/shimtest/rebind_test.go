package shimtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/shim"
)

// rebinds is the environment of programs that make their listeners again.
const rebinds = "MILLRACE_SHIM_ON_NODE_LOSS=rebind"

// ends ends the node of a bed, and returns a function that starts the next one at the same stack.
func (b *bed) ends() (next func()) {
	b.t.Helper()
	if err := b.Server.Close(); err != nil {
		b.t.Fatal(err)
	}
	return func() {
		b.t.Helper()
		s, err := shim.New(shim.Config{Stack: b.A, Path: b.path, Name: "stack"})
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { _ = s.Close() })
		b.Server = s
	}
}

// visit connects to a server of testdata/rebinds.c. It returns the number of the process and of its calls in vain.
func (b *bed) visit(port string) (worker, misses int, err error) {
	c, err := b.B.Dial("tcp", net.JoinHostPort("198.18.0.1", port))
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return 0, 0, err
	}
	line, err := io.ReadAll(c)
	if err == nil {
		_, err = fmt.Sscan(string(line), &worker, &misses)
	}
	return worker, misses, err
}

// serve waits until workers 1 to n have served a connection each.
func (b *bed) serve(p *process, port string, n int) {
	b.t.Helper()
	seen := map[int]bool{}
	until(b.t, fmt.Sprintf("%d workers serve", n), func() bool {
		if w, _, err := b.visit(port); err == nil {
			seen[w] = true
		}
		return len(seen) == n
	}, &p.out)
}

// TestRebind: with --on-node-loss=rebind servers go on with the next node, and the one after that: all processes that share a listener, and
// those that are forked later. They do not spin meanwhile.
func TestRebind(t *testing.T) {
	for _, how := range []string{"level", "edge", "exclusive", "poll", "blocking", "threads"} {
		t.Run(how, func(t *testing.T) { onTiers(t, func(t *testing.T, env []string) { rebind(t, env, how) }) })
	}
}

func rebind(t *testing.T, env []string, how string) {
	b := newBed(t, 1, nil).with(t, append([]string{rebinds}, env...))
	p := b.start("rebinding", "8080", how)
	p.says("listens")
	workers := 2
	b.serve(p, "8080", map[bool]int{false: workers, true: 1}[how == "exclusive"]) // one is woken, and takes all
	for round := range 2 {
		next := b.ends()
		if _, _, err := b.visit("8080"); err == nil {
			t.Fatal("it serves without a node")
		}
		time.Sleep(200 * time.Millisecond) // for one that spins
		next()
		b.serve(p, "8080", workers)
		if round == 0 {
			if err := p.Process.Signal(syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			workers++
			b.serve(p, "8080", workers)
		}
	}
	// Without a node each process looks ten times in a second. One that spins has some thousand calls in vain in the time of the visits.
	visits := 200
	for range visits {
		if _, misses, err := b.visit("8080"); err != nil || misses > 2000 {
			t.Fatalf("%d calls in vain: %v", misses, err)
		}
	}
}

// TestRebindOneByOne has what is special: each part is a program that goes on with the next node.
func TestRebindOneByOne(t *testing.T) {
	for _, tc := range []struct {
		part, port string
		root       bool
	}{
		{"rebinding-exec", "8081", false},
		{"rebinding-low", "81", true},
	} {
		t.Run(tc.part, func(t *testing.T) {
			if tc.root && os.Geteuid() != 0 {
				t.Skip("it gives up rights, so it needs root")
			}
			b := newBed(t, 1, nil).with(t, []string{rebinds})
			p := b.start(tc.part, tc.port)
			p.says("listens")
			b.serve(p, tc.port, 1)
			b.ends()()
			b.serve(p, tc.port, 1)
		})
	}
}

// TestRebindKeepsItsPort: a port that the node has chosen is that of the next listener, too.
func TestRebindKeepsItsPort(t *testing.T) {
	b := newBed(t, 1, nil).with(t, []string{rebinds})
	p := b.start("rebinding-any")
	p.says(".")
	_, port, _ := strings.Cut(strings.TrimRight(p.out.String(), ".\n"), "listens at ")
	b.serve(p, port, 1)
	b.ends()()
	b.serve(p, port, 1)
}

// TestRebindEnds: what a program has ended itself stays so, and a time of its own ends a wait.
func TestRebindEnds(t *testing.T) {
	b := newBed(t, 1, nil).with(t, []string{rebinds})
	b.runs("rebinding-shut", "8083")
	p := b.start("rebinding-timeout", "8082")
	p.says("listens")
	b.ends()
	if err := p.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	p.ends()
}

// TestRebindDatagrams: bound sockets of datagrams are made again, with their options.
func TestRebindDatagrams(t *testing.T) {
	for _, how := range []string{"blocking", "batch", "poll"} {
		t.Run(how, func(t *testing.T) {
			b := newBed(t, 1, nil).with(t, []string{rebinds})
			p := b.start("rebinding-datagrams", "8084", how)
			p.says("listens")
			c, err := b.B.Dial("udp", "198.18.0.1:8084")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			answers := func() bool {
				var in [8]byte
				_, err := c.Write([]byte("hello"))
				err = errors.Join(err, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
				n, e := c.Read(in[:])
				return err == nil && e == nil && string(in[:n]) == "hello"
			}
			until(t, "it answers", answers, &p.out)
			for range 2 {
				b.ends()()
				until(t, "it answers again", answers, &p.out)
			}
		})
	}
}
