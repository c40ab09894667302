package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// languagePrograms are programs of ours in languages whose run-time systems have their own ways with sockets.
func languagePrograms() []program {
	const node = "node"
	return []program{
		{"Python", []string{python, "--version"}, "asyncio, a server that forks and one with threads, UDP: 162 MB from the peer and from the same stack, compared", func(t *testing.T, b *bed) string {
			return runLanguage(t, b, 7104, python, data(t, "servers.py"), hostAddr, "", python, data(t, "servers.py"), "client", hostAddr)
		}},
		{"Node", []string{node, "--version"}, "net, http and dgram, a cluster of 2 workers: from the peer and from the same stack, compared", func(t *testing.T, b *bed) string {
			return runLanguage(t, b, 7202, node, data(t, "echo.js"), hostAddr, "", node, data(t, "echo.js"), hostAddr, "client")
		}},
		{"Java", []string{"java", "-version"}, "NIO: an echo server with a selector, 100 connections of 400 kB at a time, UDP: from the peer and from the same stack, compared", func(t *testing.T, b *bed) string {
			needs(t, "javac")
			runHere(t, "javac", "-d", b.dir, data(t, "Echo.java"))
			return runLanguage(t, b, 7007, "java", "-cp", b.dir, "Echo", hostAddr, "", "java", "-cp", b.dir, "Echo", hostAddr, "100", "400000")
		}},
		{"Open MPI", []string{"mpirun", "--version"}, "a ring of 2 ranks over btl/tcp, each on a stack of its own: messages of 1 byte to 4 MB, compared", runMPI},
	}
}

// data returns the path of a file in testdata.
func data(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	must(t, err)
	return path
}

// runLanguage starts the command before "" as a server, and the one behind it as its client, on both sides.
func runLanguage(t *testing.T, b *bed, port int, args ...string) string {
	t.Helper()
	server, client := args, []string(nil)
	for i, a := range args {
		if a == "" {
			server, client = args[:i], args[i+1:]
		}
	}
	needs(t, server[0])
	s := b.host.start(t, server...)
	b.opens(t, s, port)
	for _, from := range []*place{b.peer, b.host} {
		if out := from.run(t, client...); !strings.Contains(out, "equal") {
			t.Errorf("the client: %s", out)
		}
	}
	s.stopWith(t, unix.SIGTERM, 143) // Java's
	return ""
}

// The addresses of the two nodes of MPI.
var mpiAddrs = []string{"198.18.21.1", "198.18.21.2"}

// runMPI joins two namespaces of its own. Open MPI lists the kernel's interfaces to find out what to bind to: the
// addresses are there, too, and the stack has the packets.
func runMPI(t *testing.T, b *bed) string {
	needs(t, "mpicc", "ip")
	ring := filepath.Join(b.dir, "ring")
	runHere(t, "mpicc", "-O1", "-o", ring, data(t, "ring.c"))
	one, two := &place{ns: b.net.Namespace("mpi1")}, &place{ns: b.net.Namespace("mpi2")}
	t.Cleanup(func() { killAll(one.ns, two.ns) })
	must(t, b.net.Link(one.ns, "mp1", two.ns, "mp2"), one.ns.NoOffload("mp1"), two.ns.NoOffload("mp2"))
	agent := "#!/bin/sh\nto=$1; shift\ncase $to in\n"
	for i, p := range []*place{one, two} {
		dev := fmt.Sprint("mp", i+1)
		if b.tier != onKernel {
			must(t, p.ns.Up(dev))
			socket, _ := startStack(t, p.ns, b.dir, b.millrace, dev, shimConfig[b.tier], mpiAddrs[i]+"/24")
			p.prefix = b.execPrefix(socket)
		}
		must(t, p.ns.Up(dev, mpiAddrs[i]+"/24")) // a stack would not start on an interface that has it
		agent += fmt.Sprintf("%s) exec ip netns exec %s %s sh -c \"$*\";;\n", mpiAddrs[i], p.ns.Name, strings.Join(p.prefix, " "))
	}
	path := writeFile(t, filepath.Join(b.dir, "agent"), agent+"esac\n")
	must(t, os.Chmod(path, 0o755))
	out := one.run(t, "mpirun", "--allow-run-as-root", "-np", "2", "--host", strings.Join(mpiAddrs, ","), "--mca", "plm_rsh_agent", path, "--mca", "btl", "self,tcp",
		"--mca", "btl_tcp_if_include", "198.18.21.0/24", "--mca", "oob_tcp_if_include", "198.18.21.0/24", "--mca", "pml", "ob1", ring)
	var bytes int
	if i := strings.Index(out, "equal "); i >= 0 {
		_, _ = fmt.Sscanf(out[i:], "equal %d", &bytes)
	}
	if bytes == 0 {
		t.Errorf("mpirun: %s", out)
	}
	return fmt.Sprintf("%d MB", bytes/1_000_000)
}
