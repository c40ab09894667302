package stackd

import (
	"context"
	"fmt"
	"net/http"

	"github.com/millrace/millrace/internal/control"
)

// openControl takes the control socket, so that a start that cannot have it touches no interface.
func (d *Daemon) openControl() (err error) {
	path := d.cfg.Control.Socket
	if path == "" {
		return nil
	}
	if d.control, err = control.Listen(path, "something is running at %s (give this one another with --socket or control.socket, or \"\" for none)"); err != nil {
		return fmt.Errorf("control.socket: %w", err)
	}
	return nil
}

// serveControl answers requests until ctx ends.
func (d *Daemon) serveControl(ctx context.Context) {
	control.Serve(ctx, d.control, d.handler(), d.opt.Log, "control")
}

// handler serves what report.go describes.
func (d *Daemon) handler() http.Handler {
	mux := http.NewServeMux()
	show := func(path string, what func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { control.Reply(w, what()) })
	}
	show("/v1/addr", func() any { return d.Addrs() })
	show("/v1/route", func() any { return d.Routes() })
	show("/v1/neigh", func() any { return d.Neighbors() })
	show("/v1/stats", func() any { return d.Stats() })
	mux.HandleFunc("GET /v1/sockets", func(w http.ResponseWriter, r *http.Request) {
		q, err := ParseQuery(r.URL.Query())
		if err != nil {
			control.Refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		control.Reply(w, d.Sockets(q))
	})
	mux.HandleFunc("POST /v1/stop", func(w http.ResponseWriter, _ *http.Request) {
		d.opt.Log.Info("control", "command", "stop")
		d.Stop()
		control.Reply(w, struct{}{})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		control.Refuse(w, http.StatusNotFound, fmt.Sprintf("no %s %s here", r.Method, r.URL.Path))
	})
	return mux
}
