package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/daemon"
	"github.com/millrace/millrace/internal/testnet"
)

// gatewayConfig has one TCP service with one backend, the server.
const gatewayConfig = `
devices:
  - {name: a, driver: %s}
  - {name: b, driver: %s}
snat: 198.18.1.10
services:
  - name: web
    address: 198.18.0.10:80
    backends: [{name: one, address: "198.18.1.2:8080"}]
    health: {interval: 100ms, timeout: 100ms, rise: 1, fall: 1}
`

// buffer collects what a process prints, for a test that reads meanwhile.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// until waits until the buffer has a text.
func (b *buffer) until(t *testing.T, want string) {
	t.Helper()
	for range 200 {
		if strings.Contains(b.String(), want) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%q never comes in:\n%s", want, b)
}

// serve answers each connection to the server's port 8080 with a word, and closes it.
func serve(t *testing.T, ns *testnet.Namespace) {
	t.Helper()
	var l net.Listener
	err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp", "198.18.1.2:8080")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("served"))
			conn.Close()
		}
	}()
}

// ask connects to the service and returns what it answers.
func ask(ns *testnet.Namespace) (answer string, err error) {
	err = ns.Do(func() error {
		conn, err := net.DialTimeout("tcp", "198.18.0.10:80", time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		buf := make([]byte, 16)
		n, err := conn.Read(buf)
		answer = string(buf[:n])
		return err
	})
	return answer, err
}

func TestGatewayServesReloadsAndEndsWithABalance(t *testing.T) {
	for _, driver := range []string{"afpacket", "afxdp"} {
		t.Run(driver, func(t *testing.T) {
			n := testnet.For(t, "mr-cli-gw-"+driver)
			client, middle, server := n.Namespace("client"), n.Namespace("middle"), n.Namespace("server")
			for _, err := range []error{
				n.Link(client, "eth0", middle, "a"),
				n.Link(server, "eth0", middle, "b"),
				client.Up("eth0", "198.18.0.1/24"),
				server.Up("eth0", "198.18.1.2/24"),
				middle.Up("a", "198.18.0.254/24"),
				middle.Up("b", "198.18.1.254/24"),
				client.NoOffload("eth0"), // AF_XDP sees packets before Linux would have summed them
				server.NoOffload("eth0"),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			serve(t, server)
			file := filepath.Join(t.TempDir(), "gw.yaml")
			write := func(text string) {
				t.Helper()
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write(fmt.Sprintf(gatewayConfig, driver, driver))

			var out, log buffer
			cmd := program("gateway", "--json", "-c", file)
			cmd.Stdout, cmd.Stderr = &out, &log
			if err := middle.Start(cmd); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			log.until(t, `"msg":"gateway"`)
			served := func() {
				t.Helper()
				var last error
				for range 20 {
					answer, err := ask(client)
					if answer == "served" {
						return
					}
					last = err
					time.Sleep(100 * time.Millisecond)
				}
				t.Fatalf("no answer: %v\n%s", last, &log)
			}
			served()

			write("devices: [oops\n")
			_ = cmd.Process.Signal(syscall.SIGHUP)
			log.until(t, "the old configuration stays")
			log.until(t, file+":")
			served()

			link := func(state string) {
				t.Helper()
				if out, err := server.Run("ip", "link", "set", "eth0", state); err != nil {
					t.Fatal(err, out)
				}
			}
			link("down")
			log.until(t, `"msg":"link","device":"b","state":"down, or without carrier"`)
			link("up")
			log.until(t, `"msg":"link","device":"b","state":"up"`)
			served()

			write(fmt.Sprintf(gatewayConfig, driver, driver))
			_ = cmd.Process.Signal(syscall.SIGHUP)
			log.until(t, "the new configuration is in use")
			served()

			_ = cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, &log)
			}
			for line := range strings.Lines(log.String()) {
				if !json.Valid([]byte(line)) {
					t.Errorf("not JSON: %s", line)
				}
			}
			var s daemon.Summary
			if err := json.Unmarshal([]byte(out.String()), &s); err != nil {
				t.Fatalf("%v in %q", err, out.String())
			}
			sum := s.Forwarded + s.Delivered
			for _, n := range s.Dropped {
				sum += n
			}
			if s.Received == 0 || s.Forwarded == 0 || s.Received != sum {
				t.Errorf("the counters do not balance: %+v", s)
			}
		})
	}
}
