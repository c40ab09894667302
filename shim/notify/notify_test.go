package notify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/stackpair"
	"github.com/millrace/millrace/socket"
)

// echoes serves an echo on the peer.
func echoes(t testing.TB, st *socket.Stack, addr string) {
	t.Helper()
	l, err := st.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
}

// TestGoPrograms runs a client and a server of net/http.
func TestGoPrograms(t *testing.T) {
	b := newBed(t)
	l, err := b.B.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	peer := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s.", r.URL.Path) })}
	go func() { _ = peer.Serve(l) }()
	t.Cleanup(func() { peer.Close() })
	base := "http://" + stackpair.AddrB
	if out := b.run("get", base+"/1", base+"/2", "http://["+stackpair.AddrB6+"]:80/3"); out != "/1./2./3." {
		t.Errorf("client: %s", out)
	}
	for _, addr := range []string{stackpair.AddrA, "[" + stackpair.AddrA6 + "]"} {
		p := b.start("serve", addr+":8080")
		client := &http.Client{Transport: &http.Transport{DialContext: b.B.DialContext, DisableKeepAlives: true}}
		for _, path := range []string{"/a", "/b", "/quit"} {
			if got := fetch(t, client, "http://"+addr+":8080"+path, p); !strings.HasSuffix(got, " asks "+addr+":8080 for "+path) {
				t.Errorf("%s: %q", path, got)
			}
		}
		if code := p.wait(); code != 0 {
			t.Errorf("server: code %d, %s", code, &p.out)
		}
	}
	b.idle()
}

func fetch(t *testing.T, c *http.Client, url string, p *process) string {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		r, err := c.Get(url)
		if err == nil {
			defer r.Body.Close()
			b, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		if time.Now().After(end) {
			t.Fatalf("%v; %s", err, &p.out)
		}
	}
}

// TestCallsAreAsOnTheKernel compares what a static C program sees of many calls, right and wrong ones, with what it sees
// on the kernel's stack.
func TestCallsAreAsOnTheKernel(t *testing.T) {
	if calls.err != nil {
		t.Skip(calls.err)
	}
	want, err := exec.Command(calls.path).Output()
	if err != nil {
		t.Fatalf("on the kernel's stack: %v\n%s", err, want)
	}
	b := newBed(t)
	got := b.run("", calls.path)
	w, g := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		switch {
		case i >= len(w):
			t.Errorf("line %d: %q is more than the kernel says", i+1, g[i])
		case i >= len(g):
			t.Errorf("line %d: missing %q", i+1, w[i])
		case w[i] != g[i]:
			t.Errorf("line %d: %q, the kernel says %q", i+1, g[i], w[i])
		}
	}
	b.idle()
}

// TestDatagramsOfSeveralCalls: MSG_MORE and UDP_CORK make one datagram, as on the kernel's stack.
func TestDatagramsOfSeveralCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "corks")
	if out, err := exec.Command("cc", "-std=c11", "-static", "-o", path, "../testdata/corks.c").CombinedOutput(); err != nil {
		t.Skipf("cc -static: %v: %s", err, out)
	}
	for _, part := range []string{"connected", "unconnected", "option", "shared"} {
		t.Run(part, func(t *testing.T) {
			want, err := exec.Command(path, part).Output()
			if err != nil {
				t.Fatal(err)
			}
			b := newBed(t)
			if part == "option" { // a call without the flag is not seen: SO_ERROR has it
				want = bytes.Replace(want, []byte("too long: -1 EMSGSIZE"), []byte("too long: 60000"), 1)
			}
			if got := b.run("", path, part); got != string(want) {
				t.Errorf("%s\non the kernel's stack:\n%s", got, want)
			}
			b.idle()
		})
	}
}

// TestWriteToNobody: write(2) of a UDP socket that is not connected leaves EDESTADDRREQ in SO_ERROR, and nothing is sent.
func TestWriteToNobody(t *testing.T) {
	if calls.err != nil {
		t.Skip(calls.err)
	}
	b := newBed(t)
	if out := b.run("", calls.path, "undirected"); out != "write(u, text, sizeof text): ok\nSO_ERROR 1\nread: 3, one\n" {
		t.Error(out)
	}
	b.idle()
}

// TestForkServer has a process for each connection.
func TestForkServer(t *testing.T) {
	if calls.err != nil {
		t.Skip(calls.err)
	}
	b := newBed(t)
	if out := b.run("", calls.path, "forks", "50"); out != "sum 1225\nclients ended with 0\n" {
		t.Error(out)
	}
	b.idle()
}

// TestHostileProgram changes memory and descriptors while calls run, from many threads.
func TestHostileProgram(t *testing.T) {
	if calls.err != nil {
		t.Skip(calls.err)
	}
	b := newBed(t)
	if out := b.run("", calls.path, "hostile", "1"); out != "it lives\n" {
		t.Error(out)
	}
	b.idle()
	echoes(t, b.B, stackpair.AddrB+":7")
	b.run("many", stackpair.AddrB+":7", "1") // the node serves others as before
}

// TestManyConnections opens 1000 at the same time.
func TestManyConnections(t *testing.T) {
	b := newBed(t)
	echoes(t, b.B, stackpair.AddrB+":7")
	if out := b.run("many", stackpair.AddrB+":7", "1000"); out != "1000 connections\n" {
		t.Error(out)
	}
	b.idle()
}

// TestNetwork has connects that wait, to a peer and to nobody. What it expects is what Linux says.
func TestNetwork(t *testing.T) {
	if calls.err != nil {
		t.Skip(calls.err)
	}
	b := newBed(t)
	echoes(t, b.B, stackpair.AddrB+":7")
	var got []string
	for line := range strings.Lines(b.run("", calls.path, "network", stackpair.AddrB, "7", "198.18.0.77")) {
		got = append(got, strings.TrimSpace(line[strings.LastIndex(line, ":")+1:]))
	}
	if said := strings.Join(got, " "); said != "ok EISCONN ok EINPROGRESS ENOTCONN EALREADY EINPROGRESS EINTR" {
		t.Error(said)
	}
	b.idle()
}

// TestResolver runs Go's own resolver against a DNS server, over UDP.
func TestResolver(t *testing.T) {
	b := newBed(t)
	u, err := b.B.ListenPacket("udp", stackpair.AddrB+":53")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	go serveDNS(u)
	if out := b.run("lookup", stackpair.AddrB+":53", "host.example."); out != "[192.0.2.1]\n" {
		t.Error(out)
	}
}

// serveDNS answers every question of an A record, and says of others that there are none.
func serveDNS(u net.PacketConn) {
	b := make([]byte, 1500)
	for {
		n, from, err := u.ReadFrom(b)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.Additionals = true, nil
		if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}},
			}}
		}
		if out, err := m.Pack(); err == nil {
			_, _ = u.WriteTo(out, from)
		}
	}
}

// TestPackets has UDP: connected sockets, others, and errors.
func TestPackets(t *testing.T) {
	b := newBed(t)
	u, err := b.B.ListenPacket("udp", stackpair.AddrB+":7")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	go func() {
		b := make([]byte, 2000)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = u.WriteTo(b[:n], from)
		}
	}()
	l, err := b.A.Listen("tcp", fmt.Sprintf(":%d", servicePort))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	out := b.run("packets", stackpair.AddrB+":7")
	for _, line := range []string{"unconnected: unconnected 198.18.0.2:7 <nil>\n", "with a peer: true\n", "raw: true\n", "service: true\n", "millrace: port 99 is that of the node's service echo: start the node without it"} {
		if !strings.Contains(out, line) {
			t.Errorf("it did not say %q: %s", line, out)
		}
	}
	b.idle()
}

// TestDatagramServer: Go's UDP servers answer by ReadFrom and WriteTo, and by ReadMsgUDP and WriteMsgUDP, whatever the family and size.
func TestDatagramServer(t *testing.T) {
	for _, tc := range []struct{ network, at, to, kind string }{
		{"udp4", "198.18.0.1:5300", "198.18.0.1:5300", "8"},
		{"udp4", ":5300", "198.18.0.1:5300", "8"},
		{"udp", ":5300", "198.18.0.1:5300", "50"},
		{"udp", ":5300", "[2001:db8::1]:5300", "50"},
	} {
		t.Run(tc.network+tc.at+tc.to, func(t *testing.T) {
			b := newBed(t)
			p := b.start("datagrams", tc.network, tc.at)
			p.says("at ")
			c, err := b.B.Dial("udp", tc.to)
			if err != nil {
				t.Skip(err)
			}
			defer c.Close()
			got := make([]byte, 1<<16)
			for i, size := range []int{5, 0, 1200, 1, 20000, 3} {
				text := strings.Repeat("x", size)
				want := text + " from " + c.LocalAddr().String()
				if i%2 != 0 {
					want = text + " by message type " + tc.kind
				}
				if _, err := c.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
				if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
					t.Fatal(err)
				}
				if n, err := c.Read(got); err != nil || string(got[:n]) != want {
					t.Fatalf("datagram %d: %d bytes, %v, %.40q, want %.40q; %s", i, n, err, got[max(n-40, 0):n], want[max(len(want)-40, 0):], &p.out)
				}
			}
			if _, err := c.Write([]byte("quit")); err != nil {
				t.Fatal(err)
			}
			if code := p.wait(); code != 0 {
				t.Errorf("code %d: %s", code, &p.out)
			}
			b.idle()
		})
	}
}

// TestRebind: an HTTP server in Go goes on with the next node, and the one after that, with its options.
func TestRebind(t *testing.T) {
	b := newBed(t)
	p := b.startWith("serve", func(s *Supervisor) { s.Rebinds = true }, "198.18.0.1:80")
	client := http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true, DialContext: b.B.DialContext}}
	get := func(path string) (string, error) {
		r, err := client.Get("http://198.18.0.1" + path)
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		return string(body), err
	}
	serves := func() {
		t.Helper()
		for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
			got, err := get("/x")
			if strings.HasSuffix(got, "asks 198.18.0.1:80 for /x") {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%q, %v; %s", got, err, &p.out)
			}
		}
	}
	for range 3 {
		serves()
		b.restart()
	}
	serves()
	if _, err := get("/quit"); err != nil {
		t.Error(err)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("code %d: %s", code, &p.out)
	}
	b.idle()
}

// TestRebindDatagrams: so does a UDP server.
func TestRebindDatagrams(t *testing.T) {
	b := newBed(t)
	p := b.startWith("datagrams", func(s *Supervisor) { s.Rebinds = true }, "udp4", ":5300")
	p.says("at ")
	c, err := b.B.Dial("udp", "198.18.0.1:5300")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := make([]byte, 99)
	for range 3 {
		for end := time.Now().Add(limit); ; {
			_, err := c.Write([]byte("x"))
			err = errors.Join(err, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
			n, e := c.Read(got)
			if err == nil && e == nil && n > 1 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%v, %v; %s", err, e, &p.out)
			}
		}
		b.restart()
	}
}

// TestInterfaces: Go's net.Interfaces shows those of the stack, or those of the kernel where the program is to see them.
func TestInterfaces(t *testing.T) {
	b := newBed(t)
	out := b.run("interfaces")
	for _, line := range []string{"1 lo 65536 up|loopback|running\n  127.0.0.1/8\n  ::1/128\n", "  198.18.0.1/24\n  2001:db8::1/64\n"} {
		if !strings.Contains(out, line) {
			t.Errorf("no %q: %s", line, out)
		}
	}
	of, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	p := b.startWith("interfaces", func(s *Supervisor) { s.KernelInterfaces = true })
	if code := p.wait(); code != 0 || !strings.Contains(p.out.String(), fmt.Sprintln(of[0].Index, of[0].Name, of[0].MTU, of[0].Flags)) || strings.Contains(p.out.String(), "198.18.0.1/24") {
		t.Errorf("code %d, %s", code, &p.out)
	}
}

// TestSignals has signals at any time, as Go's runtime sends them to its threads.
func TestSignals(t *testing.T) {
	b := newBed(t)
	echoes(t, b.B, stackpair.AddrB+":7")
	if out := b.run("signals", stackpair.AddrB+":7"); out != "200 connections\n" {
		t.Error(out)
	}
	b.idle()
}

// dialProgram connects from the peer to a program that listens.
func dialProgram(t *testing.T, b *bed, p *process) net.Conn {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		c, err := b.B.Dial("tcp", stackpair.AddrA+":8080")
		if err == nil {
			return c
		}
		if time.Now().After(end) {
			t.Fatalf("%v; %s", err, &p.out)
		}
	}
}

// TestKilledProgram frees what it has, and resets what is open.
func TestKilledProgram(t *testing.T) {
	b := newBed(t)
	p := b.start("listen", stackpair.AddrA+":8080")
	c := dialProgram(t, b, p)
	defer c.Close()
	_ = p.Process.Kill()
	if p.wait() != -1 || p.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", p.ProcessState)
	}
	_ = c.SetReadDeadline(time.Now().Add(limit))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
	b.idle()
	p = b.start("listen", stackpair.AddrA+":8080") // the port is free
	dialProgram(t, b, p).Close()
}

// TestEndOfNode is a reset for connections, and an error for new sockets: no program hangs.
func TestEndOfNode(t *testing.T) {
	b := newBed(t)
	p := b.start("listen", stackpair.AddrA+":8080")
	c := dialProgram(t, b, p)
	defer c.Close()
	for end := time.Now().Add(limit); b.server.Stats().Accepts == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not accept")
		}
	}
	if err := b.server.Close(); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != 9 || !strings.Contains(p.out.String(), "the end: ") ||
		!strings.Contains(p.out.String(), "connection reset by peer") || !strings.Contains(p.out.String(), "network is down") {
		t.Errorf("code %d, %s", code, &p.out)
	}
}

// TestAcceptAfterTheEndOfNode: a server that accepts again and again after the end of the node does not spin.
func TestAcceptAfterTheEndOfNode(t *testing.T) {
	var pauses atomic.Int32
	usual := pauseAtEnd
	pauseAtEnd = func() { pauses.Add(1) }
	defer func() { pauseAtEnd = usual }()
	b := newBed(t)
	p := b.start("retry", stackpair.AddrA+":8080")
	dialProgram(t, b, p).Close()
	if err := b.server.Close(); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != 0 || pauses.Load() < acceptsInVain-freeEnds-1 {
		t.Errorf("code %d, %d pauses of %d: %s", code, pauses.Load(), acceptsInVain-freeEnds, &p.out)
	}
}

// TestSignalsAtTheSupervisor has signals in the supervisor's own threads: one that meets it while it gives a descriptor
// must not let the program's socket(2) return 0.
func TestSignalsAtTheSupervisor(t *testing.T) {
	if calls.err != nil {
		t.Skip(calls.err)
	}
	b := newBed(t)
	p := b.start("", calls.path, "sockets", "20000")
	stop := make(chan struct{})
	var storm sync.WaitGroup
	storm.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			tasks, _ := os.ReadDir("/proc/self/task")
			for _, task := range tasks {
				if tid, err := strconv.Atoi(task.Name()); err == nil {
					_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
				}
			}
		}
	})
	code := p.wait()
	close(stop)
	storm.Wait()
	if code != 0 || p.out.String() != "20000 sockets\n" {
		t.Errorf("code %d, %s", code, &p.out)
	}
}
