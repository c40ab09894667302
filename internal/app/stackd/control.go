package stackd

import (
	"net/http"

	"github.com/millrace/millrace/internal/controlsocket"
)

// handler serves what report.go describes.
func (d *Daemon) handler() http.Handler {
	c := &controlsocket.Commands{Log: d.opt.Log, Name: "control", Code: reloadCode}
	show := func(path string, what func() any) {
		c.Get(path, func(*http.Request) (any, error) { return what(), nil })
	}
	show("/v1/addr", func() any { return d.Addrs() })
	show("/v1/route", func() any { return d.Routes() })
	show("/v1/neigh", func() any { return d.Neighbors() })
	show("/v1/stats", func() any { return d.Stats() })
	c.Get("/v1/sockets", func(r *http.Request) (any, error) {
		q, err := ParseQuery(r.URL.Query())
		if err != nil {
			return nil, controlsocket.BadRequest("%w", err)
		}
		return d.Sockets(q), nil
	})
	c.PostLogged("/v1/reload", "reload", func(*http.Request) error { return d.ReloadFile() })
	c.PostLogged("/v1/stop", "stop", func(*http.Request) error { d.Stop(); return nil })
	return c
}
