package proxy

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/rewrite"
)

// numbered starts three backends that answer with their number, and gives a rig's pool all of them.
func numbered(t *testing.T, key *rewrite.Key) (change func(r *rig), servers []interface{ Close() }) {
	t.Helper()
	var list []pool.BackendOptions
	for i := range 3 {
		s := served(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, string(rune('0'+i))) })
		servers = append(servers, s)
		list = append(list, pool.BackendOptions{Name: string(rune('0' + i)), Address: netip.MustParseAddrPort(strings.TrimPrefix(s.URL, "http://"))})
	}
	p, err := pool.New(pool.Options{Name: "p"}, list, 1)
	must(t, err)
	return func(r *rig) {
		r.pool.Pool, r.pool.Affinity = p, &Affinity{Table: pool.NewAffinity(1000, time.Hour), Key: key}
		r.rule.Attempts = 3
	}, servers
}

// Requests with one key go to one backend, those of others are spread, and a key moves for good where its backend is gone.
func TestRequestsWithOneKeyStay(t *testing.T) {
	for name, c := range map[string]struct {
		key  *rewrite.Key
		give func(req *http.Request, key string)
	}{
		"header": {&rewrite.Key{By: rewrite.ByHeader, Name: "x-user"}, func(req *http.Request, key string) { req.Header.Set("X-User", key) }},
		"cookie": {&rewrite.Key{By: rewrite.ByCookie, Name: "session"}, func(req *http.Request, key string) { req.AddCookie(&http.Cookie{Name: "session", Value: key}) }},
		"query":  {&rewrite.Key{By: rewrite.ByQuery, Name: "id"}, func(req *http.Request, key string) { req.URL.RawQuery = "id=" + key }},
	} {
		change, servers := numbered(t, c.key)
		r := newRig(t, "127.0.0.1:1", change)
		h1, h2 := r.client(false), r.client(true)
		ask := func(key string, h2nd bool) string {
			t.Helper()
			req := newRequest(t, "GET", "https://"+r.secure+"/", nil)
			client := h1
			if h2nd {
				client = h2
			}
			if key != "" {
				c.give(req, key)
			}
			resp, err := client.Do(req)
			must(t, err)
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("status %d, %v", resp.StatusCode, err)
			}
			return string(b)
		}
		first, spread := map[string]string{}, map[string]bool{}
		for round := range 4 {
			for _, key := range strings.Fields("a b c d e f g") {
				got := ask(key, round%2 == 1)
				if first[key] == "" {
					first[key] = got
				}
				spread[got] = true
				if got != first[key] {
					t.Errorf("%s: key %s went from %s to %s", name, key, first[key], got)
				}
				ask("", false) // turns the others
			}
		}
		if len(spread) != 3 {
			t.Errorf("%s: only %v serve", name, spread)
		}
		free := map[string]bool{}
		for range 6 {
			free[ask("", false)] = true
		}
		if len(free) != 3 {
			t.Errorf("%s: requests without a key go to %v alone", name, free)
		}
		gone := first["a"]
		servers[gone[0]-'0'].Close()
		moved := ask("a", false)
		for range 5 {
			if got := ask("a", true); got != moved || got == gone {
				t.Errorf("%s: a key whose backend is gone went to %s, then to %s", name, moved, got)
			}
		}
		r.settled()
	}
}

// Connections that are passed through stay with the backend of their client.
func TestPassedConnectionsOfAClientStay(t *testing.T) {
	change, _ := numbered(t, &rewrite.Key{By: rewrite.ByClient})
	r := newRig(t, "127.0.0.1:1", func(r *rig) {
		change(r)
		r.tree.Listeners[0].Stream = StreamTCP
	})
	var first string
	for range 6 {
		c, err := over.dial(t.Context(), "tcp", r.addr)
		must(t, err)
		_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		must(t, err)
		b, err := io.ReadAll(c)
		must(t, err)
		must(t, c.(net.Conn).Close())
		if first == "" {
			first = string(b[len(b)-1])
		}
		if got := string(b[len(b)-1]); got != first {
			t.Errorf("the client went from %s to %s", first, got)
		}
	}
}
