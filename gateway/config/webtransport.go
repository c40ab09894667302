package config

import (
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
)

// WebTransport has a rule let sessions of WebTransport through to its backends, beside other requests.
type WebTransport struct {
	Sessions    int           // key "sessions": open at a time, default 1024
	Streams     int           // key "streams": of each direction that each end may have open in a session, default 100
	BufferBytes int           // key "buffer_bytes": that an end may send in a session ahead of what the other takes, default 1048576
	Idle        time.Duration // key "idle": without a byte in either direction, after which a session ends, default 10m
}

func newWebTransport() *WebTransport {
	return &WebTransport{Sessions: 1024, Streams: 100, BufferBytes: 1 << 20, Idle: 10 * time.Minute}
}

// sessionDecoder reads sessions of WebTransport.
type sessionDecoder struct{ *l7Decoder }

// key reads the key of a rule.
func (d sessionDecoder) key(u *Rule, at *rulePlace) strictyaml.Field {
	return strictyaml.Optional("webtransport", func(n *yaml.Node) {
		w := newWebTransport()
		u.WebTransport, at.sessions = w, n
		d.Mapping(n, "webtransport",
			strictyaml.Optional("sessions", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "sessions", &w.Sessions, 1, 1<<20) }),
			strictyaml.Optional("streams", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "streams", &w.Streams, 1, 1000) }),
			strictyaml.Optional("buffer_bytes", func(n *yaml.Node) {
				strictyaml.Integer(d.Decoder, n, "buffer_bytes", &w.BufferBytes, 16<<10, 64<<20)
			}),
			strictyaml.Optional("idle", func(n *yaml.Node) { d.Duration(n, "idle", &w.Idle, time.Second, 24*time.Hour) }),
		)
	})
}

// checkWebTransport reports a rule whose sessions could reach no backend, or that no client could ask for.
func checkWebTransport(d *checker, c *Config, known *named, r *Route, u *Rule, at *rulePlace) {
	if u.WebTransport == nil {
		return
	}
	if u.answers() {
		d.Fail(at.sessions, "give the rule backend_refs", "webtransport has no effect: the rule answers by itself")
		return
	}
	for i, ref := range u.BackendRefs {
		if j, ok := known.pools[ref.Name]; ok && c.Pools[j].Protocol != PoolH3 {
			d.Fail(at.refs[i], "give the pool `protocol: H3`, or make webtransport a rule of its own", "pool %q speaks %s, and sessions of WebTransport need HTTP/3", ref.Name, c.Pools[j].Protocol)
		}
	}
	if list := r.listenersOf(c); len(list) > 0 && !slices.ContainsFunc(list, func(l *Listener) bool { return l.HTTP3() }) {
		d.Fail(at.sessions, "add \"3\" to `versions` of a listener", "webtransport has no effect: no listener of route %q has HTTP/3", r.Name)
	}
}
