package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// natsPrograms is a server whose authors' client is a Go program, too. MILLRACE_NATS names the folder of both.
func natsPrograms() []program {
	return []program{{
		"NATS",
		[]string{"sh", "-c", `"$MILLRACE_NATS/nats-server" --version`},
		"`--seccomp --on-node-loss=rebind`: nats-server, and nats-bench of its authors with 2 publishers and 2 subscribers, from the peer and from the same stack; two clients that compare each message, before, during and after a restart of the node, of which the server knows nothing", runNATS,
	}}
}

// Messages of a run of nats-bench, which each subscriber gets.
const natsMessages = 100_000

func runNATS(t *testing.T, on *bed) string {
	b := on.filtered(t)
	if b.tier != onKernel {
		b.host.prefix = []string{b.millrace, "exec", "--seccomp", "--on-node-loss=rebind", "--socket", b.socket, "--"}
	}
	client := filepath.Join(b.dir, "goprogram")
	build := exec.Command("go", "build", "-o", client, "./testdata/goprogram")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	folder := os.Getenv("MILLRACE_NATS")
	server := b.host.start(t, filepath.Join(folder, "nats-server"), "-a", hostAddr, "-p", "4222")
	b.opens(t, server, 4222)
	bench := func() {
		for _, from := range []*place{b.peer, b.host} {
			out := from.run(t, filepath.Join(folder, "nats-bench"), "-s", "nats://"+hostAddr+":4222", "-np", "2", "-ns", "2", "-n", strconv.Itoa(natsMessages), "-ms", "128", "bench")
			if !strings.Contains(out, "Sub stats:") {
				t.Errorf("nats-bench: %s", last(out, 2000))
			}
		}
	}
	bench()
	end := filepath.Join(b.dir, "end")
	clients := []*process{b.peer.start(t, client, "nats", hostAddr+":4222", end), b.host.start(t, client, "nats", hostAddr+":4222", end)}
	restarts := 0
	time.Sleep(2 * time.Second) // they are at work
	if b.tier != onKernel {
		on.restart(t)
		b.opens(t, server, 4222)
		restarts++
		time.Sleep(2 * time.Second)
	}
	writeFile(t, end, "")
	messages := 0
	for i, c := range clients {
		want := 1 + restarts
		if i == 1 && b.tier == onTier0 {
			want = 1 // two programs of one stack, whose connection does not need the node
		}
		out, code := c.finish(t, patience)
		var n, connections int
		if _, err := fmt.Sscanf(out[strings.LastIndex("\n"+strings.TrimSpace(out), "\n"):], "%d messages, %d connections", &n, &connections); err != nil || code != 0 || connections != want {
			t.Errorf("%s: code %d, %s", c, code, last(out, 2000))
		}
		messages += n
	}
	if messages == 0 {
		t.Error("no message came")
	}
	if restarts > 0 {
		bench()
	}
	if log := server.log.String(); len(log) > 1<<20 {
		t.Errorf("the server has written %d bytes: %s", len(log), last(log, 2000))
	}
	server.stopWith(t, 15, 1)
	if restarts == 0 {
		return fmt.Sprintf("2 runs of %d messages", natsMessages)
	}
	return fmt.Sprintf("4 runs of %d messages, %d restart", natsMessages, restarts)
}
