package proxy

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/internal/testkit/memtransport"
)

// attach is a request that offers the protocol tcp, as `docker attach` sends it.
const attach = "POST /attach HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"

// attached is its answer.
const attached = "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"

// upgradeRig is a rig whose rule has upgrades. Its backend collects what it receives, and answers when the test does.
func upgradeRig(t *testing.T, upgrades ...string) *memRig {
	r := newMemRig(t, func(r *memRig, tree *Tree) {
		r.rule.Upgrades = upgrades
		tree.Listeners[0].HTTP1 = &http1.Options{UpgradeContent: len(upgrades) > 0}
	})
	r.backend = func(p *memtransport.Peer) {}
	return r
}

// A connection changes to a protocol that its route names, with content of the request and without. What the client sends ahead
// follows, and each direction ends by itself.
func TestUpgradesToProtocolsOfTheRoute(t *testing.T) {
	for name, content := range map[string]struct{ sent, received string }{
		"without content": {"\r\n", "content-length: 0\r\nconnection: upgrade\r\nupgrade: tcp\r\n\r\n"},
		"with a length":   {"Content-Length: 5\r\n\r\nhello", "content-length: 5\r\nconnection: upgrade\r\nupgrade: tcp\r\n\r\nhello"},
		"in chunks":       {"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "o\r\n0\r\n\r\n"},
	} {
		for _, step := range []int{1, 1000} {
			t.Run(name, func(t *testing.T) {
				r := upgradeRig(t, "irc", "tcp")
				c := r.connect(memHTTP1)
				for part := range slices.Chunk([]byte(attach+content.sent+"ahead"), step) {
					c.Write(part)
					r.run()
				}
				back := r.backs[0]
				if got := string(back.Take()); !strings.HasPrefix(got, "POST /attach HTTP/1.1\r\n") || !strings.Contains(got, "\r\nupgrade: tcp\r\n") || !strings.HasSuffix(got, content.received) {
					t.Fatalf("the backend got %q", got)
				}
				back.Write([]byte(attached + "first"))
				r.run()
				want := "HTTP/1.1 101 Switching Protocols\r\ncontent-type: application/vnd.docker.raw-stream\r\nconnection: upgrade\r\nupgrade: tcp\r\n\r\nfirst"
				if got := string(c.Take()); got != want {
					t.Fatalf("the client got %q", got)
				}
				c.Write([]byte(" GET / HTTP/1.1\r\n\r\n"))
				c.CloseWrite()
				r.run()
				if got := string(back.Take()); got != "ahead GET / HTTP/1.1\r\n\r\n" || !back.Ended {
					t.Errorf("the backend got %q, ended %v", got, back.Ended)
				}
				back.Write([]byte("last"))
				back.Close()
				r.run()
				if got := string(c.Take()); got != "last" || !c.Ended || c.Reset {
					t.Errorf("the client got %q, ended %v, reset %v", got, c.Ended, c.Reset)
				}
				r.nothingLeft(c)
			})
		}
	}
}

// Protocols that the route does not name are not asked for: the request passes without Upgrade.
func TestOtherUpgradesAreNotAskedFor(t *testing.T) {
	for offered, upgrades := range map[string][]string{
		"tcp": {"irc"}, "tcp, irc": {"tcp", "irc"}, "h2c": {"tcp", "h2c"}, "tcp/1": {"tcp"}, "irc": {},
	} {
		r := upgradeRig(t, upgrades...)
		got := &recorder{}
		r.backend = got.serve
		answer := r.ask(strings.Replace(attach, "Upgrade: tcp", "Upgrade: "+offered, 1) + "\r\n")
		if !strings.HasPrefix(answer, "HTTP/1.1 200") || got.err != nil || strings.Contains(string(got.connections[0]), "upgrade") {
			t.Errorf("%s where the route has %q: %q, the backend got %q", offered, upgrades, answer, got.connections)
		}
		r.nothingLeft()
	}
}

// A backend may change to what was offered, and once it has the whole request.
func TestWrongAnswersToUpgrades(t *testing.T) {
	for name, c := range map[string]struct{ rest, answer, want string }{
		"another protocol":           {"\r\n", strings.Replace(attached, "tcp", "irc", 1), "502"},
		"no protocol":                {"\r\n", strings.Replace(attached, "Upgrade: tcp\r\n", "", 1), "502"},
		"before the end of content":  {"Content-Length: 5\r\n\r\nhel", attached, "502"},
		"before any of the chunks":   {"Transfer-Encoding: chunked\r\n\r\n", attached, "502"},
		"no change":                  {"\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "200"},
		"no change, before its end":  {"Content-Length: 5\r\n\r\nhel", "HTTP/1.1 409 No\r\nContent-Length: 2\r\n\r\nno", "409"},
		"in another case":            {"\r\n", strings.Replace(attached, "tcp", "TCP", 1), "101"},
		"a WebSocket with no accept": {"\r\n", strings.Replace(attached, "tcp", "websocket", 1), "502"},
	} {
		r := upgradeRig(t, "tcp")
		client := r.connect(memHTTP1)
		client.Write([]byte(attach + c.rest))
		r.run()
		r.backs[0].Write([]byte(c.answer))
		r.run()
		if got := string(client.Take()); !strings.HasPrefix(got, "HTTP/1.1 "+c.want) {
			t.Errorf("%s: %q", name, got)
		}
		for _, p := range r.backs {
			p.Close()
		}
		r.nothingLeft(client)
	}
}

// The ends of a connection of another protocol that the gateway ends get a reset, and no frame of WebSocket.
func TestDrainedUpgradesEndByReset(t *testing.T) {
	r := upgradeRig(t, "tcp")
	c := r.connect(memHTTP1)
	c.Write([]byte(attach + "\r\n"))
	r.run()
	back := r.backs[0]
	back.Take()
	back.Write([]byte(attached))
	r.run()
	c.Take()
	r.worker.EndStreams(r.to.Backends()[0])
	r.run()
	if got := c.Take(); len(got) > 0 || !c.Reset {
		t.Errorf("the client got %q, reset %v", got, c.Reset)
	}
	if got := back.Take(); len(got) > 0 || !back.Reset && !back.Ended {
		t.Errorf("the backend got %q, ended %v", got, back.Ended)
	}
	r.nothingLeft(c)
}
