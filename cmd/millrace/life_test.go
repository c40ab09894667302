package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// sometime waits until what is so.
func sometime(t *testing.T, what string, so func() bool) {
	t.Helper()
	for range 200 {
		if so() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("never: ", what)
}

// neighbor has a namespace remember a wrong link address for an address on eth0.
func neighbor(t *testing.T, ns *testnet.Namespace, addr string) {
	t.Helper()
	if out, err := ns.Run("ip", "neigh", "replace", addr, "lladdr", "02:00:00:00:de:ad", "nud", "reachable", "dev", "eth0"); err != nil {
		t.Fatal(err, out)
	}
}

// TestGatewayAnnouncesItsAddresses has a client that remembers another machine for the service's
// addresses: it learns the gateway's link address when that starts, and again when it changes.
func TestGatewayAnnouncesItsAddresses(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afpacket", "afxdp"} {
		t.Run(driver, func(t *testing.T) {
			client, middle, server := gatewaySite(t, "mr-cli-tell-"+driver)
			serve(t, server)
			for ns, addr := range map[*testnet.Namespace]string{client: "2001:db8::1/64 dev eth0", middle: "2001:db8::254/64 dev a"} {
				if out, err := ns.Run("sh", "-c", "ip -6 addr add "+addr+" nodad"); err != nil {
					t.Fatal(err, out)
				}
			}
			const first, other = "02:00:00:00:ca:fe", "02:00:00:00:be:ef"
			if out, err := middle.Run("ip", "link", "set", "dev", "a", "address", first); err != nil {
				t.Fatal(err, out)
			}
			neighbor(t, client, "198.18.0.10")
			neighbor(t, client, "2001:db8::10")

			file, socket := filepath.Join(t.TempDir(), "gw.yaml"), filepath.Join(t.TempDir(), "gw.sock")
			config := strings.Replace(fmt.Sprintf(gatewayConfig, socket, driver, driver), "198.18.0.10:80", `[198.18.0.10:80, "[2001:db8::10]:80"]`, 1)
			config = strings.Replace(config, `"198.18.1.2:8080"`, `[198.18.1.2:8080, "[2001:db8:1::2]:8080"]`, 1)
			config = strings.Replace(config, "198.18.1.10", `[198.18.1.10, "2001:db8:1::10"]`, 1)
			if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
				t.Fatal(err)
			}
			var log buffer
			cmd := program("gateway", "-c", file)
			cmd.Stdout, cmd.Stderr = &log, &log
			if err := middle.Start(cmd); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })

			knows := func(mac string, addrs ...string) {
				t.Helper()
				for _, addr := range addrs {
					sometime(t, addr+" at "+mac+" in\n"+log.String(), func() bool {
						out, err := client.Run("ip", "neigh", "show", addr)
						return err == nil && strings.Contains(out, "lladdr "+mac)
					})
				}
			}
			knows(first, "198.18.0.10", "2001:db8::10")
			awaitAnswer(t, client, &log)
			announced := func(rounds uint64) { // of three each, of two addresses on a and one on b
				t.Helper()
				sometime(t, "the last announcement", func() bool {
					var st admin.Status
					_, out, problem := tell(socket, exitOK, "status", "--json")
					return problem == "" && json.Unmarshal([]byte(out), &st) == nil && st.Counts.Originated >= rounds*3*3
				})
			}
			announced(1)

			if out, err := middle.Run("ip", "link", "set", "dev", "a", "address", other, "mtu", "1400"); err != nil {
				t.Fatal(err, out)
			}
			log.until(t, "device=a mac="+other+" mtu=1400")
			knows(other, "198.18.0.10", "2001:db8::10")
			awaitAnswer(t, client, &log)

			announced(2)
			neighbor(t, client, "198.18.0.77") // an address that a reload adds
			if err := os.WriteFile(file, []byte(strings.Replace(config, "[198.18.0.10:80", "[198.18.0.77:80, 198.18.0.10:80", 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, _, problem := tell(socket, exitOK, "reload"); problem != "" {
				t.Error(problem)
			}
			knows(other, "198.18.0.77")

			if _, _, problem := tell(socket, exitOK, "stop"); problem != "" {
				t.Error(problem)
			}
			log.until(t, " + originated ")
			if strings.Contains(log.String(), "is not") {
				t.Errorf("the counters do not balance:\n%s", &log)
			}
		})
	}
}

// TestGatewayOutlivesTheReaderOfItsLog closes the pipe that the log goes to.
func TestGatewayOutlivesTheReaderOfItsLog(t *testing.T) {
	t.Parallel()
	client, middle, server := gatewaySite(t, "mr-cli-pipe")
	serve(t, server)
	file, socket := filepath.Join(t.TempDir(), "gw.yaml"), filepath.Join(t.TempDir(), "gw.sock")
	if err := os.WriteFile(file, fmt.Appendf(nil, gatewayConfig, socket, "afpacket", "afpacket"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := program("gateway", "-c", file)
	cmd.Stdout, cmd.Stderr = w, w
	if err := middle.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	w.Close()
	r.Close()
	sometime(t, "a gateway behind "+socket, func() bool {
		code, _, _ := run("gateway", "status", "--socket", socket)
		return code == exitOK
	})
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil { // it logs what came of it
		t.Fatal(err)
	}
	if _, _, problem := tell(socket, exitOK, "weight", "web", "one", "5"); problem != "" {
		t.Error(problem)
	}
	awaitAnswer(t, client, new(buffer))
	if _, _, problem := tell(socket, exitOK, "stop"); problem != "" {
		t.Error(problem)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestCtrlCEndsACommandThatWaits has a gateway that does not answer, and one that stops in the middle of its answer.
func TestCtrlCEndsACommandThatWaits(t *testing.T) {
	for name, answer := range map[string]string{
		"no answer":      "",
		"half an answer": "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n" + `{"loop":0,"service":"web","protocol":"tcp","state":"udp"}` + "\n",
	} {
		socket := filepath.Join(t.TempDir(), "gw.sock")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, ctrlC := context.WithCancel(t.Context())
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = conn.Write([]byte(answer))
			ctrlC()
			_, _ = io.Copy(io.Discard, conn) // until the other side has gone
		}()
		var out, problem bytes.Buffer
		code := execute(ctx, []string{"gateway", "connections", "--json", "--socket", socket}, &console{out: &out, err: &problem})
		if code != exitFailure || problem.String() != "millrace: interrupted\n" {
			t.Errorf("%s: code %d, %q", name, code, &problem)
		}
	}
}

// TestTAPDeviceHasTwoLinkAddresses has Linux ask for a service at the other end of its TAP device.
func TestTAPDeviceHasTwoLinkAddresses(t *testing.T) {
	t.Parallel()
	host := testnet.For(t, "mr-cli-tap").Namespace("host")
	file, socket := filepath.Join(t.TempDir(), "gw.yaml"), filepath.Join(t.TempDir(), "gw.sock")
	config := strings.Replace(fmt.Sprintf(gatewayConfig, socket, "tap", "tap"), "\n  - {name: b, driver: tap}", "", 1)
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	var log buffer
	cmd := program("gateway", "-c", file)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	log.until(t, "msg=gateway")
	if err := host.Up("a", "198.18.0.1/24"); err != nil {
		t.Fatal(err)
	}
	var own string
	if err := host.Do(func() error {
		in, err := net.InterfaceByName("a")
		if err == nil {
			own = in.HardwareAddr.String()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	sometime(t, "an answer to ARP", func() bool {
		_, _ = ask(host) // there is no backend; the question is who answers for the address
		out, err := host.Run("ip", "neigh", "show", "198.18.0.10")
		if strings.Contains(out, own) {
			t.Fatalf("the gateway has Linux's link address: %s%s", out, &log)
		}
		return err == nil && strings.Contains(out, "lladdr")
	})
	if _, _, problem := tell(socket, exitOK, "stop"); problem != "" {
		t.Error(problem)
	}
}
