package stackd

import (
	"fmt"
	"net/http"

	"github.com/millrace/millrace/internal/controlsocket"
)

// handler serves what report.go describes.
func (d *Daemon) handler() http.Handler {
	mux := http.NewServeMux()
	show := func(path string, what func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { controlsocket.Reply(w, what()) })
	}
	show("/v1/addr", func() any { return d.Addrs() })
	show("/v1/route", func() any { return d.Routes() })
	show("/v1/neigh", func() any { return d.Neighbors() })
	show("/v1/stats", func() any { return d.Stats() })
	mux.HandleFunc("GET /v1/sockets", func(w http.ResponseWriter, r *http.Request) {
		q, err := ParseQuery(r.URL.Query())
		if err != nil {
			controlsocket.ReplyError(w, http.StatusBadRequest, err.Error())
			return
		}
		controlsocket.Reply(w, d.Sockets(q))
	})
	mux.HandleFunc("POST /v1/reload", func(w http.ResponseWriter, _ *http.Request) {
		if err := d.ReloadFile(); err != nil {
			d.opt.Log.Error("control", "command", "reload", "error", err.Error())
			controlsocket.ReplyError(w, reloadCode(err), err.Error())
			return
		}
		d.opt.Log.Info("control", "command", "reload", "result", "done")
		controlsocket.Reply(w, struct{}{})
	})
	mux.HandleFunc("POST /v1/stop", func(w http.ResponseWriter, _ *http.Request) {
		d.opt.Log.Info("control", "command", "stop")
		d.Stop()
		controlsocket.Reply(w, struct{}{})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		controlsocket.ReplyError(w, http.StatusNotFound, fmt.Sprintf("no %s %s here", r.Method, r.URL.Path))
	})
	return mux
}
