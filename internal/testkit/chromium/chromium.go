// Package chromium runs a headless Chromium for tests of pages, over the DevTools protocol.
package chromium

import (
	"context"
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

// Page is a tab of a browser. It belongs to one test.
type Page struct {
	t      *testing.T
	conn   *websocket.Conn
	asked  int
	faults []string
}

// limit bounds each step: a browser under load takes its time.
const limit = time.Minute

// Open starts a browser, which ends with the test. Without one the test is skipped.
func Open(t *testing.T) *Page {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		program, err = exec.LookPath("chromium-headless-shell") // which make interop-peers installs
	}
	if err != nil {
		t.Skip("chromium is not installed")
	}
	profile, err := os.MkdirTemp("", "millrace-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--user-data-dir="+profile, "--remote-debugging-port=0", "about:blank")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the program may be a script, whose end would leave the browser
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		_ = os.Remove(profile)
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = cmd.Wait(); removeProfile(t, profile) })
	p := &Page{t: t}
	port := ""
	p.await("the browser listens", func() bool {
		text, _ := os.ReadFile(filepath.Join(profile, "DevToolsActivePort"))
		port, _, _ = strings.Cut(string(text), "\n")
		return port != ""
	})
	p.connect(port)
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		p.call(domain+".enable", nil)
	}
	return p
}

// removeProfile removes the folder of a browser that was killed. Its processes end one after the other, and those that Wait does not wait for
// may still make files there while the folder is removed.
func removeProfile(t *testing.T, dir string) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		err := os.RemoveAll(dir)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Error(err)
			return
		}
	}
}

// connect opens the connection to the first tab.
func (p *Page) connect(port string) {
	p.t.Helper()
	p.await("there is a tab", func() bool {
		resp, err := http.Get("http://127.0.0.1:" + port + "/json/list")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var tabs []struct {
			Type string `json:"type"`
			URL  string `json:"webSocketDebuggerUrl"`
		}
		if json.NewDecoder(resp.Body).Decode(&tabs) != nil {
			return false
		}
		for _, tab := range tabs {
			if tab.Type == "page" {
				ctx, stop := context.WithTimeout(context.Background(), limit)
				defer stop()
				p.conn, err = websocket.Dial(ctx, tab.URL, nil)
				return err == nil
			}
		}
		return false
	})
	p.t.Cleanup(func() { _ = p.conn.CloseNow() })
}

func (p *Page) await(what string, f func() bool) {
	p.t.Helper()
	for end := time.Now().Add(limit); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// call sends a command and returns its result.
func (p *Page) call(method string, params any) json.RawMessage {
	p.t.Helper()
	p.asked++
	if params == nil {
		params = struct{}{}
	}
	text, err := json.Marshal(map[string]any{"id": p.asked, "method": method, "params": params})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.conn.WriteMessage(websocket.Text, text); err != nil {
		p.t.Fatal(err)
	}
	for {
		if err := p.conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
			p.t.Fatal(err)
		}
		_, b, err := p.conn.ReadMessage(nil)
		if err != nil {
			p.t.Fatalf("%s: %v", method, err)
		}
		var m struct {
			ID     int             `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(b, &m); err != nil {
			p.t.Fatal(err)
		}
		switch {
		case m.Method == "Runtime.exceptionThrown" || m.Method == "Log.entryAdded" || m.Method == "Runtime.consoleAPICalled":
			p.faults = append(p.faults, string(m.Params))
		case m.ID == p.asked && m.Error != nil:
			p.t.Fatalf("%s: %s", method, m.Error)
		case m.ID == p.asked:
			return m.Result
		}
	}
}

// Go opens a URL.
func (p *Page) Go(url string) {
	p.t.Helper()
	p.call("Page.navigate", map[string]any{"url": url})
}

// View sets the size of the window, in pixels of CSS, and whether the user prefers dark pages.
func (p *Page) View(width, height int, dark bool) {
	p.t.Helper()
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
	scheme := map[bool]string{true: "dark", false: "light"}[dark]
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
}

// Eval returns the value of an expression, as text.
func (p *Page) Eval(expression string) string {
	p.t.Helper()
	var r struct {
		Result struct {
			Value any `json:"value"`
		} `json:"result"`
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	if err := json.Unmarshal(p.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}), &r); err != nil {
		p.t.Fatal(err)
	}
	if r.Exception != nil {
		p.t.Fatalf("%s: %s", expression, r.Exception)
	}
	return fmt.Sprint(r.Result.Value)
}

// Await waits until an expression is true.
func (p *Page) Await(expression string) {
	p.t.Helper()
	p.await(expression, func() bool { return p.Eval(expression) == "true" })
}

// Accept answers the dialogs of the page from now on by yes.
func (p *Page) Accept() {
	p.t.Helper()
	p.Eval("window.confirm = () => true")
}

// Screenshot returns the window as a PNG.
func (p *Page) Screenshot() []byte {
	p.t.Helper()
	var r struct {
		Data string `json:"data"`
	}
	if err := json.Unmarshal(p.call("Page.captureScreenshot", map[string]any{"format": "png"}), &r); err != nil {
		p.t.Fatal(err)
	}
	b, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

// Faults returns what the console of the page has: exceptions, violations of its policy, failed requests.
func (p *Page) Faults() []string { return p.faults }
