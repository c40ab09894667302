package proxy

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/cache"
)

// Responses of scripts are stored if the application has ended them, whatever their length is.
func TestResponsesOfScriptsAreStored(t *testing.T) {
	stdout := func(text string) string { return scriptRecord(6, text) }
	const ok = "Content-Type: text/plain\r\nCache-Control: max-age=9\r\n\r\n"
	for name, c := range map[string]struct {
		sent   string
		stored bool
	}{
		"plain":                {stdout(ok+"hello") + stdout("") + scriptEnd(0), true},
		"length":               {stdout("Content-Length: 5\r\n"+ok+"hello") + scriptEnd(0), true},
		"not found":            {stdout("Status: 404\r\n"+ok+"no") + scriptEnd(0), true},
		"no freshness":         {stdout("Content-Type: text/plain\r\n\r\nhello") + scriptEnd(0), false},
		"less than its length": {stdout("Content-Length: 6\r\n"+ok+"hello") + scriptEnd(0), false},
		"ends in the content":  {stdout(ok + "hel"), false},
		"ends behind it":       {stdout(ok+"hello") + stdout(""), false},
	} {
		var asked atomic.Int32
		addr := rawScripts(t, func(conn net.Conn) {
			asked.Add(1)
			_, _ = io.WriteString(conn, c.sent)
		})
		change := scriptRig(t, nil, "index.php")
		r := newRig(t, addr, func(r *rig) {
			change(r)
			store := cache.NewNamed("c", cache.Options{Memory: 1 << 20}, 1, time.Now)
			r.rule.Cache = &cache.Rule{Store: store, Policy: cache.Policy{MaxObject: 1 << 16}}
		})
		text := ""
		for i := range 2 {
			resp, err := r.client(i == 1).Get("https://" + r.secure + "/")
			must(t, err)
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if text += string(body); resp.StatusCode != http.StatusOK && name != "not found" {
				t.Errorf("%s: status %d", name, resp.StatusCode)
			}
		}
		if n := asked.Load(); c.stored != (n == 1) || text[:len(text)/2] != text[len(text)/2:] {
			t.Errorf("%s: %d requests, %q", name, n, text)
		}
		r.settled()
	}
}
