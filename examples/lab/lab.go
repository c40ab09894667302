package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// bulkBytes is the size of /bulk.
const bulkBytes = 64 << 20

// lab is one run: the network, the programs in it, and what is to be done with them.
type lab struct {
	millrace string
	driver   string
	keep     bool

	*topology
	dir      string // temporary files
	self     string // this binary, run again inside the namespaces
	running  []*exec.Cmd
	gate     *exec.Cmd
	gateLog  *os.File
	failures []string
}

// run builds everything, shows it and takes it down again, whatever happens.
func (l *lab) run(ctx context.Context) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces and AF_XDP need root; run: sudo make run")
	}
	if l.self, err = os.Executable(); err != nil {
		return err
	}
	if l.topology, err = build(); err != nil { // one lab at a time: the folder is ours from here on
		return err
	}
	defer func() { err = errors.Join(err, l.down()) }()
	l.dir = "/run/millrace-lab"
	if err := errors.Join(os.RemoveAll(l.dir), os.Mkdir(l.dir, 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(l.dir)
	if err := l.start(ctx); err != nil {
		return err
	}
	if err := l.show(ctx); err != nil {
		return err
	}
	if l.keep {
		l.explain()
		<-ctx.Done()
		fmt.Println()
	}
	if err := l.report(); err != nil {
		return err
	}
	if len(l.failures) > 0 {
		return fmt.Errorf("not as expected: %s", strings.Join(l.failures, "; "))
	}
	return nil
}

// start starts the servers and the gateway and waits until the service answers.
func (l *lab) start(ctx context.Context) error {
	for i, srv := range l.servers {
		cmd := exec.Command(l.self, "backend", "-name", l.serverNames[i])
		cmd.Stderr = os.Stderr
		if err := start(srv, detach(cmd)); err != nil {
			return err
		}
		l.running = append(l.running, cmd)
	}
	path, err := writeConfig(l.dir, l.driver)
	if err != nil {
		return err
	}
	if l.gateLog, err = os.Create(filepath.Join(l.dir, "gateway.log")); err != nil {
		return err
	}
	l.gate = detach(exec.Command(l.millrace, "gateway", "-c", path))
	l.gate.Stdout, l.gate.Stderr = l.gateLog, l.gateLog
	if err := start(l.gateway, l.gate); err != nil {
		return err
	}
	l.running = append(l.running, l.gate)
	return l.await(ctx)
}

// detach keeps a Ctrl-C on the terminal from the program, so that the lab ends it in its own time,
// and has the kernel end it if the lab is killed.
func detach(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	return cmd
}

// start starts a program inside a namespace, from the thread of the caller: the kernel takes the end
// of that thread for the lab's, so it is the main thread, which init has tied to main.
func start(ns *testnet.Namespace, cmd *exec.Cmd) (err error) {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	there, err := os.Open("/run/netns/" + ns.Name)
	if err != nil {
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", ns.Name, err)
	}
	defer func() { err = errors.Join(err, unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)) }()
	return cmd.Start()
}

func init() { runtime.LockOSThread() }

// await waits until both families of the service answer.
func (l *lab) await(ctx context.Context) error {
	deadline := time.Now().Add(10 * time.Second)
	for _, host := range []string{service4, "[" + service6 + "]"} {
		for {
			if _, err := l.client.Run("curl", "-sf", "-m", "1", "http://"+host+"/"); err == nil {
				break
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("the service does not answer on %s; the gateway says:\n%s", host, l.log())
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

// log returns what the gateway has printed so far.
func (l *lab) log() string {
	text, err := os.ReadFile(l.gateLog.Name())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// show runs the clients and prints who was served by whom.
func (l *lab) show(ctx context.Context) error {
	fmt.Printf("gateway:\n%s\n\n", indent(l.log()))
	fmt.Printf("%-34s %8s %8s %6s   %s\n", "client", "one", "two", "lost", "rate")
	for _, host := range []string{service4, "[" + service6 + "]"} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := l.curls("http://"+host+"/", 50); err != nil {
			return err
		}
		if err := l.bulk("http://" + host + "/bulk"); err != nil {
			return err
		}
		if err := l.datagrams(host + ":53"); err != nil {
			return err
		}
	}
	fmt.Println()
	for _, host := range []string{gateway4, "[" + gateway6 + "]"} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := l.showHTTP(host); err != nil {
			return err
		}
	}
	return nil
}

// curls makes n connections by curl, four at a time, each a flow of its own.
func (l *lab) curls(url string, n int) error {
	return l.repeat("curl "+url, "curl -s -m 5 '"+url+"'", "connections", n)
}

// repeat runs a command n times, four at a time. It prints who has served it.
func (l *lab) repeat(what, command, unit string, n int) error {
	t, start := tally{ByServer: map[string]int{}}, time.Now()
	out, err := l.client.Run("sh", "-c", fmt.Sprintf("seq %d | xargs -P 4 -I{} sh -c '%s'", n, strings.ReplaceAll(command, "'", `'"'"'`)))
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(out) {
		t.ByServer[name]++
	}
	t.Lost = n - t.ByServer["one"] - t.ByServer["two"]
	t.Seconds = time.Since(start).Seconds()
	l.row(what, t, fmt.Sprintf("%.0f %s/s", float64(n)/t.Seconds, unit))
	return nil
}

// showHTTP runs a client of each protocol that the gateway ends.
func (l *lab) showHTTP(host string) error {
	ca := " --cacert " + filepath.Join(l.dir, "site.pem") + " "
	for _, c := range []struct{ what, command, unit string }{
		{"HTTP/1.1 " + host, "curl -s -m 5 http://" + host + "/", "requests"},
		{"HTTP/1.1 and TLS " + host, "curl -s -m 5 --http1.1" + ca + "https://" + host + "/", "requests"},
		{"HTTP/2 " + host, "curl -s -m 5 --http2" + ca + "https://" + host + "/", "requests"},
		{"HTTP/3 " + host, l.millrace + " get --http3" + ca + "https://" + host + "/", "requests"},
		{"WebSocket " + host, "echo hello | " + l.millrace + " ws ws://" + host + "/chat", "connections"},
		{"gRPC " + host, l.self + " grpc-client" + ca + "--to " + host + ":443", "calls"},
	} {
		if err := l.repeat(c.what, c.command, c.unit, 20); err != nil {
			return err
		}
	}
	return nil
}

// bulk downloads one large file by curl.
func (l *lab) bulk(url string) error {
	start := time.Now()
	out, err := l.client.Run("sh", "-c", fmt.Sprintf("curl -s -m 60 '%s' | wc -c", url))
	if err != nil {
		return err
	}
	seconds := time.Since(start).Seconds()
	if strings.TrimSpace(out) != fmt.Sprint(bulkBytes) {
		l.failures = append(l.failures, fmt.Sprintf("%s gave %s bytes", url, strings.TrimSpace(out)))
	}
	fmt.Printf("%-34s %8s %8s %6s   %.2f Gbit/s, %d MiB\n", "curl "+url, "", "", "", bulkBytes*8/seconds/1e9, bulkBytes>>20)
	return nil
}

// datagrams runs the UDP client.
func (l *lab) datagrams(to string) error {
	out, err := l.client.Run(l.self, "udp-client", "-to", to)
	if err != nil {
		return err
	}
	var t tally
	if err := json.Unmarshal([]byte(out), &t); err != nil {
		return err
	}
	n := t.Lost
	for _, k := range t.ByServer {
		n += k
	}
	l.row("udp "+to, t, fmt.Sprintf("%.0f exchanges/s", float64(n)/t.Seconds))
	return nil
}

// row prints one line of the table and notes what should not be.
func (l *lab) row(what string, t tally, rate string) {
	fmt.Printf("%-34s %8d %8d %6d   %s\n", what, t.ByServer["one"], t.ByServer["two"], t.Lost, rate)
	if t.Lost > 0 || t.ByServer["one"] == 0 || t.ByServer["two"] == 0 {
		l.failures = append(l.failures, fmt.Sprintf("%s: %v, %d lost", what, t.ByServer, t.Lost))
	}
}

// explain says what can be tried while everything is up.
func (l *lab) explain() {
	fmt.Print("\nEverything stays up until Ctrl-C. In another terminal, as root:\n\n")
	in := func(ns *testnet.Namespace, command string) string { return "ip netns exec " + ns.Name + " " + command }
	for _, try := range [][2]string{
		{in(l.client, "curl http://"+service4+"/"), "the service, by IPv4"},
		{in(l.client, "curl 'http://["+service6+"]/'"), "and by IPv6"},
		{in(l.gateway, "ip -s link show back1"), "the interface is still the kernel's"},
		{in(l.gateway, "curl -s 127.0.0.1:9100/metrics | grep millrace_"), "what the gateway counts"},
		{l.control("status"), "services, backends, what was dropped"},
		{l.control("drain web one"), "no new connections to one of the servers"},
		{l.control("connections -n 5"), "who is connected to whom"},
		{l.control("reload"), "read " + filepath.Join(l.dir, "gateway.yaml") + " again"},
		{"tail -f " + l.gateLog.Name(), "what the gateway says"},
	} {
		fmt.Printf("  %-80s # %s\n", try[0], try[1])
	}
}

// control is a command that speaks to the lab's gateway.
func (l *lab) control(verb string) string {
	return l.millrace + " gateway " + verb + " --socket " + filepath.Join(l.dir, "gateway.sock")
}

// report ends the gateway and prints its final counters.
func (l *lab) report() error {
	before := len(l.log())
	if err := stop(l.gate); err != nil {
		return fmt.Errorf("the gateway did not end well: %w\n%s", err, l.log())
	}
	l.running = l.running[:len(l.running)-1]
	fmt.Printf("\ngateway, at its end:\n%s\n", indent(l.log()[before:]))
	return nil
}

// stop asks a program to end and waits, not for ever.
func stop(cmd *exec.Cmd) error {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	return cmd.Wait()
}

// down ends what still runs and removes the network.
func (l *lab) down() error {
	for _, cmd := range l.running {
		_ = stop(cmd) // servers end by the signal
	}
	return errors.Join(l.net.Close(), closeFile(l.gateLog))
}

func closeFile(c io.Closer) error {
	if f, ok := c.(*os.File); ok && f == nil {
		return nil
	}
	return c.Close()
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ")
}
