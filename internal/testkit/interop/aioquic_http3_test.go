package interop

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
)

// TestAioquicHTTP3: aioquic, whose QPACK is ls-qpack with the dynamic table, as client and as server.
func TestAioquicHTTP3(t *testing.T) {
	python := aioquicPython(t)
	server, client := certificate(t, "h3")
	t.Run("client", func(t *testing.T) {
		_, port, err := net.SplitHostPort(millraceServer(t, server))
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(python, "testdata/aioquic_h3.py", "client", port, "20").CombinedOutput()
		if err != nil || !bytes.HasSuffix(out, []byte("ok\n")) {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("server", func(t *testing.T) {
		cert, key := writePEM(t, server)
		port := startAioquicScript(t, python, "testdata/aioquic_h3.py", cert, key)
		rt := &http3.Transport{TLS: client, DisableCompression: true}
		defer rt.Close()
		c := &http.Client{Transport: rt, Timeout: 30 * time.Second}
		for i := range 20 {
			sent := strings.Repeat("z", i*3000)
			resp, err := c.Post("https://127.0.0.1:"+port+"/", "text/plain", strings.NewReader(sent))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || string(got) != sent || resp.Header.Get("X-Method") != "POST" {
				t.Fatalf("%d bytes of %d, %v, %v", len(got), len(sent), err, resp.Header)
			}
		}
	})
}
