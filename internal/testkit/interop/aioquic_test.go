package interop

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/quic"
)

// aioquicPython returns a Python that has aioquic: that of MILLRACE_AIOQUIC, or python3.
func aioquicPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("MILLRACE_AIOQUIC")
	must := python != ""
	if !must {
		python = "python3"
	}
	if out, err := exec.Command(python, "-c", "import aioquic.asyncio").CombinedOutput(); err != nil {
		if must {
			t.Fatalf("%s: %v\n%s", python, err, out)
		}
		t.Skip("python3 has no aioquic: `make interop-quic` installs it and runs this test")
	}
	return python
}

// aioquicPaths are what lies between the ends.
var aioquicPaths = []struct {
	name  string
	loses func(b []byte) bool
}{
	{"loopback", func([]byte) bool { return false }},
	{"2 % loss", func([]byte) bool { return rand.IntN(50) == 0 }},
	{"1200 bytes", func(b []byte) bool { return len(b) > 1200 }},
}

const aioquicBytes, aioquicConns = 200_000, 3

// TestAioquic: aioquic as client and as server, over kernel sockets.
func TestAioquic(t *testing.T) {
	python := aioquicPython(t)
	tc, client := certificate(t, "echo")
	cert, key := writePEM(t, tc)
	narrow := &quic.Config{PacketSize: 1200}
	for _, path := range aioquicPaths {
		t.Run("server/"+path.name, func(t *testing.T) {
			port := startAioquic(t, python, cert, key)
			lossy := lossyRelay(t, "127.0.0.1:"+port, path.loses)
			for range aioquicConns {
				c := dialQUIC(t, kernelTransport(t), lossy, client, narrow)
				echoes(t, c, aioquicBytes)
				_ = c.CloseWithError(0, "")
			}
		})
		t.Run("client/"+path.name, func(t *testing.T) {
			tr := kernelTransport(t)
			var served atomic.Int64
			serveEcho(t, tr, tc, narrow, &served)
			_, port, _ := net.SplitHostPort(lossyRelay(t, tr.LocalAddr().String(), path.loses))
			cmd := exec.Command(python, "testdata/aioquic_echo.py", "client", port, strconv.Itoa(aioquicBytes), strconv.Itoa(aioquicConns))
			out, err := cmd.CombinedOutput()
			if err != nil || !bytes.HasSuffix(out, []byte("ok\n")) || served.Load() != aioquicConns {
				t.Errorf("%d streams, %v\n%s", served.Load(), err, out)
			}
		})
	}
}

func kernelTransport(t *testing.T) *quic.Transport {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return openQUIC(t, c, nil, quic.TransportConfig{})
}

// startAioquic starts the server and returns its port.
func startAioquic(t *testing.T, python, cert, key string) string {
	t.Helper()
	return startAioquicScript(t, python, "testdata/aioquic_echo.py", cert, key)
}

// startAioquicScript starts a server that prints its port.
func startAioquicScript(t *testing.T, python, script, cert, key string) string {
	t.Helper()
	cmd := exec.Command(python, script, "server", cert, key)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// writePEM writes the certificate and key of a configuration to files.
func writePEM(t *testing.T, tc *tls.Config) (cert, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(tc.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", tc.Certificates[0].Certificate[0]), write("key.pem", "PRIVATE KEY", der)
}

// lossyRelay forwards datagrams between any clients and a server, but for those that are lost.
func lossyRelay(t *testing.T, server string, loses func(b []byte) bool) (addr string) {
	t.Helper()
	front, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	to, err := net.ResolveUDPAddr("udp4", server)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	backs := map[string]*net.UDPConn{}
	t.Cleanup(func() {
		_ = front.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, b := range backs {
			_ = b.Close()
		}
	})
	pump := func(from, out *net.UDPConn, dst net.Addr) {
		buf := make([]byte, 65536)
		for {
			n, _, err := from.ReadFrom(buf)
			if err != nil {
				return
			}
			if !loses(buf[:n]) {
				_, _ = out.WriteTo(buf[:n], dst)
			}
		}
	}
	go func() {
		buf := make([]byte, 65536)
		for {
			n, client, err := front.ReadFrom(buf)
			if err != nil {
				return
			}
			mu.Lock()
			back := backs[client.String()]
			if back == nil {
				if back, err = net.ListenUDP("udp4", nil); err != nil {
					mu.Unlock()
					return
				}
				backs[client.String()] = back
				go pump(back, front, client)
			}
			mu.Unlock()
			if !loses(buf[:n]) {
				_, _ = back.WriteTo(buf[:n], to)
			}
		}
	}()
	return front.LocalAddr().String()
}
