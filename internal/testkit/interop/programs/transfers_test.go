package programs

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// transferPrograms are those whose purpose is to move bytes.
func transferPrograms() []program {
	return []program{
		{"curl", []string{"curl", "--version"}, "GET, PUT and 20 transfers at a time by HTTP/1.1, HTTPS with HTTP/2, IPv4 and IPv6: hashes; refused connections, a name of /etc/hosts", runCurl},
		{"wget", []string{"wget", "--version"}, "a download by IPv4 and IPv6 and a resumed one: hashes; a refused connection", runWget},
		{"iperf3", []string{"iperf3", "--version"}, "as client and as server: TCP both ways, 4 connections, both ways at once, UDP both ways", runIperf3},
	}
}

func runCurl(t *testing.T, b *bed) string {
	const size = 30_000_000
	file, sum := content(t, b.dir, size)
	name := filepath.Base(file)
	plain, secure := b.webServer(t, b.dir)
	curl := func(args ...string) string {
		t.Helper()
		return b.host.run(t, append([]string{"curl", "-sS", "--fail", "--insecure", "--max-time", "50"}, args...)...)
	}
	got := filepath.Join(b.dir, "got")
	for _, front := range []string{
		"http://" + net.JoinHostPort(peerAddr, plain), "http://" + net.JoinHostPort(peerAddr6, plain),
		"https://" + net.JoinHostPort(peerAddr, secure), "https://" + net.JoinHostPort(peerAddr6, secure),
	} {
		version := curl("-o", got, "-w", "%{http_version} %{local_ip}", front+"/"+name)
		equal(t, "GET "+front, got, sum)
		if want := map[bool]string{false: "1.1", true: "2"}[strings.HasPrefix(front, "https")]; !strings.HasPrefix(version, want+" "+hostAddr[:4]) && !strings.HasPrefix(version, want+" "+hostAddr6) {
			t.Errorf("%s: HTTP version and local address %s", front, version)
		}
		if answer := curl("-T", file, front+"/x"); answer != sum {
			t.Errorf("PUT %s: the server got %s, want %s", front, answer, sum)
		}
	}
	small, smallSum := content(t, b.dir, 1_000_000)
	args := []string{"--parallel", "--parallel-max", "20"}
	for i := range 20 {
		args = append(args, "-o", fmt.Sprint(got, i), "http://"+net.JoinHostPort(peerAddr, plain)+"/"+filepath.Base(small))
	}
	curl(args...)
	for i := range 20 {
		equal(t, "one of 20", fmt.Sprint(got, i), smallSum)
	}
	if out, code := b.host.try(t, patience, "curl", "-sS", "http://"+peerAddr+":9/"); code != 7 {
		t.Errorf("a refused connection: code %d, want 7: %s", code, out)
	}
	if out, code := b.host.try(t, patience, "curl", "-sS", "http://localhost:9/"); code != 7 {
		t.Errorf("a refused connection to localhost: code %d, want 7: %s", code, out)
	}
	return fmt.Sprintf("8 transfers of %d MB, 20 of 1 MB", size/1_000_000)
}

func runWget(t *testing.T, b *bed) string {
	const size = 30_000_000
	file, sum := content(t, b.dir, size)
	plain, _ := b.webServer(t, b.dir)
	got := filepath.Join(b.dir, "wgot")
	for _, addr := range []string{peerAddr, peerAddr6} {
		url := "http://" + net.JoinHostPort(addr, plain) + "/" + filepath.Base(file)
		b.host.run(t, "wget", "-q", "-O", got, url)
		equal(t, "download", got, sum)
	}
	must(t, os.Truncate(got, size/3))
	b.host.run(t, "wget", "-q", "-c", "-O", got, "http://"+net.JoinHostPort(peerAddr, plain)+"/"+filepath.Base(file))
	equal(t, "resumed download", got, sum)
	if out, code := b.host.try(t, patience, "wget", "-q", "-t", "1", "-O", "/dev/null", "http://"+peerAddr+":9/"); code != 4 {
		t.Errorf("a refused connection: code %d, want 4: %s", code, out)
	}
	return fmt.Sprintf("3 transfers of %d MB", size/1_000_000)
}

// iperf3Report is a part of what iperf3 says of a run.
type iperf3Report struct {
	Error string
	End   struct {
		Sum         struct{ Packets, Lost_packets float64 } // of UDP
		SumReceived struct{ Bytes float64 }                 `json:"sum_received"`
		SumBidir    struct{ Bytes float64 }                 `json:"sum_received_bidir_reverse"`
	}
}

// iperf3 runs a client. The server closes its listener when a run ends, and opens another one: a client that comes
// between them is refused, on the kernel's stack too. So the server's line about the next listener is awaited.
func iperf3(t *testing.T, server *process, on *place, args ...string) (r iperf3Report) {
	t.Helper()
	listeners := func() int { return strings.Count(server.log.String(), "Server listening") }
	before := listeners()
	out, _ := on.try(t, patience, append([]string{"iperf3", "-J", "-p", "5201"}, args...)...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	await(t, "iperf3 -s after a run", func() bool { return listeners() > before || server.ended() })
	return r
}

func runIperf3(t *testing.T, b *bed) string {
	var bytes float64
	for _, side := range []struct {
		name           string
		server, client *place
	}{{"client", b.peer, b.host}, {"server", b.host, b.peer}} {
		server := side.server.start(t, "iperf3", "-s", "-p", "5201", "--forceflush")
		await(t, "iperf3 -s", func() bool { return strings.Contains(server.log.String(), "listening") })
		for _, mode := range [][]string{
			{"-n", "100M"},
			{"-n", "100M", "-R"},
			{"-n", "50M", "-P", "4"},
			{"-t", "2", "--bidir"},
			{"-6", "-n", "20M"},
			{"-u", "-b", "50M", "-l", "1400", "-t", "2"},
			{"-u", "-b", "50M", "-l", "1400", "-t", "2", "-R"},
		} {
			addr := side.server.addr
			if mode[0] == "-6" {
				addr = side.server.addr6
			}
			r := iperf3(t, server, side.client, append([]string{"-c", addr}, mode...)...)
			what := fmt.Sprintf("as %s, %v", side.name, mode)
			switch {
			case r.Error != "":
				t.Errorf("%s: %s", what, r.Error)
			case mode[0] == "-u":
				// What a loaded machine loses is not the stack's doing: half must arrive.
				if r.End.Sum.Packets < 1000 || r.End.Sum.Lost_packets > r.End.Sum.Packets/2 {
					t.Errorf("%s: %v of %v datagrams lost", what, r.End.Sum.Lost_packets, r.End.Sum.Packets)
				}
			case r.End.SumReceived.Bytes < 1e6 || mode[len(mode)-1] == "--bidir" && r.End.SumBidir.Bytes < 1e6:
				t.Errorf("%s: %v bytes received", what, r.End.SumReceived.Bytes)
			}
			bytes += r.End.SumReceived.Bytes
		}
		server.stopWith(t, unix.SIGTERM, 1)
	}
	return fmt.Sprintf("14 runs, %.0f MB", bytes/1e6)
}
