package interop

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/websocket"
)

// chromium is the program of Debian's package chromium-headless-shell.
const chromium = "chromium-headless-shell"

// browser is a tab of Chromium, driven by the DevTools protocol over our WebSocket client.
type browser struct {
	conn *websocket.Conn
	last int
}

// browse starts Chromium on the host of the peers, which has no way out of the testbed. The name "b" is our end; the
// certificate is accepted by its key, and the origins in quicOn are reached by HTTP/3 at once.
func (b *testbed) browse(t *testing.T, tc *tls.Config, quicOn ...string) *browser {
	t.Helper()
	needs(t, chromium, "make interop-peers")
	cert, err := x509.ParseCertificate(tc.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	key := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	dir := t.TempDir()
	cmd := exec.Command(chromium, "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run",
		"--user-data-dir="+dir, "--remote-debugging-port=0", "--window-size=520,320",
		"--host-resolver-rules=MAP b "+ourAddr, "--ignore-certificate-errors-spki-list="+base64.StdEncoding.EncodeToString(key[:]),
		"--origin-to-force-quic-on="+strings.Join(quicOn, ","), "--enable-features=EnableWebsocketsOverHttp3", "about:blank")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the program is a script, whose end is not that of the browser
	if err := b.linux.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := websocket.Dial(ctx, b.tab(t, ctx, filepath.Join(dir, "DevToolsActivePort")), &websocket.DialOptions{
		DialContext: b.dialLinux, Conn: websocket.ConnOptions{Limits: websocket.Limits{Message: -1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	return &browser{conn: c}
}

// tab returns the address of the tab, once Chromium has written its port to a file.
func (b *testbed) tab(t *testing.T, ctx context.Context, file string) string {
	t.Helper()
	hc := &http.Client{Transport: &http.Transport{DialContext: b.dialLinux, DisableKeepAlives: true}}
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(file)
		port, _, ok := strings.Cut(string(text), "\n")
		if err != nil || !ok {
			continue
		}
		resp, err := hc.Get("http://127.0.0.1:" + port + "/json/list")
		if err != nil {
			t.Fatal(err)
		}
		var tabs []struct {
			Type string
			URL  string `json:"webSocketDebuggerUrl"`
		}
		err = json.NewDecoder(resp.Body).Decode(&tabs)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, tab := range tabs {
			if tab.Type == "page" {
				return tab.URL
			}
		}
	}
	t.Fatal("Chromium has no tab")
	return ""
}

// call calls a method of the DevTools protocol and decodes its result.
func (br *browser) call(t *testing.T, method string, params, result any) {
	t.Helper()
	br.last++
	request, err := json.Marshal(map[string]any{"id": br.last, "method": method, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	_ = br.conn.SetReadDeadline(deadline())
	if err := br.conn.WriteMessage(websocket.Text, request); err != nil {
		t.Fatal(err)
	}
	for {
		_, p, err := br.conn.ReadMessage(nil)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if err := json.Unmarshal(p, &answer); err != nil {
			t.Fatal(err)
		}
		switch {
		case answer.ID != br.last: // an event
			continue
		case answer.Error != nil:
			t.Fatalf("%s: %s", method, answer.Error.Message)
		case result != nil:
			if err := json.Unmarshal(answer.Result, result); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
}

// open loads a page.
func (br *browser) open(t *testing.T, url string) {
	t.Helper()
	br.call(t, "Page.enable", nil, nil)
	var loaded struct{ ErrorText string }
	br.call(t, "Page.navigate", map[string]any{"url": url}, &loaded)
	if loaded.ErrorText != "" {
		t.Fatalf("%s: %s", url, loaded.ErrorText)
	}
	for end := deadline(); br.eval(t, "() => location.href + ' ' + document.readyState") != url+" complete"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s is not loaded", url)
		}
	}
}

// eval runs a function of JavaScript in the page, with arguments, and returns the string that it resolves to.
func (br *browser) eval(t *testing.T, function string, args ...any) string {
	t.Helper()
	list, err := json.Marshal(append([]any{}, args...)) // never null
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	br.call(t, "Runtime.evaluate", map[string]any{
		"expression": fmt.Sprintf("(%s)(...%s)", function, list), "awaitPromise": true, "returnByValue": true,
	}, &answer)
	if x := answer.ExceptionDetails; x != nil {
		t.Fatalf("%s %s", x.Text, x.Exception.Description)
	}
	return fmt.Sprint(answer.Result.Value)
}

// screenshot returns a PNG of the page.
func (br *browser) screenshot(t *testing.T) []byte {
	t.Helper()
	var shot struct{ Data []byte }
	br.call(t, "Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	return shot.Data
}
