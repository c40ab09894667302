package interop

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/h3cases"
	"github.com/millrace/millrace/quic"
	quicgo "github.com/quic-go/quic-go"
	quicgoh3 "github.com/quic-go/quic-go/http3"
)

// h3Handler serves what the tests ask for, and what package h3cases wants.
func h3Handler(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
	case r.URL.Path == "/echo":
		w.Header().Set("Trailer", "X-Trailer")
		_, _ = io.Copy(w, r.Body)
		w.Header().Set("X-Trailer", "end")
	case r.URL.Path == "/large":
		_, _ = w.Write(bytes.Repeat([]byte("0123456789abcdef"), 1<<16))
	case r.URL.Path == "/cookie" && r.Header.Get("Cookie") != "a=1; b=2":
		w.WriteHeader(http.StatusInternalServerError)
	default:
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Method", r.Method)
	}
}

// quicgoServer runs quic-go's server and returns its address.
func quicgoServer(t *testing.T, tc *tls.Config) string {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &quicgoh3.Server{Handler: http.HandlerFunc(h3Handler), TLSConfig: tc.Clone(), EnableDatagrams: true, QUICConfig: &quicgo.Config{EnableDatagrams: true}}
	go func() { _ = s.Serve(pc) }()
	t.Cleanup(func() {
		_ = s.Close()
		_ = pc.Close()
	})
	return pc.LocalAddr().String()
}

// millraceServer runs ours.
func millraceServer(t *testing.T, tc *tls.Config) string {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http3.Server{Handler: http.HandlerFunc(h3Handler), TLS: tc, Machine: http3.MachineOptions{Datagrams: true}}
	go func() { _ = s.Serve(pc) }()
	t.Cleanup(func() { _ = s.Close() })
	return pc.LocalAddr().String()
}

func TestHTTP3Interop(t *testing.T) {
	server, client := certificate(t, "h3")
	ours := &http3.Transport{TLS: client}
	theirs := &quicgoh3.Transport{TLSClientConfig: client.Clone()}
	defer ours.Close()
	defer theirs.Close()
	for name, c := range map[string]struct {
		rt   http.RoundTripper
		addr string
	}{
		"our client, quic-go's server":    {ours, quicgoServer(t, server)},
		"quic-go's client, our server":    {theirs, millraceServer(t, server)},
		"our client, our server":          {ours, millraceServer(t, server)},
		"our client, quic-go's, a second": {ours, quicgoServer(t, server)},
	} {
		t.Run(name, func(t *testing.T) {
			h3Exchanges(t, &http.Client{Transport: c.rt, Timeout: 30 * time.Second}, "https://"+c.addr)
		})
	}
}

// h3Exchanges makes requests of all kinds.
func h3Exchanges(t *testing.T, c *http.Client, url string) {
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS"} {
		req, _ := http.NewRequest(method, url+"/", nil)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 200 || resp.Header.Get("X-Method") != method {
			t.Errorf("%s: %s %v", method, resp.Status, resp.Header)
		}
	}
	sent := bytes.Repeat([]byte("echo"), 100_000)
	resp, err := c.Post(url+"/echo", "application/octet-stream", bytes.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(got, sent) || resp.Trailer.Get("X-Trailer") != "end" {
		t.Errorf("echo: %d bytes, %v, trailers %v", len(got), err, resp.Trailer)
	}
	_ = resp.Body.Close()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			path, want := "/large", 1<<20
			if i%4 > 0 {
				path, want = "/echo", i*1000
			}
			resp, err := c.Post(url+path, "text/plain", strings.NewReader(strings.Repeat("x", i*1000)))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != int64(want) {
				t.Errorf("%s: %d bytes, want %d, %v", path, n, want, err)
			}
		})
	}
	all.Wait()
}

// TestHTTP3SuiteAgainstOthers runs the suite of package h3cases against other implementations, for comparison: their failures
// are reported, and are none of ours. What must hold is that the suite can tell good from bad: that ours passes all is tested in
// package http3.
func TestHTTP3SuiteAgainstOthers(t *testing.T) {
	if os.Getenv("MILLRACE_H3SUITE") == "" {
		t.Skip("MILLRACE_H3SUITE is not set: the comparison takes two minutes for each implementation")
	}
	server, client := certificate(t, "h3")
	for name, c := range map[string]struct {
		start func(t *testing.T) (addr string)
		least int // cases that pass
	}{
		"quic-go":       {func(t *testing.T) string { return quicgoServer(t, server) }, 100},
		"h3 over quinn": {func(t *testing.T) string { return programServer(t, server, "quinn-peer") }, 60},
		"quiche":        {func(t *testing.T) string { return programServer(t, server, "quiche-peer") }, 60},
	} {
		t.Run("server/"+name, func(t *testing.T) {
			t.Parallel()
			results := suiteAgainstServer(t, c.start(t), client)
			if results.log(t); results["server"].passed < c.least {
				t.Error("too few cases pass: the suite, or how it is run, is wrong")
			}
		})
	}
	t.Run("client/quic-go", func(t *testing.T) {
		t.Parallel()
		results := suiteAgainstQuicgoClient(t, server, client)
		if results.log(t); results["client"].passed < 60 {
			t.Error("too few cases pass: the suite, or how it is run, is wrong")
		}
	})
}

// programServer starts one of the programs of make interop-peers on the loopback.
func programServer(t *testing.T, tc *tls.Config, name string) string {
	t.Helper()
	cert, key := writePEM(t, tc)
	cmd := exec.Command(built(t, name), "h3", "server", cert, key, "127.0.0.1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strings.TrimSpace(port))
}

// suiteTime is how long a case waits where nothing happens.
const suiteTime = time.Second

func suiteAgainstServer(t *testing.T, server string, client *tls.Config) h3Results {
	t.Helper()
	addr, err := net.ResolveUDPAddr("udp4", server)
	if err != nil {
		t.Fatal(err)
	}
	tr, results := kernelTransport(t), h3Results{}
	for _, c := range h3cases.ServerCases() {
		if c.Dynamic || !strings.HasPrefix(c.Section, "9") {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), suiteTime)
		conn, err := tr.Dial(ctx, addr, client, &quic.Config{Datagrams: true})
		if err != nil {
			t.Fatal(err)
		}
		results.add("server", c, h3cases.RunServer(ctx, conn, c))
		cancel()
	}
	return results
}

func suiteAgainstQuicgoClient(t *testing.T, server, client *tls.Config) h3Results {
	t.Helper()
	tr, results := kernelTransport(t), h3Results{}
	for _, c := range h3cases.ClientCases() {
		if c.Dynamic {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), suiteTime)
		l, err := tr.Listen(server, nil)
		if err != nil {
			t.Fatal(err)
		}
		rt := &quicgoh3.Transport{TLSClientConfig: client.Clone()}
		results.add("client", c, h3cases.RunClient(ctx, l, c, func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+tr.LocalAddr().String(), nil)
			if err != nil {
				return err
			}
			resp, err := rt.RoundTrip(req)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			return errors.Join(err, resp.Body.Close())
		}))
		cancel()
		_ = rt.Close()
		_ = l.Close()
	}
	return results
}

// h3Results counts by role.
type h3Results map[string]*h3Result

type h3Result struct {
	passed, failed int
	ran, sections  map[string]int // by RFC, and failures by section
	text           []string
}

func (r h3Results) add(role string, c h3cases.Case, err error) {
	x := r[role]
	if x == nil {
		x = &h3Result{ran: map[string]int{}, sections: map[string]int{}}
		r[role] = x
	}
	rfc, _, _ := strings.Cut(c.Section, " ")
	x.ran[rfc]++
	if err == nil {
		x.passed++
		return
	}
	x.failed++
	x.sections["RFC "+rfc+" in all"]++
	x.sections[c.Section]++
	x.text = append(x.text, fmt.Sprintf("RFC %s: %s: %v", c.Section, c.Name, err))
}

func (r h3Results) log(t *testing.T) {
	for role, x := range r {
		t.Logf("%s: %d pass, %d fail; cases by RFC: %v", role, x.passed, x.failed, x.ran)
		for _, s := range slices.Sorted(maps.Keys(x.sections)) {
			t.Logf("  %s: %d fail", s, x.sections[s])
		}
		for _, line := range x.text {
			t.Log("  " + line)
		}
	}
}
